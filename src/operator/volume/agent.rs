//! Does what `decide` says about each volume, several at a time, one at a time for each.
//!
//! Nothing is done before the machine was looked at once and the API server has told of all objects. What
//! fails is tried again, later each time. Writes carry the version that they were decided on.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use tokio::sync::{Semaphore, mpsc, watch as channel};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::decide::{Act, OnDisk, decide};
use super::persistent_volumes::is_claimed;
use super::request::{request, restored, stale};
use super::status::{self, DISK_FAILED, Refusal};
use crate::api::crd::{FINALIZER, Phase, PoolVolume, PoolVolumeStatus};
use crate::host::chain;
use crate::operator::Error;
use crate::operator::node::{NodeOperator, Seen};
use crate::operator::set::config::World;
pub use crate::operator::watch::Known;
use crate::operator::words;
use crate::pool::device_pool::{Made, Place, Pool, PoolError};
use crate::pool::labelled::VolumeView;
use crate::pool::request::{CreateRequest, difference};
use crate::pool::whereabouts::Doubt;
use crate::volume::{Guard, VolumeId};

/// How many volumes are worked on at once.
const AT_ONCE: usize = 16;
/// How long a volume may keep others from being worked on.
const SLOT_FOR: Duration = Duration::from_secs(30);
/// How often it is looked whether space has been zeroed.
const ZEROING: Duration = Duration::from_secs(5);
/// After a failure, doubled each time.
const AGAIN: Duration = Duration::from_millis(250);
const AGAIN_AT_MOST: Duration = Duration::from_secs(300);

/// How often a volume is tried whose disk fails it, before another node may have it.
const TRIES: u32 = 5;

/// Whether to come back to a volume without being told.
enum Next {
    Done,
    /// After a while that grows with each time.
    Again,
    After(Duration),
    /// When a disk is back, which a pass tells: what was tried in vain stays counted.
    DiskBack,
}

/// Works on volumes as they come in.
pub async fn keep(
    operator: NodeOperator,
    known: Known,
    mut inbox: mpsc::UnboundedReceiver<Uuid>,
    mut seen: channel::Receiver<Option<Arc<Seen>>>,
    mut worlds: channel::Receiver<Arc<World>>,
) {
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut running: JoinSet<(Uuid, Next)> = JoinSet::new();
    let mut busy: HashSet<Uuid> = HashSet::new();
    let mut again: HashSet<Uuid> = HashSet::new();
    let mut failures: HashMap<Uuid, u32> = HashMap::new();
    loop {
        let mut due = Vec::new();
        tokio::select! {
            id = inbox.recv() => match id {
                Some(id) => due.push(id),
                None => return,
            },
            // The level that all those edges stand for.
            () = known.listed() => due = everything(&operator, &known).await,
            changed = seen.changed() => match changed {
                Ok(()) => due = everything(&operator, &known).await,
                Err(_) => return,
            },
            changed = worlds.changed() => match changed {
                Ok(()) => due = everything(&operator, &known).await,
                Err(_) => return,
            },
            Some(ended) = running.join_next() => match ended {
                Ok((id, next)) => {
                    busy.remove(&id);
                    if again.remove(&id) {
                        due.push(id);
                    }
                    let wait = match next {
                        Next::Done => {
                            failures.remove(&id);
                            None
                        }
                        Next::After(wait) => Some(wait),
                        Next::DiskBack => None,
                        Next::Again => {
                            let times = failures.entry(id).or_default();
                            *times += 1;
                            Some(AGAIN.saturating_mul(1 << (*times - 1).min(10)).min(AGAIN_AT_MOST))
                        }
                    };
                    if let Some(wait) = wait {
                        let dirty = operator.dirty.clone();
                        tokio::spawn(async move {
                            tokio::time::sleep(wait).await;
                            let _ = dirty.send(id);
                        });
                    }
                }
                // Its id is lost with it; the next pass looks at everything.
                Err(error) => tracing::error!(%error, "work on a volume ended in a bug"),
            },
        }
        if !known.is_complete() || seen.borrow().is_none() {
            continue;
        }
        for id in due {
            if !busy.insert(id) {
                again.insert(id);
                continue;
            }
            let (slots, world) = (Arc::clone(&slots), worlds.borrow().clone());
            let tries = failures.get(&id).copied().unwrap_or_default();
            let work = Work { operator: operator.clone(), known: known.clone(), world, id, tries };
            running.spawn(async move {
                let next = in_slot(&slots, SLOT_FOR, work.once()).await.unwrap_or_else(|error| {
                    // Somebody was faster: the watch will tell, and a look does no harm.
                    if !error.is_conflict() {
                        tracing::warn!(volume = %VolumeId::from(id), error = words(&error), "trying again later");
                    }
                    Next::Again
                });
                (id, next)
            });
        }
    }
}

