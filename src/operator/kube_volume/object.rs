//! A PersistentVolume as localpool reads it: one of its own driver, a local volume of any other provisioner, or another
//! one.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, Namespace, ObjectReference, PersistentVolume as CorePersistentVolume,
    PersistentVolumeClaim, PersistentVolumeSpec,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use super::affinity::NodeAffinity;
use super::annotation::is_read;
use crate::api::quantity;
use crate::claim::VolumeMode;
use crate::device::NodeName;
use crate::health::{HealthReason, LossScope};
use crate::operator::api_server::object_key::{ObjectName, Uid};
use crate::operator::bytes::signed;
use crate::volume::{DRIVER_NAME, VolumeId};

/// The parts of a PersistentVolume that localpool reads. All others are dropped as it is read.
#[derive(Clone, Debug, PartialEq, Deserialize, Resource)]
#[serde(from = "CorePersistentVolume")]
#[resource(inherit = CorePersistentVolume)]
pub struct PersistentVolume {
    /// Its name, UID and version, when it was created and its deletion began, and the annotations that localpool reads.
    pub metadata: ObjectMeta,
    pub source: VolumeSource,
    /// The nodes that it can be used on; `None`: it names none.
    pub affinity: Option<NodeAffinity>,
    /// What it promises, in bytes. One that cannot be understood promises nothing.
    pub capacity: i64,
    pub volume_mode: VolumeMode,
    /// The filesystem that CSI is asked for, if the source has that field.
    pub fs_type: Option<String>,
    /// The name of its StorageClass.
    pub class: Option<ObjectName<StorageClass>>,
    /// Kubernetes' word, as `Retain`.
    pub reclaim_policy: Option<String>,
    /// The claim that it is for, whether that exists or not.
    pub pvc: Option<PvcReference>,
    pub phase: BindingPhase,
}

/// Where the data of a PersistentVolume is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VolumeSource {
    /// What localpool watches.
    Backed(Backing),
    /// This driver, with a handle that is no id of a volume: a person wrote it.
    OwnHandle(String),
    /// `spec.hostPath`: a path of each of its nodes.
    HostPath(String),
    #[default]
    Other,
}

/// Where the data of a PersistentVolume is that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A volume of this driver.
    Volume(VolumeId),
    /// `spec.local`: a path of its node, whoever made the PersistentVolume.
    Path(String),
}

/// `spec.claimRef`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PvcReference {
    pub namespace: Option<ObjectName<Namespace>>,
    pub name: Option<ObjectName<PersistentVolumeClaim>>,
    /// `None`: whoever wrote it does not say which claim of that name.
    pub uid: Option<Uid<PersistentVolumeClaim>>,
}

/// What Kubernetes says of a PersistentVolume and its claim (`status.phase`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BindingPhase {
    /// Also if nobody has said anything yet, or something that is not known here.
    #[default]
    Pending,
    Available,
    Bound,
    /// Its claim was deleted.
    Released,
    /// And it could not be deleted after that.
    Failed,
}

impl BindingPhase {
    fn of(word: Option<&str>) -> Self {
        match word {
            Some("Available") => Self::Available,
            Some("Bound") => Self::Bound,
            Some("Released") => Self::Released,
            Some("Failed") => Self::Failed,
            _ => Self::Pending,
        }
    }

    /// Whether a claim has it, or can have it.
    pub fn is_usable(self) -> bool {
        matches!(self, Self::Bound | Self::Available)
    }

