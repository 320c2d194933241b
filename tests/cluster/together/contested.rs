//! Disks that more than one wants: two sets, another provisioner and a set; and a disk that is named by its path.

use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::machine::Disk;
use crate::pods::With as _;
use crate::sets::MIB;

/// Waits until the set reports that it does not take a device, for a reason with these words.
async fn until_left(space: &Space, set: &str, message: &str) {
    let told = |set: &Value| {
        let left = set["status"]["unmatchedDevices"].as_array().cloned().unwrap_or_default();
        left.iter().any(|one| one["reason"].as_str().is_some_and(|reason| reason.contains(message)))
    };
    space.until("LocalVolumeSet", space.here(), set, &format!("leaves a device: {message}"), told).await;
}

fn is_untouched(disk: &Disk) -> bool {
    std::fs::read(&disk.image).unwrap().iter().all(|byte| *byte == 0)
}

#[test]
fn a_disk_that_two_sets_want_is_the_older_ones_and_both_say_so() {
    check(Needs::Machine, async |space| {
        let (disk, _) = space.own_disk("older", 64 * MIB).await;
        space.create(&space.set("younger", disk.image.to_str().unwrap())).await;
        let here = &space.namespace;
        until_left(space, "younger", &format!("the set {here}/older has it")).await;
        space.set_says("younger", "Available", "False", "NoDevices").await;
        let text = format!("{here}/younger selects 1 of its devices too");
        let told = |set: &Value| {
            let conditions = set["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["message"].as_str().is_some_and(|message| message.contains(&text)))
        };
        space.until("LocalVolumeSet", space.here(), "older", "names the other", told).await;
        // It stays with the set that has it, even when that set is deleted.
        space.delete("LocalVolumeSet", space.here(), "older").await;
        space.until_gone("LocalVolumeSet", space.here(), "older").await;
        until_left(space, "younger", &format!("the set {here}/older has it")).await;
        space.remove_disk("younger", &disk).await;
    });
}

#[test]
fn a_disk_that_a_persistent_volume_promises_is_taken_only_when_that_is_gone() {
    check(Needs::Machine, async |space| {
        let disk = space.machine().disk(&format!("{}-promised", space.namespace), 64 * MIB).await;
        let volume = format!("{}-promise", space.namespace);
        space.delete("PersistentVolume", None, &volume).await;
        space.until_gone("PersistentVolume", None, &volume).await;
        let agent = space.agent_pod().await;
        let node = &agent["spec"]["nodeName"];
        let term = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        let promise = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
            "spec": {
                "capacity": {"storage": "64Mi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
                "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "of-somebody-else",
                "local": {"path": disk.node.to_str().unwrap()},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            },
        });
        space.create(&promise).await;
        space.create(&space.set("late", disk.image.to_str().unwrap())).await;
        until_left(space, "late", &format!("the PersistentVolume {volume} promises it")).await;
        assert!(is_untouched(&disk));
        space.delete("PersistentVolume", None, &volume).await;
        space.until_claimed("late", 1).await;
        space.remove_disk("late", &disk).await;
    });
}

#[test]
fn a_local_volume_gives_a_pod_the_disk_that_it_names_and_no_other() {
    check(Needs::Machine, async |space| {
        let named = space.machine().disk(&format!("{}-named", space.namespace), 96 * MIB).await;
        let other = space.machine().disk(&format!("{}-other", space.namespace), 96 * MIB).await;
        let class = format!("{}-named", space.namespace);
        let volume = json!({
            "apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume",
            "metadata": {"name": "disks", "namespace": space.namespace},
            "spec": {"storageClassDevices": [{
                "storageClassName": class, "volumeMode": "Filesystem", "fsType": "ext4",
                "devicePaths": [named.node.to_str().unwrap()],
            }]},
        });
        space.create(&volume).await;
        let taken = |volume: &Value| volume["status"]["totalProvisionedDeviceCount"] == 1;
        space.until("LocalVolume", space.here(), "disks", "its disk is taken", taken).await;
        space.create(&space.claim("data", &class, "64Mi")).await;
        let pod = space.pod("app", "data", crate::pods::As::Folder).with("/metadata/labels", json!({"app": "app"}));
        space.create(&pod).await;
        space.until_running("app").await;
        let made = space.volume_of(&space.namespace, "data").await;
        let place = space.machine().place(crate::cluster::name(&made)).await.expect("its partition");
        assert_eq!(place.disk.node, named.node);
        assert!(is_untouched(&other));
        space.remove_pod("app").await;
        space.remove_claim("data").await;
        space.delete("LocalVolume", space.here(), "disks").await;
        space.until_gone("LocalVolume", space.here(), "disks").await;
        space.machine().remove(space, &named).await;
        other.unmap().await;
        crate::cluster::run("losetup", &["--detach", other.node.to_str().unwrap()]).await;
    });
}
