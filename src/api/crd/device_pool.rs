//! DevicePool: the disks of one node, what they can offer, and why others were not taken.
//!
//! The user writes the spec, but for the list of PersistentVolumes and the answer to the agent's question, which the
//! controller writes. The node's agent writes the status, and only on a change; the controller writes one of its
//! conditions, [`READY`], because an agent cannot say that it is silent.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema, ResourceExt as _};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::benchmark::{BenchmarkRequest, DiskBenchmark};
use super::health::HealthEntry;
use super::named_disk::{FolderQuota, NamedDiskStatus};
use super::question::{PoolAnswer, PoolQuestion};
use crate::claim::VolumeMode;
use crate::device::{DiskId, FilesystemName, NodeName, SetName};
use crate::host::MachineModel;

/// Type of the condition that says whether the node's agent answers.
pub const READY: &str = "Ready";

/// What a person requests for a node's pool.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "localpool.dev",
    version = "v1alpha1",
    kind = "DevicePool",
    plural = "devicepools",
    shortname = "ldp",
    category = "localpool",
    status = "DevicePoolStatus",
    derive = "PartialEq",
    doc = "The disks that localpool has claimed on one node, and the space that they offer. Its name is the name of \
           the node.",
    printcolumn = r#"{"name":"Agent","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Since","type":"date","jsonPath":".status.conditions[?(@.type==\"Ready\")].lastTransitionTime"}"#,
    printcolumn = r#"{"name":"Disks","type":"integer","jsonPath":".status.diskCount"}"#,
    printcolumn = r#"{"name":"Missing","type":"integer","jsonPath":".status.missingDisks"}"#,
    printcolumn = r#"{"name":"Unhealthy","type":"integer","jsonPath":".status.unhealthyDisks"}"#,
    printcolumn = r#"{"name":"Cordoned","type":"integer","jsonPath":".status.cordonedDisks"}"#,
    printcolumn = r#"{"name":"Volumes","type":"integer","jsonPath":".status.volumeCount"}"#,
    printcolumn = r#"{"name":"Size","type":"string","jsonPath":".status.size"}"#,
    printcolumn = r#"{"name":"Free","type":"string","jsonPath":".status.free"}"#,
    printcolumn = r#"{"name":"Largest","type":"string","jsonPath":".status.largest"}"#,
    printcolumn = r#"{"name":"Cordon","type":"boolean","jsonPath":".spec.cordon"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.version","priority":1}"#,
    printcolumn = r#"{"name":"Orders","type":"string","jsonPath":".status.orders[*].state","priority":1}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].message","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct DevicePoolSpec {
    /// Accept no new volumes on this node; existing volumes can still be used.
    #[serde(default)]
    pub cordon: bool,
    /// What you choose for single disks of the pool, by their ids; and filesystems that you have mounted, by names of
    /// your choice: these entries have a `path`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, DiskChoice>")]
    pub disks: BTreeMap<DiskId, DiskChoice>,
    /// Local PersistentVolumes of other provisioners on this node: the agent looks at their paths. The controller writes
    /// this list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persistent_volumes: Vec<WatchedVolume>,
    /// How many there are in addition: the agent does not look at their paths. The controller writes this number.
    #[serde(default, skip_serializing_if = "super::schema::is_zero")]
    pub persistent_volumes_omitted: i64,
    /// What the controller answers to the question in the status. The controller writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<PoolAnswer>,
    /// The disks whose speed is to be measured, for pods that wait for that. The controller writes this list, as a
    /// NodeDiskSetup asks for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub benchmarks: Vec<BenchmarkRequest>,
}

/// What a person has chosen for one disk, or a filesystem that a person has mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskChoice {
    /// Where you have mounted a filesystem: its mount point on the node, without links. Such an entry has neither
    /// `cordon` nor `order`. `status.diskStatus` tells which filesystem is there. A LocalVolumeSet with `filesystems`
    /// has volumes on it, as folders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// With `path`: whether it takes new volumes. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_scheduling: Option<bool>,
    /// With `path`: words by which sets choose it for volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// With `path`: what keeps a volume within its size. `none`: nothing; it can take the space of the others. Default:
    /// `project`, which needs XFS that is mounted with `prjquota`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<FolderQuota>,
    /// Accept no new volumes on this disk (`true`), or accept them although it is not healthy (`false`). Without a
    /// value, the agent decides by the disk's health.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<bool>,
    /// Bytes of this disk that are kept free of volumes, such as 10Gi. Only disks of the layout `Directory` and
    /// filesystems with a `path` have that. Without a value, `reserved` of its set counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "reserved")]
    pub reserved: Option<Value>,
    /// What you order to be done with this disk. `Drain`: wait until nothing is on it. `Release`: the same, then wipe its
    /// label. `GiveUp`: do not wait any more for a disk that is missing. `Adopt`: use a disk that was released, that was
    /// given up and is back, or that has the label of another node. An order is carried out once; `status.orders` shows
    /// how far it is. With any order but `Adopt`, the disk takes no new volumes, whatever `cordon` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<DiskOrder>,
}