    /// Whether its claim was deleted.
    pub fn is_released(self) -> bool {
        matches!(self, Self::Released | Self::Failed)
    }
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

impl From<CorePersistentVolume> for PersistentVolume {
    fn from(volume: CorePersistentVolume) -> Self {
        let ObjectMeta { name, uid, resource_version, annotations, creation_timestamp, deletion_timestamp, .. } =
            volume.metadata;
        let annotations = annotations.map(|mut all| {
            all.retain(|key, _| is_read(key));
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
        let spec = volume.spec.unwrap_or_default();
        let capacity = spec.capacity.as_ref().and_then(|capacity| quantity::parse(&capacity.get("storage")?.0).ok());
        Self {
            metadata,
            source: VolumeSource::of(&spec),
            affinity: spec.node_affinity.and_then(|affinity| affinity.required).map(NodeAffinity::new),
            capacity: signed(capacity.unwrap_or_default()),
            volume_mode: match spec.volume_mode.as_deref() {
                Some("Block") => VolumeMode::Block,
                _ => VolumeMode::Filesystem,
            },
            fs_type: spec.csi.and_then(|csi| csi.fs_type),
            class: spec.storage_class_name.map(ObjectName::from),
            reclaim_policy: spec.persistent_volume_reclaim_policy,
            pvc: spec.claim_ref.map(PvcReference::from),
            phase: BindingPhase::of(volume.status.as_ref().and_then(|status| status.phase.as_deref())),
        }
    }
}

impl From<ObjectReference> for PvcReference {
    fn from(ObjectReference { namespace, name, uid, .. }: ObjectReference) -> Self {
        Self { namespace: namespace.map(ObjectName::from), name: name.map(ObjectName::from), uid: uid.map(Uid::from) }
    }
}

impl VolumeSource {
    fn of(spec: &PersistentVolumeSpec) -> Self {
        if let Some(local) = &spec.local {
            return Self::Backed(Backing::Path(local.path.clone()));
        }
        match (&spec.csi, &spec.host_path) {
            (Some(CSIPersistentVolumeSource { driver, volume_handle: handle, .. }), _) if driver == DRIVER_NAME => {
                match handle.parse() {
                    Ok(id) => Self::Backed(Backing::Volume(id)),
                    Err(_) => Self::OwnHandle(handle.clone()),
                }
            }
            (_, Some(host)) => Self::HostPath(host.path.clone()),
            (_, None) => Self::Other,
        }
    }
}

/// That of an object without a spec.
impl Default for PersistentVolume {
    fn default() -> Self {
        CorePersistentVolume::default().into()
    }
}

impl PersistentVolume {
    /// What a watch keeps of it. Of one that is not watched, the name and the phase: there may be thousands of other
    /// storage.
    #[must_use]
    pub fn for_store(self) -> Self {
        if self.backing().is_some() {
            return self;
        }
        let metadata = ObjectMeta { annotations: None, ..self.metadata };
        Self { metadata, phase: self.phase, ..Self::default() }
    }

    /// Whether two states are the same to whoever waits for changes: the version does not matter.
    pub fn is_same(a: &Self, b: &Self) -> bool {
        let compared = |volume: &Self| {
            let mut volume = volume.clone();
            volume.metadata.resource_version = None;
            volume
        };
        compared(a) == compared(b)
    }

    /// `None`: another kind of storage, which is not watched.
    pub fn backing(&self) -> Option<&Backing> {
        match &self.source {
            VolumeSource::Backed(backing) => Some(backing),
            VolumeSource::OwnHandle(_) | VolumeSource::HostPath(_) | VolumeSource::Other => None,
        }
    }

    /// The volume of this driver that it names.
    pub fn own(&self) -> Option<VolumeId> {
        match self.backing()? {
            Backing::Volume(id) => Some(*id),
            Backing::Path(_) => None,
        }
    }

    /// Whether it names the volume with this id, on whatever node. A person may have made an object whose name is no
    /// id.
    pub fn has_handle(&self, handle: &str) -> bool {
        match &self.source {
            VolumeSource::Backed(Backing::Volume(id)) => id.to_string() == handle,
            VolumeSource::OwnHandle(own) => own == handle,
            VolumeSource::Backed(Backing::Path(_)) | VolumeSource::HostPath(_) | VolumeSource::Other => false,
        }
    }

    /// Whether it names the volume for this node.
    pub fn names(&self, id: VolumeId, node: &NodeName) -> bool {
        self.own() == Some(id) && self.affinity.as_ref().is_some_and(|affinity| affinity.names(node))
    }

    /// The path that it has on its nodes.
    pub fn path(&self) -> Option<&str> {
        match &self.source {
            VolumeSource::Backed(Backing::Path(path)) | VolumeSource::HostPath(path) => Some(path),
            VolumeSource::Backed(Backing::Volume(_)) | VolumeSource::OwnHandle(_) | VolumeSource::Other => None,
        }
    }

    /// The claim that it is bound to, as `namespace/name`.
    pub fn bound_to(&self) -> Option<String> {
        let text = |pvc: &PvcReference| {
            let PvcReference { namespace, name, uid: _ } = pvc;
            let namespace = namespace.as_ref().map(ObjectName::as_str).unwrap_or_default();
            format!("{namespace}/{}", name.as_ref().map(ObjectName::as_str).unwrap_or_default())
        };
        let pvc = self.pvc.as_ref().map_or_else(|| "it does not say which".to_owned(), text);
        (self.phase == BindingPhase::Bound).then_some(pvc)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::volume::TOPOLOGY_KEY;

    fn volume(spec: Value) -> PersistentVolume {
        let annotations = json!({"NotMountPoint": "yes", "FirstMarkTime": "x", "other": "y", "localpool.dev/x": "z"});
        let metadata =
            json!({"name": "v", "uid": "u", "annotations": annotations, "creationTimestamp": "2026-01-01T00:00:00Z"});
        let value = json!({"metadata": metadata, "spec": spec});
        serde_json::from_value(value).expect("a PersistentVolume")
    }

    fn csi(driver: &str, handle: &str) -> Value {
        json!({"csi": {"driver": driver, "volumeHandle": handle}})
    }

    #[test]
    fn volumes_of_this_driver_and_local_ones_of_any_maker_are_watched_and_no_others() {
        let id = VolumeId::of_name("pvc-1");
        let backing = |spec: Value| volume(spec).backing().cloned();
        assert_eq!(backing(csi(DRIVER_NAME, &id.to_string())), Some(Backing::Volume(id)));
        assert_eq!(backing(csi(DRIVER_NAME, "no id")), None);
        assert_eq!(backing(csi("other.csi", &id.to_string())), None);
        let path = "/mnt/a b\nc";
        assert_eq!(backing(json!({"local": {"path": path}})), Some(Backing::Path(path.into())));
        assert_eq!(backing(json!({"hostPath": {"path": "/x"}})), None);
    }

    #[test]
    fn what_is_not_read_is_not_kept_and_what_is_read_is() {
        let one = json!({"storage": "1Gi"});
        let kept =
            volume(json!({"local": {"path": "/x"}, "mountOptions": ["a"], "storageClassName": "c", "capacity": one}))
                .for_store();
        let annotations: Vec<String> = kept.metadata.annotations.clone().unwrap_or_default().into_keys().collect();
        assert_eq!(annotations, ["FirstMarkTime", "NotMountPoint", "localpool.dev/x"]);
        assert!(kept.metadata.creation_timestamp.is_some(), "older marks are those of another one");
        assert_eq!((kept.capacity, kept.class.as_ref()), (1 << 30, Some(&"c".into())));
        assert_eq!(kept.backing(), Some(&Backing::Path("/x".into())));
        let other = volume(json!({"nfs": {"path": "/x", "server": "s"}, "storageClassName": "c"})).for_store();
        assert_eq!((other.metadata.name.as_deref(), other.metadata.annotations), (Some("v"), None));
        assert_eq!(other.class, None);
        let mut later = kept.clone();
        later.metadata.resource_version = Some("2".to_owned());
        assert!(PersistentVolume::is_same(&kept, &later));
        later.metadata.annotations = None;
        assert!(!PersistentVolume::is_same(&kept, &later));
    }

    #[test]
    fn a_handle_that_is_no_id_names_only_an_object_that_is_called_so() {
        let id = VolumeId::of_name("pvc-1").to_string();
        let of = |driver: &str, handle: &str| volume(csi(driver, handle));
        assert!(of(DRIVER_NAME, &id).has_handle(&id) && !of("other.csi", &id).has_handle(&id));
        assert!(of(DRIVER_NAME, "mine").has_handle("mine") && !of(DRIVER_NAME, "mine").has_handle(&id));
        assert!(!of(DRIVER_NAME, &id.to_uppercase()).has_handle(&id), "an id has one spelling");
    }

    #[test]
    fn only_a_persistent_volume_of_this_driver_handle_and_node_claims_a_volume() {
        let id = VolumeId::of_name("pvc-1");
        let (handle, n) = (id.to_string(), NodeName::from("n"));
        let volume = |driver: &str, handle: &str, node: &str| {
            let term = json!({"matchExpressions": [{"key": TOPOLOGY_KEY, "operator": "In", "values": [node]}]});
            let mut spec = csi(driver, handle);
            spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [term]}});
            volume(spec)
        };
        assert!(volume(DRIVER_NAME, &handle, "n").names(id, &n));
        assert!(!volume("other.csi", &handle, "n").names(id, &n));
        assert!(!volume(DRIVER_NAME, "x", "n").names(id, &n));
        assert!(!volume(DRIVER_NAME, &handle, "m").names(id, &n));
        assert!(!PersistentVolume::default().names(id, &n));
    }
}
