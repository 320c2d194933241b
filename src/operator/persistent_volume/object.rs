//! What localpool reads of a PersistentVolume: one of its own driver, or a local volume of any other provisioner.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeSpec, PersistentVolumeStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::marks;
use crate::health::{HealthReason, LossScope};
use crate::operator::volume::persistent_volumes::PROVISIONED_BY;
use crate::volume::{DRIVER_NAME, VolumeId};

/// The stem of the annotations of the reaction.
const OUR_ANNOTATIONS: &str = "localpool.dev/";

/// Where the data of a PersistentVolume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A volume of this driver.
    Volume(VolumeId),
    /// `spec.local`: a path of its node, whoever made the PersistentVolume.
    Path(String),
}

impl Backing {
    /// Which of its reasons say that the volume is lost where it is.
    pub fn losses(&self, reasons: &BTreeSet<HealthReason>) -> BTreeSet<HealthReason> {
        let is_lost = |reason: &&HealthReason| match (reason.loss(), self) {
            (LossScope::All, _) | (LossScope::Own, Self::Volume(_)) | (LossScope::Paths, Self::Path(_)) => true,
            (LossScope::Never | LossScope::Own | LossScope::Paths, _) => false,
        };
        reasons.iter().filter(is_lost).cloned().collect()
    }
}

/// `None`: another kind of storage, which is not watched.
pub fn backing(volume: &PersistentVolume) -> Option<Backing> {
    let spec = volume.spec.as_ref()?;
    if let Some(local) = &spec.local {
        return Some(Backing::Path(local.path.clone()));
    }
    let csi = spec.csi.as_ref().filter(|csi| csi.driver == DRIVER_NAME)?;
    csi.volume_handle.parse().ok().map(Backing::Volume)
}

/// The volume of this driver that it names.
pub fn own(volume: &PersistentVolume) -> Option<VolumeId> {
    match backing(volume)? {
        Backing::Volume(id) => Some(id),
        Backing::Path(_) => None,
    }
}

/// The parts that are read here. Of a PersistentVolume that is not watched, the name.
pub fn needed(volume: PersistentVolume) -> PersistentVolume {
    let is_watched = backing(&volume).is_some();
    let ObjectMeta { name, uid, resource_version, annotations, creation_timestamp, deletion_timestamp, .. } =
        volume.metadata;
    let annotations = annotations.filter(|_| is_watched).map(|mut all| {
        all.retain(|key, _| marks::is_mark(key) || key == PROVISIONED_BY || key.starts_with(OUR_ANNOTATIONS));
        all
    });
    let metadata = ObjectMeta {
        name,
        uid,
        resource_version,
        annotations,
        creation_timestamp,
        deletion_timestamp,
        ..ObjectMeta::default()
    };
    let spec = volume.spec.filter(|_| is_watched).map(|spec| PersistentVolumeSpec {
        csi: spec.csi.map(|CSIPersistentVolumeSource { driver, volume_handle, .. }| CSIPersistentVolumeSource {
            driver,
            volume_handle,
            ..CSIPersistentVolumeSource::default()
        }),
        capacity: spec.capacity,
        claim_ref: spec.claim_ref.map(|ObjectReference { namespace, name, uid, .. }| ObjectReference {
            namespace,
            name,
            uid,
            ..ObjectReference::default()
        }),
        local: spec.local,
        node_affinity: spec.node_affinity,
        persistent_volume_reclaim_policy: spec.persistent_volume_reclaim_policy,
        storage_class_name: spec.storage_class_name,
        volume_mode: spec.volume_mode,
        ..PersistentVolumeSpec::default()
    });
    let status = volume.status.map(|PersistentVolumeStatus { phase, .. }| PersistentVolumeStatus {
        phase,
        ..PersistentVolumeStatus::default()
    });
    PersistentVolume { metadata, spec, status }
}

/// Whether two states are the same to whoever waits for changes: the version does not matter.
pub fn is_same(a: &PersistentVolume, b: &PersistentVolume) -> bool {
    let parts = |volume: &PersistentVolume| {
        let ObjectMeta { uid, annotations, deletion_timestamp, .. } = volume.metadata.clone();
        (uid, annotations, deletion_timestamp)
    };
    parts(a) == parts(b) && a.spec == b.spec && a.status == b.status
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(spec: Value) -> PersistentVolume {
        let annotations = json!({"NotMountPoint": "yes", "FirstMarkTime": "x", "other": "y", "localpool.dev/x": "z"});
        let metadata =
            json!({"name": "v", "uid": "u", "annotations": annotations, "creationTimestamp": "2026-01-01T00:00:00Z"});
        let value = json!({"metadata": metadata, "spec": spec});
        serde_json::from_value(value).expect("a PersistentVolume")
    }

    #[test]
    fn volumes_of_this_driver_and_local_ones_of_any_maker_are_watched_and_no_others() {
        let id = VolumeId::of_name("pvc-1");
        let csi = |driver: &str, handle: &str| json!({"csi": {"driver": driver, "volumeHandle": handle}});
        assert_eq!(backing(&volume(csi(DRIVER_NAME, &id.to_string()))), Some(Backing::Volume(id)));
        assert_eq!(backing(&volume(csi(DRIVER_NAME, "no id"))), None);
        assert_eq!(backing(&volume(csi("other.csi", &id.to_string()))), None);
        let path = "/mnt/a b\nc";
        assert_eq!(backing(&volume(json!({"local": {"path": path}}))), Some(Backing::Path(path.into())));
        assert_eq!(backing(&volume(json!({"hostPath": {"path": "/x"}}))), None);
    }

    #[test]
    fn what_is_not_read_is_not_kept_and_what_is_read_is() {
        let kept = needed(volume(
            json!({"local": {"path": "/x"}, "mountOptions": ["a"], "storageClassName": "c", "capacity": {"storage": "1Gi"}}),
        ));
        let annotations: Vec<String> = kept.metadata.annotations.clone().unwrap_or_default().into_keys().collect();
        assert_eq!(annotations, ["FirstMarkTime", "NotMountPoint", "localpool.dev/x"]);
        assert!(kept.metadata.creation_timestamp.is_some(), "older marks are those of another one");
        let spec = kept.spec.clone().expect("watched");
        assert!(spec.mount_options.is_none() && spec.capacity.is_some() && spec.storage_class_name.is_some());
        assert_eq!(backing(&kept), Some(Backing::Path("/x".into())));
        assert_eq!(needed(volume(json!({"nfs": {"path": "/x", "server": "s"}}))).spec, None);
        let mut later = kept.clone();
        later.metadata.resource_version = Some("2".to_owned());
        assert!(is_same(&kept, &later));
        later.metadata.annotations = None;
        assert!(!is_same(&kept, &later));
    }
}