/// Works in one of the slots. What takes longer than `limit`, as on a disk that hangs, goes on without one: it waits, and
/// others have something to do.
async fn in_slot<T>(slots: &Semaphore, limit: Duration, work: impl Future<Output = T>) -> T {
    let slot = slots.acquire().await;
    let mut work = std::pin::pin!(work);
    match tokio::time::timeout(limit, &mut work).await {
        Ok(done) => done,
        Err(_) => {
            drop(slot);
            work.await
        }
    }
}

async fn everything(operator: &NodeOperator, known: &Known) -> Vec<Uuid> {
    let pool = Arc::clone(&operator.pool);
    let on_disk =
        tokio::task::spawn_blocking(move || pool.volumes().into_iter().map(|view| view.id).collect::<Vec<_>>());
    let mut ids: HashSet<Uuid> = known.ids().into_iter().collect();
    ids.extend(on_disk.await.unwrap_or_default());
    ids.into_iter().collect()
}

/// One look at one volume.
struct Work {
    operator: NodeOperator,
    known: Known,
    world: Arc<World>,
    id: Uuid,
    /// How often it was tried in vain.
    tries: u32,
}

impl Work {
    fn api(&self) -> Api<PoolVolume> {
        Api::all(self.operator.client.clone())
    }

    fn name(&self) -> String {
        VolumeId::from(self.id).to_string()
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Pool>) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let pool = Arc::clone(&self.operator.pool);
        let done = tokio::task::spawn_blocking(move || work(&pool)).await;
        done.map_err(|error| Error::Refused(format!("the operation ended in a bug: {error}")))
    }

    async fn once(&self) -> Result<Next, Error> {
        if self.known.is_unread(self.id) {
            // It says something that only another version understands: neither its old words nor its absence stand for it.
            return Ok(Next::Done);
        }
        let object = self.known.get(self.id);
        let id = self.id;
        let told = object.as_ref().and_then(|object| object.status.as_ref()?.disk.clone());
        let (view, doubt) = self
            .blocking(move |pool| {
                let view = pool.volume(id).ok();
                let doubt = if view.is_none() { pool.doubt(id, told.as_deref()) } else { Doubt::None };
                (view, doubt)
            })
            .await?;
        let on_disk = match (&view, &doubt) {
            (Some(view), _) => OnDisk::Volume { record: view.record.as_ref(), size: view.size },
            (None, Doubt::Of(_)) => OnDisk::DiskAway,
            (None, Doubt::General(_)) => OnDisk::NotKnown,
            (None, Doubt::None) => OnDisk::Nothing,
        };
        let act = decide(object.as_deref(), &self.operator.node, on_disk);
        match (act, object, view) {
            (Act::Nothing, _, _) => Ok(Next::Done),
            (Act::Consider, Some(object), _) => self.consider(&object).await,
            // No disk has anything of it by now.
            (Act::Make, Some(object), _) if self.tries >= TRIES && doubt == Doubt::None => self.give_up(&object).await,
            (Act::Make, Some(object), _) => self.make(&object).await,
            (Act::Wait, Some(object), _) => self.wait(&object, doubt).await,
            (Act::Delete, Some(object), _) => self.delete(&object).await,
            (Act::LetGo, Some(object), _) => self.let_go(&object).await,
            (Act::Grow { to }, Some(object), Some(view)) => self.grow(&object, &view, to).await,
            (Act::Report, Some(object), view) => self.report(&object, view.as_ref(), doubt).await,
            (Act::Restore, None, Some(view)) => self.restore(&view).await,
            (act, _, _) => Err(Error::Refused(format!("{act:?} was decided on something else"))),
        }
    }

    /// Writes a status, if it is another one than is there, and gives the object as it is then.
    async fn write(&self, object: &PoolVolume, status: PoolVolumeStatus) -> Result<PoolVolume, Error> {
        if object.status.as_ref() == Some(&status) {
            return Ok(object.clone());
        }
        let name = self.name();
        let next = PoolVolume { status: Some(status), ..object.clone() };
        self.operator.count(|writes| &writes.volume);
        let written = self.api().replace_status(&name, &PostParams::default(), &next).await;
        let written = written.map_err(Error::api(format!("writing the status of PoolVolume {name}")))?;
        self.known.learn(written.clone());
        Ok(written)
    }

    async fn refuse(&self, object: &PoolVolume, phase: Phase, refusal: Refusal) -> Result<Next, Error> {
        let Refusal { reason, message } = refusal;
        tracing::info!(volume = self.name(), ?phase, reason, why = message, "a volume is not made here");
        self.write(object, status::refused(phase, reason, message)).await?;
        Ok(Next::Done)
    }

    /// Yes or no; the yes is written before the first write to a disk.
    async fn consider(&self, object: &PoolVolume) -> Result<Next, Error> {
        if !self.world.complete {
            // Whoever completes the world has every volume looked at.
            return Ok(Next::Done);
        }
        let wanted = match request(object) {
            Ok(wanted) => wanted,
            Err(message) => return self.refuse(object, Phase::Rejected, Refusal { reason: "Invalid", message }).await,
        };
        if self.world.cordoned {
            let message =
                format!("node {} is cordoned (DevicePool spec.cordon): no new volumes there", self.operator.node);
            return self.refuse(object, Phase::Rejected, Refusal { reason: "Cordoned", message }).await;
        }
        if let Some(message) = stale(object, Timestamp::now()) {
            return self.refuse(object, Phase::Rejected, Refusal { reason: "Stale", message }).await;
        }
        let disk = match self.blocking(move |pool| pool.place(&wanted, &BTreeSet::new())).await? {
            Ok(Place::On(disk)) => disk,
            // It came since the look.
            Ok(Place::There) => return Ok(Next::After(AGAIN)),
            // It may be there already, so nobody else may make it.
            Err(error @ PoolError::DiskAway { .. }) => {
                let message = Some(chain(&error));
                let PoolError::DiskAway { disk, .. } = error else { return Ok(Next::Again) };
                self.write(object, PoolVolumeStatus { message, ..status::accepted(&disk) }).await?;
                return Ok(Next::DiskBack);
            }
            Err(error) => {
                return self.refuse(object, Phase::Rejected, Refusal::of(&error, &self.operator.node)).await;
            }
        };
        let accepted = self.write(object, status::accepted(&disk)).await?;
        self.make(&accepted).await
    }

    async fn make(&self, object: &PoolVolume) -> Result<Next, Error> {
        let wanted = match request(object) {
            Ok(wanted) => wanted,
            Err(message) => return self.refuse(object, Phase::Failed, Refusal { reason: "Invalid", message }).await,
        };
        let Ok(guard) = self.operator.locks.hold(VolumeId::from(self.id)) else { return Ok(Next::Again) };
        let (object, made) = self.make_on_some_disk(object, &wanted, &Arc::new(guard)).await?;
        self.operator.pool_changed();
        match made {
            Ok(view) => {
                self.write(&object, status::ready(&object, &view, Phase::Ready)).await?;
                Ok(Next::Done)
            }
            // Nothing was written: another volume was faster.
            Err(error @ (PoolError::NoPlace(_) | PoolError::NoSet(_) | PoolError::WhichClass(_))) => {
                self.refuse(&object, Phase::Failed, Refusal::of(&error, &self.operator.node)).await
            }
            // The disk works on it.
            Err(error @ PoolError::BeingZeroed { .. }) => {
                self.write(&object, status::delayed(&object, chain(&error))).await?;
                Ok(Next::After(ZEROING))
            }
            Err(error) => {
                let message = chain(&error);
                tracing::error!(volume = self.name(), why = message, "a volume could not be made; trying again");
                self.operator.pool.nudge();
                self.write(&object, status::delayed(&object, message)).await?;
                Ok(Next::Again)
            }
        }
    }

    /// Makes it on the disk that the object names, or on another one when that has no room or fails it. Each is in the
    /// status before it is written to. Gives the object as it is then.
    async fn make_on_some_disk(
        &self,
        object: &PoolVolume,
        wanted: &CreateRequest,
        guard: &Arc<Guard>,
    ) -> Result<(PoolVolume, Result<VolumeView, PoolError>), Error> {
        let mut object = object.clone();
        let (mut left, mut failure) = (BTreeSet::new(), None);
        loop {
            let named = object.status.as_ref().and_then(|status| status.disk.clone());
            let disk = match named.filter(|disk| !left.contains(disk)) {
                Some(disk) => Some(disk),
                None => {
                    let (wanted, left) = (wanted.clone(), left.clone());
                    match self.blocking(move |pool| pool.place(&wanted, &left)).await? {
                        Ok(Place::There) => None,
                        Ok(Place::On(disk)) => {
                            object = self.write(&object, status::accepted(&disk)).await?;
                            Some(disk)
                        }
                        Err(error) if error.is_no_place() => return Ok((object, Err(failure.unwrap_or(error)))),
                        Err(error) => return Ok((object, Err(error))),
                    }
                }
            };
            let (wanted, guard, on) = (wanted.clone(), Arc::clone(guard), disk.clone());
            let made = self.blocking(move |pool| {
                let made = pool.create_on(&wanted, on.as_deref());
                drop(guard);
                made
            });
            match made.await? {
                Ok(Made::Volume(view, _)) => return Ok((object, Ok(*view))),
                Ok(Made::Full) => left.extend(disk),
                Ok(Made::Failed(error)) => {
                    failure = Some(error);
                    left.extend(disk);
                }
                Err(error) => return Ok((object, Err(error))),
            }
        }
    }

    /// It may be on a disk that cannot be asked: nobody makes it elsewhere.
    async fn wait(&self, object: &PoolVolume, doubt: Doubt) -> Result<Next, Error> {
        if let Some(words) = doubt.words() {
            self.write(object, status::delayed(object, words)).await?;
        }
        Ok(Next::DiskBack)
    }

    /// Another node may have it.
    async fn give_up(&self, object: &PoolVolume) -> Result<Next, Error> {
        let disk = object.status.as_ref().and_then(|status| status.disk.as_deref()).unwrap_or_default();
        let (node, tries) = (&self.operator.node, self.tries);
        let message = format!("node {node}: disk {disk} failed it {tries} times; the log of the agent there says how");
        self.refuse(object, Phase::Failed, Refusal { reason: DISK_FAILED, message }).await
    }

    async fn delete(&self, object: &PoolVolume) -> Result<Next, Error> {
        let Ok(guard) = self.operator.locks.hold(VolumeId::from(self.id)) else { return Ok(Next::Again) };
        let id = self.id;
        let deleted = self
            .blocking(move |pool| {
                let deleted = pool.delete(id);
                drop(guard);
                pool.kick();
                deleted
            })
            .await?;
        self.operator.pool_changed();
        match deleted {
            Ok(_) => self.let_go(object).await,
            Err(error) => {
                let reason = Refusal::of(&error, &self.operator.node);
                tracing::warn!(volume = self.name(), error = reason.message, "the volume cannot be deleted yet");
                self.write(object, status::stuck(object, reason)).await?;
                Ok(Next::Again)
            }
        }
    }

    /// Takes our finalizer off, so that the object goes.
    async fn let_go(&self, object: &PoolVolume) -> Result<Next, Error> {
        let name = self.name();
        let mut next = object.clone();
        next.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
        self.operator.count(|writes| &writes.volume);
        match self.api().replace(&name, &PostParams::default(), &next).await {
            Ok(_) => Ok(Next::Done),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Next::Done),
            Err(error) => Err(Error::api(format!("taking the finalizer off PoolVolume {name}"))(error)),
        }
    }

    async fn grow(&self, object: &PoolVolume, view: &VolumeView, to: u64) -> Result<Next, Error> {
        let Ok(guard) = self.operator.locks.hold(VolumeId::from(self.id)) else { return Ok(Next::Again) };
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
            Err(PoolError::BeingZeroed { .. }) => return Ok(Next::After(ZEROING)),
            Err(error @ (PoolError::Apply(_) | PoolError::Raw(_) | PoolError::DiskAway { .. })) => {
                tracing::error!(volume = self.name(), error = words(&error), "the volume could not grow; trying again");
                return Ok(Next::Again);
            }
            Err(error) => (view.clone(), Some(chain(&error))),
        };
        let status = PoolVolumeStatus {
            observed_size: object.spec.size,
            resize_error: error,
            ..status::ready(object, &view, Phase::Ready)
        };
        self.write(object, status).await?;
        Ok(Next::Done)
    }

    async fn report(&self, object: &PoolVolume, view: Option<&VolumeView>, doubt: Doubt) -> Result<Next, Error> {
        let Some(view) = view else {
            self.write(object, status::missing(object, doubt.words())).await?;
            return Ok(Next::Done);
        };
        // Whichever of them is right, the object stays what it was.
        if view.conflict.is_some() {
            let phase = match object.status.as_ref().map_or(Phase::Pending, |status| status.phase) {
                Phase::Found => Phase::Found,
                _ => Phase::Ready,
            };
            self.write(object, status::ready(object, view, phase)).await?;
            return Ok(Next::Done);
        }
        let phase = object.status.as_ref().map_or(Phase::Pending, |status| status.phase);
        if let (Phase::Pending | Phase::Accepted | Phase::Rejected | Phase::Failed, Some(record)) =
            (phase, &view.record)
        {
            let differs = match request(object) {
                Ok(wanted) => difference(record, view.size, &wanted),
                Err(why) => Some(why),
            };
            if let Some(why) = differs {
                let message = format!("a volume of this name is on disk {} already: {why}", view.disk);
                return self.refuse(object, Phase::Rejected, Refusal { reason: "Differs", message }).await;
            }
        }
        if view.record.as_ref().is_some_and(|record| record.found) {
            return self.claim(object, view).await;
        }
        self.write(object, status::ready(object, view, Phase::Ready)).await?;
        Ok(Next::Done)
    }

    /// A found volume: usable from when a PersistentVolume claims it for this node.
    async fn claim(&self, object: &PoolVolume, view: &VolumeView) -> Result<Next, Error> {
        let phase = self.phase_of(view).await?;
        self.write(object, status::ready(object, view, phase)).await?;
        Ok(if phase == Phase::Found { Next::Again } else { Next::Done })
    }

    /// Ready where a PersistentVolume claims it; else found, and the disk remembers that.
    async fn phase_of(&self, view: &VolumeView) -> Result<Phase, Error> {
        let Some(record) = &view.record else { return Ok(Phase::Found) };
        if view.conflict.is_some() {
            return Ok(Phase::Found);
        }
        let client = self.operator.client.clone();
        let claimed = is_claimed(client, &record.name, self.id, &self.operator.node).await?;
        let id = self.id;
        let done = match claimed {
            true => self.blocking(move |pool| pool.adopt_volume(id).map(|_| ())).await?,
            false => self.blocking(move |pool| pool.disown_volume(id)).await?,
        };
        done.map_err(|error| Error::Refused(chain(&error)))?;
        Ok(if claimed { Phase::Ready } else { Phase::Found })
    }

    /// A volume without an object: its data is here, so the object is written again.
    async fn restore(&self, view: &VolumeView) -> Result<Next, Error> {
        let Some(record) = &view.record else { return Ok(Next::Done) };
        let phase = self.phase_of(view).await?;
        let name = self.name();
        self.operator.count(|writes| &writes.volume);
        let made = self.api().create(&PostParams::default(), &restored(view, record, &self.operator.node)).await;
        let object = match made {
            Ok(object) => object,
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let api = self.api();
                let object = api.get(&name).await.map_err(Error::api(format!("reading PoolVolume {name}")))?;
                if object.spec.node != *self.operator.node {
                    tracing::error!(
                        volume = name,
                        other = object.spec.node,
                        "the volume is on a disk of this node, and its object names another one; nothing is done until one of them is gone"
                    );
                    return Ok(Next::Again);
                }
                self.known.learn(object);
                return Ok(Next::After(AGAIN));
            }
            Err(error) => {
                return Err(Error::api(format!(
                    "writing PoolVolume {name} again, whose data is on disk {}",
                    view.disk
                ))(error));
            }
        };
        tracing::warn!(
            volume = name,
            ?phase,
            "the object of a volume was gone, and is written again: its data is on disk"
        );
        self.known.learn(object.clone());
        self.write(&object, status::ready(&object, view, phase)).await?;
        Ok(if phase == Phase::Found { Next::Again } else { Next::Done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_does_not_end_gives_its_slot_back_and_is_waited_for() {
        let slots = Semaphore::new(1);
        let (end, ended) = tokio::sync::oneshot::channel();
        let long = in_slot(&slots, Duration::from_millis(1), ended);
        let other = in_slot(&slots, SLOT_FOR, async { end.send(7) });
        // The first one begins first.
        let (long, other) = tokio::join!(biased; long, other);
        assert_eq!((long, other), (Ok(7), Ok(())));
        assert_eq!(slots.available_permits(), 1);
    }
}
