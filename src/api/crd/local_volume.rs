//! The CRD of LocalVolume, in the Local Storage Operator's group: its manifests apply unchanged.
//!
//! The schema has the operator's fields and keeps unknown ones, which our strict parser names; the status has the
//! operator's fields, and also the result for each path.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::operators_group::{definition, operators_kind};
use super::schema::{column, conditions, node_selector, text, tolerations};

/// A LocalVolume, with its spec as it was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalVolume {
    #[serde(default)]
    pub api_version: String,
    #[serde(default)]
    pub kind: String,
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<LocalVolumeStatus>,
}

/// What the controller reports: the operator's fields first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalVolumeStatus {
    pub observed_generation: i64,
    pub management_state: String,
    /// Nodes whose agents have reported it.
    pub ready_replicas: i32,
    pub conditions: Vec<Condition>,
    pub total_provisioned_device_count: i32,
    /// At most 64 of them, and the number of the others.
    pub missing_device_paths: Vec<Value>,
    pub missing_device_paths_omitted: i64,
    /// At most 64 of them, and the number of the others.
    pub unmatched_devices: Vec<Value>,
    pub unmatched_devices_omitted: i64,
}

operators_kind!(LocalVolume, "v1", "localvolumes");

fn spec() -> Value {
    // The bounds keep the cost of the rule within what the API server allows.
    let path = json!({
        "type": "string",
        "maxLength": 1024,
        "x-kubernetes-validations": [
            {"rule": "self.startsWith('/dev/')", "message": "a device path must begin with /dev/"},
        ],
    });
    let entry = json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "required": ["storageClassName"],
        "properties": {
            "storageClassName": {"type": "string", "minLength": 1, "maxLength": 253, "description": "The StorageClass that offers the disks; it is created if it does not exist."},
            "volumeMode": {"type": "string", "enum": ["Block", "Filesystem", "block", "filesystem", ""], "description": "Restricts the volumeMode of the volumes. Absent: the claim chooses it."},
            "fsType": text("ext4, xfs or btrfs, if neither the claim nor the class names one. Default: ext4."),
            "devicePaths": {"type": "array", "maxItems": 256, "nullable": true, "items": path, "description": "The disks to use, by device nodes, or better by links below /dev/disk/by-id; each path names one disk of each selected node."},
            "forceWipeDevicesAndDestroyAllData": {"type": "boolean", "description": "Destroy the content of the named disks, unless somebody uses it. Default: false."},
        },
    });
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "managementState": {"type": "string", "enum": ["Managed", "Unmanaged", "Force", "Removed", ""], "description": "With Unmanaged or Removed, no new device is claimed."},
            "logLevel": {"type": "string", "enum": ["", "Normal", "Debug", "Trace", "TraceAll"], "description": "Accepted; it changes nothing."},
            "nodeSelector": node_selector(),
            "tolerations": tolerations(),
            "storageClassDevices": {"type": "array", "maxItems": 64, "nullable": true, "items": entry, "description": "Which disks each StorageClass offers."},
        },
    })
}

fn status() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"},
            "managementState": {"type": "string"},
            "readyReplicas": {"type": "integer", "format": "int32"},
            "conditions": conditions(),
            "generations": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "totalProvisionedDeviceCount": {"type": "integer", "format": "int32"},
            "missingDevicePaths": {"type": "array", "items": {"type": "object", "properties": {
                "node": {"type": "string"}, "path": {"type": "string"},
            }}},
            "missingDevicePathsOmitted": {"type": "integer", "format": "int64"},
            "unmatchedDevices": {"type": "array", "items": {"type": "object", "properties": {
                "node": {"type": "string"}, "device": {"type": "string"}, "reason": {"type": "string"},
            }}},
            "unmatchedDevicesOmitted": {"type": "integer", "format": "int64"},
        },
    })
}

/// The CRD, without what all of our CRDs have in common.
pub fn volume_crd() -> CustomResourceDefinition {
    let columns = [
        column("Devices", "integer", ".status.totalProvisionedDeviceCount"),
        column("Available", "string", ".status.conditions[?(@.type==\"Available\")].status"),
        column("Message", "string", ".status.conditions[?(@.type==\"Available\")].message"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ];
    let schema = json!({
        "description": "Disks, named by their paths, and the StorageClasses that offer them.",
        "required": ["spec"],
        "properties": {"spec": spec(), "status": status()},
    });
    definition::<LocalVolume>("lvol", &columns, schema)
}
