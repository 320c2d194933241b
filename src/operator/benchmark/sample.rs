//! Objects for tests of what is decided here.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use serde_json::{Value, json};

use crate::api::crd::{DevicePool, PoolVolume};
use crate::host::DiskFigures;
pub use crate::operator::disk_setup::sample::setup;
use crate::operator::kube_volume::PersistentVolume;
use crate::volume::{DRIVER_NAME, VolumeId};

pub const FIGURES: DiskFigures =
    DiskFigures { read_iops: 1000, read_bandwidth: 1 << 30, write_iops: 500, write_bandwidth: 1 << 29 };

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// Of this driver, bound to the claim of that name; its UID is `uid-NAME`.
pub fn persistent(name: &str, namespace: &str, created: &str, mode: &str) -> PersistentVolume {
    let csi = json!({"driver": DRIVER_NAME, "volumeHandle": VolumeId::of_name(name).to_string()});
    let claim = json!({"namespace": namespace, "name": name, "uid": format!("claim-{name}")});
    read(json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": created},
        "spec": {"csi": csi, "claimRef": claim, "volumeMode": mode},
        "status": {"phase": "Bound"},
    }))
}

/// That of the PersistentVolume of this name.
pub fn claim(name: &str, consents: &str) -> PersistentVolumeClaim {
    let annotations = json!({"localpool.dev/benchmark": consents});
    read(json!({"metadata": {"name": name, "uid": format!("claim-{name}"), "annotations": annotations}}))
}

pub fn volume(name: &str, node: &str, disk: Option<&str>) -> PoolVolume {
    let spec = json!({"node": node, "volumeName": name, "required": 1, "volumeMode": "Filesystem"});
    read(json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume",
        "metadata": {"name": VolumeId::of_name(name).to_string()},
        "spec": spec, "status": {"phase": "Ready", "disk": disk},
    }))
}

pub fn disk(id: &str, more: Value) -> Value {
    let mut disk = json!({
        "id": id, "path": "/dev/sda", "layout": "Carved", "set": "d/s", "size": 1, "free": 1, "volumes": 1,
        "state": "Ready",
    });
    disk.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    disk
}

pub fn pool(node: &str, machine: Value, disks: Vec<Value>, requests: Value) -> DevicePool {
    read(json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": node, "uid": node},
        "spec": {"benchmarks": requests}, "status": {"machine": machine, "disks": disks},
    }))
}

pub fn map(namespace: &str, data: Value, written: Value) -> ConfigMap {
    let metadata = json!({
        "name": "localpool-node-tuner", "namespace": namespace, "resourceVersion": "7",
        "annotations": {"localpool.dev/iosetup": written.to_string()},
    });
    read(json!({"metadata": metadata, "data": data}))
}
