//! The CRD of LocalVolumeDiscovery, in the Local Storage Operator's group: asks for an inventory of the devices of some
//! nodes. There is one object with a fixed name, as in the operator.
//!
//! The spec stays untyped JSON: our own strict parser names unknown fields.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::{column, conditions, node_selector, tolerations};

/// The name of the one object.
pub const DISCOVERY_NAME: &str = "auto-discover-devices";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalVolumeDiscovery {
    #[serde(default)]
    pub api_version: String,
    #[serde(default)]
    pub kind: String,
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<LocalVolumeDiscoveryStatus>,
}

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

impl kube::Resource for LocalVolumeDiscovery {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        "LocalVolumeDiscovery".into()
    }
    fn group((): &()) -> std::borrow::Cow<'_, str> {
        "local.storage.openshift.io".into()
    }
    fn version((): &()) -> std::borrow::Cow<'_, str> {
        "v1alpha1".into()
    }
    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        "localvolumediscoveries".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The CRD, without what all of our CRDs have in common.
pub fn discovery_crd() -> CustomResourceDefinition {
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "localvolumediscoveries.local.storage.openshift.io"},
        "spec": {
            "group": "local.storage.openshift.io",
            "scope": "Namespaced",
            "names": {"kind": "LocalVolumeDiscovery", "listKind": "LocalVolumeDiscoveryList",
                      "plural": "localvolumediscoveries", "singular": "localvolumediscovery",
                      "shortNames": ["lvd"], "categories": ["localpool"]},
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Phase", "string", ".status.phase"),
                    column("Available", "string", ".status.conditions[?(@.type==\"Available\")].status"),
                    column("Message", "string", ".status.conditions[?(@.type==\"Available\")].message"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "Discovers the devices of nodes continuously, and reports them in a \
                                    LocalVolumeDiscoveryResult for each node.",
                    "x-kubernetes-validations": [{
                        "rule": format!("self.metadata.name == '{DISCOVERY_NAME}'"),
                        "message": format!("the only LocalVolumeDiscovery is called {DISCOVERY_NAME}: use this name"),
                    }],
                    "properties": {
                        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                        "spec": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": true,
                            "properties": {"nodeSelector": node_selector(), "tolerations": tolerations()},
                        },
                        "status": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": true,
                            "properties": {
                                "phase": {"type": "string", "enum": ["Discovering", "DiscoveryFailed"]},
                                "conditions": conditions(),
                                "observedGeneration": {"type": "integer", "format": "int64"},
                            },
                        },
                    },
                }},
            }],
        },
    });
    serde_json::from_value(crd).expect("the fields of a CRD, spelled out above; a test calls this")
}
