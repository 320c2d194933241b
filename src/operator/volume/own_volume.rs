//! One volume of this node, as its work reaches it: its object in the API server, and the pool.
//!
//! Takes in statuses that were decided on, and work on the pool; gives out the object after that, and when to look
//! again.

use std::sync::Arc;
use std::time::Duration;

use kube::api::PostParams;
use kube::{Api, ResourceExt as _};

use super::known::KnownVolumes;
use super::status::{self, Refusal};
use crate::api::crd::{Phase, PoolVolume, PoolVolumeStatus};
use crate::operator::api_server::client::within;
use crate::operator::api_server::error::OperatorError;
use crate::operator::event::queue::EventSubject;
use crate::operator::node::context::NodeOperator;
use crate::pool::{Pool, PoolError, VolumeView};
use crate::volume::VolumeId;

/// The interval at which an agent looks whether space has been zeroed.
pub(super) const ZEROING: Duration = Duration::from_secs(5);
/// Whether to look at a volume again without an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Requeue {
    Done,
    /// After a while that gets longer each time.
    Again,
    /// Like `Again`, as its disk failed: a pass is due for that, and does not have the volume tried any earlier, or a
    /// disk that fails each time would have no end of passes.
    DiskFailed,
    /// Like `Again`, because it could not be made: the number of these tries is limited.
    NotMade(Refusal),
    After(Duration),
    /// When a disk is back, which a pass finds out: the failed tries stay counted.
    DiskBack,
}

/// One volume of this node.
pub(super) struct OwnVolume {
    pub operator: NodeOperator,
    pub known: KnownVolumes,
    pub id: VolumeId,
}

impl OwnVolume {
    pub fn api(&self) -> Api<PoolVolume> {
        Api::all(self.operator.client.clone())
    }

    pub fn name(&self) -> String {
        self.id.to_string()
    }

    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Pool>) -> T + Send + 'static,
    ) -> Result<T, OperatorError> {
        let pool = Arc::clone(&self.operator.pool);
        let done = tokio::task::spawn_blocking(move || work(&pool)).await;
        done.map_err(|error| OperatorError::Refused(format!("a bug ended the operation: {error}")))
    }

    /// Writes a status if it differs from the present one, and Events about what is new in its health; returns the
    /// object after that.
    pub async fn write(&self, object: &PoolVolume, status: PoolVolumeStatus) -> Result<PoolVolume, OperatorError> {
        let status = status::beside_others(object, status);
        if object.status.as_ref() == Some(&status) {
            return Ok(object.clone());
        }
        let name = self.name();
        let next = PoolVolume { status: Some(status), ..object.clone() };
        self.operator.count(|writes| &writes.volume);
        let sent = self.known.list_count();
        let written = self.api().replace_status(&name, &PostParams::default(), &next).await;
        let written = written.map_err(OperatorError::api(format!("writing the status of PoolVolume {name}")))?;
        self.known.learn(written.clone(), sent);
        for event in status::events(object, &written) {
            self.operator.events.put(EventSubject::Volume(Box::new(written.clone())), "Checkup", event);
        }
        Ok(written)
    }

    /// The status of a volume that is on a disk, as it is now.
    pub fn ready(&self, object: &PoolVolume, view: &VolumeView, phase: Phase) -> PoolVolumeStatus {
        status::ready(object, view, &self.operator.health.of_volume(view), phase, &self.operator.process)
    }

    pub async fn refuse(&self, object: &PoolVolume, phase: Phase, refusal: Refusal) -> Result<Requeue, OperatorError> {
        let Refusal { reason, message } = refusal;
        tracing::info!(volume = self.name(), ?phase, %reason, why = message, "a volume is not made here");
        self.write(object, status::refused(phase, reason, message)).await?;
        Ok(Requeue::Done)
    }

    /// When to try again what the pool refused. If its disk failed, only a pass opens that again, for all its volumes.
    pub fn after_failure(&self, error: &PoolError) -> Requeue {
        // If nothing changed, no new scan is needed.
        if error.failed_on().is_none() || error.is_locked() {
            return Requeue::Again;
        }
        self.operator.pool.nudge();
        Requeue::DiskFailed
    }

    /// The object as the API server has it, for right before what it orders is done: the watch may lag behind our own
    /// last write, or behind somebody who took the order back. `None`: it is gone.
    pub async fn live(&self, object: &PoolVolume) -> Result<Option<PoolVolume>, OperatorError> {
        let (name, sent) = (self.name(), self.known.list_count());
        let live = within(&format!("reading PoolVolume {name}"), self.api().get_opt(&name)).await?;
        let live = live.filter(|live| live.uid() == object.uid());
        if let Some(live) = &live {
            self.known.learn(live.clone(), sent);
        }
        Ok(live)
    }
}

/// Nothing is done, and this is when to look again, unless the object `stands` for the order that the watch showed.
pub(super) fn unless_ordered(live: Option<PoolVolume>, stands: impl FnOnce(&PoolVolume) -> bool) -> Option<Requeue> {
    match live.map(|live| stands(&live)) {
        Some(true) => None,
        Some(false) => Some(Requeue::Again),
        // The watch shows it later, and then there is another pass.
        None => Some(Requeue::Done),
    }
}
