//! What a bundle shows of an object: nothing that could hold a secret. Pure.

use serde_json::{Map, Value};

/// Annotations of these owners say what Kubernetes and localpool did; others may hold anything.
const KNOWN_OWNERS: [&str; 2] = ["kubernetes.io", "localpool.dev"];
/// It has all of an object as somebody applied it, with all values.
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// In place of a value.
const LEFT_OUT: &str = "(left out)";

/// The object without the values of environments and headers, without attributes and annotations of others, and without what only the API server
/// needs.
pub fn scrubbed(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| is_kept(key));
        }
    }
    if let Some(attributes) = object["spec"]["csi"]["volumeAttributes"].as_object_mut() {
        attributes.iter_mut().filter(|(key, _)| !is_attribute(key)).for_each(|(_, value)| *value = LEFT_OUT.into());
    }
    without_values(&mut object);
    object
}

fn is_kept(annotation: &str) -> bool {
    let owner = annotation.split_once('/').map_or("", |(owner, _)| owner);
    let is_of = |one: &str| owner == one || owner.strip_suffix(one).is_some_and(|before| before.ends_with('.'));
    annotation != APPLIED && KNOWN_OWNERS.into_iter().any(is_of)
}

/// localpool and its provisioner write these; whoever writes a PersistentVolume by hand can write others.
fn is_attribute(key: &str) -> bool {
    matches!(key, "class" | "set" | "storage.kubernetes.io/csiProvisionerIdentity")
}

/// Leaves the names of variables and of headers, wherever a list of them is: in a pod, and in what makes pods.
fn without_values(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for list in ["env", "httpHeaders"] {
                if let Some(Value::Array(named)) = fields.get_mut(list) {
                    named.iter_mut().filter_map(Value::as_object_mut).for_each(hide);
                }
            }
            fields.values_mut().for_each(without_values);
        }
        Value::Array(items) => items.iter_mut().for_each(without_values),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn hide(named: &mut Map<String, Value>) {
    if let Some(value) = named.get_mut("value") {
        *value = LEFT_OUT.into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_value_of_an_environment_and_no_annotation_of_others_is_shown() {
        let container = json!({"name": "c", "env": [{"name": "PASSWORD", "value": "hunter2"},
                                                    {"name": "REF", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]});
        let pod = json!({
            "metadata": {
                "name": "p", "managedFields": [{"manager": "hunter2"}],
                "annotations": {APPLIED: "hunter2", "example.com/token": "hunter2", "token": "hunter2",
                                "notkubernetes.io/x": "hunter2", "localpool.dev/claim": "a/b",
                                "volume.kubernetes.io/selected-node": "n"},
            },
            "spec": {"containers": [container], "initContainers": [container], "template": {"spec": {"containers": [container]}}},
        });
        let shown = scrubbed(pod);
        assert!(!shown.to_string().contains("hunter2"), "{shown:#}");
        assert_eq!(shown["spec"]["containers"][0]["env"][0], json!({"name": "PASSWORD", "value": LEFT_OUT}));
        assert_eq!(shown["spec"]["containers"][0]["env"][1]["valueFrom"]["fieldRef"]["fieldPath"], "x");
        let annotations = shown["metadata"]["annotations"].as_object().expect("a map");
        assert_eq!(
            annotations.keys().collect::<Vec<_>>(),
            ["localpool.dev/claim", "volume.kubernetes.io/selected-node"]
        );
    }

    #[test]
    fn headers_and_attributes_of_others_keep_their_names_and_lose_their_values() {
        let probe = json!({"httpGet": {"httpHeaders": [{"name": "Authorization", "value": "hunter2"}]}});
        let shown = scrubbed(json!({"spec": {"containers": [{"livenessProbe": probe}]}}));
        assert!(shown.to_string().contains("Authorization") && !shown.to_string().contains("hunter2"), "{shown:#}");
        let attributes = json!({"class": "fast", "token": "hunter2"});
        let shown = scrubbed(json!({"spec": {"csi": {"volumeAttributes": attributes}}}));
        assert_eq!(shown["spec"]["csi"]["volumeAttributes"], json!({"class": "fast", "token": LEFT_OUT}));
    }
}
