//! A question that a device may never answer, asked on a thread of its own.
//!
//! Takes in the question and whom it is about; gives out the answer, or that there was none in time. A thread that is
//! stuck in the kernel cannot be ended: it is left behind, and until it comes back that device is asked nothing more. A
//! question may always be left behind; work that changes a disk only if it may just as well end later: see
//! [`Timeouts::errand`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How long a device may take: a disk that was asleep needs ten seconds to spin up.
pub const DEVICE_TIMEOUT: Duration = Duration::from_secs(20);
/// If many hang, each of the last ones gets this part of it: a dead controller takes all its disks along.
const LEAST_PART: u32 = 200;

/// Who is asked, and who has not answered yet.
#[derive(Debug)]
pub struct Timeouts<K> {
    bound: Duration,
    away: BTreeMap<K, Away>,
}

/// A thread that was left behind.
#[derive(Debug)]
struct Away {
    after: Duration,
    back: Arc<AtomicBool>,
    /// Whether it shortens the timeout of others.
    counts: bool,
}

/// Whether nobody waits any more for work that was begun in time: the decision behind it may be outdated by now.
#[derive(Clone, Debug, Default)]
pub struct Late(Arc<AtomicBool>);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum TimeoutError {
    #[error("opening or reading it took more than {after:?}; it is read again when that ends")]
    Hangs { after: Duration },
    #[error("a bug ended the request")]
    Bug,
    #[error("no thread could be started to ask it")]
    NoThread(#[source] std::io::Error),
}

impl<K: Ord + Clone> Timeouts<K> {
    pub fn new(bound: Duration) -> Self {
        Self { bound, away: BTreeMap::new() }
    }

    /// Asks, and waits for the answer until the timeout. If an earlier answer is still missing, it neither
    /// asks nor waits.
    pub fn ask<T: Send + 'static>(
        &mut self,
        key: &K,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TimeoutError> {
        self.errand(key, question, || {})
    }

    /// The same for work that may just as well end later and must not be begun twice; `late` is called if it does end
    /// later.
    pub fn errand<T: Send + 'static>(
        &mut self,
        key: &K,
        work: impl FnOnce() -> T + Send + 'static,
        late: impl FnOnce() + Send + 'static,
    ) -> Result<T, TimeoutError> {
        if let Some(Away { after, .. }) = self.away.get(key).filter(|away| !away.is_back()) {
            return Err(TimeoutError::Hangs { after: *after });
        }
        self.away.remove(key);
        let after = self.timeout();
        let (reply, answer) = mpsc::channel();
        let back = Arc::new(AtomicBool::new(false));
        let at_end = Back(Arc::clone(&back));
        let asking = move || {
            let _at_end = at_end;
            // Nobody waits for an answer that comes too late.
            if reply.send(work()).is_err() {
                late();
            }
        };
        thread::Builder::new().name("look".to_owned()).spawn(asking).map_err(TimeoutError::NoThread)?;
        match answer.recv_timeout(after) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Disconnected) => Err(TimeoutError::Bug),
            Err(RecvTimeoutError::Timeout) => {
                self.away.insert(key.clone(), Away { after, back, counts: true });
                Err(TimeoutError::Hangs { after })
            }
        }
    }

    /// Forgets those that answered after all, and those that are not `here` any more.
    pub fn forget(&mut self, here: impl Fn(&K) -> bool) {
        self.away.retain(|key, away| !away.is_back() && here(key));
    }

    /// The same for errands. Those that are not `here` no longer shorten the timeout of others. They are not
    /// forgotten: if they come back, work that is still under way there must not be begun twice.
    pub fn count_only(&mut self, here: impl Fn(&K) -> bool) {
        self.away.retain(|_, away| !away.is_back());
        self.away.iter_mut().for_each(|(key, away)| away.counts = here(key));
    }

    /// Whether this one still owes an answer.
    pub fn is_waiting_for(&self, key: &K) -> bool {
        self.away.get(key).is_some_and(|away| !away.is_back())
    }

    /// Whether somebody still owes an answer whose arrival nothing announces.
    pub fn is_waiting(&self) -> bool {
        !self.away.is_empty()
    }

    /// How long to wait for the next one: each one that hangs halves it, so that all together take little more
    /// than twice the timeout.
    pub fn timeout(&self) -> Duration {
        let hang = self.away.values().filter(|away| away.counts && !away.is_back()).count();
        let halved = u32::try_from(hang).ok().and_then(|hang| 1_u32.checked_shl(hang));
        halved.map_or(Duration::ZERO, |part| self.bound / part).max(self.bound / LEAST_PART)
    }
}

/// Whoever decided on it does not wait any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it answered too late, so the decision is made again")]
pub struct TooLate;

impl Late {
    /// Nobody waits from now on.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Asked before the first write.
    pub fn check(&self) -> Result<(), TooLate> {
        if self.0.load(Ordering::Acquire) { Err(TooLate) } else { Ok(()) }
    }
}

