//! A disk that died in a node that lives, as docs/troubleshooting.md says.

use serde_json::Value;

use crate::check::{Needs, Space, check};
use crate::cluster::{DRIVER, SOON, eventually, kubectl, name, run};
use crate::machine::Disk;
use crate::page::{in_the_agents_pod, section, typed};
use crate::runbook::command;
use crate::sets::MIB;
use crate::table::cell;

/// What the DevicePool of the node says of a disk, as soon as it is so.
async fn until_disk(space: &Space, node: &str, id: &str, what: &str, holds: impl Fn(&Value) -> bool) {
    let of_it = |pool: &Value| {
        let disks = pool["status"]["disks"].as_array();
        disks.into_iter().flatten().any(|disk| disk["id"] == id && holds(disk))
    };
    space.until("DevicePool", None, node, &format!("disk {id} {what}"), of_it).await;
}

/// What people and monitoring see of the dead disk, and of a volume on it.
async fn is_shown(space: &Space, node: &str, id: &str, volume: &str) {
    command("LocalpoolDiskMissing", "Missing").shows(node, &[id]).await;
    let volumes = command("LocalpoolVolumeUnusable", "kubectl").shows(node, &[volume, "DiskMissing"]).await;
    let claim = format!("{}/kept", space.namespace);
    for (head, is) in
        [("NODE", node), ("STATE", "Unusable"), ("HEALTH", "DiskMissing"), ("CLAIM", &claim), ("DISK", id)]
    {
        assert_eq!(cell(&volumes, volume, head), is, "{volumes}");
    }
    let pools = kubectl(&["get", "devicepools"]).await;
    assert!(cell(&pools, node, "MISSING").parse::<u64>().is_ok_and(|missing| missing > 0), "{pools}");
    space.until_served("controller", "localpool_controller_abnormal_volumes", &["\"DiskMissing\""]).await;
    space.until_served("node", "localpool_disk_unhealthy", &[id, "\"DiskMissing\""]).await;
    space.until_served("node", "localpool_pool_unhealthy_disks", &["\"DiskMissing\""]).await;
    kubelet_shows_it(space, node).await;
}

