//! Whose turn it is with a device: a lock that shows since when it is held, and what was there when it was last free.
//!
//! The work under it is I/O that may never end. A reader takes [`DeviceLock::shown`], which waits for nobody; whoever
//! wants a turn may give up after a while.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::pace::MOMENT;

/// How long one operation may take on a disk before the next one has to come back later.
pub const DEVICE_LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// The same if there is something else to do meanwhile: another disk may serve, or a later pass.
pub const SHORT_DEVICE_LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// A disk that is being zeroed changes hands long before anybody gives up on it; all disks of a node may be zeroed at
/// once.
const _: () =
    assert!(SHORT_DEVICE_LOCK_TIMEOUT.as_millis() >= 10 * MOMENT.as_millis(), "a disk that is zeroed does not hang");

/// What others may see of a state without its lock.
pub trait Shows {
    type Shown;

    fn shown(&self) -> Self::Shown;
}

/// A state, its lock, and what it showed when the lock was last released.
pub struct DeviceLock<T: Shows> {
    state: Mutex<T>,
    /// Since when somebody has it.
    since: Mutex<Option<Instant>>,
    free: Condvar,
    shown: RwLock<Arc<T::Shown>>,
}

/// The lock, until it is dropped. What has changed is shown to the others then.
pub struct DeviceLockGuard<'t, T: Shows> {
    lock: &'t DeviceLock<T>,
    /// `None` only while it is dropped.
    state: Option<MutexGuard<'t, T>>,
    is_changed: bool,
}

/// The holder of the lock has had it for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another operation on it has been under way for {seconds} s")]
pub struct LockTimeout {
    pub seconds: u64,
}

impl<T: Shows> DeviceLock<T> {
    pub fn new(state: T) -> Self {
        let shown = RwLock::new(Arc::new(state.shown()));
        Self { state: Mutex::new(state), since: Mutex::default(), free: Condvar::new(), shown }
    }

    /// What the last holder left.
    pub fn shown(&self) -> Arc<T::Shown> {
        Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for as long as it takes: for a thread that serves this device alone.
    pub fn lock(&self) -> DeviceLockGuard<'_, T> {
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.free.wait_while(since, |since| since.is_some());
        self.take(taken.unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits while the lock changes hands, and gives up on a holder that has had it for `timeout`.
    pub fn lock_within(&self, timeout: Duration) -> Result<DeviceLockGuard<'_, T>, LockTimeout> {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(began) = *since {
            let held = began.elapsed();
            if held >= timeout {
                return Err(LockTimeout { seconds: held.as_secs() });
            }
            since = self.free.wait_timeout(since, timeout - held).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(self.take(since))
    }

    fn take(&self, mut since: MutexGuard<'_, Option<Instant>>) -> DeviceLockGuard<'_, T> {
        *since = Some(Instant::now());
        drop(since);
        let state = Some(self.state.lock().unwrap_or_else(PoisonError::into_inner));
        DeviceLockGuard { lock: self, state, is_changed: false }
    }
}

impl<T: Shows> Deref for DeviceLockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.state.as_deref().expect("it is held until it is dropped")
    }
}

impl<T: Shows> DerefMut for DeviceLockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.is_changed = true;
        self.state.as_deref_mut().expect("it is held until it is dropped")
    }
}

impl<T: Shows> Drop for DeviceLockGuard<'_, T> {
    fn drop(&mut self) {
        if let Some(state) = self.state.take().filter(|_| self.is_changed) {
            let shown = Arc::new(state.shown());
            *self.lock.shown.write().unwrap_or_else(PoisonError::into_inner) = shown;
        }
        *self.lock.since.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // One of those that wait may be giving up at this moment, and would take a single wake-up with it.
        self.lock.free.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    impl Shows for u32 {
        type Shown = u32;

        fn shown(&self) -> u32 {
            *self
        }
    }

    #[test]
    fn what_is_there_can_be_seen_while_somebody_has_the_lock_and_is_what_the_last_one_left() {
        let lock = DeviceLock::new(1);
        let mut held = lock.lock();
        *held = 2;
        assert_eq!(*lock.shown(), 1, "it is not done yet");
        drop(held);
        assert_eq!(*lock.shown(), 2);
        assert_eq!(*lock.lock(), 2);
    }

    #[test]
    fn who_wants_a_lock_gives_up_on_one_that_keeps_it_and_gets_it_when_it_is_free() {
        let lock = DeviceLock::new(1);
        let held = lock.lock();
        assert!(lock.lock_within(Duration::from_millis(20)).is_err());
        assert!(lock.lock_within(Duration::ZERO).is_err(), "and at once, where that one has had it for long");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock.lock_within(Duration::from_secs(600)).map(|held| *held));
            drop(held);
            assert_eq!(waiting.join().expect("no bug"), Ok(1));
        });
    }

    #[test]
    fn a_holder_that_ends_in_a_bug_leaves_the_lock_to_others() {
        let lock = DeviceLock::new(1);
        thread::scope(|scope| {
            let bug = scope.spawn(|| {
                *lock.lock() = 2;
                let _held = lock.lock();
                assert_eq!(1, 2, "a bug, on purpose");
            });
            assert!(bug.join().is_err());
        });
        assert_eq!(lock.lock_within(Duration::from_secs(600)).map(|held| *held), Ok(2));
    }
}
