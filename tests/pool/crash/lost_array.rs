//! The end of an array of three disks of which one is lost for good: that one is given up, and the others are released.
//! Stopped after each effect, no disk takes a place of the array, and in the end the others are blank.

use std::sync::Arc;
use std::time::Duration;

use localpool::agent::{Run, Verb};
use localpool::claim::Rule;
use localpool::device::{DiskId, Verdict};
use localpool::host::Extent;
use localpool::host::fake::{FakeHost, Fate};
use localpool::host::{Geometry, chain};
use localpool::pool::{DiskView, LabelledDisk, WantedUsage};
use uuid::Uuid;

use super::array::{array_rule, geometry, passes};
use super::{ENDS, End};
use crate::node::{MIB, Node, request};

/// The second one is lost.
pub const THREE: [&str; 3] = ["fake0", "fake1", "fake2"];
pub const LOST: &str = THREE[1];
pub const OTHERS: [&str; 2] = [THREE[0], THREE[2]];

/// The ids of an array and its members.
pub struct Ids {
    pub array: DiskId,
    pub uuid: Uuid,
    /// In the order of [`THREE`].
    pub members: Vec<DiskId>,
}

impl Ids {
    pub fn lost(&self) -> &DiskId {
        &self.members[1]
    }
}

pub fn start(host: &Arc<FakeHost>) -> Result<Node, String> {
    Node::start(host, vec![Rule { min_devices: 3, ..array_rule() }], Duration::ZERO)
}

/// An array of three disks with the volume `a`.
pub fn made() -> (Arc<FakeHost>, Node, Ids) {
    let host = Arc::new(FakeHost::default());
    for name in THREE {
        host.add_disk(name, name, geometry());
    }
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    node.pool.create(&request("a", WantedUsage::Block, 5 * MIB)).expect("there is room");
    node.agent.pass().expect("a pass");
    let views = node.pool.disk_views();
    let array = views.iter().find(|view| view.array.is_some()).expect("the array");
    let member = |name: &&str| {
        let is_it = |view: &&DiskView| view.path.ends_with(name) && view.member_of().is_some();
        views.iter().find(is_it).expect("a member").id.clone()
    };
    let ids = Ids {
        array: array.id.clone(),
        uuid: array.array.expect("an array"),
        members: THREE.iter().map(member).collect(),
    };
    (host, node, ids)
}

/// The same after a boot without the second disk.
pub fn without_one() -> (Arc<FakeHost>, Node, Ids) {
    let (host, node, ids) = made();
    drop(node);
    host.reboot(Fate::Whole);
    host.unplug(LOST);
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    (host, node, ids)
}

pub fn give_up(node: &mut Node, disk: &DiskId, run: Run) -> Result<Vec<String>, String> {
    node.agent.verb(&Verb::GiveUpDisk { disk: disk.to_string(), run }).map_err(|error| chain(&error))
}

pub fn release(node: &mut Node, disk: &DiskId, run: Run) -> Result<Vec<String>, String> {
    node.agent.verb(&Verb::ReleaseDisk { disk: disk.to_string(), run }).map_err(|error| chain(&error))
}

/// What localpool and md have written is gone from these disks.
pub fn assert_blank(host: &FakeHost, names: &[&str], at: &str) {
    for name in names {
        let platter = host.platter(name).expect("it is there");
        let Geometry { size, .. } = platter.geometry;
        for ends in [Extent { start: 0, end: 5 * MIB }, Extent { start: size - 5 * MIB, end: size }] {
            assert!(platter.is_zero(ends), "{at}: {name} is blank at {ends}");
        }
    }
}

/// A label without its tables, which a release that was stopped may leave, means nothing.
fn assert_free(host: &FakeHost, node: &mut Node, at: &str) {
    let pass = node.agent.pass().expect("a pass");
    for name in OTHERS {
        let device = pass.snapshot.devices.iter().find(|device| device.raw.name == name).expect("it is there");
        assert_eq!(device.verdict, Verdict::Unclaimed, "{at}: {name}");
        let member = Extent { start: 2 * MIB, end: 5 * MIB };
        assert!(host.platter(name).expect("it is there").is_zero(member), "{at}: {name} has nothing of the array");
    }
}

fn end(node: &mut Node, ids: &Ids) -> Result<(), String> {
    give_up(node, ids.lost(), Run::Real)?;
    let is_member = |disk: &Arc<LabelledDisk>| disk.shown().content.label.layout.member().is_some();
    while let Some(member) = node.pool.labelled_disks().into_iter().find(is_member) {
        release(node, &member.id, Run::Real)?;
    }
    Ok(())
}

#[test]
fn the_end_of_an_array_that_lost_a_member_converges_after_a_stop_at_any_effect() {
    let (host, mut node, ids) = without_one();
    let before = host.power.spent();
    end(&mut node, &ids).expect("the end without a stop");
    let effects = host.power.spent() - before;
    assert!(effects > 20, "it has many effects: {effects}");
    assert_blank(&host, &OTHERS, "without a stop");
    for n in 1..=effects {
        for how in ENDS {
            let at = format!("{how:?} after effect {n} of {effects}");
            let (host, mut node, ids) = without_one();
            let spare = host.add_disk("fake3", "fake3", geometry());
            host.power.cut_after(n);
            let stopped = end(&mut node, &ids);
            assert!(stopped.is_err() && host.power.is_off(), "{at}: it was not stopped: {stopped:?}");
            drop(node);
            match how {
                End::PowerCut(fate) => host.reboot(fate),
                End::Killed => host.restart_process(),
            }
            let mut node = start(&host).unwrap_or_else(|error| panic!("{at}: {error}"));
            passes(&mut node).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(spare.write_count(), 0, "{at}: it took a place of the array");
            assert!(host.md.running(ids.uuid).is_none(), "{at}: the array runs");
            end(&mut node, &ids).unwrap_or_else(|error| panic!("{at}: the rest fails: {error}"));
            passes(&mut node).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_free(&host, &mut node, &at);
            assert!(node.pool.members().is_empty(), "{at}: nothing is in the pool");
        }
    }
}
