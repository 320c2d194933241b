//! Volumes whose class says Retain.

use serde_json::Value;

use crate::check::{Needs, Space, check};
use crate::cluster::{attempt, name};
use crate::page::{Section, section, typed};
use crate::pods::As;

/// What docs/troubleshooting.md says about volumes that were kept.
fn advice() -> Section {
    section("troubleshooting.md", "A volume whose PersistentVolume is gone")
}

/// A claim's PersistentVolume after its claim is gone.
async fn released(space: &Space, claim: &str) -> Value {
    let pv = space.until_bound(claim).await["spec"]["volumeName"].as_str().unwrap().to_owned();
    space.remove_pod(claim).await;
    space.remove_claim(claim).await;
    let released = |pv: &Value| pv["status"]["phase"] == "Released";
    space.until("PersistentVolume", None, &pv, "is released", released).await
}

#[test]
fn a_retained_volume_keeps_its_data_is_listed_and_can_be_claimed_again() {
    check(Needs::Cluster, async |space| {
        // The class of examples/storageclass.yaml.
        space.running("data", "local-carved-xfs", "400Mi", As::Folder).await;
        let options = space.shell("data", "awk '$2 == \"/data\" {print $4}' /proc/mounts").await;
        assert!(options.contains("noatime"), "mountOptions of the class: {options}");
        space.shell("data", "echo precious >/data/file && sync").await;
        let volume = space.volume_of(&space.namespace, "data").await;
        let id = name(&volume).to_owned();
        let old = released(space, "data").await;
        let pv = name(&old).to_owned();
        let values = [("NAME", &*pv)];
        let shown = typed(&advice().command("kubectl get pv NAME", &values)).await;
        assert!(shown.contains("Retain") && shown.contains("Released"), "{shown}");
        typed(&advice().command("kubectl delete pv NAME", &values)).await;
        let volume = space.get("PoolVolume", None, &id).await.expect("the object stays");
        assert_eq!(volume["status"]["phase"], "Ready");
        let listed = space.kubectl(&["get", "poolvolumes"]).await;
        let claim = format!("{}/data", space.namespace);
        assert!(listed.lines().any(|line| line.contains(&id) && line.contains(&claim)), "{listed}");
        if let Some(machine) = &space.machine {
            assert!(machine.place(&id).await.expect("its partition").holds_data());
        }
        // What an administrator types to use it again.
        let folder = tempfile::tempdir().unwrap();
        let (file, claim) = (folder.path().join("again.yaml"), format!("{}/again", space.namespace));
        let values = [("VOLUME", &*id), ("default/again", &claim), ("again.yaml", file.to_str().unwrap())];
        let commands = advice().block("volume pv", &values);
        assert_eq!(commands.len(), 2, "{commands:?}");
        for command in commands {
            typed(&command).await;
        }
        let again = space.until("PersistentVolume", None, &pv, "is bound again", |pv| pv["status"]["phase"] == "Bound");
        let again = again.await;
        assert_eq!(again["spec"]["nodeAffinity"], old["spec"]["nodeAffinity"]);
        assert_eq!(again["spec"]["csi"]["fsType"], volume["status"]["fsType"]);
        space.create(&space.pod("again", "again", As::Folder)).await;
        space.until_running("again").await;
        assert_eq!(space.shell("again", "cat /data/file").await, "precious\n");
        space.remove_pod("again").await;
        space.remove_claim("again").await;
        typed(&advice().command("kubectl patch pv NAME", &[("NAME", &pv)])).await;
        space.until_gone("PoolVolume", None, &id).await;
    });
}

#[test]
fn a_volume_that_nobody_names_is_erased_by_order_and_not_while_its_persistent_volume_is_there() {
    check(Needs::Cluster, async |space| {
        space.running("data", "local-carved-xfs", "400Mi", As::Folder).await;
        let volume = space.volume_of(&space.namespace, "data").await;
        let id = name(&volume).to_owned();
        let old = released(space, "data").await;
        // The verb of the page is a dry run, and refused like the order.
        let commands = advice().block("volume erase", &[("VOLUME", &id)]);
        let [order, dry_run] = &commands[..] else { panic!("{commands:?}") };
        typed(order).await;
        let reason = |volume: &Value| {
            let conditions = volume["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().find(|one| one["type"] == "OrderDone").map(|one| one["reason"].clone())
        };
        let refused = |volume: &Value| reason(volume) == Some("PersistentVolumeExists".into());
        space.until("PoolVolume", None, &id, "is not erased", refused).await;
        let said = attempt("sh", &["-c", dry_run]).await.expect_err("it has a PersistentVolume");
        assert!(said.contains(name(&old)), "{said}");
        // Without its object and its PersistentVolume, it is found.
        space.delete("PersistentVolume", None, name(&old)).await;
        space.until_gone("PersistentVolume", None, name(&old)).await;
        space.delete("PoolVolume", None, &id).await;
        space.until("PoolVolume", None, &id, "is found", |volume| volume["status"]["phase"] == "Found").await;
        typed(dry_run).await;
        typed(order).await;
        space.until_gone("PoolVolume", None, &id).await;
        if let Some(machine) = &space.machine {
            assert!(machine.place(&id).await.is_none(), "its entry is gone from the table");
        }
    });
}

#[test]
fn a_retained_volume_is_erased_when_its_released_persistent_volume_gets_the_policy_delete() {
    check(Needs::Cluster, async |space| {
        space.running("data", "local-carved-xfs", "400Mi", As::Folder).await;
        let volume = space.volume_of(&space.namespace, "data").await;
        let id = name(&volume);
        let old = released(space, "data").await;
        let volume = space.get("PoolVolume", None, id).await.expect("it is kept");
        assert_ne!(volume["spec"]["intent"], "Delete");
        typed(&advice().command("kubectl patch pv NAME", &[("NAME", name(&old))])).await;
        space.until_gone("PersistentVolume", None, name(&old)).await;
        space.until_gone("PoolVolume", None, id).await;
        if let Some(machine) = &space.machine {
            assert!(machine.place(id).await.is_none(), "its entry is gone from the table");
        }
    });
}
