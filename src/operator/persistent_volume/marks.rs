//! The annotations of a PersistentVolume with which something is wrong, as Kubernetes' proposal has them: one for each
//! reason, with the value `yes`, and `FirstMarkTime`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use super::mark_time;
use crate::health::HealthReason;
use crate::operator::kube_volume::{FIRST_MARK_TIME, PersistentVolume, is_mark};

/// Since when the marks that say that the volume is lost are as they are (RFC 3339 in UTC). Not `FirstMarkTime`: that
/// is the time of the first mark of any kind, which may be weeks old when the disk is lost.
pub const UNUSABLE_SINCE: &str = "localpool.dev/unusable-since";
const MARKED: &str = "yes";
/// How far ahead another machine's clock may be.
pub const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// Which annotations of one PersistentVolume change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MarkChange {
    /// `None`: it goes.
    pub annotations: BTreeMap<String, Option<String>>,
    /// The keys that are new, and those that go.
    pub marked: Vec<String>,
    pub unmarked: Vec<String>,
}

/// The reasons by which a PersistentVolume is marked now.
pub fn present(annotations: &BTreeMap<String, String>) -> BTreeSet<HealthReason> {
    let keys = annotations.keys().filter(|key| *key != FIRST_MARK_TIME && is_mark(key));
    keys.map(|key| HealthReason::from(key.clone())).collect()
}

/// Those that were written into this PersistentVolume: their time is written with them, and is not older than it.
/// Others came with a copy of a manifest, or from a person.
pub fn own(volume: &PersistentVolume) -> BTreeSet<HealthReason> {
    let created = volume.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let written = volume.annotations().get(FIRST_MARK_TIME).and_then(|text| mark_time::read(text));
    match (written, created) {
        (None, _) => BTreeSet::new(),
        // The API server's clock may be ahead.
        (Some(written), Some(created)) if written + SKEW < created => BTreeSet::new(),
        _ => present(volume.annotations()),
    }
}

/// The time that one of these annotations says; `None`: none, or one that lies ahead, so that a clock was wrong.
pub fn time(annotations: &BTreeMap<String, String>, key: &str, now: Timestamp) -> Option<Timestamp> {
    annotations.get(key).and_then(|text| mark_time::read(text)).filter(|time| *time <= now + SKEW)
}

/// What changes where all these reasons hold, and no others; `None`: nothing. `losses` says which of them say that the
/// volume is lost.
pub fn change(
    annotations: &BTreeMap<String, String>,
    reasons: &BTreeSet<HealthReason>,
    losses: impl Fn(&BTreeSet<HealthReason>) -> BTreeSet<HealthReason>,
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
    let lost = losses(&after);
    // A node that comes back takes its mark with it, and its disks have their own time to appear.
    let is_other_loss = lost != losses(&before);
    for (key, holds, begins) in
        [(FIRST_MARK_TIME, !after.is_empty(), false), (UNUSABLE_SINCE, !lost.is_empty(), is_other_loss)]
    {
        if !holds && annotations.contains_key(key) {
            change.annotations.insert(key.to_owned(), None);
        } else if holds && (begins || time(annotations, key, now).is_none()) {
            change.annotations.insert(key.to_owned(), Some(mark_time::written(now)));
        }
    }
    (!change.annotations.is_empty()).then_some(change)
}

#[cfg(test)]
mod tests {
    use super::super::judgement::{PromisedSize, Reported, Watcher, judge};
    use super::*;
    use crate::api::crd::HealthEntry;
    use crate::health::{Face, REASONS};
    use crate::operator::kube_volume::Backing;
    use crate::operator::node::ready::NodeReadiness;
    use crate::operator::recorded_failures::{RecordedFailure, words};
    use crate::operator::status::health;
    use crate::operator::status::steady::Lasting;
    use crate::volume::VolumeId;

    const NOW: &str = "2026-01-01T00:10:00Z";
    const BEFORE: &str = "2026-01-01T00:00:00Z";

