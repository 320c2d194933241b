//! A journal that was restored from a backup: it has an earlier state of bare devices, which say nothing themselves.

use std::sync::Arc;
use std::time::Duration;

use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::fake::{FakeHost, Platter};
use localpool::host::{FsKind, Geometry, Host as _};
use localpool::pool::{JOURNAL, WantedUsage};

use crate::node::{BLOCK, MIB, Node, id, problem, request, rule};

const SIZE: u64 = 512 * MIB;

fn start(host: &Arc<FakeHost>) -> Node {
    let rules = vec![rule(&Layout::RawDevice {}, ErasePolicy::Discard)];
    let mut node = Node::start(host, rules, Duration::ZERO).expect("starts");
    node.passes().expect("a pass");
    node
}

/// A free bare device, and what the journal says of it.
fn free() -> (Arc<FakeHost>, Arc<Platter>, Node, String) {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "serial-0", Geometry { size: SIZE, sector: 512, offloads_zeroes: true });
    let node = start(&host);
    let older = host.state().load(JOURNAL).expect("read").expect("there");
    (host, disk, node, older)
}

/// With the older journal: the device is not touched, and a message says what to do.
fn is_disputed(host: &Arc<FakeHost>, disk: &Platter, older: &str, volume: &str) {
    host.state().store(JOURNAL, older).expect("restored");
    let before = disk.content();
    let mut node = start(host);
    let why = problem(&mut node, "fake0");
    assert!(why.contains("claim disputed") && why.contains("localpool disk adopt"), "{why}");
    for usage in [BLOCK, WantedUsage::Mount(Some(FsKind::Ext4))] {
        node.pool.create(&request("next", usage, 16 * MIB)).expect_err("it is not given out");
    }
    assert!(node.pool.usable(id(volume)).is_err());
    let _ = node.pool.work_until_idle();
    assert!(disk.content() == before, "something was written");
}

#[test]
fn a_device_that_an_older_journal_calls_free_and_that_holds_a_block_volume_is_neither_given_out_nor_zeroed() {
    for at in [0, 8192, 65536, MIB - 512, SIZE - MIB, SIZE - 65536] {
        let (host, disk, node, older) = free();
        node.pool.create(&request("a", BLOCK, MIB)).expect("made");
        disk.poke(at, &[0x77; 512]);
        drop(node);
        is_disputed(&host, &disk, &older, "a");
    }
}

#[test]
fn a_device_that_an_older_journal_is_to_erase_and_that_holds_another_volume_since_is_left_alone() {
    let (host, disk, node, _) = free();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    node.pool.delete(id("a")).expect("deleted");
    node.pool.members()[0].work().expect("the one chunk");
    let older = host.state().load(JOURNAL).expect("read").expect("there");
    node.pool.work_until_idle().expect("erased");
    node.pool.create(&request("b", BLOCK, MIB)).expect("made");
    disk.poke(8192, &[0x77; 512]);
    drop(node);
    is_disputed(&host, &disk, &older, "b");
}

#[test]
fn a_device_on_which_an_older_journal_has_a_deleted_volume_keeps_what_it_holds_since() {
    let (host, disk, node, _) = free();
    let mount = WantedUsage::Mount(Some(FsKind::Ext4));
    node.pool.create(&request("a", mount, 16 * MIB)).expect("made");
    let older = host.state().load(JOURNAL).expect("read").expect("there");
    node.pool.delete(id("a")).expect("deleted");
    node.pool.work_until_idle().expect("erased");
    node.pool.create(&request("b", BLOCK, MIB)).expect("made");
    disk.poke(8192, &[0x77; 512]);
    drop(node);
    is_disputed(&host, &disk, &older, "b");
}
