//! What a pool has, and what happens if that is not enough.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{DRIVER, SOON, eventually};
use crate::pods::{As, With as _, is_ready};
use crate::sets::MIB;

const ZONE: &str = "topology.kubernetes.io/zone";
/// In a claim.
const SIZE: &str = "/spec/resources/requests/storage";

#[test]
fn a_full_pool_leaves_the_pod_pending_with_the_reason_and_a_freed_volume_lets_it_run() {
    check(Needs::Machine, async |space| {
        let (disk, class) = space.own_disk("small", 256 * MIB).await;
        space.running_in(&class, "first", "150Mi").await;
        space.create(&space.claim("second", &class, "150Mi")).await;
        space.create(&space.pod("second", "second", As::Folder)).await;
        let told = space.event("second", &["FailedScheduling", "did not have enough free storage"]).await;
        let pod = space.get("Pod", space.here(), "second").await.unwrap();
        assert_eq!(pod["status"]["phase"], "Pending", "{told}");
        space.remove_pod("first").await;
        space.remove_claim("first").await;
        space.until_running("second").await;
        space.remove_pod("second").await;
        space.remove_claim("second").await;
        space.remove_disk("small", &disk).await;
    });
}

#[test]
fn fifty_claims_and_pods_at_once_all_run_and_leave_nothing() {
    check(Needs::Machine, async |space| {
        let (disk, class) = space.own_disk("fifty", 4096 * MIB).await;
        let free = async || space.disk_status(&disk).await.map(|status| status["free"].clone());
        let before = free().await;
        for number in 0..50 {
            let name = format!("app-{number}");
            space.create(&space.claim(&name, &class, "64Mi")).await;
            space.create(&space.pod(&name, &name, As::Folder)).await;
        }
        let running = async || {
            let pods = space.list("Pod", space.here()).await;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            if ready == 50 { Ok(()) } else { Err(ready) }
        };
        eventually("fifty pods run", 3 * SOON, running).await;
        for number in [0, 17, 49] {
            space.shell(&format!("app-{number}"), "echo works >/data/file").await;
        }
        for kind in ["pods", "pvc"] {
            space.kubectl(&["delete", kind, "--all", "--wait=false"]).await;
        }
        let free_again = async || {
            let now = free().await;
            if now == before { Ok(()) } else { Err(now) }
        };
        eventually("their space is free again", 2 * SOON, free_again).await;
        space.remove_disk("fifty", &disk).await;
    });
}

#[test]
fn a_claim_larger_than_any_disk_waits_and_says_what_there_is() {
    check(Needs::Cluster, async |space| {
        space.create(&space.claim("huge", "local-carved", "9Pi")).await;
        space.create(&space.pod("huge", "huge", As::Folder)).await;
        space.event("huge", &["FailedScheduling", "did not have enough free storage"]).await;
        // Without a scheduler in between, the driver itself says it.
        let class = space.class("ext4", "Immediate").await;
        space.create(&space.claim("direct", &class, "9Pi")).await;
        space.event("direct", &["ProvisioningFailed", "ResourceExhausted", "the largest free place"]).await;
    });
}

#[test]
fn a_class_with_an_unknown_parameter_is_refused_by_its_name() {
    check(Needs::Cluster, async |space| {
        let class = space.class_with("typo", "Immediate", json!({"clas": "local-carved"})).await;
        space.create(&space.claim("data", &class, "64Mi")).await;
        space.event("data", &["ProvisioningFailed", "parameters.clas is unknown", "class and set"]).await;
        // The scheduler asks for capacity first.
        let class = space.class_with("late", "WaitForFirstConsumer", json!({"clas": "local-carved"})).await;
        space.create(&space.claim("late", &class, "64Mi")).await;
        space.create(&space.pod("app", "late", As::Folder)).await;
        space.event("late", &["ProvisioningFailed", "parameters.clas is unknown", "class and set"]).await;
    });
}

#[test]
fn a_class_without_a_set_is_told_on_the_claim_with_any_binding_mode() {
    check(Needs::Cluster, async |space| {
        for (word, binding) in [("now", "Immediate"), ("late", "WaitForFirstConsumer")] {
            let class = space.class_with(word, binding, json!({"class": "no-such-class"})).await;
            space.create(&space.claim(word, &class, "64Mi")).await;
            space.create(&space.pod(word, word, As::Folder)).await;
            space.event(word, &["ProvisioningFailed", "no LocalVolumeSet", "class no-such-class"]).await;
        }
    });
}

#[test]
fn a_claim_of_a_mode_that_its_set_does_not_allow_is_told_so() {
    check(Needs::Machine, async |space| {
        for (set, mode, seen) in [("raw", "Block", As::Folder), ("files", "Filesystem", As::Device)] {
            let disk = space.machine().disk(&format!("{}-{set}", space.namespace), 256 * MIB).await;
            let object = space.set(set, disk.image.to_str().unwrap()).with("/spec/volumeMode", json!(mode));
            space.create(&object).await;
            space.until_claimed(set, 1).await;
            let class = format!("{}-{set}", space.namespace);
            let claim = match seen {
                As::Folder => space.claim(set, &class, "64Mi"),
                As::Device => space.block_claim(set, &class, "64Mi"),
            };
            space.create(&claim).await;
            space.create(&space.pod(set, set, seen)).await;
            space.event(set, &["ProvisioningFailed", &format!("allow volumeMode {mode} only")]).await;
            // If there is no room in the other mode either, the claim does not get that far.
            space.create(&claim.with("/metadata/name", json!("huge")).with(SIZE, json!("9Pi"))).await;
            space.create(&space.pod("huge", "huge", seen)).await;
            space.event("huge", &["FailedScheduling", "did not have enough free storage"]).await;
            for name in [set, "huge"] {
                space.remove_pod(name).await;
                space.remove_claim(name).await;
            }
            space.remove_disk(set, &disk).await;
        }
    });
}

