//! The life of an array of two disks, stopped after each effect: its members are claimed, it is made once, claimed,
//! used, and ends with all of them. What was acknowledged on it is never lost, and nothing is made over it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use localpool::agent::{Run, Verb};
use localpool::claim::Rule;
use localpool::device::label::{ArrayLevel, ErasePolicy, Layout};
use localpool::host::fake::{FakeHost, Fate};
use localpool::host::{Extent, Geometry};
use localpool::pool::{Member, WantedUsage};

use super::{ENDS, End, disk};
use crate::node::{MIB, Node, id, request, rule};

/// Where md has its superblock in the partition of a member, and one that is stale.
const SUPERBLOCK: u64 = 2 * MIB + 4096;
const STALE: &[u8; 8] = b"FAKEMD\0\0";

pub const DISKS: [&str; 2] = ["fake0", "fake1"];

pub fn geometry() -> Geometry {
    disk(512, true)
}

pub fn array_rule() -> Rule {
    let set = rule(&Layout::Carved {}, ErasePolicy::Discard);
    Rule { array: Some(ArrayLevel::Raid0), min_devices: 2, ..set }
}

pub fn machine() -> Arc<FakeHost> {
    let host = Arc::new(FakeHost::default());
    for name in DISKS {
        let platter = host.add_disk(name, name, geometry());
        // Of an earlier owner; no probe finds it.
        platter.poke(5 * MIB, &[0x55; 8192]);
        // Of an array that it was once in, as a partition that is no more.
        platter.poke(SUPERBLOCK, STALE);
    }
    host
}

pub fn start(host: &Arc<FakeHost>) -> Result<Node, String> {
    Node::start(host, vec![array_rule()], Duration::ZERO)
}

/// Enough for each step of an array to be seen by the next pass.
pub fn passes(node: &mut Node) -> Result<(), String> {
    (0..4).try_for_each(|_| node.passes().map(drop))
}

