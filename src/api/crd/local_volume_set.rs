//! The CRD of LocalVolumeSet, in the Local Storage Operator's group: its manifests apply unchanged.
//!
//! The schema has each field of the operator and of localpool, keeps unknown ones (the strict parser names them; a
//! pruned `dryRun` would be a real run), and forbids changes of what must not change.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kind::{OPERATORS, WrittenObject, definition, kind};
use super::schema::{column, conditions, devices, integer, node_selector, text, tolerations};
use crate::claim::{
    EXPRESSION_MAX_BYTES, ElementKind, FilterSection, LIST_FILTERS, MinHealth, OVERPROVISION, VALUE_FILTERS, ValueKind,
};

/// A set, with its spec as it was written.
pub type LocalVolumeSet = WrittenObject<LocalVolumeSetStatus>;

/// What the controller reports: the operator's fields, and which devices were not taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalVolumeSetStatus {
    pub conditions: Vec<Condition>,
    pub total_provisioned_device_count: i32,
    pub total_provisioned_partition_count: i32,
    pub observed_generation: i64,
    // Also written if empty: a merge patch does not change what it leaves out.
    pub unmatched_devices: Vec<Value>,
    /// How many more were not taken than are named.
    pub unmatched_devices_omitted: i64,
    /// The devices that a dry run would take.
    pub would_take_devices: Vec<Value>,
    pub would_take_devices_omitted: i64,
}

kind!(LocalVolumeSet, NamespaceResourceScope, OPERATORS, "v1alpha1", "localvolumesets");

fn texts(description: &str) -> Value {
    json!({"type": "array", "items": {"type": "string"}, "nullable": true, "description": description})
}

fn integers(description: &str) -> Value {
    json!({"type": "array", "items": {"type": "integer", "format": "int32", "minimum": 0}, "nullable": true, "description": description})
}

fn quantity(description: &str) -> Value {
    json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true, "description": description})
}

fn filter() -> Value {
    let mut filter = json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "description": "Which devices may be claimed; a device must match all fields that are set.",
        "properties": {
            "deviceTypes": texts("disk, part, loop, mpath (RawDisk and Partition are accepted too). Default: disk."),
            "devices": texts("An older spelling of deviceTypes."),
            "deviceMechanicalProperties": texts("Rotational, NonRotational. Default: both."),
            "deviceMechanicalProperty": texts("An older spelling of deviceMechanicalProperties."),
        },
    });
    add_values(&mut filter, FilterSection::Inclusion);
    for list in LIST_FILTERS {
        filter["properties"][list.field] = match list.elements {
            ElementKind::Numbers { .. } => integers(list.description),
            ElementKind::Parts | ElementKind::Words | ElementKind::Globs(_) => texts(list.description),
        };
    }
    filter
}

/// The filters of one section that are one value.
fn add_values(filter: &mut Value, section: FilterSection) {
    for value in VALUE_FILTERS.iter().filter(|value| value.section == section) {
        filter["properties"][value.field] = match value.kind {
            ValueKind::Bytes(_) => quantity(value.description),
            ValueKind::Flag(_) => json!({"type": "boolean", "description": value.description}),
            ValueKind::Health(_) => {
                let words = MinHealth::WORDS.map(|(word, _)| word);
                json!({"type": "string", "enum": words, "description": value.description})
            }
            ValueKind::Expression(_) => {
                json!({"type": "string", "maxLength": EXPRESSION_MAX_BYTES, "description": value.description})
            }
        };
    }
}

fn exclusion() -> Value {
    let mut exclusion = json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "description": "Which of the devices that match are not claimed all the same: one of these fields is enough.",
        "properties": {
            "deviceNameFilter": texts("Globs for kernel names; a device that matches one of them is not claimed."),
        },
    });
    add_values(&mut exclusion, FilterSection::Exclusion);
    exclusion
}

fn partitioning() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "description": "How disks are partitioned. Absent: a disk is one volume.",
        "properties": {
            "partSize": quantity("The size of each partition; the disk is filled with them."),
            "size": quantity("An older spelling of partSize."),
            "count": {"type": "integer", "format": "int64", "minimum": 1, "description": "The number of partitions of each disk."},
            "mode": {"type": "string", "enum": ["Dynamic"], "description": "Dynamic: each volume gets a partition of its own size."},
        },
    })
}

