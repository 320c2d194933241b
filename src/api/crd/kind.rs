//! What kinds whose CRD is spelled out have in common: the object around the spec and the status, how `kube` names them, and
//! the CRD around the schema of each.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The group of the Local Storage Operator.
pub const OPERATORS: &str = "local.storage.openshift.io";

/// An object with its spec as it was written: our own strict parser reads it. `S` is the status of its kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "S: Deserialize<'de>"))]
pub struct WrittenObject<S> {
    #[serde(default)]
    pub api_version: String,
    #[serde(default)]
    pub kind: String,
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<S>,
}

/// Makes a type with a field `metadata` a kind of a group; the kind is called as the type is.
macro_rules! kind {
    ($kind:ident, $scope:ident, $group:expr, $version:literal, $plural:literal) => {
        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = k8s_openapi::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(super) use kind;

/// The CRD of a kind, without what all of our CRDs have in common. `schema` has no more of the object than differs from
/// kind to kind.
pub fn definition<K: Resource<DynamicType = ()>>(
    short: &str,
    columns: &[Value],
    mut schema: Value,
) -> CustomResourceDefinition {
    let (group, kind, plural) = (K::group(&()), K::kind(&()), K::plural(&()));
    schema["type"] = json!("object");
    for (field, description) in [("apiVersion", "The version of this kind."), ("kind", "This kind.")] {
        schema["properties"][field] = json!({"type": "string", "description": description});
    }
    // Kubernetes allows no description here.
    schema["properties"]["metadata"] = json!({"type": "object"});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural,
                      "singular": kind.to_lowercase(), "shortNames": [short], "categories": ["localpool"]},
            "versions": [{
                "name": K::version(&()),
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    serde_json::from_value(crd).expect("the fields of a CRD, spelled out by each kind; a test makes them all")
}
