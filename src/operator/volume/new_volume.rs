//! That a volume was not made before: the controller has looked for its PersistentVolume right before it made the object,
//! and says so in it. Pure.
//!
//! An object that somebody restores from a backup has the same words, and is younger than they are. One
//! of a snapshot of etcd keeps its creation time, and passes for new.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolume;

use super::objects::is_of;
use crate::api::crd::{NEW_ANNOTATION, PoolVolume};
use crate::volume::VolumeId;

/// How far the clocks of the controller and of the API server may be apart. With more, the agent asks as for any other
/// object.
const APART: SignedDuration = SignedDuration::from_mins(1);

/// Whether the PersistentVolume with the name of the volume is that of the volume, on whatever node: then the volume was
/// made before.
pub fn was_made(named: Option<&PersistentVolume>, id: VolumeId) -> bool {
    named.is_some_and(|named| is_of(named, id))
}

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
    use crate::volume::{DRIVER_NAME, TOPOLOGY_KEY};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    #[test]
    fn a_volume_that_has_a_persistent_volume_is_not_new_on_any_node() {
        let id = VolumeId::of_name("pvc-1");
        let named = |driver: &str, handle: &str, node: &str| {
            let term = json!({"matchExpressions": [{"key": TOPOLOGY_KEY, "operator": "In", "values": [node]}]});
            let affinity = json!({"required": {"nodeSelectorTerms": [term]}});
            let spec = json!({"csi": {"driver": driver, "volumeHandle": handle}, "nodeAffinity": affinity});
            let volume = json!({"metadata": {"name": "pvc-1"}, "spec": spec});
            serde_json::from_value::<PersistentVolume>(volume).expect("a PersistentVolume")
        };
        let handle = id.to_string();
        for (driver, handle, node, expected) in [
            (DRIVER_NAME, handle.as_str(), "n", true),
            (DRIVER_NAME, handle.as_str(), "another", true),
            (DRIVER_NAME, "x", "n", false),
            ("other.csi", handle.as_str(), "n", false),
        ] {
            assert_eq!(was_made(Some(&named(driver, handle, node)), id), expected, "{driver} {handle} {node}");
        }
        assert!(!was_made(None, id));
    }

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
