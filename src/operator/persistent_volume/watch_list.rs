//! The local PersistentVolumes of other provisioners that a node's agent looks at, as its DevicePool lists them.

use kube::ResourceExt as _;

use super::marks;
use crate::api::crd::{DevicePool, DevicePoolSpec, HealthEntry, WatchedVolume, WatchedVolumeStatus};
use crate::health::HealthReason;
use crate::operator::api_server::object_key::Uid;
use crate::operator::bytes::signed;
use crate::operator::kube_volume::{BindingPhase, PROVISIONED_BY, PersistentVolume};

/// The static provisioner, on its own or in the Local Storage Operator: `local-volume-provisioner-<node>-<uid>`. A
/// directory that is no mount point gets no PersistentVolume from it.
const MOUNTS_ALWAYS: &str = "local-volume-provisioner";
/// An object has room for a few thousand; no node has so many disks.
const MOST: usize = 1000;

/// What a node's agent looks at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchList {
    pub volumes: Vec<WatchedVolume>,
    /// How many more there are.
    pub omitted: i64,
}

impl WatchList {
    /// Those for which there is room.
    pub fn of(mut volumes: Vec<WatchedVolume>) -> Self {
        let omitted = signed(volumes.len().saturating_sub(MOST));
        volumes.truncate(MOST);
        Self { volumes, omitted }
    }

    /// As it is in the object.
    pub fn in_spec(pool: &DevicePool) -> Self {
        let DevicePoolSpec { persistent_volumes, persistent_volumes_omitted, .. } = &pool.spec;
        Self { volumes: persistent_volumes.clone(), omitted: *persistent_volumes_omitted }
    }
}

/// What the agent has to know of one; `pool` is what is known of it already.
pub fn entry(volume: &PersistentVolume, path: &str, pool: &DevicePool) -> WatchedVolume {
    let (name, uid) = (volume.name_any(), Uid::of(volume).unwrap_or_default());
    let listed = pool.spec.persistent_volumes.iter().find(|known| uid == *known.uid);
    let found = pool.status.iter().flat_map(|status| &status.persistent_volumes).find(|known| uid == *known.uid);
    let seen = found.is_some_and(|found| found.mount_point);
    let always = volume.annotations().get(PROVISIONED_BY).is_some_and(|name| name.starts_with(MOUNTS_ALWAYS));
    // The DevicePool may have been deleted and made again.
    let is_marked = marks::own(volume).contains(&HealthReason::NotMountPoint);
    let (claim_uid, identity) = claim_and_identity(volume, listed, found);
    WatchedVolume {
        name,
        uid: uid.to_string(),
        path: path.to_owned(),
        capacity: volume.capacity,
        volume_mode: volume.volume_mode,
        mount_point: listed.map_or(is_marked, |listed| listed.mount_point) || seen || always,
        claim_uid,
        identity,
    }
}

/// The UID of the claim that has the volume, and what must be at its path as long as it does: what the agent found
/// there first, in a look that began after the binding. Before that, its provisioner may make a new filesystem there,
/// and a person may replace the disk.
fn claim_and_identity(
    volume: &PersistentVolume,
    listed: Option<&WatchedVolume>,
    found: Option<&WatchedVolumeStatus>,
) -> (Option<String>, Option<String>) {
    let is_bound = match volume.phase {
        BindingPhase::Bound => true,
        // It still has the data.
        BindingPhase::Released => false,
        BindingPhase::Pending | BindingPhase::Available | BindingPhase::Failed => return (None, None),
    };
    let Some(uid) = volume.pvc.as_ref().and_then(|pvc| pvc.uid.as_ref()) else { return (None, None) };
    let is_of_claim = |claim: &Option<String>| claim.as_deref().is_some_and(|claim| *uid == *claim);
    let kept = listed.filter(|listed| is_of_claim(&listed.claim_uid)).and_then(|listed| listed.identity.clone());
    let seen = found.filter(|found| is_bound && is_of_claim(&found.claim_uid) && found.health.iter().all(shows_path));
    let identity = kept.or_else(|| seen?.identity.clone());
    // One that nobody has is asked for only while the claim is there.
    let claim = (is_bound || identity.is_some()).then(|| uid.to_string());
    (claim, identity)
}

