//! The background work of all disks: a thread per disk that has something to do, which ends when that is done.
//!
//! Takes in members; what they do is theirs (`erase`, `bare`). Tells whoever keeps the pool when there is news.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::erase::Progress;
use super::member::Member;
use crate::device::DiskId;
use crate::host::{Notifier, chain};

/// How long a stop waits for background work to come to the end of a chunk.
const LAST_CHUNK: Duration = Duration::from_secs(3);

/// How long the older label copy may stay behind: one write then serves all changes of a burst.
const MIRROR_AFTER: Duration = Duration::from_millis(50);

/// Who erases and cleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// A thread per disk that has something to do.
    Threads,
    /// The caller, by [`super::Pool::work_until_idle`]: in a test every effect has its place.
    Caller,
}

/// The workers of a pool.
pub struct Background {
    workers: Workers,
    stopping: Arc<AtomicBool>,
    reports: Arc<WorkResults>,
}

/// What workers tell others.
#[derive(Default)]
struct WorkResults {
    /// Disks whose work failed when it was last tried, and in what.
    failed: Mutex<BTreeMap<DiskId, String>>,
    /// Announces each piece of work that is done.
    worked: Notifier,
    /// Tells whoever keeps the pool that a pass is due.
    nudge: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl WorkResults {
    fn failed(&self) -> std::sync::MutexGuard<'_, BTreeMap<DiskId, String>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nudge(&self) {
        if let Some(nudge) = self.nudge.get() {
            nudge();
        }
    }

    /// Whether a pass is due for what a worker came to.
    fn take_in(&self, disk: &DiskId, ended: &Ended) -> bool {
        match ended {
            // The pass that this makes due says when it is tried again.
            Ended::Failed(why) => self.failed().insert(disk.clone(), why.clone()).is_none(),
            Ended::Idle(progress) => self.failed().remove(disk).is_some() || *progress == Progress::Worked,
            Ended::Stopped => false,
        }
    }
}

impl Background {
    pub fn new(workers: Workers) -> Self {
        Self { workers, stopping: Arc::default(), reports: Arc::default() }
    }

    /// Who keeps the pool wants to know when background work has ended or a disk has failed.
    pub fn on_nudge(&self, nudge: impl Fn() + Send + Sync + 'static) {
        let _ = self.reports.nudge.set(Box::new(nudge));
    }

    pub fn nudge(&self) {
        self.reports.nudge();
    }

    /// Announces each piece of work that is done.
    pub fn worked(&self) -> &Notifier {
        &self.reports.worked
    }

    /// Whether work failed on a disk that is usable, as `is_usable` says by its id: a pass tries it again, as no event
    /// tells when it may succeed.
    pub fn has_failed(&self, is_usable: impl Fn(&DiskId) -> bool) -> bool {
        let mut failed = self.reports.failed();
        failed.retain(|disk, _| is_usable(disk));
        !failed.is_empty()
    }

    /// What work failed in when it was last tried on that disk.
    pub fn failure(&self, disk: &DiskId) -> Option<String> {
        self.reports.failed().get(disk).cloned()
    }

    /// Starts a worker on a disk that has something to do and none at it.
    pub fn give(&self, member: &Member) {
        if self.workers == Workers::Caller || self.stopping.load(Ordering::SeqCst) || !member.worker().begin() {
            return;
        }
        let (member, stopping, reports) = (member.clone(), Arc::clone(&self.stopping), Arc::clone(&self.reports));
        std::thread::spawn(move || {
            let ended = run_worker(&member, &stopping, &reports.worked);
            let is_due = reports.take_in(member.id(), &ended);
            // Only now: the result of the next worker must not be overtaken by the result of this one.
            if !matches!(ended, Ended::Idle(_)) {
                member.worker().end();
            }
            reports.worked.notify();
            if is_due {
                reports.nudge();
            }
        });
    }

    /// Workers end after their chunk. Those that are about to are waited for, so that a stop leaves both copies of a
    /// table alike; one whose disk hangs, or that has much before it, is cut off, as by any crash.
    pub fn stop(&self, members: impl Fn() -> Vec<Member>) {
        self.stopping.store(true, Ordering::SeqCst);
        let busy = || -> Vec<String> {
            let busy = members().into_iter().filter(|member| member.worker().is_set());
            busy.map(|member| member.id().to_string()).collect()
        };
        if self.reports.worked.attempt(LAST_CHUNK, || busy().is_empty().then_some(())).is_none() {
            tracing::info!(
                disks = busy().join(", "),
                "background work is interrupted; it continues after the next start"
            );
        }
    }
}

/// Does all work of a disk here and now.
#[cfg(any(test, feature = "testing"))]
pub fn work_until_idle(member: &Member) -> Result<(), super::error::PoolError> {
    loop {
        match member.work()? {
            Progress::Worked => {}
            Progress::Unmirrored => member.mirror()?,
            Progress::Idle => return Ok(()),
        }
    }
}

/// How a worker ended. One that found nothing more to do has taken itself off the disk.
enum Ended {
    Idle(Progress),
    Stopped,
    /// In an error, which is in the log, too.
    Failed(String),
}

/// Works until there is nothing to do; gives whether anything was done.
fn run_worker(member: &Member, stopping: &AtomicBool, notifier: &Notifier) -> Ended {
    let mut progress = Progress::Idle;
    while !stopping.load(Ordering::SeqCst) {
        let worked = member.work().and_then(|done| match done {
            Progress::Unmirrored => {
                std::thread::sleep(MIRROR_AFTER);
                member.mirror().map(|()| done)
            }
            Progress::Worked | Progress::Idle => Ok(done),
        });
        match worked {
            Ok(Progress::Worked) => {
                notifier.notify();
                progress = Progress::Worked;
            }
            // Nothing that anybody looks for.
            Ok(Progress::Unmirrored) => {}
            Ok(Progress::Idle) => return Ended::Idle(progress),
            Err(error) if error.is_locked() => {
                tracing::warn!(disk = member.id().as_str(), error = %chain(&error), "background work waits");
            }
            Err(error) => {
                tracing::error!(disk = %member.id(), error = %chain(&error), "background work failed; it is tried again");
                return Ended::Failed(chain(&error));
            }
        }
    }
    Ended::Stopped
}
