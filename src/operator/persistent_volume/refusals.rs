//! Writes that the API server refuses: they are tried again less and less often, and hold up no other.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::host::Backoff;

/// The wait before refused writes are tried again: the first one, and the longest.
const RETRY: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));

/// Which writes were refused, by a key that stays. Times are monotonic.
#[derive(Debug)]
pub struct Refusals<K> {
    refused: BTreeSet<K>,
    again: Duration,
    backoff: Backoff,
}

/// What came of a write, or of all writes of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    /// Nothing of it has to be tried again.
    Done,
    /// The API server refused it, or did not answer.
    Refused,
}

impl<K: Ord> Refusals<K> {
    pub fn new() -> Self {
        let backoff = RETRY;
        Self { refused: BTreeSet::new(), again: Duration::ZERO, backoff }
    }

    /// Those that are written now, at most `most` of them: refused ones last, and only when their time has come. And
    /// how many have to wait for the next pass. A refused one that is not wanted any more is forgotten.
    pub fn select<T>(
        &mut self,
        mut all: Vec<T>,
        key: impl Fn(&T) -> Option<K>,
        most: usize,
        now: Duration,
    ) -> (Vec<T>, usize) {
        let wanted: BTreeSet<K> = all.iter().filter_map(&key).collect();
        self.refused.retain(|key| wanted.contains(key));
        let is_refused = |one: &T| key(one).is_some_and(|key| self.refused.contains(&key));
        all.retain(|one| now >= self.again || !is_refused(one));
        all.sort_by_key(|one| is_refused(one));
        let waiting = all.len().saturating_sub(most);
        all.truncate(most);
        (all, waiting)
    }

    /// What came of one write.
    pub fn written(&mut self, key: Option<K>, end: WriteEnd) {
        if let Some(key) = key {
            match end {
                WriteEnd::Done => drop(self.refused.remove(&key)),
                WriteEnd::Refused => drop(self.refused.insert(key)),
            }
        }
    }

    /// At the end of a pass in which something was refused, or nothing: how long until refused writes are tried again.
    pub fn end(&mut self, pass: WriteEnd, now: Duration) -> Option<Duration> {
        if self.refused.is_empty() {
            self.backoff.reset();
            return None;
        }
        if pass == WriteEnd::Refused {
            self.again = now + self.backoff.wait();
        }
        Some(self.again.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(one: &usize) -> Option<String> {
        Some(one.to_string())
    }

    #[test]
    fn what_is_refused_holds_up_nothing_and_is_tried_again_less_and_less_often() {
        let mut refusals = Refusals::new();
        let at = Duration::from_secs;
        let (first, waiting) = refusals.select((0..5).collect(), uid, 3, at(0));
        assert_eq!((first.clone(), waiting), (vec![0, 1, 2], 2));
        first.iter().for_each(|one| refusals.written(uid(one), WriteEnd::Refused));
        assert_eq!(refusals.end(WriteEnd::Refused, at(0)), Some(at(2)));
        assert_eq!(refusals.select((0..5).collect(), uid, 3, at(1)), (vec![3, 4], 0));
        assert_eq!(
            refusals.end(WriteEnd::Done, at(1)),
            Some(at(1)),
            "nothing was refused, and the wait is no longer for it"
        );
        assert_eq!(refusals.select((0..5).collect(), uid, 3, at(2)), (vec![3, 4, 0], 2), "the others first");
        refusals.written(uid(&0), WriteEnd::Refused);
        assert_eq!(refusals.end(WriteEnd::Refused, at(2)), Some(at(4)));
        (0..3).for_each(|one| refusals.written(uid(&one), WriteEnd::Done));
        assert_eq!(refusals.end(WriteEnd::Done, at(6)), None);
    }

    #[test]
    fn a_refused_write_that_nobody_wants_any_more_is_waited_for_no_more() {
        let mut refusals = Refusals::new();
        let at = Duration::from_secs;
        refusals.select(vec![7], uid, 3, at(0));
        refusals.written(uid(&7), WriteEnd::Refused);
        assert_eq!(refusals.end(WriteEnd::Refused, at(0)), Some(at(2)));
        assert_eq!(refusals.select(Vec::new(), uid, 3, at(9)), (Vec::new(), 0), "its object is gone");
        assert_eq!(refusals.end(WriteEnd::Done, at(9)), None);
    }
}
