//! A set with a disk for one check, if it would disturb others on the common disks.

use serde_json::{Value, json};

use crate::check::Space;
use crate::cluster::{SOON, eventually};
use crate::machine::Disk;
use crate::page::{section, typed};
use crate::pods::With as _;

pub const MIB: u64 = 1 << 20;

/// Prints whether the kernel can keep folders of XFS within their sizes: its counters are there only then. XFS is loaded
/// by whoever makes the first one.
const COUNTS: &str = "modprobe xfs 2>/dev/null; test -e /proc/fs/xfs/xqmstat && echo yes || echo no";

/// A disk whose volumes are folders.
pub struct Folders {
    pub disk: Disk,
    pub class: String,
    /// Each is kept within its size.
    pub counts: bool,
}

impl Space {
    /// A carved set of this namespace that selects one image, and whose class has the namespace's name.
    pub fn set(&self, name: &str, image: &str) -> Value {
        json!({
            "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "storageClassName": format!("{}-{name}", self.namespace),
                "deviceInclusionSpec": {"deviceTypes": ["loop"], "minSize": "0", "paths": [image]},
                "partitioningSpec": {"mode": "Dynamic"},
            },
        })
    }

    /// Makes a disk and a carved set for it; returns the disk and the class, once that offers volumes.
    pub async fn own_disk(&self, name: &str, size: u64) -> (Disk, String) {
        let disk = self.machine().disk(&format!("{}-{name}", self.namespace), size).await;
        self.create(&self.set(name, disk.image.to_str().unwrap())).await;
        self.until_claimed(name, 1).await;
        (disk, format!("{}-{name}", self.namespace))
    }

    /// The same with volumes that are folders, kept within their sizes where the kernel can do that.
    pub async fn own_folders(&self, name: &str) -> Folders {
        let disk = self.machine().disk(&format!("{}-{name}", self.namespace), 2048 * MIB).await;
        let mut set = self.set(name, disk.image.to_str().unwrap()).with("/spec/layout", json!("Directory"));
        set["spec"].as_object_mut().unwrap().remove("partitioningSpec");
        let counts = self.agent(&["sh", "-c", COUNTS]).await.trim() == "yes";
        if !counts {
            set["spec"]["quota"] = json!("none");
        }
        self.create(&set).await;
        self.until_claimed(name, 1).await;
        // Its filesystem is made after its label.
        let made = async || {
            let status = self.disk_status(&disk).await.unwrap_or_default();
            if status["free"].as_i64() > Some(0) { Ok(()) } else { Err(status) }
        };
        eventually("the disk has a filesystem, and room", SOON, made).await;
        Folders { disk, class: format!("{}-{name}", self.namespace), counts }
    }

    /// Asks for more, and waits until the claim has it.
    pub async fn grow(&self, claim: &str, size: &str) {
        let patch = json!({"spec": {"resources": {"requests": {"storage": size}}}});
        self.patch("PersistentVolumeClaim", self.here(), claim, &patch).await;
        let grown = |claim: &Value| claim["status"]["capacity"]["storage"] == size;
        self.until("PersistentVolumeClaim", self.here(), claim, &format!("has {size}"), grown).await;
    }

    pub async fn until_claimed(&self, set: &str, devices: i64) {
        let claimed = |set: &Value| set["status"]["totalProvisionedDeviceCount"] == devices;
        self.until("LocalVolumeSet", self.here(), set, "its disk is claimed", claimed).await;
    }

    /// Waits for a condition of a set, and returns its message.
    pub async fn set_says(&self, set: &str, kind: &str, status: &str, reason: &str) -> String {
        let find = |set: &Value| {
            let all = set["status"]["conditions"].as_array().cloned().unwrap_or_default();
            all.into_iter().find(|one| one["type"] == kind && one["status"] == status && one["reason"] == reason)
        };
        let what = format!("{kind} is {status}, {reason}");
        let found = self.until("LocalVolumeSet", self.here(), set, &what, |set| find(set).is_some()).await;
        find(&found).unwrap()["message"].as_str().unwrap().to_owned()
    }

    /// Undoes `own_disk`. All claims of it are gone.
    pub async fn remove_disk(&self, set: &str, disk: &Disk) {
        self.delete("LocalVolumeSet", self.here(), set).await;
        self.until_gone("LocalVolumeSet", self.here(), set).await;
        self.machine().remove(self, disk).await;
    }

    /// What a DevicePool says of a disk.
    pub async fn disk_status(&self, disk: &Disk) -> Option<Value> {
        let pools = self.list("DevicePool", None).await;
        let disks = pools.iter().flat_map(|pool| pool["status"]["disks"].as_array().cloned().unwrap_or_default());
        let path = disk.node.to_str().unwrap();
        disks.into_iter().find(|one| one["path"] == path)
    }

    /// Waits until the order for a disk is in this state, and says so in these words.
    pub async fn until_ordered(&self, node: &str, id: &str, state: &str, message: &str) {
        let is_so = |pool: &Value| {
            order(pool, id).is_some_and(|it| it["state"] == state && it["message"].as_str().unwrap().contains(message))
        };
        self.until("DevicePool", None, node, &format!("the order for {id} is {state}: {message}"), is_so).await;
    }

    /// Takes the order for a disk back.
    pub async fn nothing_is_ordered(&self, node: &str, id: &str) {
        let values = [("NODE", node), ("ID", id)];
        typed(&section("health.md", "Replace a disk").command("{\"ID\":null}", &values)).await;
        self.until("DevicePool", None, node, "nothing is ordered", |pool| order(pool, id).is_none()).await;
    }

    /// A pod whose claim has a check's own class.
    pub async fn running_in(&self, class: &str, name: &str, size: &str) {
        self.create(&self.claim(name, class, size)).await;
        self.create(&self.pod(name, name, crate::pods::As::Folder).with("/metadata/labels", json!({"app": name})))
            .await;
        self.until_running(name).await;
    }
}

fn order(pool: &Value, id: &str) -> Option<Value> {
    let orders = pool["status"]["orders"].as_array().cloned().unwrap_or_default();
    orders.into_iter().find(|order| order["disk"] == id)
}
