//! A disk that is taken out of service, as docs/health.md says.

use serde_json::Value;

use crate::check::{Needs, check};
use crate::cluster::run;
use crate::sets::MIB;

/// The command of the page that orders something for a disk.
fn command(order: &str, node: &str, id: &str) -> String {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/health.md")).unwrap();
    let section = text.split("\n## ").find(|part| part.starts_with("Orders for a disk\n")).expect("the section");
    let line = section.lines().find(|line| line.starts_with("kubectl patch devicepool")).expect("the command");
    line.replace("NODE", node).replace("ID", id).replace("Release", order)
}

#[test]
fn a_disk_whose_release_is_ordered_names_the_claims_on_it_and_is_blank_when_they_are_gone() {
    check(Needs::Machine, async |space| {
        let (disk, class) = space.own_disk("old", 256 * MIB).await;
        space.running_in(&class, "data", "64Mi").await;
        let status = space.disk_status(&disk).await.expect("it is in the pool");
        let (id, node) = (status["id"].as_str().unwrap(), space.agent_pod().await["spec"]["nodeName"].clone());
        let node = node.as_str().unwrap();
        let order = |pool: &Value| {
            let orders = pool["status"]["orders"].as_array().cloned().unwrap_or_default();
            orders.into_iter().find(|order| order["disk"] == id)
        };
        let says = |pool: &Value, state: &str, words: &str| {
            order(pool).is_some_and(|it| it["state"] == state && it["message"].as_str().unwrap().contains(words))
        };
        run("sh", &["-c", &command("Release", node, id)]).await;
        let claim = format!("{}/data", space.namespace);
        space.until("DevicePool", None, node, "names the claim", |pool| says(pool, "Waiting", &claim)).await;
        space.shell("data", "echo still >/data/file && sync && cat /data/file").await;
        space.create(&space.claim("late", &class, "64Mi")).await;
        space.create(&space.pod("late", "late", crate::pods::As::Folder)).await;
        space.event("late", &["FailedScheduling"]).await;
        space.remove_pod("late").await;
        space.remove_claim("late").await;
        space.remove_pod("data").await;
        space.remove_claim("data").await;
        space.until("DevicePool", None, node, "the disk is released", |pool| says(pool, "Done", "wiped")).await;
        assert_eq!(run("wipefs", &["--noheadings", disk.node.to_str().unwrap()]).await.trim(), "", "it is blank");
        run("sh", &["-c", &command("Release", node, id).replace("{\"order\":\"Release\"}", "null")]).await;
        space.until("DevicePool", None, node, "nothing is ordered", |pool| order(pool).is_none()).await;
        space.delete("LocalVolumeSet", space.here(), "old").await;
        space.until_gone("LocalVolumeSet", space.here(), "old").await;
        run("losetup", &["--detach", disk.node.to_str().unwrap()]).await;
    });
}
