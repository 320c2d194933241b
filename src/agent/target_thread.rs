//! The thread that keeps where volumes are mounted: whoever mounts one, and a checkup, wait neither for the state
//! directory nor for a target.
//!
//! Takes in what the board says has changed; changes that come while it writes, or shortly before, share a write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::kept_targets::{KeptTargets, TARGETS};
use crate::health::Board;
use crate::host::{Host, chain};

/// How long it waits for more changes before it writes: an end of the process without a stop may lose those of this
/// time. kubelet's next question about a volume tells of it again, and it removes the path of a target that went.
const SETTLE: Duration = Duration::from_millis(200);
/// The wait after the state directory failed.
const RETRY: Duration = Duration::from_secs(60);
/// How long it waits for a change at a time.
const LISTEN: Duration = Duration::from_secs(3600);

/// A handle to the thread.
#[derive(Clone)]
pub struct TargetThread {
    board: Board,
    is_over: Arc<AtomicBool>,
}

impl TargetThread {
    /// Starts it. `recalled` is called when it is known what an earlier process left.
    pub fn start(
        host: Arc<dyn Host>,
        board: Board,
        recalled: impl FnOnce() + Send + 'static,
    ) -> (Self, JoinHandle<()>) {
        let handle = Self { board: board.clone(), is_over: Arc::default() };
        let thread = handle.clone();
        (handle, std::thread::spawn(move || thread.run(KeptTargets::new(host, board), recalled)))
    }

    /// It ends when it has written what there is to write.
    pub fn stop(&self) {
        self.is_over.store(true, Ordering::Release);
        self.board.wake();
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn run(&self, mut kept: KeptTargets, recalled: impl FnOnce()) {
        while let Err(error) = kept.recall() {
            // It is not written before it was read: whatever it says would be lost.
            tracing::warn!(document = TARGETS, error = %chain(&error), "where volumes were mounted before cannot be read; trying again");
            if self.rest(RETRY) {
                return;
            }
        }
        recalled();
        let mut number = None;
        while self.has_news(number) {
            self.rest(SETTLE);
            match kept.keep() {
                Ok(kept) => number = Some(kept),
                Err(error) => {
                    tracing::warn!(document = TARGETS, error = %chain(&error), "where volumes are mounted is not kept; trying again");
                    if self.rest(RETRY) {
                        return;
                    }
                }
            }
        }
    }

    /// Waits until something has changed since that number; false: it is over, and nothing has.
    fn has_news(&self, number: Option<u64>) -> bool {
        let look =
            || (number != Some(self.board.targets_changed())).then_some(true).or(self.is_over().then_some(false));
        loop {
            if let Some(has_news) = self.board.await_change(LISTEN, look) {
                return has_news;
            }
        }
    }

    /// Waits for that time; whether it is over by then.
    fn rest(&self, time: Duration) -> bool {
        self.board.await_change(time, || self.is_over().then_some(())).is_some()
    }
}

#[cfg(test)]
mod tests;
