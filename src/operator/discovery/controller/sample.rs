//! Objects for tests of the controller of LocalVolumeDiscovery.

use serde_json::{Value, json};

use super::daemon::DaemonTemplate;
use crate::api::crd::LocalVolumeDiscovery;

pub fn discovery(namespace: &str, spec: Value) -> LocalVolumeDiscovery {
    let object = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeDiscovery",
        "metadata": {"name": "auto-discover-devices", "namespace": namespace, "uid": "u", "generation": 2,
                     "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec,
    });
    serde_json::from_value(object).expect("an object")
}

pub fn template() -> DaemonTemplate {
    let labels = json!({"app.kubernetes.io/component": "discovery"});
    let pod = json!({"containers": [{"name": "localpool", "image": "i", "args": ["--state-dir=/var/lib/localpool"]}]});
    let daemon = json!({
        "metadata": {"name": "localpool-discovery"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    });
    daemon.to_string().parse().expect("a template")
}
