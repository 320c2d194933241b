//! The annotations of a PersistentVolume with which something is wrong, as Kubernetes' proposal has them: one for each
//! reason, with the value `yes`, and `FirstMarkTime`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::mark_time;
use crate::health::{HealthReason, REASONS};

pub const FIRST_MARK_TIME: &str = "FirstMarkTime";
const MARKED: &str = "yes";
/// How far ahead another machine's clock may be.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// Which annotations of one PersistentVolume change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkChange {
    /// `None`: it goes.
    pub annotations: BTreeMap<String, Option<String>>,
    /// The keys that are new, and those that go.
    pub marked: Vec<String>,
    pub unmarked: Vec<String>,
}

/// Whether only this module writes the annotation.
pub fn is_mark(key: &str) -> bool {
    key == FIRST_MARK_TIME || REASONS.iter().any(|row| row.word == key && row.marks())
}

/// The reasons by which a PersistentVolume is marked now.
pub fn present(annotations: &BTreeMap<String, String>) -> BTreeSet<HealthReason> {
    let keys = annotations.keys().filter(|key| *key != FIRST_MARK_TIME && is_mark(key));
    keys.map(|key| HealthReason::from(key.clone())).collect()
}

/// What changes where all these reasons hold, and no others; `None`: nothing.
pub fn change(
    annotations: &BTreeMap<String, String>,
    reasons: &BTreeSet<HealthReason>,
    now: Timestamp,
) -> Option<MarkChange> {
    let before = present(annotations);
    let after: BTreeSet<HealthReason> = reasons.iter().filter(|reason| reason.marks()).cloned().collect();
    let mut change = MarkChange::default();
    for reason in &after {
        let key = reason.word();
        match annotations.get(key).map(String::as_str) {
            Some(MARKED) => {}
            // A person wrote something else there.
            Some(_) => drop(change.annotations.insert(key.to_owned(), Some(MARKED.to_owned()))),
            None => {
                change.annotations.insert(key.to_owned(), Some(MARKED.to_owned()));
                change.marked.push(key.to_owned());
            }
        }
    }
    for reason in before.difference(&after) {
        change.annotations.insert(reason.to_string(), None);
        change.unmarked.push(reason.to_string());
    }
    let first = annotations.get(FIRST_MARK_TIME);
    let counts = first.and_then(|text| mark_time::read(text)).is_some_and(|time| time <= now + SKEW);
    if after.is_empty() && first.is_some() {
        change.annotations.insert(FIRST_MARK_TIME.to_owned(), None);
    } else if !after.is_empty() && !counts {
        change.annotations.insert(FIRST_MARK_TIME.to_owned(), Some(mark_time::written(now)));
    }
    (!change.annotations.is_empty()).then_some(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:10:00Z";
    const BEFORE: &str = "2026-01-01T00:00:00Z";

    fn annotations(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// The annotations after the change, and the words of its Events.
    fn changed(before: &[(&str, &str)], reasons: &[HealthReason]) -> Option<(BTreeMap<String, String>, Vec<String>)> {
        let mut all = annotations(before);
        let change = change(&all, &reasons.iter().cloned().collect(), NOW.parse().expect("a time"))?;
        for (key, value) in change.annotations {
            match value {
                Some(value) => drop(all.insert(key, value)),
                None => drop(all.remove(&key)),
            }
        }
        let marked = change.marked.iter().map(|key| format!("+{key}"));
        Some((all, marked.chain(change.unmarked.iter().map(|key| format!("-{key}"))).collect()))
    }

    #[test]
    fn the_first_mark_has_its_time_and_later_ones_leave_it_and_the_last_takes_it_along() {
        let lost = [HealthReason::NotMountPoint];
        let (all, events) = changed(&[], &lost).expect("a change");
        assert_eq!(all, annotations(&[("NotMountPoint", "yes"), (FIRST_MARK_TIME, NOW)]));
        assert_eq!(events, ["+NotMountPoint"]);
        let marked = [("NotMountPoint", "yes"), (FIRST_MARK_TIME, BEFORE)];
        assert_eq!(changed(&marked, &lost), None, "nothing changed");
        let both = [HealthReason::NotMountPoint, HealthReason::DiskMissing];
        let (all, events) = changed(&marked, &both).expect("a change");
        assert_eq!(all[FIRST_MARK_TIME], BEFORE);
        assert_eq!(events, ["+DiskMissing"]);
        let (all, events) = changed(&marked, &[]).expect("a change");
        assert_eq!((all, events), (annotations(&[]), vec!["-NotMountPoint".to_owned()]));
    }

    #[test]
    fn what_a_person_wrote_over_a_mark_is_mended_and_other_annotations_stay() {
        let lost = [HealthReason::NotMountPoint];
        let (all, events) = changed(&[("NotMountPoint", "no"), ("mine", "x"), (FIRST_MARK_TIME, "yesterday")], &lost)
            .expect("a change");
        assert_eq!(all, annotations(&[("NotMountPoint", "yes"), ("mine", "x"), (FIRST_MARK_TIME, NOW)]));
        assert_eq!(events, [""; 0]);
        let (all, _) =
            changed(&[("NotMountPoint", "yes"), (FIRST_MARK_TIME, "2036-01-01T00:00:00Z")], &lost).expect("a change");
        assert_eq!(all[FIRST_MARK_TIME], NOW, "a clock was wrong");
        let go = "2026-01-01 00:00:00.5 +0000 UTC m=+600.0";
        assert_eq!(
            changed(&[("NotMountPoint", "yes"), (FIRST_MARK_TIME, go)], &lost),
            None,
            "the proposal's form stays"
        );
        assert_eq!(changed(&[("mine", "x")], &[]), None);
    }

    #[test]
    fn what_comes_and_goes_by_nature_is_no_mark() {
        assert_eq!(changed(&[], &[HealthReason::DiskTemperature]), None);
        assert_eq!(changed(&[], &[HealthReason::from("Later".to_owned())]), None);
        assert!(!is_mark("DiskTemperature") && is_mark("DiskFailing") && is_mark("HostPathNotExist"));
    }
}
