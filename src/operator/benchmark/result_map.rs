//! The ConfigMap with the results for the claims of one namespace. Pure.
//!
//! Takes in the object as it is, gives out its values by PersistentVolume, and the object as it has to be applied. Keys of
//! others, and those that were never written here, stay as they are.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::operator::api_server::object_key::{ObjectName, Uid};
use crate::operator::kube_volume::PersistentVolume;

/// The name of the ConfigMap, in each namespace.
pub const MAP_NAME: &str = "localpool-node-tuner";
/// How the key of a PersistentVolume begins; its UID follows.
const KEY: &str = "iosetup-";
/// The annotation with what was written: the UID of each PersistentVolume, and the time of the request that its value is
/// from. A key that is listed there and not in the data was deleted by somebody.
const WRITTEN: &str = "localpool.dev/iosetup";

/// What is in the map of one namespace, or has to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultMap {
    pub values: BTreeMap<Uid<PersistentVolume>, String>,
    /// To the second.
    pub written: BTreeMap<Uid<PersistentVolume>, Timestamp>,
}

impl ResultMap {
    pub fn of(object: &ConfigMap) -> Self {
        let data = object.data.iter().flatten();
        let values = data.filter_map(|(key, value)| Some((key.strip_prefix(KEY)?.into(), value.clone()))).collect();
        let text = object.annotations().get(WRITTEN).map(String::as_str).unwrap_or_default();
        let seconds: BTreeMap<String, i64> = serde_json::from_str(text).unwrap_or_default();
        let time = |(uid, second): (String, i64)| Some((uid.into(), Timestamp::from_second(second).ok()?));
        Self { values, written: seconds.into_iter().filter_map(time).collect() }
    }

    /// Whether `found` has all that this has, and nothing that was written here for a volume that this has not.
    pub fn is_in(&self, found: &Self) -> bool {
        let is_ours = |uid: &&Uid<PersistentVolume>| found.written.contains_key(*uid) || self.values.contains_key(*uid);
        let ours = found.values.iter().filter(|(uid, _)| is_ours(uid));
        self.written == found.written && self.values.iter().eq(ours)
    }

    /// As a server-side apply has it; `seen` is the version that it was made by.
    pub fn object(&self, namespace: &ObjectName<Namespace>, seen: Option<&ConfigMap>) -> Value {
        let data: BTreeMap<String, &String> =
            self.values.iter().map(|(uid, value)| (format!("{KEY}{uid}"), value)).collect();
        let written: BTreeMap<String, i64> =
            self.written.iter().map(|(uid, time)| (uid.to_string(), time.as_second())).collect();
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": MAP_NAME,
                "namespace": namespace,
                // A key that somebody has deleted since must not be written again.
                "resourceVersion": seen.and_then(kube::ResourceExt::resource_version),
                "annotations": {WRITTEN: json!(written).to_string()},
            },
            "data": data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(data: Value, written: &str) -> ConfigMap {
        let metadata = json!({"name": MAP_NAME, "resourceVersion": "7", "annotations": {WRITTEN: written}});
        serde_json::from_value(json!({"metadata": metadata, "data": data})).expect("a ConfigMap")
    }

    #[test]
    fn what_is_applied_reads_back_as_it_was_and_names_the_version_that_was_seen() {
        let found = map(json!({"iosetup-a": "", "iosetup-b": "disks: []", "other": "x"}), r#"{"a": 60, "b": 0}"#);
        let read = ResultMap::of(&found);
        assert_eq!(read.values.len(), 2);
        let applied = read.object(&"space".into(), Some(&found));
        assert_eq!(applied["metadata"]["resourceVersion"], "7");
        assert_eq!(applied["data"], json!({"iosetup-a": "", "iosetup-b": "disks: []"}), "the others' stay theirs");
        let again: ConfigMap = serde_json::from_value(applied).expect("a ConfigMap");
        assert_eq!(ResultMap::of(&again), read);
        assert_eq!(ResultMap::default().object(&"space".into(), None)["metadata"]["resourceVersion"], Value::Null);
    }

    #[test]
    fn an_annotation_that_somebody_broke_says_nothing() {
        for broken in ["", "{", "[]", r#"{"a": "b"}"#, r#"{"a": 9223372036854775807}"#] {
            assert!(ResultMap::of(&map(json!({}), broken)).written.is_empty(), "{broken}");
        }
    }

    #[test]
    fn a_map_differs_by_a_value_a_key_too_many_or_what_is_noted_of_it_and_not_by_keys_of_others() {
        let of = |data: Value, written: &str| ResultMap::of(&map(data, written));
        let wanted = of(json!({"iosetup-a": "x"}), r#"{"a": 1}"#);
        assert!(wanted.is_in(&of(json!({"iosetup-a": "x", "iosetup-theirs": "y"}), r#"{"a": 1}"#)));
        assert!(!wanted.is_in(&of(json!({"iosetup-a": "y"}), r#"{"a": 1}"#)));
        assert!(!wanted.is_in(&of(json!({}), r#"{"a": 1}"#)));
        assert!(!wanted.is_in(&of(json!({"iosetup-a": "x"}), r#"{"a": 2}"#)));
        assert!(!wanted.is_in(&of(json!({"iosetup-a": "x", "iosetup-b": "y"}), r#"{"a": 1, "b": 1}"#)), "b is gone");
    }
}
