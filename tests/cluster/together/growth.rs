//! Volumes that are expanded while a pod uses them.

use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{SOON, eventually};
use crate::pods::As;

async fn ask(space: &Space, claim: &str, size: &str) {
    let patch = json!({"spec": {"resources": {"requests": {"storage": size}}}});
    space.patch("PersistentVolumeClaim", space.here(), claim, &patch).await;
}

async fn until_size(space: &Space, claim: &str, size: &str) {
    let grown = |claim: &Value| claim["status"]["capacity"]["storage"] == size;
    space.until("PersistentVolumeClaim", space.here(), claim, &format!("has {size}"), grown).await;
}

async fn kib(space: &Space, pod: &str) -> u64 {
    space.shell(pod, "df -k /data | awk 'END {print $2}'").await.trim().parse().unwrap()
}

async fn grows_in_use(space: &Space, fs_type: &str) {
    let class = space.class(fs_type, "WaitForFirstConsumer").await;
    space.running("data", &class, "400Mi", As::Folder).await;
    space.shell("data", "echo before >/data/file").await;
    let before = kib(space, "data").await;
    ask(space, "data", "800Mi").await;
    until_size(space, "data", "800Mi").await;
    let after = kib(space, "data").await;
    assert!(after > before * 3 / 2, "{before} KiB before, {after} KiB after");
    let pod = space.get("Pod", space.here(), "data").await.unwrap();
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "the pod has run on");
    assert_eq!(space.shell("data", "cat /data/file").await, "before\n");
}

#[test]
fn a_claim_with_xfs_grows_while_its_pod_runs() {
    check(Needs::Cluster, async |space| grows_in_use(space, "xfs").await);
}

#[test]
fn a_claim_with_btrfs_grows_while_its_pod_runs() {
    check(Needs::Cluster, async |space| grows_in_use(space, "btrfs").await);
}

#[test]
fn a_block_claim_grows_while_its_pod_runs() {
    check(Needs::Cluster, async |space| {
        space.running("raw", "local-carved", "64Mi", As::Device).await;
        ask(space, "raw", "128Mi").await;
        until_size(space, "raw", "128Mi").await;
        let size = async || {
            let size = space.shell("raw", "blockdev --getsize64 /dev/data").await;
            if size.trim() == "134217728" { Ok(()) } else { Err(size) }
        };
        eventually("the pod's device has grown", SOON, size).await;
        let other = space.shell("raw", "tr -d '\\000' </dev/data | wc -c").await;
        assert_eq!(other.trim(), "0", "what was added has bytes of somebody else");
    });
}

/// Linux grows a mounted ext4 only for a process with CAP_SYS_RESOURCE, which not every machine gives to anybody.
#[test]
fn a_claim_with_ext4_grows_in_use_or_says_why_not_and_grows_with_the_next_pod() {
    check(Needs::Cluster, async |space| {
        let class = space.class("ext4", "WaitForFirstConsumer").await;
        space.running("data", &class, "200Mi", As::Folder).await;
        space.shell("data", "echo before >/data/file").await;
        let before = kib(space, "data").await;
        ask(space, "data", "400Mi").await;
        let can = space.agent(&["sh", "-c", "grep CapBnd /proc/self/status"]).await;
        let can = u64::from_str_radix(can.split_whitespace().nth(1).unwrap(), 16).unwrap() >> 24 & 1 == 1;
        if !can {
            // Kubelet writes the agent's words only to its log, and says in the claim that the filesystem is still to
            // be expanded.
            let pending = |claim: &Value| {
                let conditions = claim["status"]["conditions"].as_array();
                conditions
                    .into_iter()
                    .flatten()
                    .any(|one| one["type"] == "FileSystemResizePending" && one["status"] == "True")
            };
            let claim =
                space.until("PersistentVolumeClaim", space.here(), "data", "waits for a new pod", pending).await;
            assert_eq!(claim["status"]["capacity"]["storage"], "200Mi", "not more than there is");
            space.remove_pod("data").await;
            space.create(&space.pod("data", "data", As::Folder)).await;
            space.until_running("data").await;
        }
        until_size(space, "data", "400Mi").await;
        assert!(kib(space, "data").await > before * 3 / 2);
        assert_eq!(space.shell("data", "cat /data/file").await, "before\n");
    });
}

#[test]
fn a_claim_of_a_slot_cannot_outgrow_it_and_says_so() {
    check(Needs::Cluster, async |space| {
        space.running("data", "local-slots", "1Gi", As::Folder).await;
        // A slot is larger than the size that was asked for: up to its size there is nothing to do.
        ask(space, "data", "2Gi").await;
        let claim = |claim: &Value| claim["status"]["capacity"]["storage"].as_str().is_some_and(|size| size != "1Gi");
        space.until("PersistentVolumeClaim", space.here(), "data", "has what the slot has", claim).await;
        ask(space, "data", "3Ti").await;
        space.event("data", &["VolumeResizeFailed"]).await;
        space.shell("data", "echo works >/data/file").await;
    });
}
