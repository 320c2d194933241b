//! The ten questions of docs/troubleshooting.md: each command is run as it is on the page, and answers its question.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use localpool::host::Geometry;
use serde_json::Value;

use crate::check::{Needs, Space, check};
use crate::cluster::{attempt, name, run};
use crate::machine::Disk;
use crate::page::{agent_of, section, typed};
use crate::runbook::command;
use crate::sets::MIB;
use crate::simulated::{SimulatedNodes, set_of_simulated_disks};
use crate::table::cell;

/// More than a disk may take to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What a person asks about.
struct Stage {
    node: String,
    /// A disk that died, with a pod's claim on it, and a volume whose deletion waits for it; what was on it.
    dead: String,
    saved: PathBuf,
    deleted: String,
    /// A disk that was released, and one that is here.
    released: String,
    here: String,
    /// Of the simulated node.
    hanging: Vec<String>,
}

/// Each question, by words of its own; what is put in for the words in capitals; and words of the answer.
fn questions<'a>(space: &'a Space, stage: &'a Stage) -> Vec<(&'static str, [&'a str; 2], Vec<&'a str>)> {
    let Stage { node, dead, deleted, released, here, hanging, .. } = stage;
    let of_dead = ["ID", dead.as_str()];
    vec![
        ("disks dead or dying", of_dead, vec![node, dead]),
        ("Whose claims are on this disk", of_dead, vec![&space.namespace, "kept", "Used By:"]),
        (
            "Does the agent of this node answer",
            of_dead,
            vec!["AGENT", "True", "SINCE", "VERSION", env!("CARGO_PKG_VERSION")],
        ),
        ("When did this disk go away", of_dead, vec![dead, "Missing", "State Since:", "Events:"]),
        ("What is wrong on this node", of_dead, vec![dead, "DiskMissing"]),
        ("How long until the space", of_dead, vec![dead]),
        ("Why does the deletion of this volume not end", ["VOLUME", deleted], vec!["Deleting", "is missing", dead]),
        ("In which slot is this disk", ["ID", here], vec!["find the disk by"]),
        ("Who released, wiped or gave up", of_dead, vec![released, "wiped", "kubectl-patch", "time:"]),
        ("Which disks hang", of_dead, hanging.iter().map(String::as_str).collect()),
    ]
}

async fn asked(space: &Space, stage: &Stage) {
    let page = section("troubleshooting.md", "Ten questions, and a command for each");
    let names = agent_of(&stage.node);
    let questions = questions(space, stage);
    assert_eq!(questions.len(), page.bold());
    for (question, [word, value], answer) in questions {
        let command = page.below(question).replace(word, value);
        // A disk without a light is not found by one: then the command fails, and says by what it is found.
        let said = attempt("sh", &["-c", &format!("{names}\n{command}")]).await;
        assert_eq!(said.is_ok(), !question.contains("slot"), "{question}: {said:?}");
        let said = said.unwrap_or_else(|said| said);
        for word in answer {
            assert!(said.contains(word), "{question}: no {word} in what `{command}` says:\n{said}");
        }
    }
}

async fn id(space: &Space, disk: &Disk) -> String {
    space.disk_status(disk).await.expect("it is in the pool")["id"].as_str().unwrap().to_owned()
}

/// A disk dies under two volumes, one of which is deleted then, and another disk is released.
async fn lose(space: &Space, dead: &Disk, released: &Disk) -> Stage {
    let class = format!("{}-dead", space.namespace);
    for claim in ["kept", "deleted"] {
        space.running_in(&class, claim, "64Mi").await;
    }
    let deleted = name(&space.volume_of(&space.namespace, "deleted").await).to_owned();
    space.remove_pod("deleted").await;
    let (node, stage) = (space.nodes().await.remove(0), (id(space, dead).await, id(space, released).await));
    let saved = dead.dies(space.machine()).await;
    space.until_health(&deleted, "DiskMissing").await;
    space.kubectl(&["delete", "pvc", "deleted", "--wait=false"]).await;
    let order = section("health.md", "Orders for a disk")
        .command("kubectl patch devicepool", &[("NODE", &node), ("ID", &stage.1)]);
    typed(&order).await;
    space.until_ordered(&node, &stage.1, "Done", "wiped").await;
    let pool = space.get("DevicePool", None, &node).await.expect("it has disks");
    let is_here = |disk: &&Value| disk["state"] == "Ready";
    let here = pool["status"]["disks"].as_array().unwrap().iter().find(is_here).expect("one is here")["id"].clone();
    command("LocalpoolDeletionStuck", "kubectl").shows(&node, &[&deleted, "Deleting DiskMissing", &stage.0]).await;
    let here = here.as_str().unwrap().to_owned();
    Stage { node, dead: stage.0, saved, deleted, released: stage.1, here, hanging: Vec::new() }
}

