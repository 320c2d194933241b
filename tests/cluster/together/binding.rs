//! From a claim to bytes on a disk, in each layout, with each filesystem and without one.

use serde_json::json;

use crate::check::{Needs, Space, check};
use crate::cluster::TOPOLOGY;
use crate::pods::As;

/// A claim is bound with its pod, the pod writes, and after both are deleted all their data is gone, too.
async fn lives(space: &Space, class: &str) {
    space.create(&space.claim("data", class, "1Gi")).await;
    let message = space.event("data", &["WaitForFirstConsumer"]).await;
    let claim = space.get("PersistentVolumeClaim", space.here(), "data").await.unwrap();
    assert_eq!(claim["status"]["phase"], "Pending", "{message}");
    space.create(&space.pod("app", "data", As::Folder)).await;
    let pod = space.until_running("app").await;
    let bound = space.until_bound("data").await;
    let pv = bound["spec"]["volumeName"].as_str().unwrap().to_owned();
    let volume = space.volume_of(&space.namespace, "data").await;
    let id = volume["metadata"]["name"].as_str().unwrap();
    let node = pod["spec"]["nodeName"].as_str().unwrap();
    assert_eq!(volume["spec"]["node"], node, "the volume is where the scheduler put the pod");
    let object = space.get("PersistentVolume", None, &pv).await.unwrap();
    let terms = &object["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    let wanted = json!([{"matchExpressions": [{"key": TOPOLOGY, "operator": "In", "values": [node]}]}]);
    assert_eq!(*terms, wanted, "and stays there");
    space.shell("app", "echo hello >/data/greeting && sync && test \"$(cat /data/greeting)\" = hello").await;
    let place = match &space.machine {
        Some(machine) => Some(machine.place(id).await.expect("a partition whose GUID is the volume's id")),
        None => None,
    };
    if let Some(place) = &place {
        assert!(place.holds_data(), "a filesystem was made there");
    }
    space.remove_pod("app").await;
    space.remove_claim("data").await;
    space.until_gone("PoolVolume", None, id).await;
    let (Some(place), Some(machine)) = (place, &space.machine) else { return };
    assert!(machine.place(id).await.is_none(), "its entry is gone from the table");
    let erased = async || if place.holds_data() { Err("there is data left") } else { Ok(()) };
    crate::cluster::eventually("the place is erased", crate::cluster::SOON, erased).await;
}

#[test]
fn a_claim_of_a_whole_disk_is_bound_with_its_pod_and_leaves_nothing() {
    check(Needs::Cluster, async |space| lives(space, "local-whole").await);
}

#[test]
fn a_claim_of_a_slot_is_bound_with_its_pod_and_leaves_nothing() {
    check(Needs::Cluster, async |space| lives(space, "local-slots").await);
}

#[test]
fn a_claim_of_a_carved_partition_is_bound_with_its_pod_and_leaves_nothing() {
    check(Needs::Cluster, async |space| lives(space, "local-carved").await);
}

async fn has_filesystem(space: &Space, fs_type: &str) {
    let class = space.class(fs_type, "WaitForFirstConsumer").await;
    space.running("data", &class, "1Gi", As::Folder).await;
    let mounted = space.shell("data", "awk '$2 == \"/data\" {print $3}' /proc/mounts").await;
    assert_eq!(mounted.trim(), fs_type);
    space.shell("data", "echo kept >/data/file && sync").await;
    space.remove_pod("data").await;
    space.create(&space.pod("data", "data", As::Folder)).await;
    space.until_running("data").await;
    assert_eq!(space.shell("data", "cat /data/file").await, "kept\n", "a filesystem is made once");
}

#[test]
fn a_class_that_says_ext4_gives_ext4_that_keeps_its_files() {
    check(Needs::Cluster, async |space| has_filesystem(space, "ext4").await);
}

#[test]
fn a_class_that_says_xfs_gives_xfs_that_keeps_its_files() {
    check(Needs::Cluster, async |space| has_filesystem(space, "xfs").await);
}

#[test]
fn a_class_that_says_btrfs_gives_btrfs_that_keeps_its_files() {
    check(Needs::Cluster, async |space| has_filesystem(space, "btrfs").await);
}

#[test]
fn a_block_volume_is_a_device_of_the_asked_size_that_is_all_zeros_and_keeps_what_is_written() {
    check(Needs::Cluster, async |space| {
        space.running("raw", "local-carved", "64Mi", As::Device).await;
        assert_eq!(space.shell("raw", "blockdev --getsize64 /dev/data").await.trim(), "67108864");
        let other = space.shell("raw", "tr -d '\\000' </dev/data | wc -c").await;
        assert_eq!(other.trim(), "0", "bytes of somebody else");
        space.shell("raw", "echo hello | dd of=/dev/data conv=fsync 2>/dev/null").await;
        space.remove_pod("raw").await;
        space.create(&space.pod("raw", "raw", As::Device)).await;
        space.until_running("raw").await;
        assert_eq!(space.shell("raw", "dd if=/dev/data bs=6 count=1 2>/dev/null").await, "hello\n");
        space.remove_pod("raw").await;
    });
}
