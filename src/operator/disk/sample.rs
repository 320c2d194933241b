//! A DevicePool with one disk, for tests.

use serde_json::{Value, json};

use crate::api::crd::DevicePool;

/// With this spec; `disk` is what the status says of the disk, beside its id and its place.
pub fn pool_of_disk(spec: &Value, disk: &Value) -> DevicePool {
    let mut known = json!({
        "id": "gpt-1", "path": "/dev/sda", "layout": "Carved", "set": "d/s", "size": 1, "free": 1, "volumes": 0,
        "state": "Ready",
    });
    known.as_object_mut().expect("a map").extend(disk.as_object().expect("a map").clone());
    let pool = json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "n"},
        "spec": spec, "status": {"disks": [known]},
    });
    serde_json::from_value(pool).expect("a DevicePool")
}
