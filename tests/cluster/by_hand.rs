//! A local PersistentVolume that somebody made by hand, at a mount point of the node.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::check::Space;
use crate::cluster::run;

/// A directory of the node that its agent sees, mounted on itself; unmounted and removed at the end.
pub struct Mounted(PathBuf);

impl Mounted {
    pub async fn new(space: &Space) -> Self {
        let pod = space.agent_pod().await;
        let containers = pod["spec"]["containers"].as_array().unwrap();
        let mut arguments = containers.iter().flat_map(|container| container["args"].as_array().unwrap());
        let kubelet = arguments.find_map(|argument| argument.as_str()?.strip_prefix("--kubelet-dir=")).unwrap();
        let path = Path::new(kubelet).join("localpool-test").join(&space.namespace);
        std::fs::create_dir_all(&path).unwrap();
        let mounted = Self(path);
        mounted.mount().await;
        mounted
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub async fn mount(&self) {
        run("mount", &["--bind", self.path(), self.path()]).await;
    }

    pub async fn unmount(&self) {
        run("umount", &[self.path()]).await;
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).output();
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// What a PersistentVolume is marked with.
pub fn marks(volume: &Value) -> Vec<&str> {
    let annotations = volume["metadata"]["annotations"].as_object();
    annotations.into_iter().flatten().filter(|(_, value)| *value == "yes").map(|(key, _)| key.as_str()).collect()
}

/// A local PersistentVolume at this path, which its agent looks at; returns its name and its node's.
pub async fn watched(space: &Space, mounted: &Mounted) -> (String, String) {
    let node = space.agent_pod().await["spec"]["nodeName"].as_str().unwrap().to_owned();
    let volume = format!("{}-by-hand", space.namespace);
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
    let object = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
        "spec": {
            "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": space.namespace,
            "local": {"path": mounted.path()},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    });
    space.create(&object).await;
    let of = |list: &Value| {
        list.as_array().into_iter().flatten().any(|one| one["name"] == *volume && one["mountPoint"] == true)
    };
    let is_known = |pool: &Value| of(&pool["spec"]["persistentVolumes"]) && of(&pool["status"]["persistentVolumes"]);
    space.until("DevicePool", None, &node, "the agent looks at the path, which is a mount point", is_known).await;
    (volume, node)
}
