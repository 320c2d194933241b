//! PoolVolume: what one claim gets, as the controller and the node's agent agree on it.
//!
//! The controller writes the spec, the agent of `spec.node` writes the status and the finalizer. A volume's data can be
//! found without it: everything for that is on the disk.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::health::HealthEntry;
use super::volume_reason::VolumeReason;
use crate::claim::VolumeMode;
use crate::device::{DiskId, NodeName};

/// What the controller requests from the node's agent, and what a person orders. Only `size`, `sizeLimit`, `intent`, `order`
/// and `keep` can change.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "localpool.dev",
    version = "v1alpha1",
    kind = "PoolVolume",
    plural = "poolvolumes",
    shortname = "lpv",
    category = "localpool",
    status = "PoolVolumeStatus",
    derive = "PartialEq",
    selectable = ".spec.node",
    validation = Rule::new("self.metadata.name.matches('^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$')").message("a PoolVolume's name is the id that follows from spec.volumeName: the driver creates these objects, so create a PersistentVolumeClaim instead"),
    doc = "A volume on a local disk. The driver creates and deletes this object: if you delete it by hand, nothing is \
           erased, and the driver creates it again.",
    printcolumn = r#"{"name":"Node","type":"string","jsonPath":".spec.node"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Health","type":"string","jsonPath":".status.conditions[?(@.type==\"Healthy\")].reason"}"#,
    printcolumn = r#"{"name":"Size","type":"string","jsonPath":".status.capacity"}"#,
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.volumeMode"}"#,
    printcolumn = r#"{"name":"Claim","type":"string","jsonPath":".metadata.annotations.localpool\\.dev/claim"}"#,
    printcolumn = r#"{"name":"Disk","type":"string","jsonPath":".status.disk"}"#,
    printcolumn = r#"{"name":"Volume","type":"string","jsonPath":".spec.volumeName","priority":1}"#,
    printcolumn = r#"{"name":"Order","type":"string","jsonPath":".status.conditions[?(@.type==\"OrderDone\")].reason","priority":1}"#,
    printcolumn = r#"{"name":"Reaction","type":"string","jsonPath":".status.conditions[?(@.type==\"Reaction\")].reason","priority":1}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.message","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[x_kube(
    validation = Rule::new("self.node == oldSelf.node").message("spec.node cannot be changed: a local volume stays on its node"),
    validation = Rule::new("self.volumeName == oldSelf.volumeName").message("spec.volumeName cannot be changed"),
    validation = Rule::new("self.volumeMode == oldSelf.volumeMode").message("spec.volumeMode cannot be changed"),
    validation = Rule::new("self.required == oldSelf.required").message("spec.required cannot be changed: only spec.size grows"),
    validation = Rule::new("has(self.limit) == has(oldSelf.limit) && (!has(self.limit) || self.limit == oldSelf.limit)").message("spec.limit cannot be changed"),
    validation = Rule::new("has(self.fsType) == has(oldSelf.fsType) && (!has(self.fsType) || self.fsType == oldSelf.fsType)").message("spec.fsType cannot be changed"),
    validation = Rule::new("has(self.parameters) == has(oldSelf.parameters) && (!has(self.parameters) || self.parameters == oldSelf.parameters)").message("spec.parameters cannot be changed"),
    validation = Rule::new("!has(self.fsType) || self.volumeMode == 'Filesystem'").message("spec.fsType is only allowed with volumeMode Filesystem"),
    validation = Rule::new("!has(self.sizeLimit) || (has(self.size) && self.size <= self.sizeLimit)").message("spec.sizeLimit needs a spec.size that is not above it"),
    validation = Rule::new("!has(self.order) || self.order != 'Settle' || has(self.keep)").message("the order Settle needs spec.keep: the id of the disk whose volume it is"),
    validation = Rule::new("oldSelf.intent != 'Delete' || self.intent == 'Delete'").message("spec.intent Delete cannot be undone: the data may be gone"),
)]
pub struct PoolVolumeSpec {
    /// The node whose disk the volume is on.
    #[schemars(with = "String", length(min = 1, max = 253))]
    pub node: NodeName,
    /// The CSI volume name; the object's name is the UUID that follows from it.
    #[schemars(length(min = 1, max = 128))]
    pub volume_name: String,
    /// Bytes that CreateVolume asked for.
    #[schemars(range(min = 0))]
    pub required: i64,
    /// The largest size that it may have, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub limit: Option<i64>,
    /// Filesystem or Block.
    pub volume_mode: VolumeMode,
    /// The filesystem, if the claim's class names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
    /// The parameters of the StorageClass, without those that Kubernetes' own tools add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// The size that it should grow to, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub size: Option<i64>,
    /// With `size`, while it is to become smaller: the largest size that it may keep, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub size_limit: Option<i64>,
    /// What a deletion of the object means. Delete: the volume is erased; only the controller may say so. Keep: nothing is erased, and the object comes back.
    #[serde(default)]
    pub intent: Intent,
    /// What a person orders. `Adopt`: use a volume that is Found. `Erase`: destroy the data of a volume that no
    /// PersistentVolume names. `Abandon`: give up the object of a volume whose Node object was deleted. `Settle`: of a volume
    /// that is in conflict between disks of its node, keep the one on the disk `keep`. The condition OrderDone shows how far
    /// it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<VolumeOrder>,
    /// With the order `Settle`: id of the disk whose volume it is. What the others have gets an id of its own, is `Found`, and
    /// keeps its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub keep: Option<DiskId>,
}

