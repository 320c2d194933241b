//! The CRD of LocalVolume, in the Local Storage Operator's group: its manifests apply unchanged.
//!
//! The schema has the operator's fields and keeps unknown ones, which our strict parser names; the status has the
//! operator's fields, and also the result for each path.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kind::{OPERATORS, WrittenObject, definition, kind};
use super::schema::{column, conditions, devices, integer, node_selector, objects, text, tolerations};

/// A LocalVolume, with its spec as it was written.
pub type LocalVolume = WrittenObject<LocalVolumeStatus>;

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

kind!(LocalVolume, NamespaceResourceScope, OPERATORS, "v1", "localvolumes");

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
        "description": "Which disks are used, and for which classes.",
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
    let count = |description: &str| json!({"type": "integer", "format": "int32", "description": description});
    let paths = json!({"node": text("The name of the node."), "path": text("The path that leads to no device there.")});
    json!({
        "type": "object",
        "description": "What became of it.",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "observedGeneration": integer("The generation that this is about."),
            "managementState": text("The state that counts now."),
            "readyReplicas": count("How many nodes have an agent that has answered for it."),
            "conditions": conditions(),
            "generations": {"type": "array", "description": "Of the Local Storage Operator; localpool does not write it.", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "totalProvisionedDeviceCount": count("How many devices it has."),
            "missingDevicePaths": objects("Paths that lead to no device.", &paths),
            "missingDevicePathsOmitted": integer("How many there are in addition."),
            "unmatchedDevices": devices("Devices that it names and does not take.", &[("reason", text("Why not."))]),
            "unmatchedDevicesOmitted": integer("How many there are in addition."),
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
