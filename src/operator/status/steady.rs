//! A state counts when it has lasted for a while: what comes and goes is not written, removed and written again.

use std::collections::BTreeMap;

use jiff::SignedDuration;

/// How long a node, or its agent, is in another state before that counts: a restart makes no noise.
pub const GRACE: SignedDuration = SignedDuration::from_secs(60);

/// The states of several things, and since when each lasts.
#[derive(Debug)]
pub struct Steady<K, S> {
    grace: SignedDuration,
    /// Monotonic times; before the process began, they are negative.
    since: BTreeMap<K, (S, SignedDuration)>,
}

/// Whether a state counts yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting<S> {
    Yes(S),
    /// It will after this time, if it lasts.
    In(SignedDuration),
}

impl<K: Ord + Clone, S: Copy + PartialEq> Steady<K, S> {
    pub fn new(grace: SignedDuration) -> Self {
        Self { grace, since: BTreeMap::new() }
    }

    /// Takes in the state of one thing at the monotonic time `now`. One that was not known before is in this state for
    /// the time `already`, by somebody else's clock.
    pub fn observe(&mut self, thing: &K, state: S, already: SignedDuration, now: SignedDuration) -> Lasting<S> {
        let already = already.clamp(SignedDuration::ZERO, self.grace);
        let entry = self.since.entry(thing.clone()).or_insert((state, now - already));
        if entry.0 != state {
            *entry = (state, now);
        }
        let left = self.grace - (now - entry.1);
        if left.is_positive() { Lasting::In(left) } else { Lasting::Yes(state) }
    }

    /// The state of one thing when it was last taken in, and for how long it has lasted at the monotonic time `now`, at
    /// most the grace; `None`: it is not known.
    pub fn lasted(&self, thing: &K, now: SignedDuration) -> Option<(S, SignedDuration)> {
        self.since.get(thing).map(|(state, since)| (*state, (now - *since).clamp(SignedDuration::ZERO, self.grace)))
    }

    /// Forgets all others.
    pub fn keep(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.since.retain(|thing, _| is_kept(thing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: i64) -> SignedDuration {
        SignedDuration::from_secs(seconds)
    }

    #[test]
    fn a_state_counts_after_its_time_and_begins_again_with_each_change() {
        let mut steady = Steady::new(secs(60));
        let mut observe = |state, now| steady.observe(&"n", state, secs(0), secs(now));
        assert_eq!(observe('a', 5), Lasting::In(secs(60)));
        assert_eq!(observe('a', 64), Lasting::In(secs(1)));
        assert_eq!(observe('b', 65), Lasting::In(secs(60)));
        assert_eq!(observe('a', 66), Lasting::In(secs(60)));
        assert_eq!(observe('a', 126), Lasting::Yes('a'));
        let lasted = |now| steady.lasted(&"n", secs(now));
        assert_eq!(
            (lasted(126), lasted(100), lasted(1)),
            (Some(('a', secs(60))), Some(('a', secs(34))), Some(('a', secs(0))))
        );
        assert_eq!(steady.lasted(&"other", secs(1)), None);
    }

    #[test]
    fn what_lasted_before_it_was_first_seen_counts_and_a_clock_that_is_wrong_does_not() {
        let first = |already| Steady::new(secs(60)).observe(&"n", 'a', secs(already), secs(1));
        assert_eq!(first(40), Lasting::In(secs(20)));
        assert_eq!(first(4000), Lasting::Yes('a'));
        assert_eq!(first(-4000), Lasting::In(secs(60)));
        let mut steady = Steady::new(secs(60));
        steady.observe(&"n", 'a', secs(4000), secs(1));
        assert_eq!(steady.observe(&"n", 'b', secs(4000), secs(2)), Lasting::In(secs(60)), "the change was seen");
        steady.keep(|_| false);
        assert_eq!(steady.observe(&"n", 'a', secs(4000), secs(2)), Lasting::Yes('a'));
    }
}
