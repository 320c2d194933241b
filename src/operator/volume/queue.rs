//! The queue of a node's volumes: several are in work at a time, and each of them only once.
//!
//! Takes in the watch of this node's PoolVolumes, ids of volumes that may need work, and passes after which some of
//! them may (`due`); gives them out as [`VolumeReconcile`]. Nothing is done before the first scan of the machine and
//! the first list from the API server. A failure is tried again, later each time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Config;
use tokio::sync::{Semaphore, mpsc, watch as channel};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::Instant;

use super::due::SeenVolumes;
use super::known::KnownVolumes;
use super::own_volume::{OwnVolume, Requeue};
use super::settle_orders::SettleOrders;
use super::work::{NotMade, VolumeReconcile};
use crate::api::crd::PoolVolume;
use crate::operator::api_server::error::error_message;
use crate::operator::api_server::watch::{StoreEvent, Watched, decoded, keep_with_events};
use crate::operator::node::context::{NodeOperator, PassSummary};
use crate::operator::set::node_config::NodeConfig;
use crate::pool::VolumeView;
use crate::volume::VolumeId;

/// How many volumes are in work at once.
const AT_ONCE: usize = 16;
/// How long a volume may keep its slot from others.
const SLOT_FOR: Duration = Duration::from_secs(30);
/// The wait after a failure, doubled each time.
pub(super) const VOLUME_RETRY: Duration = Duration::from_millis(250);
const VOLUME_RETRY_AT_MOST: Duration = Duration::from_secs(300);

/// Keeps `known` in step with the watch, and puts each volume that changed into the queue.
pub async fn watch_objects(operator: NodeOperator, known: KnownVolumes) {
    let api = Api::<DeserializeGuard<PoolVolume>>::all(operator.client.clone());
    let here = Config::default().fields(&format!("spec.node={}", operator.node));
    let on_event = |event: StoreEvent<'_>| changed_volume(&event).into_iter().for_each(|id| operator.enqueue(id));
    keep_with_events(known.store(), Watched::some(api, here, "PoolVolumes"), decoded, on_event).await;
}

/// The volume to look at after an event. An object that cannot be read is ignored; lists are handled by `Relists`.
pub(super) fn changed_volume(event: &StoreEvent<'_>) -> Option<VolumeId> {
    match event {
        StoreEvent::Object(name) | StoreEvent::Gone(name) => name.as_str().parse().ok(),
        StoreEvent::List | StoreEvent::Unread => None,
    }
}

/// Does the work of volumes as they come in.
pub async fn keep(
    operator: NodeOperator,
    known: KnownVolumes,
    mut inbox: mpsc::UnboundedReceiver<VolumeId>,
    mut passes: channel::Receiver<Option<Arc<PassSummary>>>,
    mut configs: channel::Receiver<Arc<NodeConfig>>,
) {
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut queue = Queue::default();
    let mut lists = known.relists();
    let settle_orders = SettleOrders::default();
    let mut seen = SeenVolumes::default();
    loop {
        let mut due = Vec::new();
        tokio::select! {
            id = inbox.recv() => match id {
                Some(id) => due.push(id),
                None => return,
            },
            // A full pass over all volumes, in case a single event was missed.
            () = lists.next() => due = everything(&operator, &known).await,
            changed = passes.changed() => match changed {
                Ok(()) => {
                    let views = on_disk(&operator).await;
                    queue.pass();
                    due = after_pass(&mut seen, &passes, views, &known, &queue);
                }
                Err(_) => return,
            },
            changed = configs.changed() => match changed {
                Ok(()) => due = everything(&operator, &known).await,
                Err(_) => return,
            },
            id = queue.next() => due.push(id),
        }
        let last_pass = passes.borrow().clone();
        let Some(last_pass) = last_pass.filter(|_| known.is_complete()) else { continue };
        for id in due {
            let (config, pass) = (configs.borrow().clone(), Arc::clone(&last_pass));
            let (operator, known, not_made) = (operator.clone(), known.clone(), queue.not_made(id));
            let settle_orders = settle_orders.clone();
            let volume = OwnVolume { operator, known, id };
            let work = VolumeReconcile { volume, config, pass, not_made, settle_orders };
            queue.begin(id, try_once(work, Arc::clone(&slots)));
        }
    }
}

async fn try_once(work: VolumeReconcile, slots: Arc<Semaphore>) -> Requeue {
    let id = work.volume.id;
    in_slot(&slots, SLOT_FOR, work.once()).await.unwrap_or_else(|error| {
        // Another writer was faster: the watch will report it, and another pass does no harm.
        if !error.is_conflict() {
            tracing::warn!(volume = %id, error = error_message(&error), "trying again later");
        }
        Requeue::Again
    })
}

