//! What a pool has, and what happens where it has not enough.

use serde_json::json;

use crate::check::{Needs, check};
use crate::pods::As;
use crate::sets::MIB;

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
fn a_claim_larger_than_any_disk_waits_and_says_what_there_is() {
    check(Needs::Cluster, async |space| {
        space.create(&space.claim("huge", "local-carved", "9Pi")).await;
        space.create(&space.pod("huge", "huge", As::Folder)).await;
        space.event("huge", &["FailedScheduling", "did not have enough free storage"]).await;
        // Without a scheduler between, the driver itself says it.
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
    });
}

#[test]
fn a_class_whose_parameters_contradict_each_other_gives_nothing_and_says_so() {
    check(Needs::Cluster, async |space| {
        let parameters = json!({"class": "local-carved", "set": "localpool/slots"});
        let class = space.class_with("both", "Immediate", parameters).await;
        space.create(&space.claim("data", &class, "64Mi")).await;
        let told = space.event("data", &["ProvisioningFailed"]).await;
        assert!(told.contains("local-carved") || told.contains("localpool/slots"), "{told}");
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