impl Away {
    fn is_back(&self) -> bool {
        self.back.load(Ordering::Acquire)
    }
}

/// Reports that the thread has ended, for whatever reason.
struct Back(Arc<AtomicBool>);

impl Drop for Back {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::Sender;

    use super::*;

    /// Long enough for an answer on a busy machine, though one that hangs has halved it.
    const SHORT: Duration = Duration::from_secs(3);

    /// Asks a question that ends when the sender that it gives is dropped.
    fn hang(timeouts: &mut Timeouts<&'static str>, whom: &'static str) -> Sender<()> {
        let (end, ended) = mpsc::channel::<()>();
        let error = timeouts.ask(&whom, move || ended.recv().is_err()).expect_err("it hangs");
        assert!(matches!(error, TimeoutError::Hangs { .. }), "{error}");
        end
    }

    /// Until the thread is back: it ends by itself, a moment after its question.
    fn until_answered(timeouts: &mut Timeouts<&'static str>, whom: &'static str) {
        while timeouts.ask(&whom, || ()).is_err() {
            thread::yield_now();
        }
    }

    #[test]
    fn an_answer_comes_back_and_one_device_that_hangs_keeps_nobody_else_from_answering() {
        let mut timeouts = Timeouts::new(SHORT);
        let _sda = hang(&mut timeouts, "sda");
        assert_eq!(timeouts.ask(&"sdb", || 7).expect("an answer"), 7);
        assert!(timeouts.is_waiting());
    }

    #[test]
    fn a_device_that_hangs_is_asked_nothing_more_until_its_thread_is_back() {
        let mut timeouts = Timeouts::new(SHORT);
        let end = hang(&mut timeouts, "sda");
        let asked = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let asked = Arc::clone(&asked);
            let again = timeouts.ask(&"sda", move || asked.fetch_add(1, Ordering::Relaxed));
            assert!(matches!(again, Err(TimeoutError::Hangs { after }) if after == SHORT));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 0, "no second thread");
        drop(end);
        until_answered(&mut timeouts, "sda");
        assert!(!timeouts.is_waiting());
    }

    #[test]
    fn what_is_gone_is_waited_for_no_more_and_what_is_here_still_is() {
        let mut timeouts = Timeouts::new(SHORT);
        let _both = (hang(&mut timeouts, "sda"), hang(&mut timeouts, "sdb"));
        timeouts.forget(|whom| *whom == "sdb");
        assert_eq!(timeouts.away.keys().collect::<Vec<_>>(), [&"sdb"]);
        timeouts.forget(|_| false);
        assert!(!timeouts.is_waiting());
    }

    #[test]
    fn those_that_answered_late_shorten_the_timeout_of_nobody() {
        let mut timeouts = Timeouts::new(SHORT);
        let ends = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|whom| hang(&mut timeouts, whom));
        drop(ends);
        while timeouts.away.values().any(|away| !away.is_back()) {
            thread::yield_now();
        }
        assert_eq!(timeouts.timeout(), SHORT);
        assert_eq!(timeouts.ask(&"sda", || 7).expect("an answer"), 7);
    }

    #[test]
    fn one_that_is_gone_shortens_the_timeout_of_nobody_and_is_not_asked_twice() {
        let mut timeouts = Timeouts::new(SHORT);
        let _end = hang(&mut timeouts, "sda");
        timeouts.count_only(|_| false);
        assert_eq!(timeouts.timeout(), SHORT);
        assert!(matches!(timeouts.ask(&"sda", || ()), Err(TimeoutError::Hangs { .. })), "a second thread");
        timeouts.count_only(|whom| *whom == "sda");
        assert_eq!(timeouts.timeout(), SHORT / 2, "it is here again");
    }

    #[test]
    fn all_that_hang_at_once_cost_little_more_than_two() {
        let mut timeouts = Timeouts::new(DEVICE_TIMEOUT);
        let mut all = Duration::ZERO;
        for whom in 0..100 {
            all += timeouts.timeout();
            timeouts.away.insert(whom, Away { after: DEVICE_TIMEOUT, back: Arc::default(), counts: true });
        }
        assert!(all < DEVICE_TIMEOUT * 3, "{all:?}");
        assert_eq!(timeouts.timeout(), Duration::from_millis(100), "and a healthy one still gets a moment");
    }

    #[test]
    fn a_question_that_ends_in_a_bug_is_no_answer_and_blocks_nothing() {
        let mut timeouts = Timeouts::new(DEVICE_TIMEOUT);
        let bug = timeouts.ask(&"sda", || assert_eq!(1, 2, "a bug, on purpose"));
        assert!(matches!(bug, Err(TimeoutError::Bug)));
        assert_eq!(timeouts.ask(&"sda", || 7).expect("an answer"), 7);
    }
}