/// Bytes, or a quantity.
fn reserved(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "nullable": true,
        "minimum": 0,
        "pattern": "^[0-9]+([.][0-9]+)?(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$",
    })
}

/// What a person may order for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DiskOrder {
    // Wait until nothing is on it any more.
    Drain,
    // The same, and then release it: it is blank, and no set claims it.
    Release,
    // Do not wait for it any more: it is missing, and its volumes are lost.
    GiveUp,
    // Use it here: it has the label of another node, was released, or was given up and is back.
    Adopt,
}

impl DiskOrder {
    /// Whether the disk takes no new volumes as long as this is ordered.
    pub fn closes(self) -> bool {
        match self {
            Self::Drain | Self::Release | Self::GiveUp => true,
            Self::Adopt => false,
        }
    }
}

/// How far an order for a disk is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskOrderStatus {
    /// Id of the disk.
    #[schemars(with = "String")]
    pub disk: DiskId,
    pub order: DiskOrder,
    /// Waiting: it is tried again by itself. Refused: it is not tried again until the order changes.
    pub state: OrderState,
    /// What it waits for, why it was refused, or what was done.
    pub message: String,
    /// Since when it is in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OrderState {
    // It is tried again by itself.
    Waiting,
    Done,
    // It is not tried again until the order changes.
    Refused,
}

/// A local PersistentVolume whose path the node's agent looks at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatchedVolume {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Where it is on the node.
    pub path: String,
    /// What it promises, in bytes.
    #[serde(default)]
    pub capacity: i64,
    /// Filesystem or Block.
    pub volume_mode: VolumeMode,
    /// It was a mount point before, or its provisioner makes nothing else.
    #[serde(default)]
    pub mount_point: bool,
    /// The UID of the claim that has it. With it, the agent says which filesystem or device is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_uid: Option<String>,
    /// Which filesystem was mounted there, or which device it led to, when the agent looked first since the claim has
    /// it, as `identity` in the status says it. Another one is `WrongDevice`. If you have replaced it on purpose,
    /// remove this field when it has that mark: the controller takes what is there then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}

/// What the agent found at the path of a local PersistentVolume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatchedVolumeStatus {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// A filesystem is or was mounted there.
    #[serde(default)]
    pub mount_point: bool,
    /// The UID of the claim that had it before the agent looked for `identity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_uid: Option<String>,
    /// Which filesystem is mounted there now (`fs-UUID`), or which device it leads to. Without a value, nobody says, or
    /// no claim has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// What is wrong with it, the worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<HealthEntry>,
}

