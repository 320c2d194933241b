//! Whether a CRD that a cluster serves keeps everything that can be written under ours. Pure.
//!
//! An API server silently drops fields that a schema does not have: a dropped `dryRun` is a real run, a dropped filter
//! lets disks in. Another owner who replaces our schema leaves our annotation in place, so the schema itself is
//! compared.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
};
use serde_json::Value;

/// The first field of our `spec` that the served CRD would drop; `*` stands for unknown fields, which our own parser
/// must see.
pub fn first_dropped(served: &CustomResourceDefinition, ours: &CustomResourceDefinition) -> Option<String> {
    for version in served.spec.versions.iter().filter(|version| version.storage || is_of(version, ours)) {
        let own = ours.spec.versions.iter().find(|own| own.name == version.name);
        // Everything that is stored passes through the schema of the stored version, whatever version it was written
        // as.
        let Some(own) = own else { return Some(format!("all of version {}", version.name)) };
        if let (Some(own), theirs) = (spec(own), spec(version)) {
            let dropped = theirs.map_or_else(|| Some(String::new()), |theirs| dropped(&theirs, &own));
            if let Some(path) = dropped {
                return Some(format!("spec{path}"));
            }
        }
    }
    let lacks =
        |own: &&CustomResourceDefinitionVersion| !served.spec.versions.iter().any(|v| v.name == own.name && v.served);
    ours.spec.versions.iter().find(lacks).map(|own| format!("all of version {}", own.name))
}

fn is_of(version: &CustomResourceDefinitionVersion, crd: &CustomResourceDefinition) -> bool {
    crd.spec.versions.iter().any(|own| own.name == version.name)
}

fn spec(version: &CustomResourceDefinitionVersion) -> Option<Value> {
    let schema: &JSONSchemaProps = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
    serde_json::to_value(schema.properties.as_ref()?.get("spec")?).ok()
}

/// The path of the first field that `theirs` would drop and `ours` keeps.
fn dropped(theirs: &Value, ours: &Value) -> Option<String> {
    const UNKNOWN: &str = "x-kubernetes-preserve-unknown-fields";
    let keeps_unknown = |schema: &Value| schema[UNKNOWN] == true;
    for (name, own) in ours["properties"].as_object().into_iter().flatten() {
        let lost = match theirs["properties"].get(name) {
            Some(their) => dropped(their, own),
            None if keeps_unknown(theirs) => None,
            None => Some(String::new()),
        };
        if let Some(path) = lost {
            return Some(format!(".{name}{path}"));
        }
    }
    if keeps_unknown(ours) && !keeps_unknown(theirs) {
        return Some(".*".to_owned());
    }
    let items = |schema: &Value| schema.get("items").filter(|items| items.is_object()).cloned();
    let lost = items(ours).and_then(|own| dropped(&items(theirs).unwrap_or_default(), &own))?;
    Some(format!("[]{lost}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{all, set_crd};
    use super::*;

    /// The result for our CRD with a changed schema of its spec.
    fn changed(change: impl FnOnce(&mut Value)) -> Option<String> {
        let mut served = serde_json::to_value(set_crd()).expect("JSON");
        change(&mut served["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]);
        first_dropped(&serde_json::from_value(served).expect("a CRD"), &set_crd())
    }

    fn remove(object: &mut Value, name: &str) {
        object.as_object_mut().expect("an object").remove(name).expect("it was there");
    }

    #[test]
    fn our_own_keep_everything_and_so_does_one_with_more_fields_or_other_words() {
        for crd in all() {
            assert_eq!(first_dropped(&crd, &crd), None, "{:?}", crd.metadata.name);
        }
        let more = changed(|spec| {
            spec["properties"]["later"] = json!({"type": "string"});
            spec["description"] = json!("other words");
            spec["properties"]["dryRun"]["default"] = json!(false);
        });
        assert_eq!(more, None);
        assert_eq!(
            changed(|spec| remove(&mut spec["properties"], "dryRun")),
            None,
            "it is kept as one that nobody knows"
        );
    }

    #[test]
    fn a_field_that_would_be_dropped_is_named() {
        const UNKNOWN: &str = "x-kubernetes-preserve-unknown-fields";
        assert_eq!(changed(|spec| remove(spec, UNKNOWN)).as_deref(), Some("spec.*"));
        let without = changed(|spec| {
            remove(spec, UNKNOWN);
            remove(&mut spec["properties"], "dryRun");
        });
        assert_eq!(without.as_deref(), Some("spec.dryRun"));
        let filter = changed(|spec| {
            let filter = &mut spec["properties"]["deviceInclusionSpec"];
            remove(filter, UNKNOWN);
            remove(&mut filter["properties"], "serials");
        });
        assert_eq!(filter.as_deref(), Some("spec.deviceInclusionSpec.serials"));
        let list = changed(|spec| spec["properties"]["tolerations"]["items"] = json!({"type": "object"}));
        assert_eq!(list.as_deref(), Some("spec.tolerations[].effect"));
        assert_eq!(changed(|spec| *spec = json!({"type": "object"})).as_deref(), Some("spec.array"));
    }

    #[test]
    fn another_version_that_is_stored_or_ours_that_is_not_served_is_not_ours() {
        let mut served = set_crd();
        served.spec.versions[0].served = false;
        assert_eq!(first_dropped(&served, &set_crd()).as_deref(), Some("all of version v1alpha1"));
        let mut served = set_crd();
        served.spec.versions[0].storage = false;
        let mut other = set_crd().spec.versions.remove(0);
        (other.name, other.storage) = ("v1".to_owned(), true);
        served.spec.versions.push(other);
        assert_eq!(first_dropped(&served, &set_crd()).as_deref(), Some("all of version v1"));
    }
}