fn spec() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "description": "Which disks of which nodes, what is made of them, and the class that offers them.",
        "properties": {
            "storageClassName": {"type": "string", "minLength": 1, "description": "The StorageClass that offers the disks; it is created if it does not exist. It is required without a hostMountPath. With one and without a class nothing offers the disks: they are only mounted."},
            "nodeSelector": node_selector(),
            "nodeExclusions": {"type": "array", "nullable": true, "description": "Nodes that it does not select, whatever nodeSelector says.", "items": node_selector()},
            "tolerations": tolerations(),
            "minDeviceCount": {"type": "integer", "format": "int32", "minimum": 0, "nullable": true, "description": "If fewer devices of a node match, none of them is claimed."},
            "maxDeviceCount": {"type": "integer", "format": "int32", "minimum": 0, "nullable": true, "description": "The largest number of devices that the set claims on a node."},
            "volumeMode": {"type": "string", "enum": ["Block", "Filesystem", "block", "filesystem"], "description": "Restricts the volumeMode of the volumes. Absent: the claim chooses it."},
            "fsType": text("ext4, xfs or btrfs, if neither the claim nor the class names one. Default: ext4."),
            "fstype": text("An older spelling of fsType."),
            "filesystem": text("An older spelling of fsType."),
            "layout": {"type": "string", "enum": ["Whole", "Directory", "RawDevice"], "description": "Directory: volumes are folders of one XFS on each disk. RawDevice: the bare device, without a label or a partition table."},
            "array": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "required": ["level"],
                "description": "The disks that the set takes on a node become one array, which then has the layout. It is made once, of all disks that match then: minDeviceCount says how many these must be.",
                "properties": {"level": {"type": "string", "enum": ["raid0"], "description": "raid0: the space and the speed of all disks together; with one of them all is lost."}},
            },
            "quota": {"type": "string", "enum": ["project", "none"], "description": "With the layout Directory: what keeps a volume within its size. none: nothing; it can take the space of the others. Default: project, which needs a kernel with quota for XFS."},
            "hostMountPath": text("With the layout Directory: the folder of the node below which the filesystem of each disk is mounted for others, under the id of the disk. It must be one of the chart's value node.hostMountDirs, or in one. What is mounted already stays where it is."),
            "filesystems": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "nullable": true,
                "description": "With the layout Directory: the set takes filesystems that an administrator mounted and named in spec.disks of a DevicePool, and no disks.",
                "properties": {"tags": texts("The words that an entry must have in its tags, each of them. Without words the set takes each named filesystem of its nodes.")},
            },
            "overprovision": {"type": "integer", "format": "int32", "minimum": OVERPROVISION.start(), "maximum": OVERPROVISION.end(), "nullable": true, "description": "With the layout Directory: how much the volumes of a disk may be promised together, in percent of its space. 200: twice as much as there is. Default: 100."},
            "reserved": quantity("With the layout Directory: the bytes of each disk that are kept free of volumes. Default: 0."),
            "blankness": {"type": "string", "enum": ["Signatures", "Zeros"], "description": "Zeros: a disk with unrecognised data is not claimed. Default: Signatures."},
            "erasePolicy": {"type": "string", "enum": ["discard", "zero", "none"], "description": "What happens to a deleted volume's data. Default: discard, which zeroes."},
            "reclaim": {"type": "string", "enum": ["Keep", "Release"], "description": "Release: a disk is released when its last volume is erased. Default: Keep."},
            "dryRun": {"type": "boolean", "description": "Claim nothing; only report in the status what would be \
                                                          claimed. Default: false."},
            "deviceInclusionSpec": filter(),
            "deviceExclusionSpec": exclusion(),
            "partitioningSpec": partitioning(),
        },
        "x-kubernetes-validations": validations(),
    })
}