#[test]
fn a_claim_of_a_mode_that_no_disk_here_is_for_is_told_so_and_does_not_keep_the_other_mode_from_its_room() {
    check(Needs::Machine, async |space| {
        let class = format!("{}-mixed", space.namespace);
        let disk = space.machine().disk(&class, 256 * MIB).await;
        for (name, mode, image) in
            [("raw", "Block", disk.image.to_str().unwrap()), ("files", "Filesystem", "/no/such/*")]
        {
            let set = space.set(name, image).with("/spec/storageClassName", json!(class));
            space.create(&set.with("/spec/volumeMode", json!(mode))).await;
        }
        space.until_claimed("raw", 1).await;
        space.create(&space.claim("data", &class, "64Mi")).await;
        space.create(&space.pod("app", "data", As::Folder)).await;
        space.event("data", &["ProvisioningFailed", "ResourceExhausted", "there allow volumeMode Block only"]).await;
        space.event("app", &["FailedScheduling", "did not have enough free storage"]).await;
        // While the first claim is retried again and again.
        space.create(&space.block_claim("blocks", &class, "64Mi")).await;
        space.create(&space.pod("reader", "blocks", As::Device)).await;
        space.until_running("reader").await;
        for (pod, claim) in [("app", "data"), ("reader", "blocks")] {
            space.remove_pod(pod).await;
            space.remove_claim(claim).await;
        }
        space.delete("LocalVolumeSet", space.here(), "files").await;
        space.remove_disk("raw", &disk).await;
    });
}

/// A class for one zone, which this driver does not know.
async fn class_of_zone(space: &Space, binding: &str, zone: &str) -> String {
    let name = format!("{}-{zone}", space.namespace);
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": DRIVER, "parameters": {"class": "local-carved"}, "volumeBindingMode": binding,
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}],
    });
    space.create(&class).await;
    name
}

#[test]
fn a_topology_that_no_node_has_here_is_told_by_its_key() {
    check(Needs::Cluster, async |space| {
        let class = class_of_zone(space, "Immediate", "nowhere").await;
        space.create(&space.claim("data", &class, "64Mi")).await;
        space.event("data", &["ProvisioningFailed", ZONE]).await;
    });
}

#[test]
fn a_topology_that_no_node_has_here_finds_no_node_for_a_pod() {
    check(Needs::Cluster, async |space| {
        let class = class_of_zone(space, "WaitForFirstConsumer", "nowhere").await;
        space.create(&space.claim("data", &class, "64Mi")).await;
        space.create(&space.pod("app", "data", As::Folder)).await;
        space.event("app", &["FailedScheduling", "didn't find available persistent volumes to bind"]).await;
        // No node was chosen, so nobody asked the driver.
        space.event("data", &["WaitForPodScheduled"]).await;
        let told = space.events("data").await;
        assert!(!told.iter().any(|event| event.contains("Provisioning")), "{told:?}");
    });
}

#[test]
fn a_topology_that_only_the_labels_of_a_node_have_is_refused_on_the_claim_by_the_provisioner() {
    check(Needs::Machine, async |space| {
        let node = space.nodes().await.remove(0);
        let label = async |zone: Value| {
            space.patch("Node", None, &node, &json!({"metadata": {"labels": {ZONE: zone}}})).await;
        };
        label(json!("here")).await;
        let refused = async {
            let class = class_of_zone(space, "WaitForFirstConsumer", "here").await;
            space.create(&space.claim("data", &class, "64Mi")).await;
            space.create(&space.pod("app", "data", As::Folder)).await;
            space.event("data", &["ProvisioningFailed", "is not in allowed topologies", ZONE]).await;
        };
        let ended = AssertUnwindSafe(refused).catch_unwind().await;
        // Also after a failure, for the checks that follow.
        label(json!(null)).await;
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn a_class_whose_parameters_contradict_each_other_gives_nothing_and_says_so() {
    check(Needs::Cluster, async |space| {
        let parameters = json!({"class": "local-carved", "set": "localpool/slots"});
        let class = space.class_with("both", "Immediate", parameters).await;
        space.create(&space.claim("data", &class, "64Mi")).await;
        // Before the provisioner knows of the class, it says that there is none.
        let told = async || {
            let events = space.events("data").await;
            let failed = |event: &&String| event.contains("ProvisioningFailed");
            let named = |event: &&String| event.contains("local-carved") || event.contains("localpool/slots");
            if events.iter().filter(failed).any(|event| named(&event)) { Ok(()) } else { Err(events) }
        };
        eventually("an Event of the claim says which parameter rules out which", SOON, told).await;
    });
}

#[test]
fn a_claim_without_a_scheduler_between_gets_a_volume_on_a_node_with_room() {
    check(Needs::Cluster, async |space| {
        let class = space.class("ext4", "Immediate").await;
        space.create(&space.claim("data", &class, "64Mi")).await;
        space.until_bound("data").await;
        space.create(&space.pod("app", "data", As::Folder)).await;
        space.until_running("app").await;
    });
}
