//! The ten questions of docs/troubleshooting.md: each command is run as it is on the page, and answers its question.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use localpool::host::{Geometry, fake::FakeHost};
use serde_json::Value;

use crate::check::{Needs, Space, check};
use crate::cluster::{SOON, attempt, eventually, name, run};
use crate::machine::{Disk, SECTOR};
use crate::page::{agent_of, section, typed};
use crate::runbook::command;
use crate::sets::MIB;
use crate::sim::SimNode;
use crate::simulated::{SimulatedNodes, set_of_simulated_disks};
use crate::table::cell;

/// More than a disk may take to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Of the disk that dies.
const DEAD_SIZE: u64 = 256 * MIB;

/// What a person asks about.
struct Stage {
    node: String,
    /// A disk that died, with a pod's claim on it, and a volume whose deletion waits for it; what was on it.
    dead: String,
    /// Its name in the kernel's log, and what that has of its end.
    kernel: [String; 2],
    saved: PathBuf,
    deleted: String,
    /// A disk that was released, and one that is here.
    released: String,
    here: String,
    /// The simulated node, and its disks of the pool.
    simulated: String,
    hanging: Vec<String>,
}

/// A command of the page, by words above it; what is put in for a word; and for some lines of the answer, words that
/// only the answer to this question has in one line.
struct Question<'a> {
    above: &'static str,
    put_in: [&'a str; 2],
    answer: Vec<Vec<&'a str>>,
}

fn questions<'a>(space: &'a Space, stage: &'a Stage) -> Vec<Question<'a>> {
    let Stage { node, dead, deleted, released, here, hanging, simulated, .. } = stage;
    let names = [node, dead, deleted, released, here, simulated, &space.namespace].map(String::as_str);
    let [node, dead, deleted, released, here, simulated, namespace] = names;
    let ask = |above, put_in, answer| Question { above, put_in, answer };
    let of_dead = ["ID", dead];
    let hangs = |disk: &'a String| vec![simulated, disk.as_str()];
    let outside = vec![simulated, "reading it took more than"];
    vec![
        ask("disks dead or dying", of_dead, vec![vec![node, dead, "DiskMissing"]]),
        ask(
            "Whose claims are on this disk",
            of_dead,
            vec![vec!["Name:", "kept"], vec!["Namespace:", namespace], vec!["Used By:", "kept"]],
        ),
        ask(
            "Does the agent of this node answer",
            of_dead,
            vec![vec!["AGENT", "SINCE", "VERSION"], vec![node, "True", env!("CARGO_PKG_VERSION")]],
        ),
        ask(
            "When did this disk go away",
            of_dead,
            vec![
                vec!["Id:", dead],
                vec!["State Since:"],
                vec!["State:", "Missing"],
                vec!["DiskMissing", "Warning", dead],
            ],
        ),
        ask(
            "What is wrong on this node",
            of_dead,
            vec![vec![dead, "DiskMissing", "since"], vec!["localpool disk give-up"]],
        ),
        ask("How long until the space", of_dead, vec![vec!["deleted volumes", "still to be erased"]]),
        ask(
            "Why does the deletion of this volume not end",
            ["VOLUME", deleted],
            vec![vec!["Phase:", "Deleting"], vec!["Message:", dead, "is missing"]],
        ),
        ask("In which slot is this disk", ["ID", here], vec![vec!["find the disk by"]]),
        ask(
            "Who released, wiped or gave up",
            of_dead,
            vec![vec!["disk:", released], vec!["message:", "wiped"], vec!["manager:", "kubectl-patch"], vec!["time:"]],
        ),
        ask("Which disks hang", of_dead, hanging.iter().map(hangs).chain([outside]).collect()),
    ]
}

/// The second command for a disk that went away.
fn of_the_kernel(stage: &Stage) -> Question<'_> {
    let [name, change] = stage.kernel.each_ref().map(String::as_str);
    Question { above: "What the kernel said about it", put_in: ["sdb", name], answer: vec![vec![name, change]] }
}

