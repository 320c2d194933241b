//! ControllerExpandVolume: asks the node for a volume of another size, and waits for its answer.

use serde_json::json;
use tokio::time::Instant;

use super::{CHANGE_TIMEOUT, ClusterVolumes, LatestVolume, NOTICE_TIMEOUT, answer, unknown};
use crate::operator::api_server::write::Write;
use crate::operator::volume::expand::{ExpandFacts, ExpandStep, step};
use crate::operator::volume::resize::Resize;
use crate::volume::{Error, Volume, VolumeId};

impl ClusterVolumes {
    pub(super) async fn grow(self, id: VolumeId, required: u64, limit: Option<u64>) -> Result<Volume, Error> {
        let (grace_at, over_at) = (Instant::now() + NOTICE_TIMEOUT, Instant::now() + CHANGE_TIMEOUT);
        let mut latest = LatestVolume::new(&self.stores.volumes, id);
        if latest.current().is_none() {
            latest.read_again(&self.objects).await?;
        }
        let mut asked = false;
        loop {
            let object = latest.current();
            let now = Instant::now();
            let node_exists = object.as_ref().is_none_or(|object| self.stores.nodes.get(&object.spec.node).is_some());
            let facts = ExpandFacts { node_exists, asked, grace: now >= grace_at, over: now >= over_at };
            let (wanted, after) = match step(object.as_deref(), required, limit, facts) {
                ExpandStep::Answer(Ok(())) => return answer(object.as_deref()),
                ExpandStep::Answer(Err(error)) => return Err(error),
                ExpandStep::Wait => {
                    latest.changed(if now < grace_at { grace_at } else { over_at }).await;
                    continue;
                }
                ExpandStep::Ask(wanted) => (wanted, None),
                ExpandStep::TakeBack(wanted, error) => (wanted, Some(Err(error))),
                ExpandStep::Forget(wanted) => (wanted, Some(answer(object.as_deref()))),
            };
            let Some(object) = object else { continue };
            // Without a limit the field goes.
            let Resize { size, limit } = wanted;
            let spec = json!({"size": size, "sizeLimit": limit});
            match self.objects.change(&object, spec).await.map_err(unknown)? {
                Write::Done(_) if after.is_some() => return after.unwrap_or_else(|| answer(Some(&object))),
                Write::Done(now) => {
                    asked = true;
                    latest.learn(Some(now));
                }
                Write::Changed => latest.read_again(&self.objects).await?,
            }
        }
    }
}
