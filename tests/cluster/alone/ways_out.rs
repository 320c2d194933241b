//! Disks that move and nodes that are installed again: as docs/troubleshooting.md says, on nodes of which only the
//! machines are simulated.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use kube::api::{Patch, PatchParams};
use localpool::host::{Geometry, fake::FakeHost};
use serde_json::{Value, json};

use crate::check::{Needs, Space, check};
use crate::cluster::{SOON, attempt, eventually, name};
use crate::page::{Section, section, typed};
use crate::runbook::command;
use crate::sim::SimNode;
use crate::simulated::{SimulatedNodes, set_of_simulated_disks};

/// The nodes, each for one story; the disk moves from the first to the second.
const NODES: usize = 3;
const SIZE: u64 = 1 << 30;
/// What each claim asks for.
const VOLUME: u64 = 100 << 20;

fn page(title: &str) -> Section {
    section("troubleshooting.md", title)
}

/// Orders something for a disk.
async fn ordered(order: &str, node: &str, id: &str) {
    let values = [("NODE", node), ("ID", id), ("Release", order)];
    typed(&section("health.md", "Orders for a disk").command("kubectl patch devicepool", &values)).await;
}

/// A pod on this node with a claim; returns the PoolVolume.
async fn running_on(space: &Space, pod: &str, node: &str) -> Value {
    let class = format!("{}-fake", space.namespace);
    space.create(&space.claim(pod, &class, "100Mi")).await;
    space.create(&space.pinned(pod, node)).await;
    space.until_running(pod).await;
    let volume = space.volume_of(&space.namespace, pod).await;
    space.until("PoolVolume", None, name(&volume), "is Ready", |volume| volume["status"]["phase"] == "Ready").await
}

/// The bytes that a disk has free, as a node reports it.
async fn free(space: &Space, node: &str, id: &str) -> Option<u64> {
    let pool = space.get("DevicePool", None, node).await.expect("a node has its DevicePool");
    let disks = pool["status"]["disks"].as_array()?;
    disks.iter().find(|disk| disk["id"] == id)?["free"].as_u64()
}

/// The claims of the disk's volumes and their PersistentVolumes go, and nothing is erased.
async fn kept_without_claims(space: &Space, claims: [&str; 3]) {
    let page = page("A disk moves to another node");
    let each = claims.map(async |claim| {
        let pv = space.persistent_volume(claim).await;
        space.remove_pod(claim).await;
        let values = [("NAMESPACE", &*space.namespace), ("CLAIM", claim), ("NAME", &*pv)];
        for phrase in ["kubectl patch pv NAME", "kubectl delete pvc", "kubectl delete pv NAME"] {
            typed(&page.command(phrase, &values)).await;
        }
    });
    futures::future::join_all(each).await;
}

