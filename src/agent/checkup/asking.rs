//! Questions that a disk may not answer: asked for a moment, and named when the disk has had its time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::host::timeout::{DEVICE_TIMEOUT, Timeouts};

/// How long a checkup waits for one answer before it goes on; the question is asked again when it has come.
const MOMENT: Duration = Duration::from_millis(500);

/// Who owes an answer, and since when in monotonic time.
#[derive(Debug)]
pub struct Asking<Whom> {
    timeouts: Timeouts<Whom>,
    since: BTreeMap<Whom, Duration>,
}

impl<Whom: Ord + Clone> Asking<Whom> {
    pub fn new() -> Self {
        Self { timeouts: Timeouts::new(MOMENT), since: BTreeMap::new() }
    }

    /// Those that are not `here` any more owe nothing.
    pub fn forget(&mut self, here: impl Fn(&Whom) -> bool) {
        self.timeouts.forget(&here);
        self.since.retain(|whom, _| here(whom));
    }

    /// `None`: there is no answer yet. `answered` is called, on another thread, when it comes after all.
    pub fn ask<T: Send + 'static>(
        &mut self,
        whom: &Whom,
        now: Duration,
        question: impl FnOnce() -> T + Send + 'static,
        answered: impl FnOnce() + Send + 'static,
    ) -> Option<T> {
        let answer = self.timeouts.errand(whom, question, answered);
        match answer {
            Ok(answer) => {
                self.since.remove(whom);
                Some(answer)
            }
            Err(_) => {
                self.since.entry(whom.clone()).or_insert(now);
                None
            }
        }
    }

    /// Whether it has had its time: a disk that was asleep needs some.
    pub fn is_overdue(&self, whom: &Whom, now: Duration) -> bool {
        self.since.get(whom).is_some_and(|since| now.saturating_sub(*since) >= DEVICE_TIMEOUT)
    }
}