/// Whether the path and what is mounted there can be seen although this is wrong. After `WrongDevice` the agent looks
/// once more: if a person took away what must be there, the finding goes.
fn shows_path(entry: &HealthEntry) -> bool {
    !matches!(
        HealthReason::from(entry.reason.clone()),
        HealthReason::HostPathNotExist
            | HealthReason::NotMountPoint
            | HealthReason::WrongDevice
            | HealthReason::DiskNotAnswering
            | HealthReason::FilesystemShutDown
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::claim::VolumeMode;

    fn listed(annotations: Value, spec: Value, pool: Value) -> WatchedVolume {
        let metadata =
            json!({"name": "v", "uid": "u", "annotations": annotations, "creationTimestamp": "2026-01-01T00:00:00Z"});
        let volume = json!({"metadata": metadata, "spec": spec});
        let volume: PersistentVolume = serde_json::from_value(volume).expect("a PersistentVolume");
        let mut value = json!({"apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "n"}, "spec": {}});
        value.as_object_mut().expect("an object").extend(pool.as_object().expect("an object").clone());
        entry(&volume, "/mnt/x", &serde_json::from_value(value).expect("a DevicePool"))
    }

    #[test]
    fn a_path_must_be_a_mount_point_where_it_was_one_or_its_provisioner_makes_nothing_else() {
        let plain = json!({"capacity": {"storage": "1Gi"}});
        let known = |uid: &str| json!({"name": "v", "uid": uid, "path": "/mnt/x", "volumeMode": "Filesystem", "mountPoint": true});
        let is_mounted = |annotations: Value, pool: Value| listed(annotations, plain.clone(), pool).mount_point;
        assert!(!is_mounted(json!({}), json!({})));
        assert!(is_mounted(json!({PROVISIONED_BY: "local-volume-provisioner-n-1234"}), json!({})));
        let marked = |since: &str| json!({"NotMountPoint": "yes", "FirstMarkTime": since});
        assert!(is_mounted(marked("2026-01-01T00:00:01Z"), json!({})), "it was one when it was marked");
        assert!(!is_mounted(marked("2025-12-31T23:54:00Z"), json!({})), "another one was, which it is a copy of");
        assert!(!is_mounted(json!({"NotMountPoint": "yes"}), json!({})), "a person wrote it");
        let no_more = WatchedVolume { mount_point: false, ..serde_json::from_value(known("u")).expect("one") };
        let by_person = json!({"spec": {"persistentVolumes": [no_more]}});
        let marked = marked("2026-01-01T00:00:01Z");
        assert!(!is_mounted(marked, by_person), "a person says that it need not be one");
        assert!(!is_mounted(json!({PROVISIONED_BY: "rancher.io/local-path"}), json!({})));
        assert!(is_mounted(json!({}), json!({"spec": {"persistentVolumes": [known("u")]}})));
        assert!(is_mounted(json!({}), json!({"status": {"persistentVolumes": [known("u")]}})));
        assert!(!is_mounted(json!({}), json!({"status": {"persistentVolumes": [known("another of this name")]}})));
    }

    /// What is asked for, and what must be there, of a volume in this phase that the claim `c` has, with this entry and
    /// what was found: the claim of each, and the filesystem.
    fn of_phase(phase: &str, listed: Known, found: Known, reasons: &[&str]) -> (Option<String>, Option<String>) {
        let health: Vec<Value> =
            reasons.iter().map(|reason| json!({"reason": reason, "severity": "x", "message": ""})).collect();
        let known =
            |(claim, identity): Known| json!({"name": "v", "uid": "u", "claimUid": claim, "identity": identity});
        let (mut listed, mut found) = (known(listed), known(found));
        listed["path"] = json!("/mnt/x");
        listed["volumeMode"] = json!("Filesystem");
        found["health"] = json!(health);
        let pool = json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "n"},
            "spec": {"persistentVolumes": [listed]}, "status": {"persistentVolumes": [found]},
        });
        let volume = json!({
            "metadata": {"name": "v", "uid": "u"},
            "spec": {"claimRef": {"name": "c", "uid": "c"}},
            "status": {"phase": phase},
        });
        let volume: PersistentVolume = serde_json::from_value(volume).expect("a PersistentVolume");
        let entry = entry(&volume, "/mnt/x", &serde_json::from_value(pool).expect("a DevicePool"));
        (entry.claim_uid, entry.identity)
    }

    type Known = (Option<&'static str>, Option<&'static str>);

    const NONE: Known = (None, None);
    const ASKED: Known = (Some("c"), None);
    const A: Known = (Some("c"), Some("fs-a"));
    const B: Known = (Some("c"), Some("fs-b"));

    fn is((claim, identity): Known) -> (Option<String>, Option<String>) {
        (claim.map(str::to_owned), identity.map(str::to_owned))
    }

    #[test]
    fn what_was_at_the_path_first_after_the_binding_must_be_there_while_the_claim_has_the_volume() {
        assert_eq!(of_phase("Available", NONE, NONE, &[]), is(NONE), "nobody asks");
        assert_eq!(of_phase("Bound", NONE, NONE, &[]), is(ASKED));
        assert_eq!(of_phase("Bound", ASKED, A, &[]), is(A), "the first look");
        assert_eq!(of_phase("Bound", A, A, &[]), is(A), "nothing is written twice");
        assert_eq!(of_phase("Bound", A, B, &["WrongDevice"]), is(A));
        assert_eq!(of_phase("Bound", A, B, &[]), is(A), "the agent has not compared them yet");
        assert_eq!(of_phase("Bound", A, NONE, &[]), is(A), "nobody says now, or the agent is an earlier one");
        assert_eq!(of_phase("Bound", ASKED, B, &["WrongDevice"]), is(ASKED), "a person took it away: it looks again");
        assert_eq!(of_phase("Released", A, B, &["WrongDevice"]), is(A), "it still has the data");
        assert_eq!(of_phase("Released", ASKED, A, &[]), is(NONE), "a person may have replaced it since");
        assert_eq!(of_phase("Available", A, B, &["WrongDevice"]), is(NONE), "it may be formatted again");
    }

    #[test]
    fn what_was_seen_before_the_claim_had_the_volume_does_not_count() {
        assert_eq!(of_phase("Bound", NONE, (None, Some("fs-a")), &[]), is(ASKED), "for no claim");
        let before = (Some("another claim"), Some("fs-a"));
        assert_eq!(of_phase("Bound", NONE, before, &[]), is(ASKED));
        assert_eq!(of_phase("Bound", before, before, &[]), is(ASKED), "no controller was there in between");
        assert_eq!(of_phase("Released", before, before, &[]), is(NONE));
        assert_eq!(of_phase("Bound", before, B, &[]), is(B));
    }

    #[test]
    fn what_is_at_the_path_is_learned_unless_a_finding_says_that_it_cannot_be_seen() {
        for harmless in ["MisMatchedVolSize", "InodesExhausted", "FilesystemErrors", "FilesystemReadOnly"] {
            assert_eq!(of_phase("Bound", ASKED, A, &[harmless]), is(A), "{harmless}");
        }
        for hidden in ["HostPathNotExist", "NotMountPoint", "WrongDevice", "DiskNotAnswering", "FilesystemShutDown"] {
            assert_eq!(of_phase("Bound", ASKED, A, &[hidden, "FilesystemErrors"]), is(ASKED), "{hidden}");
        }
    }

    #[test]
    fn the_capacity_is_in_bytes_and_one_that_is_none_promises_nothing() {
        let capacity = |spec: Value| listed(json!({}), spec, json!({})).capacity;
        assert_eq!(capacity(json!({"capacity": {"storage": "1Gi"}})), 1 << 30);
        assert_eq!(capacity(json!({"capacity": {"storage": "much"}})), 0);
        assert_eq!(capacity(json!({})), 0);
        let block = listed(json!({}), json!({"volumeMode": "Block"}), json!({}));
        assert_eq!(block.volume_mode, VolumeMode::Block);
    }
}
