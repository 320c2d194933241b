//! A bare device that is on another disk than it was claimed on: a copy has its identity as well.

use std::sync::Arc;
use std::time::Duration;

use localpool::agent::Run;
use localpool::device::{
    DeviceType,
    label::{ErasePolicy, Layout},
};
use localpool::host::{
    DeviceKind, Partition,
    fake::{FakeHost, Platter},
};
use localpool::pool::{Standing, WantedUsage};

use crate::node::{BLOCK, MIB, Node, adopt, geometry, id, problem, request, rule};

const GUID: &str = "6c6f6361-0000-4000-8000-00000000abcd";

/// A disk with one partition; both copies of it have that GUID.
fn plug(host: &FakeHost, disk: &str, serial: &str, partition: Arc<Platter>) {
    host.add_disk(disk, serial, geometry());
    let name = format!("{disk}part1");
    host.plug(&name, "", partition);
    let kind = DeviceKind::Partition(Partition {
        disk: disk.into(),
        number: 1,
        start: MIB,
        part_uuid: Some(GUID.to_owned()),
        part_label: None,
    });
    host.edit(&name, |raw| raw.kind = kind);
}

fn unplug(host: &FakeHost, disk: &str) -> Arc<Platter> {
    host.unplug(disk);
    host.unplug(&format!("{disk}part1")).expect("it was there")
}

fn start(host: &Arc<FakeHost>) -> Node {
    let mut rule = rule(&Layout::RawDevice {}, ErasePolicy::Discard);
    rule.filter.types = vec![DeviceType::Part];
    let mut node = Node::start(host, vec![rule], Duration::ZERO).expect("starts");
    node.passes().expect("a pass");
    node
}

fn is_ready(node: &Node) -> bool {
    let [device] = &node.pool.bare_devices()[..] else { panic!("one bare device was expected") };
    device.shown().standing == Standing::Ready
}

/// A node with one partition that is a bare device.
fn claimed(host: &Arc<FakeHost>) -> Node {
    let partition = host.add_disk("spare", "spare", geometry());
    host.unplug("spare");
    plug(host, "fake0", "serial-0", partition);
    start(host)
}

#[test]
fn a_copy_of_a_bare_partition_does_not_take_its_place_while_its_disk_is_away() {
    for usage in [None, Some(BLOCK), Some(WantedUsage::Mount(None))] {
        let host = Arc::new(FakeHost::default());
        let mut node = claimed(&host);
        if let Some(usage) = usage {
            node.pool.create(&request("a", usage, MIB)).expect("made");
        }
        let original = unplug(&host, "fake0");
        let copy = Arc::new(Platter::new("copy", geometry(), Arc::clone(&host.power)));
        copy.put_content(original.content());
        plug(&host, "fake1", "serial-1", Arc::clone(&copy));
        node.passes().expect("a pass");
        for restart in [false, true] {
            if restart {
                drop(node);
                node = start(&host);
            }
            assert!(!is_ready(&node), "{usage:?}: a copy is used");
            let why = problem(&mut node, "fake1part1");
            assert!(
                why.contains("serial-0") && why.contains("serial-1") && why.contains("localpool disk adopt"),
                "{why}"
            );
            node.pool.create(&request("b", BLOCK, MIB)).expect_err("it is not given out");
            assert!(usage.is_none() || node.pool.delete(id("a")).is_err(), "a copy was erased for its original");
        }
        node.pool.work_until_idle().expect("nothing to do");
        assert!(copy.content() == original.content(), "{usage:?}: something was written to the copy");

        unplug(&host, "fake1");
        plug(&host, "fake0", "serial-0", original);
        node.passes().expect("a pass");
        assert!(is_ready(&node), "{usage:?}: the original is back, and not used");
    }
}

#[test]
fn a_copy_of_a_bare_partition_is_the_device_once_it_was_adopted_and_the_original_is_not_then() {
    let host = Arc::new(FakeHost::default());
    let mut node = claimed(&host);
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let original = unplug(&host, "fake0");
    plug(&host, "fake1", "serial-1", Arc::clone(&original));
    node.passes().expect("a pass");
    node.agent.verb(&adopt("/dev/fake1part1", Run::Dry)).expect("would be adopted");
    assert!(!is_ready(&node), "a dry run adopted it");
    node.agent.verb(&adopt("/dev/fake1part1", Run::Real)).expect("adopted");
    node.passes().expect("a pass");
    drop(node);
    let mut node = start(&host);
    assert!(is_ready(&node), "{}", problem(&mut node, "fake1part1"));

    unplug(&host, "fake1");
    plug(&host, "fake0", "serial-0", original);
    node.passes().expect("a pass");
    assert!(!is_ready(&node), "what was replaced is used");
}

#[test]
fn another_disk_with_the_wwid_of_a_bare_device_and_a_serial_of_its_own_is_not_that_device() {
    let host = Arc::new(FakeHost::default());
    let same_wwid = |name: &str| host.edit(name, |raw| raw.wwid = Some("naa.5000c500a1b2c3d4".to_owned()));
    let platter = host.add_disk("fake0", "serial-0", geometry());
    same_wwid("fake0");
    let rules = vec![rule(&Layout::RawDevice {}, ErasePolicy::Discard)];
    let mut node = Node::start(&host, rules, Duration::ZERO).expect("starts");
    node.passes().expect("a pass");
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    host.unplug("fake0");
    host.plug("fake1", "serial-1", platter);
    same_wwid("fake1");
    node.passes().expect("a pass");
    assert!(!is_ready(&node), "another disk is used");
}
