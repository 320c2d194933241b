//! One reconcile of one volume: does what `decide` says.
//!
//! Takes in what is known of the volume and the pool; writes its object and its disk. Each write carries the version
//! that it was decided on. `make` makes a volume, `size` gives it another size, `report` fills its object, `settle`
//! ends a conflict; all of them reach object and disk by `own_volume`.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use kube::runtime::events::EventType;
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;

use super::decide::{OnDisk, VolumeAction, decide};
use super::own_volume::{OwnVolume, Requeue, unless_ordered};
use super::settle_orders::SettleOrders;
use super::status::{self, Refusal};
use crate::api::crd::{FINALIZER, Intent, Phase, PoolVolume};
use crate::operator::api_server::error::OperatorError;
use crate::operator::event::EventNote;
use crate::operator::event::queue::EventSubject;
use crate::operator::node::context::PassSummary;
use crate::operator::set::node_config::NodeConfig;
use crate::pool::{Change, Doubt, PoolError, WAS_GIVEN_UP};

/// How many times a volume that cannot be made is tried before another node may make it.
const TRIES: u32 = 5;

/// The failed tries to make a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotMade {
    /// How many times it failed. Operations that were under way, and an API server that did not answer, do not count.
    pub times: u32,
    /// The reason of the last failure.
    pub why: Refusal,
}

/// One reconcile of one volume.
pub(super) struct VolumeReconcile {
    pub volume: OwnVolume,
    pub config: Arc<NodeConfig>,
    pub pass: Arc<PassSummary>,
    pub not_made: Option<NotMade>,
    pub settle_orders: SettleOrders,
}

/// When an object ended for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectEnd {
    /// By this write.
    Now,
    /// It was gone.
    Before,
}

impl VolumeReconcile {
    pub async fn once(&self) -> Result<Requeue, OperatorError> {
        if self.volume.known.is_unread(self.volume.id) {
            // Only another version understands what it says: neither its earlier state nor its absence may stand in for
            // it.
            return Ok(Requeue::Done);
        }
        let object = self.volume.known.get(self.volume.id);
        let id = self.volume.id;
        let disk = object.as_ref().and_then(|object| object.status.as_ref()?.disk.clone());
        let (view, doubt) = self
            .volume
            .blocking(move |pool| {
                if let Ok(view) = pool.volume(id) {
                    return (Some(view), Doubt::None);
                }
                // Ask for the doubt first: a disk that comes back in between is found then, or still missing.
                let doubt = pool.doubt(id, disk.as_ref());
                match pool.volume(id) {
                    Ok(view) => (Some(view), Doubt::None),
                    Err(_) => (None, doubt),
                }
            })
            .await?;
        let view = match (&object, view) {
            (Some(object), Some(view)) if view.record.is_none() => Some(self.describe_again(object, view).await?),
            (_, view) => view,
        };
        let on_disk = match (&view, &doubt) {
            // A deletion ends though nothing is erased: written again, its object would bring it back. That waits for a
            // person to adopt the disk.
            (Some(view), _) if object.is_none() && view.given_up && view.conflict.is_none() => OnDisk::GivenUp,
            (Some(view), _) => OnDisk::Volume { record: view.record.as_ref(), size: view.size },
            (None, Doubt::Of(_)) => OnDisk::DiskAway,
            (None, Doubt::GivenUp(_)) => OnDisk::GivenUp,
            (None, Doubt::General(_)) => OnDisk::NotKnown,
            (None, Doubt::None) => OnDisk::Nothing,
        };
        let act = decide(object.as_deref(), &self.volume.operator.node, on_disk);
        match (act, object, view) {
            (VolumeAction::Nothing, _, _) => Ok(Requeue::Done),
            (VolumeAction::Consider, Some(object), _) => self.consider(&object).await,
            (VolumeAction::Make, Some(object), _) => self.make_or_give_up(&object, doubt).await,
            (VolumeAction::Wait, Some(object), _) => self.wait(&object, doubt).await,
            (VolumeAction::Delete, Some(object), _) => self.delete(&object).await,
            (VolumeAction::LetGo, Some(object), _) => {
                let ended = self.let_go(&object).await?;
                if let (ObjectEnd::Now, Some(_), Doubt::GivenUp(why)) =
                    (ended, &object.metadata.deletion_timestamp, &doubt)
                {
                    self.report_not_erased(&object, why);
                }
                Ok(Requeue::Done)
            }
            (VolumeAction::Resize(wanted), Some(object), Some(view)) => self.resize(&object, &view, wanted).await,
            (VolumeAction::Report, Some(object), view) => self.report(&object, view.as_ref(), doubt).await,
            (VolumeAction::Restore, None, Some(view)) => self.restore(&view).await,
            (act, _, _) => Err(OperatorError::Refused(format!("{act:?} was decided on something else"))),
        }
    }

