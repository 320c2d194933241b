//! The queue of a node's volumes: what is due is worked on, several at a time, one at a time for each.
//!
//! Takes in ids of volumes that may need work, and the looks that say that any may; gives them out as [`Work`]. Nothing is done
//! before the machine was looked at once and the API server has told of all objects. What fails is tried again, later each time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, watch as channel};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::work::{Next, Work};
use crate::operator::node::{NodeOperator, Seen};
use crate::operator::set::config::World;
use crate::operator::watch::Known;
use crate::operator::words;
use crate::volume::VolumeId;

/// How many volumes are worked on at once.
const AT_ONCE: usize = 16;
/// How long a volume may keep others from being worked on.
const SLOT_FOR: Duration = Duration::from_secs(30);
/// After a failure, doubled each time.
pub(super) const AGAIN: Duration = Duration::from_millis(250);
const AGAIN_AT_MOST: Duration = Duration::from_secs(300);

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
    let mut queue = Queue::default();
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
                    let Ended { is_due, wait } = queue.end(id, next);
                    due.extend(is_due.then_some(id));
                    if let Some(wait) = wait {
                        operator.come_back(id, wait);
                    }
                }
                // Its id is lost with it; the next pass looks at everything.
                Err(error) => tracing::error!(%error, "work on a volume ended in a bug"),
            },
        }
        if !known.is_complete() || seen.borrow().is_none() {
            continue;
        }
        due.retain(|id| queue.begin(*id));
        for id in due {
            let world = worlds.borrow().clone();
            let work = Work { operator: operator.clone(), known: known.clone(), world, id, tries: queue.tries(id) };
            running.spawn(try_once(work, Arc::clone(&slots)));
        }
    }
}

async fn try_once(work: Work, slots: Arc<Semaphore>) -> (Uuid, Next) {
    let id = work.id;
    let next = in_slot(&slots, SLOT_FOR, work.once()).await.unwrap_or_else(|error| {
        // Somebody was faster: the watch will tell, and a look does no harm.
        if !error.is_conflict() {
            tracing::warn!(volume = %VolumeId::from(id), error = words(&error), "trying again later");
        }
        Next::Again
    });
    (id, next)
}

/// What is under way, and what failed.
#[derive(Debug, Default)]
struct Queue {
    busy: HashSet<Uuid>,
    /// Of those, the ones that are due once more.
    again: HashSet<Uuid>,
    /// How often each was tried in vain.
    failures: HashMap<Uuid, u32>,
}

/// What becomes of a volume after a try.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    /// Something happened to it meanwhile.
    is_due: bool,
    /// When to come back to it.
    wait: Option<Duration>,
}

impl Queue {
    /// False: it is under way, and is due again after that.
    fn begin(&mut self, id: Uuid) -> bool {
        let is_first = self.busy.insert(id);
        if !is_first {
            self.again.insert(id);
        }
        is_first
    }

    fn tries(&self, id: Uuid) -> u32 {
        self.failures.get(&id).copied().unwrap_or_default()
    }

    fn end(&mut self, id: Uuid, next: Next) -> Ended {
        self.busy.remove(&id);
        let wait = match next {
            Next::Done => {
                self.failures.remove(&id);
                None
            }
            Next::After(wait) => Some(wait),
            Next::DiskBack => None,
            Next::Again => {
                let times = self.failures.entry(id).or_default();
                *times += 1;
                Some(AGAIN.saturating_mul(1 << (*times - 1).min(10)).min(AGAIN_AT_MOST))
            }
        };
        Ended { is_due: self.again.remove(&id), wait }
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

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Uuid = Uuid::from_u128(1);

    #[test]
    fn a_volume_is_worked_on_once_at_a_time_and_once_more_if_it_was_due_meanwhile() {
        let mut queue = Queue::default();
        assert_eq!([queue.begin(ID), queue.begin(ID), queue.begin(Uuid::nil())], [true, false, true]);
        assert_eq!(queue.end(ID, Next::Done), Ended { is_due: true, wait: None });
        assert!(queue.begin(ID));
        assert_eq!(queue.end(ID, Next::Done), Ended { is_due: false, wait: None });
    }

    #[test]
    fn what_fails_is_tried_later_each_time_until_it_succeeds_and_a_disk_that_is_away_changes_no_count() {
        let mut queue = Queue::default();
        let mut wait = |next| queue.end(ID, next).wait.map(|wait| wait.as_millis());
        assert_eq!([wait(Next::Again), wait(Next::DiskBack), wait(Next::Again)], [Some(250), None, Some(500)]);
        assert_eq!(wait(Next::After(Duration::from_secs(5))), Some(5000));
        for _ in 0..20 {
            wait(Next::Again);
        }
        assert_eq!(wait(Next::Again), Some(250 << 10));
        assert_eq!(queue.tries(ID), 23);
        queue.end(ID, Next::Done);
        assert_eq!(queue.tries(ID), 0);
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
