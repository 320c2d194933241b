//! A node on a fake machine: one set, its pool and its agent, driven by hand; and how most tests start with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use localpool::agent::{PassReport, Reconciler, Run, Verb};
use localpool::claim::{Rule, sample};
use localpool::device::{
    Owner,
    label::{ErasePolicy, Layout},
};
use localpool::host::{
    FsKind, Geometry, Host, chain,
    fake::{FakeHost, Platter},
};
use localpool::pool::{CreateRequest, Pool, Selector, Standing, WantedUsage, Workers};
use localpool::volume::VolumeId;

pub const MIB: u64 = 1 << 20;
pub const BLOCK: WantedUsage = WantedUsage::Block;
pub const MOUNT: WantedUsage = WantedUsage::Mount(Some(FsKind::Ext4));

pub struct Node {
    pub pool: Arc<Pool>,
    pub agent: Reconciler,
}

impl Node {
    /// Starts the agent's part of a process; it has not looked at the disks yet.
    pub fn start(host: &Arc<FakeHost>, rules: Vec<Rule>, min_age: Duration) -> Result<Self, String> {
        let owner = Owner { cluster: "test".to_owned(), node: "node-1".into() };
        let machine: Arc<dyn Host> = Arc::clone(host) as Arc<dyn Host>;
        let pool = Pool::open(Arc::clone(&machine), owner, Workers::Caller).map_err(|e| e.to_string())?;
        let pool = Arc::new(pool);
        let agent = Reconciler::new(machine, Arc::clone(&pool), min_age, rules);
        Ok(Self { pool, agent })
    }

    /// Two scans make a disk ripe; the third finds what the second claimed. Returns the last one.
    pub fn passes(&mut self) -> Result<PassReport, String> {
        let mut last = self.agent.pass().map_err(|e| chain(&e))?;
        for _ in 0..2 {
            last = self.agent.pass().map_err(|e| chain(&e))?;
        }
        Ok(last)
    }
}

pub fn rule(layout: &Layout, erase: ErasePolicy) -> Rule {
    let set = sample::rule("set");
    // As every set whose volumes are folders has it.
    let fs = if layout.is_directory() { FsKind::Xfs } else { set.fs };
    Rule { layout: layout.clone(), erase, fs, ..set }
}

pub fn id(name: &str) -> VolumeId {
    VolumeId::of_name(name)
}

pub fn request(name: &str, usage: WantedUsage, required: u64) -> CreateRequest {
    CreateRequest {
        id: id(name),
        name: name.to_owned(),
        required,
        limit: None,
        usage,
        parameters: BTreeMap::new(),
        selector: Selector::default(),
    }
}

pub fn geometry() -> Geometry {
    Geometry { size: 64 * MIB, sector: 512, offloads_zeroes: true }
}

/// A node that has claimed the one disk of its machine and carves it.
pub fn carved() -> (Arc<FakeHost>, Arc<Platter>, Node) {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", geometry());
    let mut node = start(&host);
    node.passes().expect("claims");
    (host, disk, node)
}

/// A node that carves every disk; it has not looked yet.
pub fn start(host: &Arc<FakeHost>) -> Node {
    Node::start(host, vec![rule(&Layout::Carved {}, ErasePolicy::Discard)], Duration::ZERO).expect("starts")
}

/// Of the first labelled disk.
pub fn standing(node: &Node) -> Standing {
    node.pool.labelled_disks()[0].lock().standing()
}

/// What the agent says about a device after it has looked; empty if nothing is wrong with it.
pub fn problem(node: &mut Node, name: &str) -> String {
    node.passes().expect("a pass").problems.get(name).cloned().unwrap_or_default()
}

pub fn adopt(disk: &str, run: Run) -> Verb {
    Verb::AdoptDisk { disk: disk.to_owned(), run }
}
