//! NodeDiskSetups for tests.

use serde_json::{Value, json};

use crate::api::crd::NodeDiskSetup;

/// One that sets up no disks, unless `more` says otherwise.
pub fn setup(name: &str, created: &str, more: Value) -> NodeDiskSetup {
    let mut spec = json!({"diskSetupDisabled": true, "pvProvisionerDisabled": true});
    spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let metadata = json!({"name": name, "uid": format!("uid-{name}"), "generation": 1, "creationTimestamp": created});
    let object = json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "NodeDiskSetup", "metadata": metadata, "spec": spec,
    });
    serde_json::from_value(object).expect("an object")
}
