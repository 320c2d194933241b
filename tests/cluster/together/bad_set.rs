//! Sets that cannot be followed, or go away: each says so, and stops only itself.

use serde_json::{Value, json};

use crate::check::{Needs, check};
use crate::pods::{As, With as _};
use crate::sets::MIB;

#[test]
fn a_set_whose_selector_matches_no_node_says_so() {
    check(Needs::Cluster, async |space| {
        let terms =
            json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "no-such-label", "operator": "Exists"}]}]});
        space.create(&space.set("nowhere", "/nowhere/*").with("/spec/nodeSelector", terms)).await;
        let told = space.set_says("nowhere", "Available", "False", "NoNodeSelected").await;
        assert!(told.contains("nodeSelector selects none of"), "{told}");
        space.event("nowhere", &["NoNodeSelected"]).await;
    });
}

#[test]
fn a_set_with_unknown_fields_claims_nothing_and_names_them() {
    check(Needs::Machine, async |space| {
        let disk = space.machine().disk(&format!("{}-typo", space.namespace), 64 * MIB).await;
        let set = space.set("typo", disk.image.to_str().unwrap());
        space.create(&set.with("/spec/dryrun", json!(true)).with("/spec/deviceInclusionSpec/pathes", json!([]))).await;
        let told = space.set_says("typo", "Valid", "False", "Invalid").await;
        assert!(told.contains("dryrun") && told.contains("pathes"), "{told}");
        // Longer than a disk has to be watched before it is claimed.
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        assert!(disk.entries().await.is_empty() && space.disk_status(&disk).await.is_none(), "it was claimed");
        space.delete("LocalVolumeSet", space.here(), "typo").await;
        let path = disk.node.to_str().unwrap();
        crate::cluster::run("losetup", &["--detach", path]).await;
    });
}

#[test]
fn a_set_that_contradicts_its_schema_is_refused_by_the_apiserver_with_a_message() {
    check(Needs::Cluster, async |space| {
        let set = || space.set("set", "/nowhere/*");
        for (pointer, value, message) in [
            ("/spec/storageClassName", json!(""), "storageClassName"),
            ("/spec/volumeMode", json!("Blocks"), "volumeMode"),
            ("/spec/partitioningSpec", json!({"count": 0}), "count"),
            ("/spec/partitioningSpec", json!({"mode": "dynamic"}), "Dynamic"),
        ] {
            let refusal = space.try_create(&set().with(pointer, value)).await.expect_err("refused").to_string();
            assert!(refusal.contains(message), "{pointer}: {refusal}");
        }
        space.create(&set()).await;
        let removed = json!({"spec": {"partitioningSpec": null}});
        let refusal = space.try_patch("LocalVolumeSet", space.here(), "set", &removed).await.expect_err("refused");
        assert!(refusal.to_string().contains("make another set"), "{refusal}");
    });
}

#[test]
fn a_set_that_is_deleted_keeps_its_volumes_offers_nothing_and_gets_its_disks_back() {
    check(Needs::Machine, async |space| {
        let (disk, class) = space.own_disk("gone", 256 * MIB).await;
        space.running_in(&class, "old", "64Mi").await;
        space.delete("LocalVolumeSet", space.here(), "gone").await;
        space.until_gone("LocalVolumeSet", space.here(), "gone").await;
        let offers_nothing = async || {
            let status = space.disk_status(&disk).await.unwrap_or_default();
            let message = status["message"].as_str().unwrap_or_default().to_owned();
            if message.contains("does not exist: it offers no space") { Ok(()) } else { Err(status) }
        };
        crate::cluster::eventually("the disk says that its set is gone", crate::cluster::SOON, offers_nothing).await;
        space.shell("old", "echo works >/data/file && sync && cat /data/file").await;
        space.create(&space.claim("new", &class, "64Mi")).await;
        space.create(&space.pod("new", "new", As::Folder)).await;
        space.event("new", &["ProvisioningFailed", "no LocalVolumeSet"]).await;
        space.create(&space.set("gone", disk.image.to_str().unwrap())).await;
        space.until_claimed("gone", 1).await;
        space.until_running("new").await;
        assert_eq!(space.shell("old", "cat /data/file").await, "works\n");
        for name in ["old", "new"] {
            space.remove_pod(name).await;
            space.remove_claim(name).await;
        }
        space.remove_disk("gone", &disk).await;
    });
}

#[test]
fn a_class_of_another_provisioner_is_left_alone_and_the_set_says_so() {
    check(Needs::Cluster, async |space| {
        let name = format!("{}-taken", space.namespace);
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "example.com/other",
        });
        space.create(&class).await;
        space.create(&space.set("taken", "/nowhere/*")).await;
        let told = space.set_says("taken", "StorageClassReady", "False", "ForeignProvisioner").await;
        assert!(told.contains("example.com/other") && told.contains("is not changed"), "{told}");
        let class: Value = space.get("StorageClass", None, &name).await.unwrap();
        assert_eq!((&class["provisioner"], &class["parameters"]), (&json!("example.com/other"), &Value::Null));
    });
}
