//! A journal that was damaged, lost or restored from a backup, on a node whose volumes are still known elsewhere.

mod damaged;
mod dispute;
mod lost;
mod older;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use localpool::claim::NoAnswer;
use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::fake::{FakeHost, Platter};
use localpool::host::{FsKind, Host as _};
use localpool::pool::{AskVolumes, JOURNAL, LostVolume, ReportedVolume, WantedUsage};

use crate::node::{BLOCK, MIB, Node, geometry, id, request, rule};

pub type Reported = Result<Vec<ReportedVolume>, String>;

/// Gives this answer each time.
pub fn reporting(reported: Reported) -> AskVolumes {
    Box::new(move || reported.clone().map_err(|why| NoAnswer::Failed(why.into())))
}

/// A node that gets a list of its volumes.
pub fn start(host: &Arc<FakeHost>, layout: &Layout, reported: &Reported) -> Node {
    let node = Node::start(host, vec![rule(layout, ErasePolicy::Discard)], Duration::ZERO).expect("starts");
    let Node { pool, agent } = node;
    Node { pool, agent: agent.asking_for_volumes(reporting(reported.clone())) }
}

/// A bare device with a volume, and the report of its object.
pub fn pool() -> (Arc<FakeHost>, Arc<Platter>, Reported) {
    let host = Arc::new(FakeHost::default());
    let device = host.add_disk("fake0", "SERIAL-0", geometry());
    let mut node = start(&host, &Layout::RawDevice {}, &Ok(Vec::new()));
    node.passes().expect("claims");
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let reported = reported(&node, "a");
    (host, device, reported)
}

/// The report of a volume's object.
pub fn reported(node: &Node, name: &str) -> Reported {
    let view = node.pool.volume(id(name)).expect("there");
    let volume = Some(LostVolume { id: view.id, set: view.set, record: view.record.expect("described") });
    Ok(vec![ReportedVolume { disk: view.disk, id: Some(view.id), volume, is_made: true }])
}

/// A device whose first volume is in the journal, in one of its states, and that has another volume since.
pub fn older(state: &str) -> (Arc<FakeHost>, Arc<Platter>, Reported) {
    let host = Arc::new(FakeHost::default());
    let device = host.add_disk("fake0", "SERIAL-0", geometry());
    let mut node = start(&host, &Layout::RawDevice {}, &Ok(Vec::new()));
    node.passes().expect("claims");
    let journal = || host.state().load(JOURNAL).expect("read").expect("there");
    let mut older = BTreeMap::from([("free", journal())]);
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    older.insert("volume", journal());
    node.pool.delete(id("a")).expect("deleted");
    older.insert("erasing", journal());
    node.pool.work_until_idle().expect("erased");
    older.insert("erased", journal());
    node.pool.create(&request("b", WantedUsage::Mount(Some(FsKind::Ext4)), MIB)).expect("made");
    let reported = reported(&node, "b");
    drop(node);
    // Where a scan reads only if it knows of the volume.
    device.poke(30 * MIB, b"what a tenant wrote, and nobody recognises");
    host.state().store(JOURNAL, &older[state]).expect("put back");
    (host, device, reported)
}

pub const STATES: [&str; 4] = ["free", "volume", "erasing", "erased"];
