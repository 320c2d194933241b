//! The CRD of LocalVolumeDiscovery, in the Local Storage Operator's group: asks for an inventory of the devices of some
//! nodes. There is one object with a fixed name, as in the operator.
//!
//! The spec stays untyped JSON: our own strict parser names unknown fields.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kind::{OPERATORS, WrittenObject, definition, kind};
use super::schema::{column, conditions, integer, node_selector, tolerations};

/// The name of the one object.
pub const DISCOVERY_NAME: &str = "auto-discover-devices";

pub type LocalVolumeDiscovery = WrittenObject<LocalVolumeDiscoveryStatus>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalVolumeDiscoveryStatus {
    pub phase: DiscoveryPhase,
    pub conditions: Vec<Condition>,
    pub observed_generation: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiscoveryPhase {
    #[default]
    Discovering,
    DiscoveryFailed,
}

kind!(LocalVolumeDiscovery, NamespaceResourceScope, OPERATORS, "v1alpha1", "localvolumediscoveries");

/// The CRD, without what all of our CRDs have in common.
pub fn discovery_crd() -> CustomResourceDefinition {
    let columns = [
        column("Phase", "string", ".status.phase"),
        column("Available", "string", ".status.conditions[?(@.type==\"Available\")].status"),
        column("Message", "string", ".status.conditions[?(@.type==\"Available\")].message"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ];
    let schema = json!({
        "description": "Discovers the devices of nodes continuously, and reports them in a \
                        LocalVolumeDiscoveryResult for each node.",
        "x-kubernetes-validations": [{
            "rule": format!("self.metadata.name == '{DISCOVERY_NAME}'"),
            "message": format!("the only LocalVolumeDiscovery is called {DISCOVERY_NAME}: use this name"),
        }],
        "properties": {
            "spec": {
                "type": "object",
                "description": "On which nodes devices are discovered.",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"nodeSelector": node_selector(), "tolerations": tolerations()},
            },
            "status": {
                "type": "object",
                "description": "How far the discovery is.",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "phase": {"type": "string", "enum": ["Discovering", "DiscoveryFailed"], "description": "Whether all nodes are discovered."},
                    "conditions": conditions(),
                    "observedGeneration": integer("The generation that this is about."),
                },
            },
        },
    });
    definition::<LocalVolumeDiscovery>("lvd", &columns, schema)
}