    fn annotations(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// The annotations after the change, and the words of its Events.
    fn changed(before: &[(&str, &str)], reasons: &[HealthReason]) -> Option<(BTreeMap<String, String>, Vec<String>)> {
        let mut all = annotations(before);
        let backing = Backing::Volume(VolumeId::of_name("v"));
        let change =
            change(&all, &reasons.iter().cloned().collect(), |all| backing.losses(all), NOW.parse().expect("a time"))?;
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
    fn since_when_a_volume_is_lost_begins_again_with_each_other_loss_and_an_old_mark_does_not_shorten_it() {
        use HealthReason::{DiskMissing, DiskWornOut, NodeNotReady};
        let worn = [("DiskWornOut", "yes"), (FIRST_MARK_TIME, BEFORE)];
        let (all, _) = changed(&worn, &[DiskWornOut, NodeNotReady]).expect("a change");
        assert_eq!((all[FIRST_MARK_TIME].as_str(), all[UNUSABLE_SINCE].as_str()), (BEFORE, NOW));
        let mut lost = vec![("NodeNotReady", "yes"), (FIRST_MARK_TIME, BEFORE), (UNUSABLE_SINCE, BEFORE)];
        assert_eq!(changed(&lost, &[NodeNotReady]), None, "nothing changed");
        let (all, _) = changed(&lost, &[NodeNotReady, DiskWornOut]).expect("a change");
        assert_eq!(all[UNUSABLE_SINCE], BEFORE, "no other loss");
        let (all, _) = changed(&lost, &[DiskMissing]).expect("a change");
        assert_eq!(all[UNUSABLE_SINCE], NOW, "the node is back, and its disks may follow");
        let (all, _) = changed(&lost, &[DiskWornOut]).expect("a change");
        assert!(!all.contains_key(UNUSABLE_SINCE) && all.contains_key(FIRST_MARK_TIME));
        lost.pop();
        let (all, _) = changed(&lost, &[NodeNotReady]).expect("an earlier version marked it");
        assert_eq!(all[UNUSABLE_SINCE], NOW);
    }

    /// What is found of volumes; of a disk alone nothing is reported of a PersistentVolume.
    #[test]
    fn each_reason_marks_as_its_faces_say() {
        for row in REASONS.iter().filter(|row| row.word != "BackgroundWorkFails") {
            let entry = HealthEntry {
                reason: row.word.to_owned(),
                severity: String::new(),
                message: String::new(),
                since: None,
                confirmed_by: None,
            };
            let (entries, node) = (
                [entry],
                match row.word {
                    "NodeNotReady" => NodeReadiness::NotReady,
                    "NodeGone" => NodeReadiness::Gone,
                    _ => NodeReadiness::Ready,
                },
            );
            let reported = Reported::Entries(&entries);
            let judged = judge(Lasting::Yes(node), reported, Watcher::InReport, PromisedSize::Fits, &BTreeSet::new());
            let reasons: Vec<HealthReason> = judged.reasons.into_iter().collect();
            let events = changed(&[], &reasons).map(|(_, events)| events).unwrap_or_default();
            let marks = row.faces().into_iter().filter_map(|face| match face {
                Face::Mark(word) => Some(format!("+{word}")),
                _ => None,
            });
            assert_eq!(events, marks.collect::<Vec<_>>(), "{}", row.word);
        }
    }

    /// The chain from a real kernel to the PersistentVolume: the vm tier holds the reasons, this what becomes of them.
    #[test]
    fn what_each_failure_on_a_real_kernel_reports_marks_its_persistent_volume_until_its_repair() {
        for failure in RecordedFailure::all() {
            let mut present = BTreeMap::new();
            for found in failure.of_volume() {
                let entries = health::entries(&[], &found, Some("a"));
                let node = Lasting::Yes(NodeReadiness::Ready);
                let reported = Reported::Entries(&entries);
                let judged = judge(node, reported, Watcher::InReport, PromisedSize::Fits, &BTreeSet::new());
                let reasons: Vec<HealthReason> = judged.reasons.into_iter().collect();
                let before: Vec<(&str, &str)> =
                    present.iter().map(|(key, value): (&String, &String)| (key.as_str(), value.as_str())).collect();
                let after = changed(&before, &reasons).map(|(all, _)| all);
                present = after.unwrap_or(present);
                let rows = REASONS.iter().filter(|row| words(&found).iter().any(|word| word == row.word));
                let marks = rows.flat_map(|row| row.faces()).filter_map(|face| match face {
                    Face::Mark(word) => Some(word.to_owned()),
                    _ => None,
                });
                let times = [FIRST_MARK_TIME, UNUSABLE_SINCE];
                let marked: BTreeSet<String> =
                    present.keys().filter(|key| !times.contains(&key.as_str())).cloned().collect();
                assert_eq!(marked, marks.collect(), "{}", failure.name());
                assert_eq!(present.contains_key(FIRST_MARK_TIME), !marked.is_empty(), "{}", failure.name());
            }
        }
    }

    #[test]
    fn marks_that_came_with_a_copy_or_from_a_person_are_not_those_of_this_volume() {
        let own = |annotations: serde_json::Value, created: serde_json::Value| {
            let metadata = serde_json::json!({"annotations": annotations, "creationTimestamp": created});
            own(&serde_json::from_value(serde_json::json!({"metadata": metadata})).expect("a PersistentVolume")).len()
        };
        let since = |first: &str| serde_json::json!({"NotMountPoint": "yes", FIRST_MARK_TIME: first});
        assert_eq!(own(since(NOW), BEFORE.into()), 1);
        assert_eq!(own(since("2025-12-31T23:56:00Z"), BEFORE.into()), 1, "the API server's clock is ahead");
        assert_eq!(own(since("2025-12-31T23:54:00Z"), BEFORE.into()), 0, "of another one, which it is a copy of");
        assert_eq!(own(since("2025-12-31T23:54:00Z"), serde_json::Value::Null), 1, "it is not known how old it is");
        assert_eq!(own(since("yes"), BEFORE.into()), 0);
        assert_eq!(own(serde_json::json!({"NotMountPoint": "yes"}), BEFORE.into()), 0, "a person wrote it");
    }

    #[test]
    fn what_comes_and_goes_by_nature_is_no_mark() {
        assert_eq!(changed(&[], &[HealthReason::DiskTemperature]), None);
        assert_eq!(changed(&[], &[HealthReason::from("Later".to_owned())]), None);
        assert!(!is_mark("DiskTemperature") && is_mark("DiskFailing") && is_mark("HostPathNotExist"));
    }
}