fn validations() -> Vec<Value> {
    let rule = |rule: &str, message: &str| json!({"rule": rule, "message": message});
    let mut rules = vec![
        rule(
            "has(self.storageClassName) || has(self.hostMountPath)",
            "spec.storageClassName is required: without it nothing offers the disks",
        ),
        rule(
            "has(self.partitioningSpec) == has(oldSelf.partitioningSpec)",
            "spec.partitioningSpec can be neither added nor removed later: make another set",
        ),
        rule(
            "!has(self.partitioningSpec) || !has(oldSelf.partitioningSpec) || self == oldSelf || (has(oldSelf.dryRun) && oldSelf.dryRun)",
            "the spec of a set with a partitioningSpec cannot be changed: make another set",
        ),
        rule(
            "has(self.layout) == has(oldSelf.layout) && (!has(self.layout) || self.layout == oldSelf.layout)",
            "spec.layout cannot be changed: make another set",
        ),
        rule(
            "has(self.array) == has(oldSelf.array) && (!has(self.array) || self.array == oldSelf.array)",
            "spec.array cannot be changed: make another set",
        ),
        rule(
            "has(self.filesystems) == has(oldSelf.filesystems)",
            "spec.filesystems can be neither added nor removed later: make another set",
        ),
    ];
    for field in
        ["array", "deviceInclusionSpec", "deviceExclusionSpec", "minDeviceCount", "maxDeviceCount", "hostMountPath"]
    {
        let message = format!("a set with filesystems takes no disks: spec.{field} cannot be combined with it");
        rules.push(rule(&format!("!has(self.filesystems) || !has(self.{field})"), &message));
    }
    // What belongs to the layout Directory alone, and what does not go with it.
    let is_directory = "has(self.layout) && self.layout == 'Directory'";
    for field in ["quota", "hostMountPath", "overprovision", "reserved", "filesystems"] {
        let message = format!("spec.{field} is for the layout Directory alone");
        rules.push(rule(&format!("!has(self.{field}) || ({is_directory})"), &message));
    }
    for (field, allowed, message) in [
        ("partitioningSpec", "false", "the layout Directory cannot be combined with a partitioningSpec"),
        ("volumeMode", "self.volumeMode.lowerAscii() != 'block'", "the layout Directory has no raw block volumes"),
        ("fsType", "self.fsType == 'xfs'", "spec.fsType must be xfs with the layout Directory, or be left out"),
        (
            "erasePolicy",
            "self.erasePolicy != 'zero'",
            "with the layout Directory nothing can be overwritten: spec.erasePolicy cannot be zero",
        ),
    ] {
        rules.push(rule(&format!("!({is_directory}) || !has(self.{field}) || {allowed}"), message));
    }
    rules
}

fn status() -> Value {
    let count = |description: &str| json!({"type": "integer", "format": "int32", "description": description});
    json!({
        "type": "object",
        "description": "What the set has, and what it does not take.",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "conditions": conditions(),
            "totalProvisionedDeviceCount": count("How many devices it has on all nodes."),
            "totalProvisionedPartitionCount": count("How many volumes and free slots are on them."),
            "observedGeneration": integer("The generation that this is about."),
            "wouldTakeDevicesOmitted": integer("How many there are in addition."),
            "unmatchedDevicesOmitted": integer("How many there are in addition."),
            "wouldTakeDevices": devices("With dryRun: the devices that it would take.", &[]),
            "unmatchedDevices": devices("Devices that it does not take. Those that it almost takes come first.", &[("reason", text("Why not."))]),
        },
    })
}

/// The CRD, without what all of our CRDs have in common.
pub fn set_crd() -> CustomResourceDefinition {
    let columns = [
        column("StorageClass", "string", ".spec.storageClassName"),
        column("Devices", "integer", ".status.totalProvisionedDeviceCount"),
        column("Partitions", "integer", ".status.totalProvisionedPartitionCount"),
        column("Available", "string", ".status.conditions[?(@.type==\"Available\")].status"),
        column("Message", "string", ".status.conditions[?(@.type==\"Available\")].message"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ];
    let schema = json!({
        "description": "Which local disks of which nodes may be used for volumes, and how.",
        "required": ["spec"],
        "properties": {"spec": spec(), "status": status()},
    });
    definition::<LocalVolumeSet>("lvset", &columns, schema)
}
