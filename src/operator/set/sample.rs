//! Objects for tests of the leader's decisions.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::api::crd::{LocalVolume, LocalVolumeSet};

/// A valid set of the namespace `storage`.
pub fn set(name: &str, class: &str) -> LocalVolumeSet {
    let set = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1",
        "kind": "LocalVolumeSet",
        "metadata": {"name": name, "namespace": "storage", "uid": "u", "generation": 3},
        "spec": {"storageClassName": class},
    });
    serde_json::from_value(set).expect("a set")
}

/// A valid LocalVolume of the namespace `storage`: class `fast` has these paths, class `slow` has none.
pub fn local_volume(name: &str, paths: &[&str]) -> LocalVolume {
    let volume = json!({
        "apiVersion": "local.storage.openshift.io/v1",
        "kind": "LocalVolume",
        "metadata": {"name": name, "namespace": "storage", "uid": "u", "generation": 3},
        "spec": {"storageClassDevices": [
            {"storageClassName": "fast", "devicePaths": paths}, {"storageClassName": "slow"},
        ]},
    });
    serde_json::from_value(volume).expect("a LocalVolume")
}

pub fn node(name: &str, labels: &[(&str, &str)]) -> Arc<Node> {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.labels = Some(labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
    Arc::new(node)
}
