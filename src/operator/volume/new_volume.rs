//! That a volume was not made before: the controller has looked for its PersistentVolume right before it made the object,
//! and says so in it. Pure.
//!
//! An object that somebody restores from a backup has the same words, and is younger than they are. One
//! of a snapshot of etcd keeps its creation time, and passes for new.

use jiff::{SignedDuration, Timestamp};

use crate::api::crd::{NEW_ANNOTATION, PoolVolume};

/// How far the clocks of the controller and of the API server may be apart. With more, the agent asks as for any other
/// object.
const APART: SignedDuration = SignedDuration::from_mins(1);

/// Says in an object that its volume is new.
pub fn say(object: &mut PoolVolume, now: Timestamp) {
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(NEW_ANNOTATION.to_owned(), now.to_string());
}

/// Whether the controller said so when it made this object.
pub fn is_new(object: &PoolVolume) -> bool {
    let said = object.annotation(NEW_ANNOTATION).and_then(|text| text.parse::<Timestamp>().ok());
    let made = object.metadata.creation_timestamp.as_ref().map(|made| made.0);
    said.zip(made).is_some_and(|(said, made)| made.duration_since(said).abs() <= APART)
}

#[cfg(test)]
mod tests {
    use super::super::sample::in_phase;
    use super::*;
    use crate::api::crd::Phase;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    #[test]
    fn an_object_is_of_a_new_volume_if_it_is_as_old_as_the_words_that_say_so() {
        let now: Timestamp = "2026-11-26T12:00:00Z".parse().expect("a time");
        let mut object = in_phase(Phase::Pending);
        object.metadata.annotations = None;
        object.metadata.creation_timestamp = Some(Time(now));
        assert!(!is_new(&object), "nobody says so");
        say(&mut object, now);
        for (later, expected) in [(0, true), (60, true), (-60, true), (61, false), (-61, false), (86_400, false)] {
            object.metadata.creation_timestamp = Some(Time(now + SignedDuration::from_secs(later)));
            assert_eq!(is_new(&object), expected, "{later}");
        }
        object.metadata.creation_timestamp = None;
        assert!(!is_new(&object));
    }
}
