//! What the kinds in the Local Storage Operator's group have in common: how `kube` names them, and the CRD around the
//! schema of each.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use serde_json::{Value, json};

/// Makes a struct with a field `metadata` a namespaced kind of the group; the kind is called as the struct is.
macro_rules! operators_kind {
    ($kind:ident, $version:literal, $plural:literal) => {
        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = k8s_openapi::NamespaceResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                "local.storage.openshift.io".into()
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

pub(super) use operators_kind;

/// The CRD of a kind, without what all of our CRDs have in common. `schema` has no more of the object than differs from
/// kind to kind.
pub fn definition<K: Resource<DynamicType = ()>>(
    short: &str,
    columns: &[Value],
    mut schema: Value,
) -> CustomResourceDefinition {
    let (group, kind, plural) = (K::group(&()), K::kind(&()), K::plural(&()));
    schema["type"] = json!("object");
    for (field, of_type) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
        schema["properties"][field] = json!({ "type": of_type });
    }
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
