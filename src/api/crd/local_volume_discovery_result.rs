//! The CRD of LocalVolumeDiscoveryResult: the devices of one node, in the Local Storage Operator's fields and, beside
//! them, in ours. The discovery pod of the node writes it, and only when something changed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::{column, integer, text};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalVolumeDiscoveryResult {
    #[serde(default)]
    pub api_version: String,
    #[serde(default)]
    pub kind: String,
    pub metadata: ObjectMeta,
    pub spec: DiscoveryResultSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<DiscoveryResultStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryResultSpec {
    pub node_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiscoveryResultStatus {
    /// When the devices were last found to be others than before.
    pub discovered_time_stamp: String,
    pub discovered_devices: Vec<DiscoveredDevice>,
    pub device_count: i64,
    pub available_count: i64,
    /// Devices that the object has no room for.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted_count: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The operator's fields are always there, empty where nothing is known; ours only where there is something to say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiscoveredDevice {
    #[serde(rename = "deviceID")]
    pub device_id: String,
    pub path: String,
    pub model: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub vendor: String,
    pub serial: String,
    /// Bytes.
    pub size: i64,
    pub property: MechanicalProperty,
    pub fstype: String,
    pub status: DeviceStatus,
    #[serde(flatten)]
    pub more: DeviceFacts,
}

/// What is ours, beside the operator's fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceFacts {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub disk_id: String,
    /// `Local`, `Network` or `Unknown`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub attachment: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tran: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logical_sector_size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub physical_sector_size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zoned: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discard: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MechanicalProperty {
    Rotational,
    #[default]
    NonRotational,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceStatus {
    pub state: DeviceState,
    /// Why it is not Available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceState {
    Available,
    NotAvailable,
    #[default]
    Unknown,
}

impl kube::Resource for LocalVolumeDiscoveryResult {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        "LocalVolumeDiscoveryResult".into()
    }
    fn group((): &()) -> std::borrow::Cow<'_, str> {
        "local.storage.openshift.io".into()
    }
    fn version((): &()) -> std::borrow::Cow<'_, str> {
        "v1alpha1".into()
    }
    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        "localvolumediscoveryresults".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

fn device() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "required": ["path", "type", "property", "status"],
        "properties": {
            "deviceID": text("The persistent name, /dev/disk/by-id/…; empty where there is none."),
            "path": text("The kernel's node, which may be another after a reboot."),
            "model": {"type": "string"},
            "type": text("As lsblk says it: disk, part, lvm, mpath, loop, raid, crypt, dm, rom, other."),
            "vendor": {"type": "string"},
            "serial": {"type": "string"},
            "size": integer("Bytes."),
            "property": {"type": "string", "enum": ["Rotational", "NonRotational"]},
            "fstype": text("The first signature on it, or what is mounted from it."),
            "status": {
                "type": "object",
                "required": ["state"],
                "properties": {
                    "state": {"type": "string", "enum": ["Available", "NotAvailable", "Unknown"]},
                    "reason": text("Why it is not Available."),
                },
            },
            "diskId": text("What localpool calls the disk: never a path, never a size."),
            "attachment": {"type": "string", "enum": ["Local", "Network", "Unknown"],
                           "description": "Whether it is in this machine or comes over a network."},
            "attachedBy": text("What tells so, such as iSCSI or Amazon EBS."),
            "wwn": {"type": "string"},
            "tran": text("The wire, as lsblk's TRAN: nvme, sata, sas, usb, iscsi, fc, tcp, virtio."),
            "byPath": text("The link in /dev/disk/by-path."),
            "logicalSectorSize": {"type": "integer", "format": "int64"},
            "physicalSectorSize": {"type": "integer", "format": "int64"},
            "numaNode": {"type": "integer", "format": "int32"},
            "zoned": text("host-managed or host-aware."),
            "discard": {"type": "boolean"},
            "children": {"type": "array", "items": {"type": "string"},
                         "description": "Its partitions, and the devices that are built on it."},
        },
    })
}

/// The CRD, without what all of ours have in common.
pub fn discovery_result_crd() -> CustomResourceDefinition {
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "localvolumediscoveryresults.local.storage.openshift.io"},
        "spec": {
            "group": "local.storage.openshift.io",
            "scope": "Namespaced",
            "names": {"kind": "LocalVolumeDiscoveryResult", "listKind": "LocalVolumeDiscoveryResultList",
                      "plural": "localvolumediscoveryresults", "singular": "localvolumediscoveryresult",
                      "shortNames": ["lvdr"], "categories": ["localpool"]},
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Node", "string", ".spec.nodeName"),
                    column("Devices", "integer", ".status.deviceCount"),
                    column("Available", "integer", ".status.availableCount"),
                    column("Changed", "date", ".status.discoveredTimeStamp"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "The devices of one node. It stays when discovery ends; delete it when it is not wanted any more.",
                    "required": ["spec"],
                    "properties": {
                        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                        "spec": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": true,
                            "required": ["nodeName"],
                            "properties": {"nodeName": {
                                "type": "string",
                                "minLength": 1,
                                "x-kubernetes-validations": [
                                    {"rule": "self == oldSelf", "message": "a result belongs to one node for ever"},
                                ],
                            }},
                        },
                        "status": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": true,
                            "properties": {
                                "discoveredTimeStamp": text("When the devices were last found to be others than before."),
                                "discoveredDevices": {"type": "array", "x-kubernetes-list-type": "atomic", "items": device()},
                                "deviceCount": {"type": "integer", "format": "int64"},
                                "availableCount": {"type": "integer", "format": "int64"},
                                "omittedCount": integer("Devices that the object has no room for."),
                            },
                        },
                    },
                }},
            }],
        },
    });
    serde_json::from_value(crd).expect("the fields of a CRD, spelled out above; a test calls this")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_operator_wrote_is_read_and_what_we_write_has_its_fields_always() {
        let theirs = json!({
            "metadata": {"name": "discovery-result-a"}, "spec": {"nodeName": "a"},
            "status": {"discoveredTimeStamp": "2020-03-09T08:37:19Z", "discoveredDevices": [
                {"path": "/dev/sda", "type": "disk", "size": 512, "property": "Rotational", "status": {"state": "Available"}},
            ]},
        });
        let read: LocalVolumeDiscoveryResult = serde_json::from_value(theirs).expect("read");
        let device = &read.status.as_ref().expect("a status").discovered_devices[0];
        assert_eq!(
            (device.size, device.property, device.status.state),
            (512, MechanicalProperty::Rotational, DeviceState::Available)
        );
        let ours = serde_json::to_value(DiscoveredDevice::default()).expect("written");
        let keys: Vec<&str> = ours.as_object().expect("an object").keys().map(String::as_str).collect();
        let mut expected =
            ["deviceID", "path", "model", "type", "vendor", "serial", "size", "property", "fstype", "status"];
        expected.sort_unstable();
        assert_eq!(keys, expected);
    }
}