    async fn make_or_give_up(&self, object: &PoolVolume, doubt: Doubt) -> Result<Requeue, OperatorError> {
        match (self.not_made.as_ref().filter(|failed| failed.times >= TRIES), doubt) {
            // No disk has any part of it now.
            (Some(failed), Doubt::None) => self.give_up(object, failed).await,
            // It may have been made, and used, on the disk that was given up.
            (_, Doubt::GivenUp(_)) => match self.was_made_before().await? {
                Some(refusal) => self.volume.refuse(object, Phase::Failed, refusal).await,
                None => self.make(object).await,
            },
            (None, Doubt::None) | (_, Doubt::Of(_) | Doubt::General(_)) => self.make(object).await,
        }
    }

    async fn delete(&self, object: &PoolVolume) -> Result<Requeue, OperatorError> {
        let Ok(guard) = self.volume.operator.locks.hold(self.volume.id) else { return Ok(Requeue::Again) };
        if let Some(next) = unless_ordered(self.volume.live(object).await?, is_to_be_erased) {
            return Ok(next);
        }
        let id = self.volume.id;
        let deleted = self
            .volume
            .blocking(move |pool| {
                let deleted = match pool.delete(id) {
                    // Only the controller writes the intent, and for a volume that nobody has only if a
                    // person ordered it.
                    Err(PoolError::Found { .. }) => pool.adopt_volume(id).and_then(|_| pool.delete(id)),
                    deleted => deleted,
                };
                drop(guard);
                pool.kick();
                deleted
            })
            .await?;
        self.volume.operator.pool_changed();
        match deleted {
            Ok(Change::Kept) => {
                let disk = object.status.as_ref().and_then(|status| status.disk.as_ref());
                let disk = disk.map_or_else(|| "its disk".to_owned(), |disk| format!("disk {disk}"));
                // Whoever reads it may adopt the disk at once, so by then nothing may order the erasure any more.
                if let ObjectEnd::Now = self.let_go(object).await? {
                    self.report_not_erased(object, &format!("{disk} {WAS_GIVEN_UP}; the data stays on it"));
                }
                Ok(Requeue::Done)
            }
            Ok(Change::Done | Change::AlreadySo) => self.let_go(object).await.map(|_| Requeue::Done),
            Err(error) => {
                let refusal = Refusal::of(&error, &self.volume.operator.node);
                tracing::warn!(
                    volume = self.volume.name(),
                    error = refusal.message,
                    "the volume cannot be deleted yet"
                );
                let next = self.volume.after_failure(&error);
                self.volume.write(object, status::stuck(object, refusal)).await?;
                Ok(next)
            }
        }
    }

    /// Its data may still be on the disk, wherever that is.
    fn report_not_erased(&self, object: &PoolVolume, why: &str) {
        let (volume, name) = (self.volume.name(), &object.spec.volume_name);
        tracing::warn!(volume, why, "the object of a volume is removed, and the volume is not erased");
        let note = EventNote {
            type_: EventType::Warning,
            reason: "VolumeNotErased".to_owned(),
            note: format!("volume {name} is deleted, and not erased: {why}"),
        };
        self.volume.operator.events.put(EventSubject::Object(Box::new(object.object_ref(&()))), "Delete", note);
    }

    /// Removes our finalizer, so that the object is deleted.
    async fn let_go(&self, object: &PoolVolume) -> Result<ObjectEnd, OperatorError> {
        let name = self.volume.name();
        let others: Vec<&String> = object.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let metadata = json!({ "resourceVersion": object.resource_version(), "finalizers": others });
        // A patch keeps the fields that only a later version knows.
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        self.volume.operator.count(|writes| &writes.volume);
        match self.volume.api().patch(&name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(ObjectEnd::Now),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(ObjectEnd::Before),
            Err(error) => Err(OperatorError::api(format!("taking the finalizer off PoolVolume {name}"))(error)),
        }
    }
}

/// A person may have taken the finalizer off to save the data.
fn is_to_be_erased(live: &PoolVolume) -> bool {
    let ours = live.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    ours && live.spec.intent == Intent::Delete && live.metadata.deletion_timestamp.is_some()
}
