//! Volumes whose class says Retain.

use serde_json::{Value, json};

use crate::check::{Needs, check};
use crate::cluster::{DRIVER, name};
use crate::pods::As;

#[test]
fn a_retained_volume_keeps_its_data_is_listed_and_can_be_claimed_again() {
    check(Needs::Cluster, async |space| {
        // Of examples/storageclass.yaml.
        space.running("data", "local-carved-xfs", "400Mi", As::Folder).await;
        let options = space.shell("data", "awk '$2 == \"/data\" {print $4}' /proc/mounts").await;
        assert!(options.contains("noatime"), "mountOptions of the class: {options}");
        space.shell("data", "echo precious >/data/file && sync").await;
        let volume = space.volume_of(&space.namespace, "data").await;
        let id = name(&volume).to_owned();
        let pv = space.until_bound("data").await["spec"]["volumeName"].as_str().unwrap().to_owned();
        space.remove_pod("data").await;
        space.remove_claim("data").await;
        let released = |pv: &Value| pv["status"]["phase"] == "Released";
        let old = space.until("PersistentVolume", None, &pv, "is released", released).await;
        space.delete("PersistentVolume", None, &pv).await;
        space.until_gone("PersistentVolume", None, &pv).await;
        let volume = space.get("PoolVolume", None, &id).await.expect("the object stays");
        assert_eq!(volume["status"]["phase"], "Ready");
        let listed = space.kubectl(&["get", "poolvolumes"]).await;
        assert!(listed.lines().any(|line| line.contains(&id) && line.contains(&pv)), "{listed}");
        if let Some(machine) = &space.machine {
            assert!(machine.place(&id).await.expect("its partition").holds_data());
        }
        // What an administrator writes to have it again.
        let again = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": pv},
            "spec": {
                "capacity": {"storage": "400Mi"}, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "local-carved-xfs",
                "csi": {"driver": DRIVER, "volumeHandle": id, "fsType": "xfs"},
                "nodeAffinity": old["spec"]["nodeAffinity"],
                "claimRef": {"namespace": space.namespace, "name": "again"},
            },
        });
        space.create(&again).await;
        space.create(&space.claim("again", "local-carved-xfs", "400Mi")).await;
        space.create(&space.pod("again", "again", As::Folder)).await;
        space.until_running("again").await;
        assert_eq!(space.shell("again", "cat /data/file").await, "precious\n");
        // The provisioner deletes only what it provisioned, and knows it by this.
        let by = json!({"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}}});
        space.patch("PersistentVolume", None, &pv, &by).await;
        space.remove_pod("again").await;
        space.remove_claim("again").await;
        space.until_gone("PoolVolume", None, &id).await;
    });
}
