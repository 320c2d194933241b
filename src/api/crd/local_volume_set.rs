//! The CRD of LocalVolumeSet, in the Local Storage Operator's group: its manifests apply unchanged.
//!
//! The schema has each field of the operator and of localpool, keeps unknown ones (the strict parser names them; a pruned
//! `dryRun` would be a real run), and forbids changes of what must not change.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::operators_group::{definition, operators_kind};
use super::schema::{column, conditions, node_selector, text, tolerations};
use crate::claim::{EXPRESSION_MAX_BYTES, ElementKind, LIST_FILTERS};

/// A set, with its spec as it was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalVolumeSet {
    #[serde(default)]
    pub api_version: String,
    #[serde(default)]
    pub kind: String,
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<LocalVolumeSetStatus>,
}

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

operators_kind!(LocalVolumeSet, "v1alpha1", "localvolumesets");

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
            "minSize": quantity("The size of the smallest device. Default: 1Gi; 0 means no minimum."),
            "maxSize": quantity("The size of the largest device."),
            "minHealth": {"type": "string", "enum": ["NotFailing", "Passed"], "description": "What a device must report about its own health (SMART). NotFailing: no failure. Passed: that it is healthy; excludes devices that report nothing. Absent: the device is not asked."},
            "expression": {"type": "string", "maxLength": EXPRESSION_MAX_BYTES, "description": "One more condition for a device, in CEL, such as: device.size > 1000000000000 && device.vendor != 'ATA'."},
        },
    });
    for list in LIST_FILTERS {
        filter["properties"][list.field] = match list.elements {
            ElementKind::Numbers { .. } => integers(list.description),
            ElementKind::Parts | ElementKind::Words | ElementKind::Globs(_) => texts(list.description),
        };
    }
    filter
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
        "required": ["storageClassName"],
        "properties": {
            "storageClassName": {"type": "string", "minLength": 1, "description": "The StorageClass that offers the disks; it is created if it does not exist."},
            "nodeSelector": node_selector(),
            "tolerations": tolerations(),
            "minDeviceCount": {"type": "integer", "format": "int32", "minimum": 0, "nullable": true, "description": "If fewer devices of a node match, none of them is claimed."},
            "maxDeviceCount": {"type": "integer", "format": "int32", "minimum": 0, "nullable": true, "description": "The largest number of devices that the set claims on a node."},
            "volumeMode": {"type": "string", "enum": ["Block", "Filesystem", "block", "filesystem"], "description": "Restricts the volumeMode of the volumes. Absent: the claim chooses it."},
            "fsType": text("ext4, xfs or btrfs, if neither the claim nor the class names one. Default: ext4."),
            "fstype": text("An older spelling of fsType."),
            "filesystem": text("An older spelling of fsType."),
            "layout": {"type": "string", "enum": ["Whole", "RawDevice"], "description": "RawDevice: the bare device, without a label or a partition table."},
            "blankness": {"type": "string", "enum": ["Signatures", "Zeros"], "description": "Zeros: a disk with unrecognised data is not claimed. Default: Signatures."},
            "erasePolicy": {"type": "string", "enum": ["discard", "zero", "none"], "description": "What happens to a deleted volume's data. Default: discard, which zeroes."},
            "reclaim": {"type": "string", "enum": ["Keep", "Release"], "description": "Release: a disk is released when its last volume is erased. Default: Keep."},
            "dryRun": {"type": "boolean", "description": "Claim nothing; only report in the status what would be \
                                                          claimed. Default: false."},
            "deviceInclusionSpec": filter(),
            "deviceExclusionSpec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "deviceNameFilter": texts("Globs for kernel names; a device that matches one of them is not \
                                               claimed."),
                    "excludeNetworkDisks": {"type": "boolean", "description": "Exclude disks whose data comes over a network, as far as the machine can tell. Default: false."},
                },
            },
            "partitioningSpec": partitioning(),
        },
        "x-kubernetes-validations": [
            {"rule": "has(self.partitioningSpec) == has(oldSelf.partitioningSpec)",
             "message": "spec.partitioningSpec can be neither added nor removed later: make another set"},
            {"rule": "!has(self.partitioningSpec) || !has(oldSelf.partitioningSpec) || self == oldSelf || (has(oldSelf.dryRun) && oldSelf.dryRun)",
             "message": "the spec of a set with a partitioningSpec cannot be changed: make another set"},
            {"rule": "has(self.layout) == has(oldSelf.layout) && (!has(self.layout) || self.layout == oldSelf.layout)",
             "message": "spec.layout cannot be changed: make another set"},
        ],
    })
}

fn status() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "conditions": conditions(),
            "totalProvisionedDeviceCount": {"type": "integer", "format": "int32"},
            "totalProvisionedPartitionCount": {"type": "integer", "format": "int32"},
            "observedGeneration": {"type": "integer", "format": "int64"},
            "wouldTakeDevicesOmitted": {"type": "integer", "format": "int64"},
            "unmatchedDevicesOmitted": {"type": "integer", "format": "int64"},
            "wouldTakeDevices": {"type": "array", "items": {"type": "object", "properties": {
                "node": {"type": "string"}, "device": {"type": "string"},
            }}},
            "unmatchedDevices": {"type": "array", "items": {"type": "object", "properties": {
                "node": {"type": "string"}, "device": {"type": "string"}, "reason": {"type": "string"},
            }}},
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
