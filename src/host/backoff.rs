//! How long to wait before the next try.
//!
//! Takes in the first wait and the longest; gives out one wait after the other, each twice the one before, until a
//! success resets it.

use std::time::Duration;

/// Waits that double.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The wait after a failure.
    pub fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.longest);
        wait
    }

    /// After a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// After a pass: the wait before the next one, if something failed in this one.
    pub fn after(&mut self, failed: bool) -> Option<Duration> {
        if failed {
            return Some(self.wait());
        }
        self.reset();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_twice_the_one_before_up_to_the_longest_and_a_success_begins_again() {
        let mut backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(10));
        let waits =
            |backoff: &mut Backoff, count: usize| (0..count).map(|_| backoff.wait().as_secs()).collect::<Vec<_>>();
        assert_eq!(waits(&mut backoff, 5), [2, 4, 8, 10, 10]);
        assert_eq!(backoff.after(false), None);
        assert_eq!(backoff.after(true), Some(Duration::from_secs(2)));
        assert_eq!(waits(&mut backoff, 1), [4]);
    }
}
