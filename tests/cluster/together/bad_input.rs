//! Localpool's objects that people edit or write themselves.

use localpool::volume::VolumeId;
use serde_json::{Value, json};

use crate::check::{Needs, check};
use crate::cluster::name;
use crate::pods::As;

#[test]
fn a_pool_volume_cannot_be_edited_into_another_one() {
    check(Needs::Cluster, async |space| {
        space.running("data", "local-carved", "64Mi", As::Folder).await;
        let volume = space.volume_of(&space.namespace, "data").await;
        for (field, value, message) in [
            ("node", json!("elsewhere"), "a local volume stays on its node"),
            ("volumeName", json!("other"), "spec.volumeName cannot be changed"),
            ("volumeMode", json!("Block"), "spec.volumeMode cannot be changed"),
            ("required", json!(1), "only spec.size grows"),
            ("parameters", json!({"class": "other"}), "spec.parameters cannot be changed"),
            ("intent", json!("Delete"), "delete its PersistentVolumeClaim"),
            ("intent", json!("Erase"), "Unsupported value"),
        ] {
            let patch = json!({"spec": {field: value}});
            let refusal =
                space.try_patch("PoolVolume", None, name(&volume), &patch).await.expect_err(field).to_string();
            assert!(refusal.contains(message), "{field}: {refusal}");
        }
        space.shell("data", "echo works >/data/file").await;
    });
}

#[test]
fn a_pool_volume_deleted_under_its_pod_comes_back_ready() {
    check(Needs::Cluster, async |space| {
        space.running("data", "local-carved", "64Mi", As::Folder).await;
        space.shell("data", "echo kept >/data/file && sync").await;
        let volume = space.volume_of(&space.namespace, "data").await;
        space.delete("PoolVolume", None, name(&volume)).await;
        let uid = &volume["metadata"]["uid"];
        let back = |now: &Value| now["metadata"]["uid"] != *uid && now["status"]["phase"] == "Ready";
        space.until("PoolVolume", None, name(&volume), "is back", back).await;
        assert_eq!(space.shell("data", "cat /data/file").await, "kept\n");
        space.remove_pod("data").await;
        space.create(&space.pod("data", "data", As::Folder)).await;
        space.until_running("data").await;
        assert_eq!(space.shell("data", "cat /data/file").await, "kept\n");
    });
}

fn by_hand(id: &str, node: &str) -> Value {
    json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume", "metadata": {"name": id},
        "spec": {"node": node, "volumeName": "by-hand", "required": 1 << 20, "volumeMode": "Block", "parameters": {"class": "local-carved"}},
    })
}

#[test]
fn a_pool_volume_made_by_hand_under_a_wrong_name_gets_no_space() {
    check(Needs::Cluster, async |space| {
        let node = space.nodes().await.remove(0);
        let odd = by_hand("00000000-0000-4000-8000-00000000beef", &node);
        let refusal = space.try_create(&odd).await.expect_err("not one of our ids").to_string();
        assert!(refusal.contains("create a PersistentVolumeClaim"), "{refusal}");
        // An id such as the driver makes, but of another volume: only somebody who knows the rule notices.
        let id = VolumeId::of_name("another").to_string();
        space.create(&by_hand(&id, &node)).await;
        let refused = |now: &Value| now["status"]["phase"] == "Rejected";
        let now = space.until("PoolVolume", None, &id, "is rejected", refused).await;
        let message = now["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("was not made by the driver"), "{message}");
        if let Some(machine) = &space.machine {
            assert!(machine.place(&id).await.is_none(), "it got space");
        }
        space.delete("PoolVolume", None, &id).await;
        space.until_gone("PoolVolume", None, &id).await;
    });
}

#[test]
fn a_pool_volume_for_a_node_that_does_not_exist_hurts_nobody() {
    check(Needs::Cluster, async |space| {
        let id = VolumeId::of_name("by-hand").to_string();
        space.create(&by_hand(&id, "no-such-node")).await;
        space.running("data", "local-carved", "64Mi", As::Folder).await;
        space.delete("PoolVolume", None, &id).await;
        space.until_gone("PoolVolume", None, &id).await;
    });
}
