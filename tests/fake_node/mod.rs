//! A node on a fake machine: one set, its pool and its agent, driven by hand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use localpool::agent::{PassReport, Reconciler};
use localpool::claim::{Rule, sample};
use localpool::device::{
    Owner,
    label::{ErasePolicy, Layout},
};
use localpool::host::{Host, chain, fake::FakeHost};
use localpool::pool::{CreateRequest, Pool, Selector, WantedUsage, Workers};
use localpool::volume::VolumeId;

pub const MIB: u64 = 1 << 20;

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

    /// Two looks make a disk ripe; the third finds what the second claimed. Returns the last one.
    pub fn passes(&mut self) -> Result<PassReport, String> {
        let mut last = self.agent.pass().map_err(|e| chain(&e))?;
        for _ in 0..2 {
            last = self.agent.pass().map_err(|e| chain(&e))?;
        }
        Ok(last)
    }
}

pub fn rule(layout: &Layout, erase: ErasePolicy) -> Rule {
    Rule { layout: layout.clone(), erase, ..sample::rule("set") }
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