/// The old node has nothing to erase and removes the object. It waits for ten minutes first: the test writes what the
/// leader would write then, and each leader believes.
async fn removed_by_the_old_node(space: &Space, volume: &str) {
    typed(&page("A volume whose PersistentVolume is gone").command("\"order\":\"Erase\"", &[("VOLUME", volume)])).await;
    let waits = |volume: &Value| {
        let conditions = volume["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|one| one["type"] == "OrderDone" && one["reason"] == "UnclaimedTooShort")
    };
    let waiting = space.until("PoolVolume", None, volume, "is not erased yet", waits).await;
    let mut conditions = waiting["status"]["conditions"].as_array().unwrap().clone();
    conditions.push(json!({"type": "Unclaimed", "status": "True", "reason": "NoPersistentVolume", "message": "none",
        "lastTransitionTime": jiff::Timestamp::now()}));
    let status = json!({"status": {"conditions": conditions}});
    let api = space.api("PoolVolume", None);
    api.patch_status(volume, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

async fn until_found(space: &Space, volume: &str, node: &str) {
    let is_found = |volume: &Value| volume["spec"]["node"] == node && volume["status"]["phase"] == "Found";
    space.until("PoolVolume", None, volume, "is found on the other node", is_found).await;
}

/// Section "A disk moves to another node", for a volume; for the others of the disk, the old node does not come back.
async fn moves(space: &Space, from: &mut SimNode, to: &SimNode) {
    let page = page("A disk moves to another node");
    let running = ["moved", "other", "third"].map(|pod| running_on(space, pod, &from.name));
    let objects = futures::future::join_all(running).await;
    let [volume, other, third] = [0, 1, 2].map(|number| name(&objects[number]));
    let id = objects[0]["status"]["disk"].as_str().unwrap();
    let listed = typed(&page.command("kubectl get poolvolumes -o wide", &[])).await;
    let is_it =
        |line: &&str| [volume, id, &format!("{}/moved", space.namespace)].iter().all(|word| line.contains(word));
    assert!(listed.lines().any(|line| is_it(&line)), "{listed}");
    kept_without_claims(space, ["moved", "other", "third"]).await;

    ordered("Adopt", &to.name, id).await;
    let platter = from.host.unplug("sda").expect("it was there");
    from.pool().nudge();
    to.host.plug("sdb", &format!("SERIAL-{}", from.name), platter);
    to.pool().nudge();
    space.until_ordered(&to.name, id, "Done", "label").await;
    space.until_health(volume, "DiskElsewhere").await;
    command("LocalpoolVolumeElsewhere", "DiskElsewhere").shows(&from.name, &[volume, "DiskElsewhere"]).await;
    command("LocalpoolVolumeElsewhere", "\"Conflict\"").shows(&from.name, &[id, &to.name, &from.name]).await;
    space.until("PoolVolume", None, volume, "is in conflict", is_in_conflict).await;
    ordered("GiveUp", &from.name, id).await;
    space.until_ordered(&from.name, id, "Done", "").await;
    removed_by_the_old_node(space, volume).await;
    until_found(space, volume, &to.name).await;

    from.kill().await;
    abandoned(&from.name, third).await;
    for volume in [other, third] {
        until_found(space, volume, &to.name).await;
    }
    used_again_and_erased(space, to, id, [volume, other, third]).await;
}

fn is_in_conflict(volume: &Value) -> bool {
    let conditions = volume["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Conflict" && one["status"] == "True")
}

/// The node is deleted; one of its volumes is given up by the verb, and those that are left by the order.
async fn abandoned(node: &str, volume: &str) {
    let gone = page("A node never comes back");
    let dry_run = section("troubleshooting.md", "Where a command runs");
    let dry_run = dry_run.command("volume abandon --dry-run", &[("VOLUME", volume)]);
    let refusal = attempt("sh", &["-c", &dry_run]).await.expect_err("the node exists");
    assert!(refusal.contains("is not given up") && refusal.contains(node), "{refusal}");
    typed(&gone.command("kubectl delete node", &[("NODE", node)])).await;
    command("LocalpoolVolumeWithoutNode", "get node").typed(node, &[]).await;
    let told = typed(&dry_run).await;
    assert!(told.contains(&format!("would give up volume {volume}")), "{told}");
    typed(&dry_run.replace("--dry-run ", "")).await;
    typed(&gone.command("\"order\":\"Abandon\"", &[("NODE", node)])).await;
}

async fn used_again_and_erased(space: &Space, to: &SimNode, id: &str, [volume, other, third]: [&str; 3]) {
    let taken = free(space, &to.name, id).await.expect("the disk is there");
    space.used_again("again", volume, &to.name).await;
    space.erased("again", volume).await;
    let page = page("A volume whose PersistentVolume is gone");
    typed(&page.command("\"order\":\"Erase\"", &[("VOLUME", other)])).await;
    typed(&page.command("volume erase --dry-run", &[("--dry-run ", ""), ("VOLUME", third)])).await;
    for volume in [other, third] {
        space.until_gone("PoolVolume", None, volume).await;
    }
    let is_free = async || {
        let now = free(space, &to.name, id).await;
        if now.is_some_and(|now| now >= taken + 3 * VOLUME) { Ok(()) } else { Err(now) }
    };
    eventually("the space of all volumes is free", SOON, is_free).await;
    ordered("Release", &to.name, id).await;
    space.until_ordered(&to.name, id, "Done", "wiped").await;
}

/// Section "A node is installed again under its name".
async fn installed_again(space: &Space, node: &mut SimNode) {
    let page = page("A node is installed again under its name");
    let object = running_on(space, "reinstalled", &node.name).await;
    let (volume, id) = (name(&object), object["status"]["disk"].as_str().unwrap());
    node.kill().await;
    let host = FakeHost::default();
    host.add_disk("sda", &format!("NEW-{}", node.name), Geometry { size: SIZE, sector: 512, offloads_zeroes: true });
    node.host = Arc::new(host);
    node.run(&space.client);
    space.until_health(volume, "DiskMissing").await;
    let listed = typed(&page.command("kubectl get poolvolumes -o wide", &[])).await;
    let is_it = |line: &&str| [volume, id, "DiskMissing"].iter().all(|word| line.contains(word));
    assert!(listed.lines().any(|line| is_it(&line)), "{listed}");
    ordered("GiveUp", &node.name, id).await;
    space.until_ordered(&node.name, id, "Done", "").await;
    let values = [("NAMESPACE", &*space.namespace), ("CLAIM", "reinstalled"), ("POD", "reinstalled")];
    typed(&page.command("kubectl delete pvc", &values)).await;
    typed(&page.command("kubectl delete pod", &values)).await;
    space.until_gone("PoolVolume", None, volume).await;
    running_on(space, "new", &node.name).await;
    space.remove_pod("new").await;
    space.remove_claim("new").await;
}

async fn play(space: &Space, simulated: &mut SimulatedNodes) {
    space.create(&set_of_simulated_disks(space)).await;
    space.until_claimed("fake", i64::try_from(NODES).unwrap()).await;
    let [from, to, reinstalled] = &mut simulated.nodes[..] else { panic!("three nodes") };
    tokio::join!(moves(space, from, to), installed_again(space, reinstalled));
}

#[test]
fn a_disk_moves_and_a_node_is_installed_again_as_the_page_says() {
    check(Needs::Machine, async |space| {
        let names: Vec<String> = (0..NODES).map(|number| format!("{}-{number}", space.namespace)).collect();
        let mut simulated = SimulatedNodes::new(space, &names, SIZE).await;
        let ended = AssertUnwindSafe(play(space, &mut simulated)).catch_unwind().await;
        space.delete("LocalVolumeSet", space.here(), "fake").await;
        space.until_gone("LocalVolumeSet", space.here(), "fake").await;
        simulated.remove(space).await;
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