/// What is under way, what failed, and when each is due without an event.
#[derive(Debug, Default)]
struct Queue {
    running: JoinSet<Requeue>,
    /// The volume of each task.
    busy: HashMap<task::Id, VolumeId>,
    /// The same volumes: a pass asks for each of thousands whether it is one of them.
    under_way: HashSet<VolumeId>,
    /// The volumes under way that are due once more.
    again: HashSet<VolumeId>,
    /// The volumes under way since before the last pass: they may have read what it ended.
    outdated: HashSet<VolumeId>,
    /// How many times each failed, whatever the reason.
    failures: HashMap<VolumeId, u32>,
    /// The volumes whose last try left something to be done.
    unsettled: HashSet<VolumeId>,
    /// The volumes that could not be made.
    not_made: HashMap<VolumeId, NotMade>,
    /// One time for each volume: the end of a try replaces the time of an earlier one.
    due: HashMap<VolumeId, Instant>,
}

impl Queue {
    /// Begins the work on a volume. If it is under way already, it is due again after that, and `work` is dropped.
    fn begin(&mut self, id: VolumeId, work: impl Future<Output = Requeue> + Send + 'static) {
        if !self.under_way.insert(id) {
            self.again.insert(id);
            return;
        }
        self.due.remove(&id);
        let task = self.running.spawn(work).id();
        self.busy.insert(task, id);
    }

    /// A pass has ended.
    fn pass(&mut self) {
        self.outdated.clone_from(&self.under_way);
    }

    fn not_made(&self, id: VolumeId) -> Option<NotMade> {
        self.not_made.get(&id).cloned()
    }

    /// Waits for the next volume that is due without an event. May be dropped at any time.
    async fn next(&mut self) -> VolumeId {
        loop {
            let first = self.due.iter().min_by_key(|(_, at)| **at).map(|(id, at)| (*id, *at));
            let time = async {
                match first {
                    Some((id, at)) => {
                        tokio::time::sleep_until(at).await;
                        id
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(ended) = self.running.join_next_with_id() => {
                    if let Some(id) = self.ended(ended) {
                        return id;
                    }
                }
                id = time => {
                    self.due.remove(&id);
                    return id;
                }
            }
        }
    }

    /// The volume of a task that has ended, if something happened to the volume meanwhile.
    fn ended(&mut self, ended: Result<(task::Id, Requeue), JoinError>) -> Option<VolumeId> {
        let (task, next) = ended.unwrap_or_else(|error| {
            let volume = self.busy.get(&error.id()).map(|id| id.to_string());
            tracing::error!(volume, %error, "a bug ended the work on a volume; trying again later");
            (error.id(), Requeue::Again)
        });
        let id = self.busy.remove(&task)?;
        self.under_way.remove(&id);
        // What waits for nothing but a pass must not wait for the one after this.
        let has_missed = self.outdated.remove(&id) && next == Requeue::DiskBack;
        self.end(id, next, Instant::now());
        (self.again.remove(&id) || has_missed).then_some(id)
    }

    fn end(&mut self, id: VolumeId, next: Requeue, now: Instant) {
        let mut later = || {
            let times = self.failures.entry(id).or_default();
            *times += 1;
            VOLUME_RETRY.saturating_mul(1 << (*times - 1).min(10)).min(VOLUME_RETRY_AT_MOST)
        };
        match next {
            Requeue::Done | Requeue::DiskFailed => self.unsettled.remove(&id),
            Requeue::After(_) | Requeue::DiskBack | Requeue::Again | Requeue::NotMade(_) => self.unsettled.insert(id),
        };
        let wait = match next {
            Requeue::Done => {
                self.failures.remove(&id);
                self.not_made.remove(&id);
                None
            }
            Requeue::After(wait) => Some(wait),
            Requeue::DiskBack => None,
            Requeue::Again | Requeue::DiskFailed => Some(later()),
            Requeue::NotMade(why) => {
                let times = self.not_made.get(&id).map_or(1, |before| before.times.saturating_add(1));
                self.not_made.insert(id, NotMade { times, why });
                Some(later())
            }
        };
        match wait {
            Some(wait) => self.due.insert(id, now + wait),
            None => self.due.remove(&id),
        };
    }
}

/// Works in one of the slots. Work that takes longer than `limit`, as on a disk that hangs, continues without a slot,
/// which is then free for others.
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

async fn everything(operator: &NodeOperator, known: &KnownVolumes) -> Vec<VolumeId> {
    let mut ids: HashSet<VolumeId> = known.ids().into_iter().collect();
    ids.extend(on_disk(operator).await.into_iter().map(|view| view.id));
    ids.into_iter().collect()
}

/// What the last pass changed, and what waits for something.
fn after_pass(
    seen: &mut SeenVolumes,
    passes: &channel::Receiver<Option<Arc<PassSummary>>>,
    views: Vec<VolumeView>,
    known: &KnownVolumes,
    queue: &Queue,
) -> Vec<VolumeId> {
    let Some(pass) = passes.borrow().clone() else { return Vec::new() };
    seen.take_in(&pass, views, known.ids().into_iter().collect(), &queue.unsettled).into_iter().collect()
}

async fn on_disk(operator: &NodeOperator) -> Vec<VolumeView> {
    let pool = Arc::clone(&operator.pool);
    tokio::task::spawn_blocking(move || pool.volumes()).await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::status::Refusal;
    use super::*;
    use crate::api::crd::VolumeReason;

    const ID: VolumeId = VolumeId::from_u128(1);

    /// Waits for the end of one try; returns the volume if it is due again at once.
    async fn ended(queue: &mut Queue) -> Option<VolumeId> {
        let ended = queue.running.join_next_with_id().await.expect("something is under way");
        queue.ended(ended)
    }

    #[tokio::test]
    async fn a_volume_is_worked_on_once_at_a_time_and_once_more_if_it_was_due_meanwhile() {
        let mut queue = Queue::default();
        for id in [ID, ID, VolumeId::from_u128(0)] {
            queue.begin(id, async { Requeue::Done });
        }
        assert_eq!(queue.running.len(), 2);
        let due = [ended(&mut queue).await, ended(&mut queue).await];
        assert!(due.contains(&Some(ID)) && due.contains(&None), "{due:?}");
        queue.begin(ID, async { Requeue::Done });
        assert_eq!(ended(&mut queue).await, None);
    }

    #[test]
    fn what_fails_is_tried_later_each_time_until_it_succeeds_and_a_disk_that_is_away_changes_no_count() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let mut wait = |next| {
            queue.end(ID, next, now);
            queue.due.get(&ID).map(|at| (*at - now).as_millis())
        };
        assert_eq!([wait(Requeue::Again), wait(Requeue::DiskBack), wait(Requeue::Again)], [Some(250), None, Some(500)]);
        assert_eq!(wait(Requeue::After(Duration::from_secs(5))), Some(5000));
        for _ in 0..20 {
            wait(Requeue::Again);
        }
        assert_eq!(wait(Requeue::Again), Some(250 << 10));
        assert_eq!(queue.unsettled, HashSet::from([ID]), "a pass tries it at once");
        queue.end(ID, Requeue::Done, now);
        assert_eq!((queue.failures.len(), queue.due.len(), queue.unsettled.len()), (0, 0, 0));
        queue.end(ID, Requeue::DiskBack, now);
        assert_eq!((queue.due.len(), queue.unsettled.len()), (0, 1), "only a pass tells");
    }

    #[test]
    fn only_what_kept_a_volume_from_being_made_is_counted_as_that_and_the_last_reason_is_kept() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let failed =
            |message: &str| Requeue::NotMade(Refusal { reason: VolumeReason::DiskFailed, message: message.to_owned() });
        for next in [
            failed("first"),
            Requeue::Again,
            Requeue::DiskBack,
            failed("second"),
            Requeue::After(VOLUME_RETRY),
            Requeue::Again,
        ] {
            queue.end(ID, next, now);
        }
        let NotMade { times, why } = queue.not_made(ID).expect("it failed");
        assert_eq!((times, why.message.as_str()), (2, "second"));
        assert_eq!(queue.failures[&ID], 4, "each waits longer than the one before");
        queue.end(ID, Requeue::Done, now);
        assert_eq!(queue.not_made(ID), None);
    }

