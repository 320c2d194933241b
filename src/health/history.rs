//! What is wrong with one disk or volume, from one checkup to the next: since when, and for how long after its cause
//! went.
//!
//! A reason appears with the first checkup that finds it. It goes with the first checkup that does not, unless its row
//! in the table holds it: what comes and goes, such as a temperature, would otherwise be written each time. For as long
//! its message stays the same: the numbers of a counter that rises are others at each checkup.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::finding::{Finding, FoundBy};
use super::reason::HealthReason;

/// The findings on one disk or volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(BTreeMap<HealthReason, HistoryEntry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct HistoryEntry {
    message: String,
    /// Monotonic time of the message.
    message_at: Duration,
    since: Timestamp,
    /// Monotonic time of the last checkup that found it.
    found: Duration,
}

impl History {
    /// Takes in a checkup: everything that it found, the wall clock and the monotonic clock. Only the latter measures.
    /// Gives whether anything changed that people see.
    pub fn update(&mut self, findings: Vec<Finding>, wall: Timestamp, now: Duration) -> bool {
        let before: Vec<Finding> = self.findings().collect();
        let found: BTreeSet<HealthReason> = findings.iter().map(|finding| finding.reason.clone()).collect();
        for Finding { reason, message, .. } in findings {
            let hold = reason.lasts_at_least();
            let new = || HistoryEntry { message: message.clone(), message_at: now, since: wall, found: now };
            let entry = self.0.entry(reason).or_insert_with(new);
            entry.found = now;
            if now.saturating_sub(entry.message_at) >= hold {
                (entry.message, entry.message_at) = (message, now);
            }
        }
        let is_held =
            |reason: &HealthReason, entry: &HistoryEntry| now.saturating_sub(entry.found) < reason.lasts_at_least();
        self.0.retain(|reason, entry| found.contains(reason) || is_held(reason, entry));
        !self.findings().eq(before)
    }

    pub fn findings(&self) -> impl Iterator<Item = Finding> + '_ {
        self.0.iter().map(|(reason, entry)| Finding {
            reason: reason.clone(),
            message: entry.message.clone(),
            since: Some(entry.since),
            found_by: FoundBy::Itself,
        })
    }

    /// Since when this reason holds.
    pub fn since(&self, reason: &HealthReason) -> Option<Timestamp> {
        self.0.get(reason).map(|entry| entry.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    fn reasons(history: &History) -> Vec<String> {
        history.findings().map(|finding| finding.reason.to_string()).collect()
    }

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_state_goes_with_its_cause_and_keeps_the_time_of_its_first_sight() {
        let mut history = History::default();
        let missing = || vec![Finding::new(HealthReason::DiskMissing, "not there")];
        assert!(history.update(missing(), at(100), secs(1)));
        assert!(!history.update(missing(), at(50), secs(2)), "the wall clock went back, and nothing changed");
        assert_eq!(history.since(&HealthReason::DiskMissing), Some(at(100)));
        assert!(history.update(Vec::new(), at(103), secs(3)));
        assert!(reasons(&history).is_empty());
        assert!(history.update(missing(), at(104), secs(4)));
        assert_eq!(history.since(&HealthReason::DiskMissing), Some(at(104)), "it is a new time");
    }

    #[test]
    fn what_comes_and_goes_is_one_change_until_it_has_stayed_away_for_ten_minutes() {
        let mut history = History::default();
        let hot = || vec![Finding::new(HealthReason::DiskTemperature, "71 °C")];
        let mut changes = 0;
        for minute in 0..20 {
            let findings = if minute % 2 == 0 { hot() } else { Vec::new() };
            changes += u32::from(history.update(findings, at(minute * 60), secs(minute.unsigned_abs() * 60)));
        }
        assert_eq!((changes, reasons(&history)), (1, vec!["DiskTemperature".to_owned()]));
        let last = 18 * 60;
        assert!(!history.update(Vec::new(), at(0), secs(last + 599)), "a wall clock that jumps measures nothing");
        assert!(history.update(Vec::new(), at(0), secs(last + 600)));
        assert!(reasons(&history).is_empty());
    }

    #[test]
    fn two_checkups_at_the_same_moment_are_two_checkups() {
        let mut history = History::default();
        assert!(history.update(vec![Finding::new(HealthReason::DiskMissing, "gone")], at(1), secs(1)));
        assert!(history.update(Vec::new(), at(1), secs(1)));
        assert!(reasons(&history).is_empty());
    }

    #[test]
    fn another_message_is_a_change() {
        let mut history = History::default();
        assert!(history.update(vec![Finding::new(HealthReason::DiskNotReady, "a")], at(1), secs(1)));
        assert!(history.update(vec![Finding::new(HealthReason::DiskNotReady, "b")], at(2), secs(2)));
        assert_eq!(history.since(&HealthReason::DiskNotReady), Some(at(1)));
    }

    #[test]
    fn a_counter_that_rises_at_each_checkup_is_no_change_each_time() {
        let mut history = History::default();
        let mut update = |second| {
            let rise = Finding::new(HealthReason::DiskIoErrors, format!("{second} in all"));
            history.update(vec![rise], at(0), secs(second))
        };
        assert!(update(0));
        assert_eq!((1..600).filter(|second| update(*second)).count(), 0);
        assert!(update(600), "and yet the numbers are not old");
    }
}
