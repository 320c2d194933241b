//! Questions that a disk may not answer: asked for a moment, and named when the disk has had its time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::host::timeout::{DEVICE_TIMEOUT, Timeouts};

/// How long a checkup waits for one answer before it goes on; an answer that comes later counts at
/// the next checkup.
const MOMENT: Duration = Duration::from_millis(500);

/// Called, on another thread, when something answers that was asked by an earlier checkup.
pub type Answered = Arc<dyn Fn() + Send + Sync>;

/// Who owes an answer, and the answers that came after their moment.
#[derive(Debug)]
pub struct Asking<Whom, T> {
    timeouts: Timeouts<Whom>,
    owed: BTreeMap<Whom, Owed<T>>,
}

#[derive(Debug)]
struct Owed<T> {
    /// In monotonic time.
    since: Duration,
    late: Slot<T>,
}

/// Where the thread that asks puts the answer.
type Slot<T> = Arc<Mutex<Option<T>>>;

/// An answer, and the monotonic time of its question.
#[derive(Debug)]
pub struct Answer<T> {
    pub what: T,
    pub asked: Duration,
}

impl<Whom: Ord + Clone, T: Send + 'static> Asking<Whom, T> {
    pub fn new() -> Self {
        Self { timeouts: Timeouts::new(MOMENT), owed: BTreeMap::new() }
    }

    /// Those that are not `here` any more owe nothing. Their threads are remembered: a disk that hangs, and leaves and
    /// comes back again and again, would otherwise cost a thread each time.
    pub fn forget(&mut self, here: impl Fn(&Whom) -> bool) {
        self.timeouts.count_only(&here);
        self.owed.retain(|whom, _| here(whom));
    }

    /// `None`: there is no answer yet. `answered` is called, on another thread, when it comes after all, and then the
    /// next call gives it instead of a new question: a disk that always takes longer than a moment is heard, too.
    pub fn ask(
        &mut self,
        whom: &Whom,
        now: Duration,
        question: impl FnOnce() -> T + Send + 'static,
        answered: impl FnOnce() + Send + 'static,
    ) -> Option<Answer<T>> {
        let since = self.owed.get(whom).map_or(now, |owed| owed.since);
        if let Some(what) = self.owed.get(whom).and_then(|owed| slot(&owed.late).take()) {
            self.owed.remove(whom);
            return Some(Answer { what, asked: since });
        }
        if self.timeouts.is_waiting_for(whom) {
            // One that was away in between owes it from now on.
            self.owed.entry(whom.clone()).or_insert_with(|| Owed { since: now, late: Slot::default() });
            return None;
        }
        let late = Slot::default();
        let reply = Arc::clone(&late);
        // Whether it came in time is seen by the answer.
        let _ = self.timeouts.errand(whom, move || *slot(&reply) = Some(question()), answered);
        if let Some(what) = slot(&late).take() {
            self.owed.remove(whom);
            return Some(Answer { what, asked: now });
        }
        self.owed.insert(whom.clone(), Owed { since, late });
        None
    }

    /// Whether the thread that asks it has not ended yet.
    pub fn is_waiting_for(&self, whom: &Whom) -> bool {
        self.timeouts.is_waiting_for(whom)
    }

    /// Whether it has had its time: a disk that was asleep needs some.
    pub fn is_overdue(&self, whom: &Whom, now: Duration) -> bool {
        self.owed.get(whom).is_some_and(|owed| now.saturating_sub(owed.since) >= DEVICE_TIMEOUT)
    }
}

fn slot<T>(slot: &Mutex<Option<T>>) -> MutexGuard<'_, Option<T>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_disk_that_hangs_and_is_away_for_a_moment_costs_no_second_thread_and_is_overdue_all_the_same() {
        let mut asking = Asking::new();
        let asked = Arc::new(AtomicU32::new(0));
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let ask = |asking: &mut Asking<&str, ()>, now| {
            let (count, ended) = (Arc::clone(&asked), Arc::clone(&ended));
            let question = move || {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = ended.lock().expect("no bug").recv();
            };
            asking.ask(&"disk", now, question, || {}).is_some()
        };
        assert!(!ask(&mut asking, Duration::ZERO));
        asking.forget(|_| false);
        asking.forget(|_| true);
        assert!(!ask(&mut asking, Duration::from_secs(1)));
        assert_eq!(asked.load(Ordering::Relaxed), 1, "a second thread hangs");
        assert!(!asking.is_overdue(&"disk", DEVICE_TIMEOUT), "it is here since a second");
        assert!(asking.is_overdue(&"disk", DEVICE_TIMEOUT + Duration::from_secs(1)));
        drop(end);
        while !ask(&mut asking, Duration::from_secs(2)) {
            std::thread::yield_now();
        }
        assert!(!asking.is_overdue(&"disk", 2 * DEVICE_TIMEOUT));
    }
}
