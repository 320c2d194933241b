//! An agent that starts again below a disk that hangs, with the real controller: nobody hears of the restart.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use localpool::host::Health;
use localpool::host::fake::Platter;
use serde_json::Value;

use crate::by_hand::marks;
use crate::check::{Needs, Space, check};
use crate::cluster::{SOON, eventually, name};
use crate::sim::SimNode;
use crate::simulated::{SimulatedNodes, set_of_simulated_disks};

/// More than a disk may take to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The annotations of a PersistentVolume that say what is wrong with it, and since when.
fn marked(volume: &Value) -> BTreeMap<String, String> {
    let all = volume["metadata"]["annotations"].as_object().into_iter().flatten();
    let is_of_marks = |key: &str| ["FirstMarkTime", "DiskNotAnswering", "localpool.dev/unusable-since"].contains(&key);
    let text = |(key, value): (&String, &Value)| (key.clone(), value.as_str().unwrap_or_default().to_owned());
    all.filter(|(key, _)| is_of_marks(key)).map(text).collect()
}

/// The process of the agent, by what it has written.
async fn process(space: &Space, node: &str) -> String {
    let pool = space.get("DevicePool", None, node).await.expect("it offers");
    pool["status"]["agent"].as_str().expect("it is said").to_owned()
}

/// Waits until this process of the agent says itself that the disk does not answer. Its clock goes on until then: the
/// first checkup that asks the disk may be later than any moment that a check could choose.
async fn until_found_by(space: &Space, node: &SimNode, volume: &str, process: &str) {
    let found = async || {
        let volume = space.get("PoolVolume", None, volume).await.ok_or("it is gone")?;
        let entries = volume["status"]["health"].as_array().cloned().unwrap_or_default();
        let is_its = |entry: &Value| entry["reason"] == "DiskNotAnswering" && entry["confirmedBy"] == process;
        if entries.iter().any(is_its) {
            return Ok(());
        }
        node.host.advance(TIMEOUT);
        node.running.as_ref().expect("it runs").checkups.due();
        Err(Value::from(entries).to_string())
    };
    eventually("the agent that runs finds that the disk does not answer", SOON, found).await;
}

async fn hangs(node: &SimNode, platter: &Arc<Platter>) {
    platter.set_hangs_at(Some("report"));
    // A disk that is plugged in is asked for its health.
    node.host.unplug("sda").expect("its disk");
    node.host.plug("sda", &format!("SERIAL-{}", node.name), Arc::clone(platter));
    node.pool().nudge();
    let waits = Arc::clone(platter);
    tokio::task::spawn_blocking(move || waits.until_somebody_waits()).await.unwrap();
}

async fn play(space: &Space, node: &mut SimNode) {
    space.create(&set_of_simulated_disks(space)).await;
    space.until_claimed("fake", 1).await;
    space.create(&space.claim("data", &format!("{}-fake", space.namespace), "64Mi")).await;
    space.create(&space.pinned("data", &node.name)).await;
    space.until_running("data").await;
    let volume = name(&space.volume_of(&space.namespace, "data").await).to_owned();
    let persistent = space.persistent_volume("data").await;

    let platter = node.host.platter("sda").expect("its disk");
    hangs(node, &platter).await;
    until_found_by(space, node, &volume, &process(space, &node.name).await).await;
    let is_marked = |volume: &Value| marks(volume).contains(&"DiskNotAnswering");
    let before = marked(&space.until("PersistentVolume", None, &persistent, "is marked", is_marked).await);

    let first = process(space, &node.name).await;
    node.kill().await;
    node.run(&space.client);
    let is_other = |pool: &Value| pool["status"]["agent"].as_str().is_some_and(|process| process != first);
    space.until("DevicePool", None, &node.name, "is of another agent", is_other).await;
    until_found_by(space, node, &volume, &process(space, &node.name).await).await;
    let after = space.get("PersistentVolume", None, &persistent).await.expect("it is in use");
    assert_eq!(marked(&after), before);
    let events = space.events("data").await;
    assert!(events.iter().all(|event| !event.contains("VolumeRecovered")), "{events:?}");

    node.host.set_health("sda", Health::Passed);
    platter.set_hangs(false);
    node.host.advance(TIMEOUT);
    let is_well = |volume: &Value| marked(volume).is_empty();
    space.until("PersistentVolume", None, &persistent, "is not marked any more", is_well).await;
    space.event("data", &["VolumeRecovered"]).await;
}

#[test]
fn an_agent_that_starts_again_takes_no_mark_back_of_a_disk_that_hangs_and_they_go_when_it_answers() {
    check(Needs::Machine, async |space| {
        let mut simulated = SimulatedNodes::new(space, &[format!("{}-0", space.namespace)], 1 << 30).await;
        let ended = AssertUnwindSafe(play(space, &mut simulated.nodes[0])).catch_unwind().await;
        // A node that nobody runs would stand in the way of the checks after this one.
        let node = &simulated.nodes[0];
        if let Some(platter) = node.host.platter("sda") {
            platter.set_hangs(false);
        }
        let clear = async {
            space.remove_pod("data").await;
            space.remove_claim("data").await;
            space.delete("LocalVolumeSet", space.here(), "fake").await;
            space.until_gone("LocalVolumeSet", space.here(), "fake").await;
        };
        let cleared = AssertUnwindSafe(clear).catch_unwind().await;
        simulated.remove(space).await;
        ended.and(cleared).unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
