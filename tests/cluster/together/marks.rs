//! PersistentVolumes that are marked, with a real mount on a real node.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::run;
use crate::runbook::look;

/// A directory of the node that its agent sees, mounted on itself; unmounted and removed at the end.
struct Mounted(PathBuf);

impl Mounted {
    async fn new(space: &Space) -> Self {
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

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    async fn mount(&self) {
        run("mount", &["--bind", self.path(), self.path()]).await;
    }

    async fn unmount(&self) {
        run("umount", &[self.path()]).await;
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).output();
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn marks(volume: &Value) -> Vec<&str> {
    let annotations = volume["metadata"]["annotations"].as_object();
    annotations.into_iter().flatten().filter(|(_, value)| *value == "yes").map(|(key, _)| key.as_str()).collect()
}

/// A local PersistentVolume at this path, which its agent looks at; returns its name and its node's.
async fn watched(space: &Space, mounted: &Mounted) -> (String, String) {
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

#[test]
fn a_local_volume_made_by_hand_is_marked_when_it_is_unmounted_and_not_any_more_when_it_is_mounted() {
    check(Needs::Machine, async |space| {
        let mounted = Mounted::new(space).await;
        let (volume, node) = watched(space, &mounted).await;
        mounted.unmount().await;
        let is_marked = |volume: &Value| marks(volume) == ["NotMountPoint"];
        let marked = space.until("PersistentVolume", None, &volume, "is marked", is_marked).await;
        assert!(marked["metadata"]["annotations"]["FirstMarkTime"].is_string(), "{marked}");
        assert_eq!(marked["spec"]["local"]["path"], mounted.path());
        look("LocalpoolLocalVolumeNotMounted", "kubectl").shows(&node, &[&volume, mounted.path()]).await;
        let marked = look("LocalpoolPersistentVolumeMarked", "get pv");
        marked.shows(&node, &[&volume, &node, mounted.path(), "NotMountPoint"]).await;
        look("LocalpoolPersistentVolumeMarked", "get devicepools").shows(&node, &[&volume, "NotMountPoint"]).await;
        let metric = "localpool_controller_marked_persistent_volumes";
        space.until_served("controller", metric, &["\"NotMountPoint\""]).await;
        mounted.mount().await;
        let is_well =
            |volume: &Value| marks(volume).is_empty() && volume["metadata"]["annotations"]["FirstMarkTime"].is_null();
        space.until("PersistentVolume", None, &volume, "is not marked any more", is_well).await;
        space.delete("PersistentVolume", None, &volume).await;
    });
}