/// The member of the pool that is the array.
pub fn array(node: &Node) -> Option<Member> {
    let is_array = |member: &Member| {
        let disk = member.labelled().map(|disk| disk.shown());
        disk.is_some_and(|shown| shown.content.label.layout.member().is_none())
    };
    node.pool.members().into_iter().find(is_array)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Claim,
    Create(&'static str),
    Write(&'static str, u8),
    Delete(&'static str),
    Work,
    ReleaseArray,
    ReleaseMembers,
}

const LIFE: [Step; 8] = [
    Step::Claim,
    Step::Create("a"),
    Step::Write("a", 0xaa),
    Step::Create("b"),
    Step::Delete("b"),
    Step::Work,
    Step::ReleaseArray,
    Step::ReleaseMembers,
];

#[derive(Default)]
struct Acknowledged {
    volumes: BTreeMap<&'static str, Option<u8>>,
    pending: Option<Step>,
    done: usize,
}

fn release(node: &mut Node, disk: &str) -> Result<(), String> {
    let verb = Verb::ReleaseDisk { disk: disk.to_owned(), run: Run::Real };
    node.agent.verb(&verb).map(drop).map_err(|error| localpool::host::chain(&error))
}

fn place(host: &FakeHost, node: &Node, name: &str) -> (Arc<localpool::host::fake::Platter>, Extent) {
    let member = array(node).expect("the array is here");
    let shown = member.labelled().expect("it has a label").shown();
    let volume = shown.content.volume(id(name)).expect("it is on the array");
    (host.platter(&shown.raw.name).expect("it runs"), volume.entry.extent)
}

fn step(node: &mut Node, host: &FakeHost, step: Step, acknowledged: &mut Acknowledged) -> Result<(), String> {
    let message = |error: localpool::pool::PoolError| localpool::host::chain(&error);
    match step {
        Step::Claim => {
            passes(node)?;
            return array(node).filter(Member::is_usable).map(drop).ok_or_else(|| "no array".to_owned());
        }
        Step::Create(name) => {
            node.pool.create(&request(name, WantedUsage::Block, 5 * MIB)).map_err(message)?;
            acknowledged.volumes.insert(name, None);
        }
        Step::Write(name, pattern) => {
            let (platter, extent) = place(host, node, name);
            platter.poke(extent.start, &[pattern; 4096]);
            acknowledged.volumes.insert(name, Some(pattern));
        }
        Step::Delete(name) => {
            node.pool.delete(id(name)).map_err(message)?;
            acknowledged.volumes.remove(name);
        }
        Step::Work => node.pool.work_until_idle().map_err(message)?,
        Step::ReleaseArray => {
            let ids: Vec<_> = acknowledged.volumes.keys().copied().collect();
            for name in ids {
                node.pool.delete(id(name)).map_err(message)?;
                acknowledged.volumes.remove(name);
            }
            node.pool.work_until_idle().map_err(message)?;
            if let Some(member) = array(node) {
                release(node, member.id().as_str())?;
            }
        }
        Step::ReleaseMembers => {
            while let Some(member) = node.pool.members().first().cloned() {
                release(node, member.id().as_str())?;
            }
        }
    }
    Ok(())
}

fn run(host: &Arc<FakeHost>, acknowledged: &mut Acknowledged) -> Result<(), String> {
    let mut node = start(host)?;
    if (1..LIFE.len()).contains(&acknowledged.done) {
        passes(&mut node)?;
    }
    while let Some(next) = LIFE.get(acknowledged.done).copied() {
        acknowledged.pending = Some(next);
        step(&mut node, host, next, acknowledged)?;
        acknowledged.pending = None;
        acknowledged.done += 1;
    }
    Ok(())
}

/// Nobody sees the superblock of an earlier array through the partition of a member: udev would start that array.
fn assert_nothing_stale(host: &FakeHost, at: &str) {
    for name in DISKS {
        let platter = host.platter(name).expect("it is there");
        let mut bytes = [0; 32];
        platter.peek(SUPERBLOCK, &mut bytes);
        let is_stale = bytes[..8] == *STALE && bytes[8..].iter().all(|byte| *byte == 0);
        assert!(!is_stale || platter.mapping(2).is_none(), "{at}: {name} shows a stale superblock");
    }
}

fn check(host: &Arc<FakeHost>, acknowledged: &Acknowledged, at: &str) {
    let mut node = start(host).unwrap_or_else(|error| panic!("{at}: {error}"));
    passes(&mut node).unwrap_or_else(|error| panic!("{at}: {error}"));
    for (name, pattern) in &acknowledged.volumes {
        if matches!(acknowledged.pending, Some(Step::Delete(pending)) if pending == *name) {
            continue;
        }
        let usable = node.pool.usable(id(name));
        assert!(usable.is_ok(), "{at}: {name} is lost: {usable:?}");
        let Some(pattern) = pattern else { continue };
        let (platter, extent) = place(host, &node, name);
        let mut bytes = [0; 4096];
        platter.peek(extent.start, &mut bytes);
        assert!(bytes.iter().all(|byte| byte == pattern), "{at}: the data of {name}");
    }
}

#[test]
fn an_array_converges_after_a_stop_at_any_effect() {
    let whole = machine();
    run(&whole, &mut Acknowledged::default()).expect("the life without a stop");
    let effects = whole.power.spent();
    assert!(effects > 60, "a life has many effects: {effects}");
    for name in DISKS {
        let platter = whole.platter(name).expect("it is there");
        assert!(platter.is_zero(Extent { start: 0, end: 5 * MIB }), "{name} is blank");
    }
    for n in 1..=effects {
        for end in ENDS {
            let at = format!("{end:?} after effect {n} of {effects}");
            let host = machine();
            let mut acknowledged = Acknowledged::default();
            host.power.cut_after(n);
            let stopped = run(&host, &mut acknowledged);
            assert!(stopped.is_err() && host.power.is_off(), "{at}: it was not stopped: {stopped:?}");
            if matches!(end, End::PowerCut(Fate::Unreadable)) && acknowledged.done == 0 {
                // A disk that is not yet provably ours is not touched.
                continue;
            }
            assert_nothing_stale(&host, &at);
            match end {
                End::PowerCut(fate) => host.reboot(fate),
                End::Killed => host.restart_process(),
            }
            let is_ending = matches!(acknowledged.pending, Some(Step::ReleaseArray | Step::ReleaseMembers));
            if !is_ending {
                check(&host, &acknowledged, &at);
            }
            let rest = run(&host, &mut acknowledged);
            rest.unwrap_or_else(|error| panic!("{at}: the rest fails at {:?}: {error}", acknowledged.pending));
        }
    }
}
