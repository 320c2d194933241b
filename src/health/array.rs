//! What the state of the md arrays that a disk is built on means: findings. Pure.

use super::finding::Finding;
use super::reason::HealthReason;
use crate::host::ArrayState;

/// One finding of all arrays that have failed, and one of those that lack members.
pub fn findings(arrays: &[ArrayState]) -> Vec<Finding> {
    let (failed, others): (Vec<&ArrayState>, Vec<&ArrayState>) = arrays.iter().partition(|array| has_failed(array));
    let lacking = others.into_iter().filter(|array| array.degraded.unwrap_or(0) > 0);
    let message = |array: &ArrayState, how: &str| {
        let ArrayState { name, level, state, degraded, disks } = array;
        let level = level.as_deref().map(|level| format!(" ({level})")).unwrap_or_default();
        let of = disks.map(|disks| format!(" of {disks}")).unwrap_or_default();
        match degraded.filter(|lacking| *lacking > 0) {
            Some(lacking) => format!("the array {name}{level} {how}lacks {lacking}{of} members"),
            // What changes while an array is in use (`clean`, `active`) would be a write each time.
            None => format!("the array {name}{level} {how}is {state}"),
        }
    };
    let failed = failed.into_iter().map(|array| message(array, "has failed: it "));
    let failed = failed.reduce(|one, other| format!("{one}; {other}"));
    let lacking = lacking.map(|array| message(array, "")).reduce(|one, other| format!("{one}; {other}"));
    let failed = failed.map(|message| Finding::new(HealthReason::ArrayFailed, message));
    failed.into_iter().chain(lacking.map(|message| Finding::new(HealthReason::ArrayDegraded, message))).collect()
}

/// The kernel says `broken` only of an array that nobody writes; of others it is known by how many members each level
/// can lack. One that was stopped is none any more.
fn has_failed(array: &ArrayState) -> bool {
    let spare = match array.level.as_deref() {
        Some("raid4" | "raid5") => Some(1),
        Some("raid6") => Some(2),
        // Which members of raid10 can be lacking depends on its layout, but never all of them.
        _ => array.disks.map(|disks| disks.saturating_sub(1)),
    };
    let lacks_too_many = || array.degraded.zip(spare).is_some_and(|(degraded, spare)| degraded > spare);
    ["broken", "inactive", "clear"].contains(&array.state.as_str()) || lacks_too_many()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_degraded_until_it_lacks_more_members_than_its_level_can() {
        let found = |level: &str, state: &str, degraded, disks| {
            let (level, state) = (Some(level.to_owned()), state.to_owned());
            let array = ArrayState { name: "md127".into(), level, state, degraded, disks: Some(disks) };
            findings(&[array])
        };
        for (level, state, degraded, disks, word) in [
            ("raid1", "clean", Some(0), 2, ""),
            ("raid1", "active", Some(1), 2, "ArrayDegraded"),
            ("raid1", "active", Some(2), 3, "ArrayDegraded"),
            ("raid1", "active", Some(2), 2, "ArrayFailed"),
            ("raid5", "active", Some(1), 3, "ArrayDegraded"),
            ("raid5", "active", Some(2), 3, "ArrayFailed"),
            ("raid6", "active", Some(2), 5, "ArrayDegraded"),
            ("raid6", "active", Some(3), 5, "ArrayFailed"),
            ("raid10", "active", Some(3), 4, "ArrayDegraded"),
            ("raid0", "clean", None, 2, ""),
            ("raid0", "broken", None, 2, "ArrayFailed"),
            ("linear", "inactive", None, 2, "ArrayFailed"),
            ("later-level", "later-state", Some(0), 2, ""),
        ] {
            let found = found(level, state, degraded, disks);
            let words: Vec<&str> = found.iter().map(|finding| finding.reason.word()).collect();
            assert_eq!(words.join(" "), word, "{level} {state} {degraded:?}");
            assert!(found.iter().all(|finding| finding.reason.cordons()));
        }
        let message = |state, degraded| found("raid5", state, degraded, 3).remove(0).message;
        assert_eq!(message("clean", Some(1)), "the array md127 (raid5) lacks 1 of 3 members");
        assert_eq!(message("clean", Some(1)), message("active", Some(1)), "what a write changes is no news");
        assert_eq!(message("active", Some(2)), "the array md127 (raid5) has failed: it lacks 2 of 3 members");
        assert_eq!(message("broken", Some(0)), "the array md127 (raid5) has failed: it is broken");
    }
}
