//! The CRD of LocalVolumeDiscoveryResult: the devices of one node, in the Local Storage Operator's fields and, beside
//! them, in ours. The discovery pod of the node writes it, and only on a change.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::Error as _;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::kind::{OPERATORS, definition, kind};
use super::schema::{column, integer, text};
use crate::device::{Fact, FactKind, Facts, FieldRank, NodeName, fact_table::in_results};

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
    pub node_name: NodeName,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiscoveryResultStatus {
    /// When the devices last changed.
    pub discovered_time_stamp: String,
    pub discovered_devices: Vec<DiscoveredDevice>,
    pub device_count: i64,
    pub available_count: i64,
    /// The number of devices that did not fit into the object.
    #[serde(skip_serializing_if = "super::schema::is_zero")]
    pub omitted_count: i64,
}

/// One device: its state, and the facts that a result has. Equality compares values: the API server returns fields in
/// another order than it received them.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscoveredDevice {
    facts: Facts,
    pub status: DeviceStatus,
}

impl DiscoveredDevice {
    /// The operator's fields are always there, empty if unknown; ours are only there if they have a value.
    pub fn new(mut facts: Facts, status: DeviceStatus) -> Self {
        for (fact, field) in in_results() {
            let says = facts.get(fact.name).is_some_and(|value| !value.is_empty());
            match field.rank {
                _ if says => {}
                FieldRank::Operators => facts.insert(fact.name, fact.kind().unknown()),
                FieldRank::Identity | FieldRank::Ours => facts.remove(fact.name),
            }
        }
        Self { facts, status }
    }

    /// The facts, by name.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// For an object that is too large: drops our own fields, except for those that identify the disk.
    pub fn without_ours(mut self) -> Self {
        for (fact, _) in in_results().filter(|(_, field)| field.rank == FieldRank::Ours) {
            self.facts.remove(fact.name);
        }
        self
    }
}

impl Default for DiscoveredDevice {
    fn default() -> Self {
        Self::new(Facts::default(), DeviceStatus::default())
    }
}

const STATUS: &str = "status";

impl Serialize for DiscoveredDevice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (fact, field) in in_results() {
            if let Some(value) = self.facts.get(fact.name) {
                map.serialize_entry(field.name, value)?;
            }
        }
        map.serialize_entry(STATUS, &self.status)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for DiscoveredDevice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Map::<String, Value>::deserialize(deserializer)?;
        let status = fields.remove(STATUS).map(serde_json::from_value).transpose().map_err(D::Error::custom)?;
        let keys = in_results().map(|(fact, field)| (field.name, fact));
        let facts = Facts::read(fields, keys).map_err(D::Error::custom)?;
        Ok(Self::new(facts, status.unwrap_or_default()))
    }
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

kind!(LocalVolumeDiscoveryResult, NamespaceResourceScope, OPERATORS, "v1alpha1", "localvolumediscoveryresults");

fn device() -> Value {
    let mut fields: Map<String, Value> =
        in_results().map(|(fact, field)| (field.name.to_owned(), schema(fact))).collect();
    fields.insert(
        STATUS.to_owned(),
        json!({
            "type": "object",
            "description": "Whether a set may take it.",
            "required": ["state"],
            "properties": {
                "state": {"type": "string", "enum": ["Available", "NotAvailable", "Unknown"], "description": "Available: nobody uses it, and nothing is on it."},
                "reason": text("Why it is not Available."),
            },
        }),
    );
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "required": ["path", "type", "property", "status"],
        "properties": fields,
    })
}

fn schema(fact: &Fact) -> Value {
    let mut schema = match fact.kind() {
        FactKind::Text => json!({"type": "string"}),
        FactKind::Word(choices) => json!({"type": "string", "enum": choices}),
        FactKind::Bytes | FactKind::Int64 => json!({"type": "integer", "format": "int64"}),
        FactKind::Int32 => json!({"type": "integer", "format": "int32"}),
        FactKind::Boolean => json!({"type": "boolean"}),
        FactKind::Texts => json!({"type": "array", "items": {"type": "string"}}),
    };
    schema["description"] = fact.description().into();
    schema
}

/// The CRD, without what all of our CRDs have in common.
pub fn discovery_result_crd() -> CustomResourceDefinition {
    let columns = [
        column("Node", "string", ".spec.nodeName"),
        column("Devices", "integer", ".status.deviceCount"),
        column("Available", "integer", ".status.availableCount"),
        column("Changed", "date", ".status.discoveredTimeStamp"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ];
    let schema = json!({
        "description": "The devices of one node. It stays when discovery ends; delete it when you do not \
                        need it any more.",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "description": "Whose devices these are.",
                "x-kubernetes-preserve-unknown-fields": true,
                "required": ["nodeName"],
                "properties": {"nodeName": {
                    "type": "string",
                    "minLength": 1,
                    "description": "The name of the node.",
                    "x-kubernetes-validations": [
                        {"rule": "self == oldSelf", "message": "a result always belongs to the same node"},
                    ],
                }},
            },
            "status": {
                "type": "object",
                "description": "The devices of the node.",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "discoveredTimeStamp": text("When a change of the devices was last found."),
                    "discoveredDevices": {"type": "array", "description": "Each of them, but for those that are left out because of the size of the object.", "x-kubernetes-list-type": "atomic", "items": device()},
                    "deviceCount": integer("How many devices the node has."),
                    "availableCount": integer("How many of them are Available."),
                    "omittedCount": integer("The number of devices that did not fit into the object."),
                },
            },
        },
    });
    definition::<LocalVolumeDiscoveryResult>("lvdr", &columns, schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::FactValue;

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
        let facts = device.facts();
        assert_eq!((facts.get("size"), facts.text("property")), (Some(&FactValue::Bytes(512)), Some("Rotational")));
        assert_eq!(device.status.state, DeviceState::Available);
        let ours = serde_json::to_value(DiscoveredDevice::default()).expect("written");
        let keys: Vec<&str> = ours.as_object().expect("an object").keys().map(String::as_str).collect();
        let mut expected =
            ["deviceID", "path", "model", "type", "vendor", "serial", "size", "property", "fstype", "status"];
        expected.sort_unstable();
        assert_eq!(keys, expected);
    }
}