/// The disks of the simulated node: a volume is on one of them, and on the other one is none.
const HANGING: [&str; 2] = ["sda", "sdb"];

/// Both disks of a simulated node hang; returns their ids.
async fn hang(space: &Space, simulated: &SimulatedNodes) -> Vec<String> {
    let node = &simulated.nodes[0];
    let serials = [format!("SERIAL-{}", node.name), "SERIAL-OTHER".to_owned()];
    let geometry = Geometry { size: 1 << 30, sector: 512, offloads_zeroes: true };
    node.host.add_disk(HANGING[1], &serials[1], geometry);
    node.pool().nudge();
    space.create(&set_of_simulated_disks(space)).await;
    space.until_claimed("fake", 2).await;
    space.create(&space.claim("hanging", &format!("{}-fake", space.namespace), "64Mi")).await;
    space.create(&space.pinned("hanging", &node.name)).await;
    space.until_running("hanging").await;
    for (disk, serial) in HANGING.into_iter().zip(&serials) {
        let platter = node.host.unplug(disk).expect("its disk");
        platter.set_hangs_at(Some("report"));
        // A disk that is plugged in is asked for its health.
        node.host.plug(disk, serial, Arc::clone(&platter));
        node.pool().nudge();
        tokio::task::spawn_blocking(move || platter.until_somebody_waits()).await.unwrap();
    }
    node.host.advance(TIMEOUT);
    node.pool().nudge();
    let volume = space.volume_of(&space.namespace, "hanging").await;
    space.until_health(name(&volume), "DiskNotAnswering").await;
    let hangs = |disk: &&Value| {
        disk["health"].as_array().into_iter().flatten().any(|entry| entry["reason"] == "DiskNotAnswering")
    };
    let of = |pool: &Value| pool["status"]["disks"].as_array().cloned().unwrap_or_default();
    let both = |pool: &Value| of(pool).iter().filter(hangs).count() == HANGING.len();
    let pool = space.until("DevicePool", None, &node.name, "both disks hang", both).await;
    let table = space.kubectl(&["get", "devicepools"]).await;
    for head in ["DISKS", "UNHEALTHY", "CORDONED"] {
        assert_eq!(cell(&table, &node.name, head), "2", "{head}: {table}");
    }
    of(&pool).iter().map(|disk| disk["id"].as_str().unwrap().to_owned()).collect()
}

async fn clear(space: &Space, dead: &Disk, released: &Disk, stage: &Stage) {
    dead.returns(&stage.saved).await;
    space.until_gone("PoolVolume", None, &stage.deleted).await;
    space.remove_pod("kept").await;
    space.remove_claim("kept").await;
    space.remove_disk("dead", dead).await;
    space.nothing_is_ordered(&stage.node, &stage.released).await;
    space.delete("LocalVolumeSet", space.here(), "released").await;
    space.until_gone("LocalVolumeSet", space.here(), "released").await;
    run("losetup", &["--detach", released.path()]).await;
}

#[test]
fn the_ten_questions_of_the_page_are_answered_by_their_commands() {
    check(Needs::Machine, async |space| {
        let (dead, _) = space.own_disk("dead", 256 * MIB).await;
        let (released, _) = space.own_disk("released", 128 * MIB).await;
        let simulated = SimulatedNodes::new(space, &[format!("{}-0", space.namespace)], 1 << 30).await;
        let ended = AssertUnwindSafe(async {
            let (mut stage, hanging) = tokio::join!(lose(space, &dead, &released), hang(space, &simulated));
            stage.hanging = hanging;
            asked(space, &stage).await;
            clear(space, &dead, &released, &stage).await;
        })
        .catch_unwind()
        .await;
        for platter in HANGING.iter().filter_map(|disk| simulated.nodes[0].host.platter(disk)) {
            platter.set_hangs(false);
        }
        space.remove_pod("hanging").await;
        space.remove_claim("hanging").await;
        space.delete("LocalVolumeSet", space.here(), "fake").await;
        space.until_gone("LocalVolumeSet", space.here(), "fake").await;
        simulated.remove(space).await;
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
