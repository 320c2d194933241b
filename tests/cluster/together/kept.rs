//! Volumes whose class says Retain.

use serde_json::Value;

use crate::check::{Needs, Space, check};
use crate::cluster::name;
use crate::pods::As;

/// What docs/troubleshooting.md says about volumes that were kept.
fn advice() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/troubleshooting.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text.split("\n## ").find(|part| part.starts_with("A volume whose PersistentVolume is gone\n"));
    section.expect("the section").to_owned()
}

fn manifest() -> String {
    let advice = advice();
    let (_, behind) = advice.split_once("```yaml\n").expect("a manifest");
    behind.split_once("```").expect("its end").0.to_owned()
}

/// The policy that the page gives to a PersistentVolume that is still there.
fn policy() -> String {
    let advice = advice();
    let (_, behind) = advice.split_once("`kubectl patch pv NAME -p '").expect("the command");
    behind.split_once("'`").expect("its end").0.to_owned()
}

/// Each placeholder occurs once.
fn filled_in(text: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(text.to_owned(), |text, (placeholder, value)| {
        assert_eq!(text.matches(placeholder).count(), 1, "{placeholder} in {text}");
        text.replace(placeholder, value)
    })
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
        space.delete("PersistentVolume", None, &pv).await;
        space.until_gone("PersistentVolume", None, &pv).await;
        let volume = space.get("PoolVolume", None, &id).await.expect("the object stays");
        assert_eq!(volume["status"]["phase"], "Ready");
        let listed = space.kubectl(&["get", "poolvolumes"]).await;
        assert!(listed.lines().any(|line| line.contains(&id) && line.contains(&pv)), "{listed}");
        if let Some(machine) = &space.machine {
            assert!(machine.place(&id).await.expect("its partition").holds_data());
        }
        // What an administrator writes to use it again.
        let filled = [
            ("pvc-0a1b", volume["spec"]["volumeName"].as_str().unwrap()),
            ("400Mi", &volume["status"]["size"].to_string()),
            ("volumeMode: Filesystem", &format!("volumeMode: {}", volume["spec"]["volumeMode"].as_str().unwrap())),
            ("local-carved", "local-carved-xfs"),
            ("5c0e9c1e-0000-5000-8000-000000000000", &id),
            ("fsType: xfs", &format!("fsType: {}", volume["status"]["fsType"].as_str().unwrap())),
            ("worker-0", volume["spec"]["node"].as_str().unwrap()),
            ("namespace: default", &format!("namespace: {}", space.namespace)),
        ];
        let again: Value = serde_saphyr::from_str(&filled_in(&manifest(), &filled)).expect("a manifest");
        assert_eq!(again["spec"]["nodeAffinity"], old["spec"]["nodeAffinity"]);
        space.create(&again).await;
        space.create(&space.claim("again", "local-carved-xfs", "400Mi")).await;
        space.create(&space.pod("again", "again", As::Folder)).await;
        space.until_running("again").await;
        assert_eq!(space.shell("again", "cat /data/file").await, "precious\n");
        space.remove_pod("again").await;
        space.remove_claim("again").await;
        space.until_gone("PoolVolume", None, &id).await;
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
        space.kubectl(&["patch", "pv", name(&old), "-p", &policy()]).await;
        space.until_gone("PersistentVolume", None, name(&old)).await;
        space.until_gone("PoolVolume", None, id).await;
        if let Some(machine) = &space.machine {
            assert!(machine.place(id).await.is_none(), "its entry is gone from the table");
        }
    });
}