async fn asked(space: &Space, stage: &Stage) {
    let page = section("troubleshooting.md", "Ten questions, and a command for each");
    let names = agent_of(&stage.node);
    let questions = questions(space, stage);
    assert_eq!(questions.len(), page.bold());
    for Question { above, put_in: [word, value], answer } in questions.into_iter().chain([of_the_kernel(stage)]) {
        let command = page.below(above).replace(word, value);
        // An Event comes a moment after the status.
        eventually(&format!("{above}: `{command}` answers"), SOON, async || {
            // A disk without a light is not found by one: then the command fails, and says by what it is found.
            let said = attempt("sh", &["-c", &format!("{names}\n{command}")]).await;
            let is_as_meant = said.is_ok() != above.contains("slot");
            let said = said.unwrap_or_else(|said| said);
            let has = |words: &&Vec<&str>| said.lines().any(|line| words.iter().all(|word| line.contains(word)));
            match answer.iter().find(|words| !has(words)) {
                None if is_as_meant => Ok(()),
                missing => Err(format!("no line with {missing:?} in:\n{said}")),
            }
        })
        .await;
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
    let change = format!("detected capacity change from {} to 0", DEAD_SIZE / SECTOR);
    let kernel = [dead.path().trim_start_matches("/dev/").to_owned(), change];
    let (simulated, hanging) = Default::default();
    Stage { node, dead: stage.0, kernel, saved, deleted, released: stage.1, here, simulated, hanging }
}

/// The disks of the simulated node: a volume is on one of them, and on the other one is none.
const HANGING: [&str; 2] = ["sda", "sdb"];
/// A disk of it that is in no pool, because it hangs from the beginning.
const OUTSIDE: &str = "sdc";
const GEOMETRY: Geometry = Geometry { size: 1 << 30, sector: 512, offloads_zeroes: true };

/// The disks of a simulated node hang; returns the ids of those in the pool.
async fn hang(space: &Space, simulated: &SimulatedNodes) -> Vec<String> {
    let node = &simulated.nodes[0];
    let serials = [format!("SERIAL-{}", node.name), "SERIAL-OTHER".to_owned()];
    node.host.add_disk(HANGING[1], &serials[1], GEOMETRY);
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
    hangs_outside(space, node).await;
    of(&pool).iter().map(|disk| disk["id"].as_str().unwrap().to_owned()).collect()
}

/// Nobody can read a disk that is plugged in, so no set takes it.
async fn hangs_outside(space: &Space, node: &SimNode) {
    let platter = FakeHost::default().add_disk(OUTSIDE, "SERIAL-OUTSIDE", GEOMETRY);
    platter.set_hangs(true);
    node.host.plug(OUTSIDE, "SERIAL-OUTSIDE", platter);
    node.pool().nudge();
    let is_told = |pool: &Value| {
        let sets = pool["status"]["sets"].as_array().into_iter().flatten();
        let mut left = sets.flat_map(|set| set["unmatched"].as_array().into_iter().flatten());
        left.any(|left| left["reason"].as_str().is_some_and(|reason| reason.contains("reading it took more than")))
    };
    space.until("DevicePool", None, &node.name, "a disk outside the pool hangs", is_told).await;
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
        let (dead, _) = space.own_disk("dead", DEAD_SIZE).await;
        let (released, _) = space.own_disk("released", 128 * MIB).await;
        let simulated = SimulatedNodes::new(space, &[format!("{}-0", space.namespace)], 1 << 30).await;
        let ended = AssertUnwindSafe(async {
            let (mut stage, hanging) = tokio::join!(lose(space, &dead, &released), hang(space, &simulated));
            (stage.simulated, stage.hanging) = (simulated.nodes[0].name.clone(), hanging);
            asked(space, &stage).await;
            clear(space, &dead, &released, &stage).await;
        })
        .catch_unwind()
        .await;
        for platter in HANGING.iter().chain([&OUTSIDE]).filter_map(|disk| simulated.nodes[0].host.platter(disk)) {
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
