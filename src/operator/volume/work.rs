//! One look at one volume: does what `decide` says.
//!
//! Takes in what is known of the volume and the pool; writes its object and its disk. Each write carries the version
//! that it was decided on. `make` makes a volume, `report` fills its object, `settle` ends a conflict.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::events::EventType;
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;

use super::decide::{OnDisk, VolumeAction, decide};
use super::known::KnownVolumes;
use super::settle_orders::SettleOrders;
use super::status::{self, Refusal};
use crate::api::crd::{FINALIZER, Intent, Phase, PoolVolume, PoolVolumeStatus};
use crate::host::chain;
use crate::operator::client::within;
use crate::operator::error::{OperatorError, error_message};
use crate::operator::event::EventNote;
use crate::operator::event_queue::EventSubject;
use crate::operator::node_context::{NodeOperator, PassSummary};
use crate::operator::set::node_config::NodeConfig;
use crate::pool::{Change, Doubt, Pool, PoolError, VolumeView, WAS_GIVEN_UP};
use crate::volume::VolumeId;

/// The interval at which an agent looks whether space has been zeroed.
pub(super) const ZEROING: Duration = Duration::from_secs(5);
/// How many times a volume that cannot be made is tried before another node may make it.
const TRIES: u32 = 5;

/// Whether to look at a volume again without an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Requeue {
    Done,
    /// After a while that gets longer each time.
    Again,
    /// Like `Again`, because it could not be made: the number of these tries is limited.
    NotMade(Refusal),
    After(Duration),
    /// When a disk is back, which a pass finds out: the failed tries stay counted.
    DiskBack,
}

/// The failed tries to make a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotMade {
    /// How many times it failed. Operations that were under way, and an API server that did not answer, do not count.
    pub times: u32,
    /// The reason of the last failure.
    pub why: Refusal,
}

/// One look at one volume.
pub(super) struct VolumeReconcile {
    pub operator: NodeOperator,
    pub known: KnownVolumes,
    pub config: Arc<NodeConfig>,
    pub pass: Arc<PassSummary>,
    pub id: VolumeId,
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

