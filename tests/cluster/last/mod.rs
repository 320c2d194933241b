//! The end of the installation, after everything else; in the order of the names.

mod etcd;
mod rights;

use serde_json::Value;

use crate::check::{Needs, Space, check};
use crate::cluster::{DRIVER, HOME, SOON, attempt, eventually, kubectl, name, run};
use crate::pods::As;

/// The disks of a DevicePool, as (image, free bytes, volumes), from its JSON.
fn disks(pool: &Value) -> Vec<(String, u64, u64)> {
    let disks = pool["status"]["disks"].as_array().cloned().unwrap_or_default();
    let disk = |disk: &Value| {
        (disk["path"].as_str().unwrap().to_owned(), disk["free"].as_u64().unwrap(), disk["volumes"].as_u64().unwrap())
    };
    let mut disks: Vec<_> = disks.iter().map(disk).collect();
    disks.sort();
    disks
}

#[test]
fn a_all_claims_are_gone_and_nothing_of_them_is_on_the_disks() {
    check(Needs::Machine, async |space| {
        let text = std::fs::read_to_string(space.machine().work.join("pool.json")).unwrap();
        let before = disks(&serde_json::from_str(&text).unwrap());
        assert!(before.len() > 10, "{before:?}");
        let same = async || {
            let now = disks(&space.list("DevicePool", None).await.remove(0));
            if now == before { Ok(()) } else { Err(now) }
        };
        eventually("every disk has as many free bytes as at the beginning", SOON, same).await;
        let left: Vec<_> = space.list("PoolVolume", None).await.iter().map(|one| name(one).to_owned()).collect();
        assert!(left.is_empty(), "{left:?}");
        for disk in space.machine().disks() {
            let entries = disk.entries().await;
            for entry in entries.iter().filter(|entry| entry.start != 1 << 20) {
                let place = crate::machine::Place { disk: disk.clone(), start: entry.start, len: entry.len };
                assert!(!place.holds_data(), "{entry:?} of {} is not zero", disk.image.display());
            }
            run("sgdisk", &["--verify", disk.node.to_str().unwrap()]).await;
        }
    });
}

/// The lines of the README once more.
async fn install(space: &Space) {
    let lines = space.machine().work.join("install");
    let text = std::fs::read_to_string(&lines).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("kubectl create namespace")).collect();
    run("bash", &["-euo", "pipefail", "-c", &lines.join("\n")]).await;
}

#[test]
fn b_an_uninstallation_keeps_objects_and_data_and_the_next_installation_finds_them() {
    check(Needs::Machine, async |space| {
        space.running("data", "local-carved", "64Mi", As::Folder).await;
        space.shell("data", "echo kept >/data/file && sync").await;
        let volume = space.volume_of(&space.namespace, "data").await;
        space.remove_pod("data").await;
        let place = space.machine().place(name(&volume)).await.unwrap();

        run("helm", &["uninstall", "localpool", "--namespace", HOME, "--wait", "--timeout", "2m"]).await;
        assert!(space.get("CSIDriver", None, DRIVER).await.is_none());
        for definition in
            ["poolvolumes.localpool.dev", "devicepools.localpool.dev", "localvolumesets.local.storage.openshift.io"]
        {
            assert!(space.get("CustomResourceDefinition", None, definition).await.is_some(), "{definition}");
        }
        let kept = space.get("PoolVolume", None, name(&volume)).await.expect("the volume's object");
        assert_eq!(kept["metadata"]["uid"], volume["metadata"]["uid"]);
        assert_eq!(space.list("LocalVolumeSet", Some(HOME)).await.len(), 3, "the sets");
        assert!(space.get("StorageClass", None, "local-carved").await.is_some());
        assert!(place.holds_data());
        // Kubernetes' garbage collector deletes them a moment after their owners are gone.
        let are_deleted = async || {
            let pods = space.list("Pod", Some(HOME)).await;
            let left = pods.into_iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
            let left: Vec<String> = left.map(|pod| name(&pod).to_owned()).collect();
            if left.is_empty() { Ok(()) } else { Err(left) }
        };
        eventually("all pods are deleted", SOON, are_deleted).await;

        install(space).await;
        space.create(&space.pod("data", "data", As::Folder)).await;
        space.until_running("data").await;
        assert_eq!(space.shell("data", "cat /data/file").await, "kept\n");
        space.running("new", "local-slots", "64Mi", As::Folder).await;
        let now = space.get("PoolVolume", None, name(&volume)).await.unwrap();
        assert_eq!(
            (&now["metadata"]["uid"], &now["status"]["phase"]),
            (&volume["metadata"]["uid"], &Value::from("Ready"))
        );
    });
}

#[test]
fn c_a_second_release_is_refused_and_leaves_the_first_one_alone() {
    check(Needs::Machine, async |space| {
        let chart = format!("{}/charts/localpool", env!("CARGO_MANIFEST_DIR"));
        let words = ["install", "second", &chart, "--namespace", &space.namespace, "--set", "crds.apply=false"];
        let refusal = attempt("helm", &words).await.expect_err("a cluster has one driver of a name");
        assert!(refusal.contains(DRIVER), "{refusal}");
        kubectl(&["-n", HOME, "rollout", "status", "daemonset/localpool-node", "--timeout=5m"]).await;
        let _ = attempt("helm", &["uninstall", "second", "--namespace", &space.namespace]).await;
        assert!(space.get("CSIDriver", None, DRIVER).await.is_some());
        space.running("data", "local-carved", "64Mi", As::Folder).await;
    });
}