/// What the agent reports. Sizes are in bytes if they are numbers, and for people if they are text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevicePoolStatus {
    /// The version of the agent that wrote this.
    #[serde(default)]
    pub version: String,
    /// The process of the agent that wrote this: when it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// What the firmware says of the machine (DMI).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineModel>,
    /// How many disks the pool has.
    #[serde(default)]
    pub disk_count: i64,
    /// How many of them the node does not have now.
    #[serde(default)]
    pub missing_disks: i64,
    /// How many of the others are not healthy.
    #[serde(default)]
    pub unhealthy_disks: i64,
    /// How many disks take no new volumes, because of their health or because a person has cordoned them.
    #[serde(default)]
    pub cordoned_disks: i64,
    /// How many volumes are on them.
    #[serde(default)]
    pub volume_count: i64,
    /// The size of all disks together, such as 10Gi.
    #[serde(default)]
    pub size: String,
    /// What of it no volume has, such as 10Gi.
    #[serde(default)]
    pub free: String,
    /// The size of the largest volume that can be created now.
    #[serde(default)]
    pub largest: String,
    /// Each disk of the pool.
    #[serde(default)]
    pub disks: Vec<DiskStatus>,
    /// The filesystems that the spec names with a `path`, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, NamedDiskStatus>")]
    pub disk_status: BTreeMap<FilesystemName, NamedDiskStatus>,
    /// How far the orders of the spec are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<DiskOrderStatus>,
    /// The space that each set offers here, and the devices that it does not take.
    #[serde(default)]
    pub sets: Vec<SetOffer>,
    /// The PersistentVolumes of the spec that were looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persistent_volumes: Vec<WatchedVolumeStatus>,
    /// What the agent asked last about PersistentVolumes, which only the controller reads. It asks before it claims a disk,
    /// or makes or finds a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<PoolQuestion>,
    /// Each belongs to the one who wrote it.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskStatus {
    /// What the disk is called in orders: the GUID in its label, or what its hardware says.
    #[schemars(with = "String")]
    pub id: DiskId,
    /// Its device node, or the last one that it had.
    pub path: String,
    /// What its hardware calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `Whole`, `Slots`, `Carved`, `Directory`, `RawDevice`, or `Member`: of an array.
    pub layout: String,
    // A text: as a name, one that is written in another way would be written back with a change.
    /// `namespace/name` of the set that owns it.
    pub set: String,
    /// Bytes.
    pub size: i64,
    /// Bytes that no volume has.
    pub free: i64,
    /// Bytes of deleted volumes that are not erased yet.
    #[serde(default, skip_serializing_if = "super::schema::is_zero")]
    pub erasing: i64,
    /// Kept free of volumes.
    #[serde(default, skip_serializing_if = "super::schema::is_zero")]
    pub reserved: i64,
    /// How many volumes are on it.
    pub volumes: i64,
    /// Where the node has its filesystem mounted for others than localpool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// Ready, NotReady: it cannot be used now; or Missing: the node does not have it.
    pub state: DiskState,
    /// Since when it is in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_since: Option<Time>,
    /// Why it is not Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why no new volumes are made on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<String>,
    /// What was measured of it, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub benchmark: Option<DiskBenchmark>,
    /// What is wrong with it, the worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<HealthEntry>,
    /// `Healthy`: True as long as nothing is wrong with the disk, or False with the worst reason of `health`.
    /// `lastTransitionTime` says since when, also since when it is healthy again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DiskState {
    #[default]
    Ready,
    NotReady,
    Missing,
}

/// The space that one set offers on this node now, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetOffer {
    /// The namespace of the set.
    pub namespace: String,
    /// The name of the set.
    pub name: String,
    /// The UID of the set.
    #[serde(default)]
    pub uid: String,
    /// The StorageClass that offers the space.
    pub class: String,
    /// How many devices of this node the set has.
    pub devices: i64,
    /// How many volumes and free slots are on them.
    pub partitions: i64,
    /// For a volume with a filesystem.
    pub available: i64,
    /// The largest volume with a filesystem that can be created now.
    pub largest: i64,
    /// The smallest one.
    pub smallest: i64,
    /// For a raw block volume, which only gets clean space.
    pub block_available: i64,
    /// The largest raw block volume that can be created now.
    pub block_largest: i64,
    /// The smallest one.
    pub block_smallest: i64,
    /// The set does not select this node, by its nodeSelector or its nodeExclusions. Then it says nothing of devices here that are not its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub node_not_selected: bool,
    /// Why the set is not valid, or selects nothing here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Devices that a dry run would take, at most 32 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub would_take: Vec<String>,
    /// The number of devices that it would take in addition.
    #[serde(default, skip_serializing_if = "super::schema::is_zero")]
    pub would_take_omitted: i64,
    /// Devices that it does not take, at most 32 of them. Those that it almost takes come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<Unmatched>,
    /// The number of devices that it does not take in addition.
    #[serde(default, skip_serializing_if = "super::schema::is_zero")]
    pub unmatched_omitted: i64,
    /// For a set with a partitioningSpec: the progress of each of its disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitioning: Vec<DiskPartitioning>,
    /// Paths of a LocalVolume that lead to no device here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_device_paths: Vec<String>,
}

impl DevicePoolSpec {
    /// What is chosen for disks of the pool: entries without a path.
    pub fn pool_disks(&self) -> impl Iterator<Item = (&DiskId, &DiskChoice)> {
        self.disks.iter().filter(|(_, choice)| choice.path.is_none())
    }
}

impl DevicePool {
    pub fn node(&self) -> NodeName {
        self.name_any().into()
    }
}

impl SetOffer {
    pub fn set_name(&self) -> SetName {
        SetName::new(&self.namespace, &self.name)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskPartitioning {
    /// The path of the device.
    pub device: String,
    /// Unpartitioned: the set will take it once it has been blank for long enough. Partitioning: it is being claimed. Done.
    pub state: PartitioningState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PartitioningState {
    // The set will take it, once it has been blank for long enough.
    #[default]
    Unpartitioned,
    // It is being claimed.
    Partitioning,
    // Its table is written: it is not laid out again.
    Done,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unmatched {
    /// The path of the device.
    pub device: String,
    /// Why the set does not take it.
    pub reason: String,
}