    pub async fn once(&self) -> Result<Requeue, OperatorError> {
        if self.known.is_unread(self.id) {
            // Only another version understands what it says: neither its earlier state nor its absence may stand in for
            // it.
            return Ok(Requeue::Done);
        }
        let object = self.known.get(self.id);
        let id = self.id;
        let disk = object.as_ref().and_then(|object| object.status.as_ref()?.disk.clone());
        let (view, doubt) = self
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
        let act = decide(object.as_deref(), &self.operator.node, on_disk);
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
            (VolumeAction::Grow { to }, Some(object), Some(view)) => self.grow(&object, &view, to).await,
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
                Some(refusal) => self.refuse(object, Phase::Failed, refusal).await,
                None => self.make(object).await,
            },
            _ => self.make(object).await,
        }
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

    pub async fn refuse(&self, object: &PoolVolume, phase: Phase, refusal: Refusal) -> Result<Requeue, OperatorError> {
        let Refusal { reason, message } = refusal;
        tracing::info!(volume = self.name(), ?phase, %reason, why = message, "a volume is not made here");
        self.write(object, status::refused(phase, reason, message)).await?;
        Ok(Requeue::Done)
    }

    async fn delete(&self, object: &PoolVolume) -> Result<Requeue, OperatorError> {
        let Ok(guard) = self.operator.locks.hold(self.id) else { return Ok(Requeue::Again) };
        if let Some(next) = unless_ordered(self.live(object).await?, is_to_be_erased) {
            return Ok(next);
        }
        let id = self.id;
        let deleted = self
            .blocking(move |pool| {
                let deleted = match pool.delete(id) {
                    // Only the controller writes the intent, and for a volume that nobody has only if a person ordered it.
                    Err(PoolError::Found { .. }) => pool.adopt_volume(id).and_then(|_| pool.delete(id)),
                    deleted => deleted,
                };
                drop(guard);
                pool.kick();
                deleted
            })
            .await?;
        self.operator.pool_changed();
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
                let refusal = Refusal::of(&error, &self.operator.node);
                tracing::warn!(volume = self.name(), error = refusal.message, "the volume cannot be deleted yet");
                self.write(object, status::stuck(object, refusal)).await?;
                Ok(Requeue::Again)
            }
        }
    }

    /// The object as the API server has it, for right before what it orders is done: the watch may lag behind our own last
    /// write, or behind somebody who took the order back. `None`: it is gone.
    pub async fn live(&self, object: &PoolVolume) -> Result<Option<PoolVolume>, OperatorError> {
        let (name, sent) = (self.name(), self.known.list_count());
        let live = within(&format!("reading PoolVolume {name}"), self.api().get_opt(&name)).await?;
        let live = live.filter(|live| live.uid() == object.uid());
        if let Some(live) = &live {
            self.known.learn(live.clone(), sent);
        }
        Ok(live)
    }

    /// Its data may still be on the disk, wherever that is.
    fn report_not_erased(&self, object: &PoolVolume, why: &str) {
        let (volume, name) = (self.name(), &object.spec.volume_name);
        tracing::warn!(volume, why, "the object of a volume is removed, and the volume is not erased");
        let note = EventNote {
            type_: EventType::Warning,
            reason: "VolumeNotErased".to_owned(),
            note: format!("volume {name} is deleted, and not erased: {why}"),
        };
        self.operator.events.put(EventSubject::Object(Box::new(object.object_ref(&()))), "Delete", note);
    }

    /// Removes our finalizer, so that the object is deleted.
    async fn let_go(&self, object: &PoolVolume) -> Result<ObjectEnd, OperatorError> {
        let name = self.name();
        let others: Vec<&String> = object.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let metadata = json!({ "resourceVersion": object.resource_version(), "finalizers": others });
        // A patch keeps the fields that only a later version knows.
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        self.operator.count(|writes| &writes.volume);
        match self.api().patch(&name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(ObjectEnd::Now),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(ObjectEnd::Before),
            Err(error) => Err(OperatorError::api(format!("taking the finalizer off PoolVolume {name}"))(error)),
        }
    }

    async fn grow(&self, object: &PoolVolume, view: &VolumeView, to: u64) -> Result<Requeue, OperatorError> {
        let Ok(guard) = self.operator.locks.hold(self.id) else { return Ok(Requeue::Again) };
        let id = self.id;
        let grown = self
            .blocking(move |pool| {
                let grown = pool.expand(id, to, None);
                drop(guard);
                grown
            })
            .await?;
        self.operator.pool_changed();
        let (view, error) = match grown {
            Ok(view) => (view, None),
            Err(PoolError::BeingZeroed { .. }) => return Ok(Requeue::After(ZEROING)),
            Err(error @ (PoolError::Apply(_) | PoolError::Bare(_) | PoolError::DiskAway { .. })) => {
                tracing::error!(
                    volume = self.name(),
                    error = error_message(&error),
                    "the volume could not grow; trying again"
                );
                return Ok(Requeue::Again);
            }
            Err(error) => (view.clone(), Some(chain(&error))),
        };
        let status = PoolVolumeStatus {
            observed_size: object.spec.size,
            resize_error: error,
            ..status::ready(object, &view, &self.operator.health.of_volume(&view), Phase::Ready)
        };
        self.write(object, status).await?;
        Ok(Requeue::Done)
    }
}

/// Nothing is done, and this is when to look again, unless the object `stands` for the order that the watch showed.
pub(super) fn unless_ordered(live: Option<PoolVolume>, stands: impl FnOnce(&PoolVolume) -> bool) -> Option<Requeue> {
    match live.map(|live| stands(&live)) {
        Some(true) => None,
        Some(false) => Some(Requeue::Again),
        // The watch shows it later, and then there is another look.
        None => Some(Requeue::Done),
    }
}

/// A person may have taken the finalizer off to save the data.
fn is_to_be_erased(live: &PoolVolume) -> bool {
    let ours = live.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    ours && live.spec.intent == Intent::Delete && live.metadata.deletion_timestamp.is_some()
}