/// A kubelet with the gate `CSIVolumeHealth` asks for health, and writes the answers into the pod and the CSINode.
async fn kubelet_shows_it(space: &Space, node: &str) {
    let missing = |health: &Value, status: &str| {
        let mut conditions = health["healthConditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["reason"] == "DiskMissing" && condition["status"] == status)
    };
    let of_pod = |pod: &Value| {
        let volumes = pod["status"]["volumeHealth"].as_array();
        volumes.into_iter().flatten().any(|volume| missing(volume, "Inaccessible"))
    };
    space.until("Pod", space.here(), "kept", "kubelet shows that its volume is lost", of_pod).await;
    // The other disks of the node are well.
    let of_node = |node: &Value| {
        let drivers = node["status"]["storageHealth"].as_array();
        drivers.into_iter().flatten().any(|driver| driver["name"] == DRIVER && missing(driver, "StorageDegraded"))
    };
    space.until("CSINode", None, node, "kubelet shows that a disk is lost", of_node).await;
}

/// Two volumes on the disk; the claim of the first is deleted while it is away.
async fn is_given_up(space: &Space, node: &str, id: &str, volume: &str) {
    let page = section("troubleshooting.md", "A disk is missing, and stays so");
    let dry = in_the_agents_pod(node, &page.command("disk give-up --dry-run ID", &[("ID", id)])).await;
    assert!(dry.contains(volume), "{dry}");
    until_disk(space, node, id, "is still missing", |disk| disk["state"] == "Missing").await;
    let verb = page.command("disk give-up --dry-run ID", &[("--dry-run ", ""), ("ID", id)]);
    in_the_agents_pod(node, &verb).await;
    let values = [("NAMESPACE", &*space.namespace), ("CLAIM", "deleted"), ("POD", "deleted")];
    typed(&page.command("kubectl delete pvc", &values)).await;
    typed(&page.command("kubectl delete pod", &values)).await;
    space.until_gone("PersistentVolumeClaim", space.here(), "deleted").await;
    space.remove_pod("kept").await;
    space.until_gone("PoolVolume", None, volume).await;
    let not_erased = async || {
        // The object has no namespace.
        let events = space.list("Event", Some("default")).await;
        let is_it = |event: &&Value| event["involvedObject"]["name"] == volume && event["reason"] == "VolumeNotErased";
        events.iter().find(is_it).map(drop).ok_or("none")
    };
    eventually("the Event VolumeNotErased", SOON, not_erased).await;
}

/// It is held: nobody gets a volume on it, and the page has what erases it.
async fn is_held_and_erased(space: &Space, node: &str, id: &str, volumes: [&str; 2]) {
    until_disk(space, node, id, "is held", |disk| disk["cordon"].to_string().contains("GivenUp")).await;
    command("LocalpoolDiskNotReady", "GivenUp").shows(node, &[id]).await;
    let class = format!("{}-lost", space.namespace);
    space.create(&space.claim("late", &class, "64Mi")).await;
    space.create(&space.pod("late", "late", crate::pods::As::Folder)).await;
    space.event("late", &["FailedScheduling"]).await;
    space.remove_pod("late").await;
    space.remove_claim("late").await;

    let [deleted, kept] = volumes;
    let page = section("troubleshooting.md", "A disk is missing, and stays so");
    in_the_agents_pod(node, &page.command("disk adopt ID", &[("ID", id)])).await;
    command("LocalpoolVolumeFound", "kubectl").shows(node, &[deleted, "Found", id]).await;
    let more = section("troubleshooting.md", "A volume whose PersistentVolume is gone");
    typed(&more.command("\"order\":\"Erase\"", &[("VOLUME", deleted)])).await;
    let values = [("NAMESPACE", &*space.namespace), ("CLAIM", "kept")];
    typed(&page.command("kubectl delete pvc", &values)).await;
    for volume in [deleted, kept] {
        space.until_gone("PoolVolume", None, volume).await;
    }
    let order =
        section("health.md", "Orders for a disk").command("\"order\":\"Release\"", &[("NODE", node), ("ID", id)]);
    typed(&order).await;
    space.until_ordered(node, id, "Done", "wiped").await;
}

async fn lose(space: &Space, disk: &Disk) {
    let status = space.disk_status(disk).await.expect("it is in the pool");
    let (id, node) = (status["id"].as_str().unwrap(), space.nodes().await.remove(0));
    let mut volumes = Vec::new();
    for claim in ["deleted", "kept"] {
        volumes.push(space.volume_of(&space.namespace, claim).await);
    }
    let [deleted, kept] = [name(&volumes[0]), name(&volumes[1])];
    let saved = disk.dies(space.machine()).await;
    until_disk(space, &node, id, "is missing", |disk| disk["state"] == "Missing").await;
    is_shown(space, &node, id, kept).await;
    is_given_up(space, &node, id, deleted).await;
    disk.returns(&saved).await;
    is_held_and_erased(space, &node, id, [deleted, kept]).await;
    assert_eq!(run("wipefs", &["--noheadings", disk.path()]).await.trim(), "", "it is blank");
    space.nothing_is_ordered(&node, id).await;
    let is_well = |node: &Value| !node["status"]["storageHealth"].to_string().contains(id);
    space.until("CSINode", None, &node, "kubelet shows the disk no more", is_well).await;
}

#[test]
fn a_dead_disk_is_given_up_its_deletions_end_and_if_it_returns_it_is_held_until_a_person_erases_it() {
    check(Needs::Machine, async |space| {
        let (disk, class) = space.own_disk("lost", 256 * MIB).await;
        for claim in ["deleted", "kept"] {
            space.running_in(&class, claim, "64Mi").await;
        }
        lose(space, &disk).await;
        space.delete("LocalVolumeSet", space.here(), "lost").await;
        space.until_gone("LocalVolumeSet", space.here(), "lost").await;
        run("losetup", &["--detach", disk.path()]).await;
    });
}
