//! The local PersistentVolumes of other provisioners that a node's agent looks at, as its DevicePool lists them.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;

use super::marks;
use crate::api::crd::{DevicePool, DevicePoolSpec, WatchedVolume};
use crate::api::quantity;
use crate::claim::VolumeMode;
use crate::health::HealthReason;
use crate::operator::bytes::signed;
use crate::operator::volume::persistent_volumes::PROVISIONED_BY;

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
    let (name, uid) = (volume.name_any(), volume.uid().unwrap_or_default());
    let spec = volume.spec.as_ref();
    let is_block = spec.and_then(|spec| spec.volume_mode.as_deref()) == Some("Block");
    let listed = pool.spec.persistent_volumes.iter().find(|known| known.uid == uid).map(|known| known.mount_point);
    let seen = pool.status.iter().flat_map(|status| &status.persistent_volumes);
    let seen = seen.into_iter().any(|known| known.uid == uid && known.mount_point);
    let always = volume.annotations().get(PROVISIONED_BY).is_some_and(|name| name.starts_with(MOUNTS_ALWAYS));
    // The DevicePool may have been deleted and made again.
    let is_marked = marks::own(volume).contains(&HealthReason::NotMountPoint);
    WatchedVolume {
        name,
        uid,
        path: path.to_owned(),
        capacity: promised(volume),
        volume_mode: if is_block { VolumeMode::Block } else { VolumeMode::Filesystem },
        mount_point: listed.unwrap_or(is_marked) || seen || always,
    }
}

/// How many bytes it promises. One that cannot be understood promises nothing.
pub fn promised(volume: &PersistentVolume) -> i64 {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    signed(capacity.and_then(|text| quantity::parse(&text.0).ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
