//! The order `Settle`: of several disks that have a volume, the one that a person names keeps it, and what the others
//! have gets another id.
//!
//! Takes in the object of a volume that is in conflict; has the agent's thread settle that, or says why not.

use super::order;
use super::own_volume::{Requeue, unless_ordered};
use super::work::VolumeReconcile;
use crate::agent::{OrderRead, Run, Verb};
use crate::api::crd::PoolVolume;
use crate::host::chain;
use crate::operator::api_server::error::OperatorError;
use crate::pool::Pool;

/// Why an order is not carried out a second time.
const OVER: &str = "this order was carried out already, and the conflict began after that: look at the disks again, and \
                    name another one, or remove the order, wait until the condition OrderDone is gone, and order it \
                    again";

impl VolumeReconcile {
    /// Keeps the volume on the disk that a person names: by its id alone, and one that has the volume. Gives when to
    /// look again, and why it was not done if the order waits.
    pub async fn settle(&self, object: &PoolVolume) -> Result<(Requeue, Option<String>), OperatorError> {
        // Only an event can change these.
        let refused = |why: String| Ok((Requeue::Done, Some(why)));
        let Some(keep) = object.spec.keep.clone() else { return refused("spec.keep names no disk".to_owned()) };
        let (id, disk) = (self.volume.id, keep.clone());
        let has_it = move |pool: &Pool| pool.volumes().iter().any(|view| view.id == id && view.disk == disk);
        if !self.volume.blocking(move |pool| has_it(pool)).await? {
            return refused(format!(
                "disk {keep} of spec.keep, which is to have the volume, does not have it, or is not there"
            ));
        }
        if self.settle_orders.is_over(id, object) {
            return refused(OVER.to_owned());
        }
        // Another id cannot be taken back: what the watch showed may have been changed, or be done.
        if let Some(next) = unless_ordered(self.volume.live(object).await?, |live| order::stands(object, live)) {
            return Ok((next, None));
        }
        self.settle_orders.begin(id, object);
        let (agent, confirmed) = (self.volume.operator.agent_handle.clone(), OrderRead::now());
        let verb = Verb::SettleVolume { volume: id, keep: keep.to_string(), run: Run::Real };
        let answer = tokio::task::spawn_blocking(move || agent.carry_out(verb, confirmed)).await;
        Ok(match answer {
            // The agent was busy for too long.
            Ok(Ok(None)) => (Requeue::Again, None),
            Ok(Ok(Some(Ok(lines)))) => {
                self.settle_orders.end(id);
                tracing::warn!(volume = self.volume.name(), "a person's order is carried out: {}", lines.join("; "));
                (Requeue::Again, None)
            }
            // There is no event when somebody unmounts it.
            Ok(Ok(Some(Err(error)))) => (Requeue::Again, Some(chain(&error))),
            Ok(Err(_)) | Err(_) => (Requeue::Done, Some("the agent ends".to_owned())),
        })
    }
}
