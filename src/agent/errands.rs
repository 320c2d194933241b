//! Work on one disk of the pool, on a thread of its own: what hangs there is left behind, goes on when it can, and makes
//! a pass due then.
//!
//! Takes in what the work is on, and the work; gives out its result, or that it hangs.

use std::sync::Arc;
use std::time::Duration;

use crate::host::timeout::{Late, TimeoutError, Timeouts};
use crate::pool::{ErrandKey, Pool, PoolError};

/// How long a pass waits for one disk to be opened or written before it goes on with the others.
const ERRAND_TIMEOUT: Duration = Duration::from_secs(5);

/// The work that may hang.
pub(super) struct Errands {
    /// Gets a pass when what hung has ended.
    pool: Arc<Pool>,
    timeouts: Timeouts<ErrandKey>,
}

impl Errands {
    pub fn new(pool: Arc<Pool>) -> Self {
        Self { pool, timeouts: Timeouts::new(ERRAND_TIMEOUT) }
    }

    /// Waits no longer than this from now on.
    #[cfg(test)]
    pub fn wait_at_most(&mut self, bound: Duration) {
        self.timeouts = Timeouts::new(bound);
    }

    /// How long the next one is waited for.
    #[cfg(test)]
    pub fn timeout(&self) -> Duration {
        self.timeouts.timeout()
    }

    pub fn errand<T: Send + 'static>(
        &mut self,
        on: impl Into<ErrandKey>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TimeoutError> {
        let pool = Arc::clone(&self.pool);
        self.timeouts.errand(&on.into(), work, move || pool.nudge())
    }

    /// The same for work that was decided for this pass alone: by the next one the order may be taken back, or the disk
    /// be somebody else's. It does not begin to write once it is late.
    pub fn errand_now<T: Send + 'static>(
        &mut self,
        on: impl Into<ErrandKey>,
        work: impl FnOnce(&Late) -> T + Send + 'static,
    ) -> Result<T, TimeoutError> {
        let late = Late::default();
        let shared = late.clone();
        let done = self.errand(on, move || work(&shared));
        if done.is_err() {
            late.set();
        }
        done
    }

    /// Does the work that a person asked of one disk. If it hangs, the answer says so.
    pub fn done_in_time<E: From<PoolError> + Send + 'static>(
        &mut self,
        on: impl Into<ErrandKey>,
        work: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> Result<(), E> {
        let on = on.into();
        let hangs = |hangs| Err(PoolError::Hangs { on: on.clone(), hangs }.into());
        self.errand(on.clone(), work).unwrap_or_else(hangs)
    }

    pub fn is_waiting_for(&self, on: &ErrandKey) -> bool {
        self.timeouts.is_waiting_for(on)
    }

    /// What is not here any more does not count against the number of threads.
    pub fn count_only(&mut self, is_here: impl Fn(&ErrandKey) -> bool) {
        self.timeouts.count_only(is_here);
    }
}
