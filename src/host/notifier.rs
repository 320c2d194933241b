//! Waits for something that another thread announces. Takes in the announcements; gives out whether one came in time.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often something has happened.
#[derive(Debug, Default)]
pub struct Notifier {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Notifier {
    /// It has happened once more.
    pub fn notify(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Attempts something, and again each time that it has happened since, for `timeout` in all.
    pub fn attempt<T>(&self, timeout: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
        let began = Instant::now();
        loop {
            let known = self.count();
            if let Some(done) = attempt() {
                return Some(done);
            }
            if !self.wait_past(known, timeout.saturating_sub(began.elapsed())) {
                return None;
            }
        }
    }

    fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has happened more than `known` times; false: not within `timeout`.
    fn wait_past(&self, known: u64, timeout: Duration) -> bool {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(count, timeout, |count| *count <= known);
        *waited.unwrap_or_else(PoisonError::into_inner).0 > known
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_comes_about_while_it_is_attempted_is_not_missed() {
        let notifier = Notifier::default();
        let mut attempts = 0;
        let done = notifier.attempt(Duration::from_secs(600), || {
            attempts += 1;
            notifier.notify();
            (attempts == 3).then_some(attempts)
        });
        assert_eq!(done, Some(3));
    }

    #[test]
    fn what_does_not_come_about_is_attempted_once() {
        let notifier = Notifier::default();
        let mut attempts = 0;
        let done: Option<()> = notifier.attempt(Duration::from_millis(1), || {
            attempts += 1;
            None
        });
        assert_eq!((done, attempts), (None, 1));
    }

    #[test]
    fn who_waits_is_woken() {
        let notifier = Notifier::default();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| notifier.wait_past(0, Duration::from_secs(600)));
            notifier.notify();
            assert!(waiting.join().expect("no bug"));
        });
    }
}