    #[tokio::test]
    async fn what_waits_for_a_pass_and_may_have_read_what_that_ended_is_looked_at_again_at_once() {
        let mut queue = Queue::default();
        for (next, due) in [(Requeue::DiskBack, Some(ID)), (Requeue::Done, None), (Requeue::Again, None)] {
            queue.begin(ID, async { next });
            queue.pass();
            assert_eq!(ended(&mut queue).await, due);
        }
        queue.begin(ID, async { Requeue::DiskBack });
        assert_eq!(ended(&mut queue).await, None, "it began after the pass");
    }

    #[test]
    fn what_a_disk_failed_is_tried_later_each_time_and_the_pass_that_it_made_due_does_not_hasten_it() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.end(ID, Requeue::Again, now);
        queue.end(ID, Requeue::DiskFailed, now);
        assert_eq!((queue.due[&ID] - now, queue.unsettled.len()), (2 * VOLUME_RETRY, 0));
    }

    #[tokio::test]
    async fn however_often_it_was_looked_at_a_volume_comes_back_once_and_when_the_last_try_said() {
        let mut queue = Queue::default();
        for _ in 0..4 {
            queue.begin(ID, async { Requeue::Again });
            assert_eq!(ended(&mut queue).await, None);
        }
        queue.begin(ID, async { Requeue::After(Duration::from_millis(1)) });
        assert_eq!(ended(&mut queue).await, None);
        assert_eq!(queue.next().await, ID);
        let more = tokio::time::timeout(3 * VOLUME_RETRY, queue.next()).await;
        assert!(more.is_err(), "it came back for an earlier try");
    }

    #[tokio::test]
    async fn a_bug_in_the_work_on_a_volume_is_a_try_in_vain_and_the_next_one_begins() {
        let mut queue = Queue::default();
        queue.begin(ID, async { panic!("a bug") });
        queue.begin(ID, async { Requeue::Done });
        assert_eq!(ended(&mut queue).await, Some(ID), "it was due meanwhile");
        assert_eq!(queue.failures[&ID], 1);
        queue.begin(ID, async { Requeue::Done });
        assert_eq!((ended(&mut queue).await, queue.failures.len()), (None, 0));
    }

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