/// The annotation with the claim that has the volume, or had it last: `namespace/name`. The controller writes it.
/// It is no field, because an agent of an earlier version would drop that when it writes the object, and the
/// policy refuses this.
pub const CLAIM_ANNOTATION: &str = "localpool.dev/claim";

/// The annotation with the UID of that claim, while it is bound: the agent's Events are about it.
pub const CLAIM_UID_ANNOTATION: &str = "localpool.dev/claim-uid";
/// The annotation with the PersistentVolume that claims a volume which is Found.
pub const PERSISTENT_VOLUME_ANNOTATION: &str = "localpool.dev/persistent-volume";
/// The annotation that says when, right before the object was made, the controller found that no PersistentVolume names
/// the volume: it was not made before.
pub const NEW_ANNOTATION: &str = "localpool.dev/new-volume-at";

impl PoolVolume {
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The claim that has the volume, or had it last: `namespace/name`.
    pub fn claim(&self) -> Option<&str> {
        self.annotation(CLAIM_ANNOTATION)
    }
}

/// What a person may order for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VolumeOrder {
    // Use a volume that was found on a disk.
    Adopt,
    // Erase a volume that no PersistentVolume names.
    Erase,
    // Give up the object of a volume whose Node object was deleted: nothing is erased.
    Abandon,
    // Say which of several disks has the volume.
    Settle,
}

/// What a deletion of the object means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Intent {
    /// Nothing is erased, and the object comes back.
    #[default]
    Keep,
    /// The volume is erased. Only the controller may say so.
    Delete,
}

/// What the node's agent reports about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolVolumeStatus {
    /// How far the agent is with it.
    #[serde(default)]
    pub phase: Phase,
    /// For people: the phase, but of a volume that is Ready `Unusable` if it cannot be used now, and `Unknown` if its agent
    /// is silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// One word for machines, if the phase alone does not say why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub reason: Option<VolumeReason>,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// The same for people, such as 10Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<String>,
    /// The size that it could grow to now, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growable_to: Option<i64>,
    /// Whether it can become smaller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shrinks: bool,
    /// The filesystem that it has or will get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
    /// Id of its disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub disk: Option<DiskId>,
    // A text: as a name, one that is written in another way would be written back with a change.
    /// `namespace/name` of the set that owns the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// The last `spec.size` that the agent acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_size: Option<i64>,
    /// The last `spec.sizeLimit` that the agent acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_size_limit: Option<i64>,
    /// Why the volume does not have such a size, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize_error: Option<String>,
    /// What is wrong with it, the worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<HealthEntry>,
    /// What holds of it, and what does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The progress of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// The agent has not processed it yet.
    #[default]
    Pending,
    /// The agent refuses to make it, and has written nothing. The controller withdraws it.
    Rejected,
    /// The agent is making it.
    Accepted,
    /// It could not be made, and nothing of it is on a disk. The controller withdraws it.
    Failed,
    Ready,
    /// It is on a disk, but no object and no PersistentVolume named it.
    Found,
    /// It is being deleted, or its deletion waits for a reason that the message gives.
    Deleting,
}
