//! What somebody puts on a bare device between the deletion of its volume and the erasure.

use std::sync::Arc;
use std::time::Duration;

use localpool::agent::{Run, Verb};
use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::fake::{FakeHost, Fault, Platter};
use localpool::host::{Extent, FsKind, Geometry, chain};
use localpool::pool::{PoolError, WantedUsage};
use uuid::Uuid;

use super::mkfs;
use crate::node::{BLOCK, MIB, Node, adopt, geometry, id, problem, request, rule};

const EXT4: WantedUsage = WantedUsage::Mount(Some(FsKind::Ext4));
const GIB: u64 = 1024 * MIB;

fn start(host: &Arc<FakeHost>) -> Node {
    let rules = vec![rule(&Layout::RawDevice {}, ErasePolicy::Discard)];
    let mut node = Node::start(host, rules, Duration::ZERO).expect("starts");
    node.passes().expect("a pass");
    node
}

/// A bare device whose volume was just deleted.
fn deleted(usage: WantedUsage, size: u64) -> (Arc<FakeHost>, Arc<Platter>, Node) {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "serial-0", Geometry { size, ..geometry() });
    let node = start(&host);
    node.pool.create(&request("a", usage, MIB)).expect("made");
    if usage == EXT4 {
        node.pool.begin_format(id("a")).expect("begun");
        mkfs(&host, id("a").uuid());
        node.pool.mark_formatted(id("a")).expect("written");
    }
    disk.poke(size / 2, &[0x77; 4096]);
    node.pool.delete(id("a")).expect("deleted");
    (host, disk, node)
}

/// Nothing touches it, in this process and after a restart, and a person may have it erased or keep it.
fn is_left_alone(host: &Arc<FakeHost>, disk: &Platter, mut node: Node) {
    let before = disk.content();
    for restart in [false, true] {
        if restart {
            node = start(host);
        }
        node.pool.work_until_idle().expect("nothing to do");
        let why = problem(&mut node, "fake0");
        assert!(why.contains("claim disputed") && why.contains("localpool disk release"), "{why}");
        node.pool.create(&request("b", BLOCK, MIB)).expect_err("it is not given out");
        assert!(disk.content() == before, "something was written");
    }
    let release = Verb::ReleaseDisk { disk: "/dev/fake0".to_owned(), run: Run::Dry };
    node.agent.verb(&release).expect("it could be left as it is");
    node.agent.verb(&adopt("/dev/fake0", Run::Real)).expect("adopted");
    node.pool.work_until_idle().expect("erased");
    assert!(disk.is_zero(Extent { start: 0, end: disk.geometry.size }));
}

#[test]
fn a_bare_device_that_cannot_be_opened_is_not_called_in_use() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "serial-0", geometry());
    let node = start(&host);
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    disk.inject(Fault { what: "open", range: Extent { start: 0, end: MIB }, times: u32::MAX });
    let refused = node.pool.delete(id("a")).expect_err("nobody can look at it");
    assert!(!matches!(refused, PoolError::InUse { .. }), "{refused:?}");
    assert!(chain(&refused).contains("Input/output error"), "{}", chain(&refused));
    disk.clear_faults();
    node.pool.delete(id("a")).expect("deleted");
}

#[test]
fn a_deleted_volume_is_erased_with_what_it_had_itself() {
    for usage in [EXT4, BLOCK] {
        let (host, disk, node) = deleted(usage, 64 * MIB);
        drop(node);
        let node = start(&host);
        node.pool.work_until_idle().expect("erased");
        assert!(disk.is_zero(Extent { start: 0, end: 64 * MIB }), "{usage:?}");
    }
}

#[test]
fn a_filesystem_that_somebody_made_on_a_bare_device_is_not_erased_with_the_volume_that_it_had() {
    let (host, disk, node) = deleted(EXT4, 64 * MIB);
    mkfs(&host, Uuid::from_u128(5));
    is_left_alone(&host, &disk, node);
}

#[test]
fn what_somebody_wrote_behind_the_cursor_of_an_erasure_stops_it() {
    for usage in [EXT4, BLOCK] {
        let (host, disk, node) = deleted(usage, 3 * GIB);
        node.pool.members()[0].work().expect("the first chunk");
        assert!(disk.is_zero(Extent { start: 0, end: GIB }) && !disk.is_zero(Extent { start: GIB, end: 2 * GIB }));
        // A member of md; nothing else of the array is in sight.
        disk.poke(4096, &[0x11; 512]);
        is_left_alone(&host, &disk, node);
    }
}

#[test]
fn a_bare_device_that_somebody_has_open_is_not_erased_before_that_ends_and_then_it_is() {
    let (_host, disk, mut node) = deleted(BLOCK, 64 * MIB);
    disk.set_in_use(0, true);
    let before = disk.content();
    node.pool.work_until_idle().expect("it waits");
    assert!(disk.content() == before, "something was written");
    let held = node.pool.disk_views()[0].busy.clone().expect("who has it");
    assert!(held.contains("/dev/fake0") && held.contains("not erased"), "{held}");
    let pass = node.agent.pass().expect("a pass");
    assert!(pass.ripe_in.is_some(), "no event tells when that ends");
    disk.set_in_use(0, false);
    node.pool.work_until_idle().expect("erased");
    assert!(disk.is_zero(Extent { start: 0, end: 64 * MIB }));
    assert_eq!(node.pool.disk_views()[0].busy, None);
}

#[test]
fn a_bare_device_that_another_process_has_open_is_neither_deleted_nor_erased_before_that_closes_it() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "serial-0", geometry());
    let mut node = start(&host);
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    disk.poke(0, &[0x77; 4096]);
    disk.set_opened(true);
    let refused = node.pool.delete(id("a")).expect_err("it may still be written to");
    assert!(matches!(refused, PoolError::InUse { .. }) && refused.to_string().contains("pid 7"), "{refused}");
    disk.set_opened(false);
    node.pool.delete(id("a")).expect("deleted");
    disk.set_opened(true);
    let before = disk.content();
    node.pool.work_until_idle().expect("it waits");
    assert!(disk.content() == before, "something was written");
    let held = node.pool.disk_views()[0].busy.clone().expect("who has it");
    assert!(held.contains("pid 7") && held.contains("not erased"), "{held}");
    assert!(node.agent.pass().expect("a pass").ripe_in.is_some(), "no event tells when that ends");
    disk.set_opened(false);
    node.pool.members()[0].work().expect("the one piece");
    assert!(disk.is_zero(Extent { start: 0, end: disk.geometry.size }));
    disk.set_opened(true);
    node.pool.work_until_idle().expect("it waits");
    node.pool.create(&request("b", BLOCK, MIB)).expect_err("the next tenant would see what is written there");
    disk.set_opened(false);
    node.pool.work_until_idle().expect("erased");
    node.pool.create(&request("b", BLOCK, MIB)).expect("it is free");
}

#[test]
fn a_free_bare_device_that_a_program_writes_to_is_given_to_nobody_before_that_closes_it() {
    for usage in [EXT4, BLOCK] {
        let host = Arc::new(FakeHost::default());
        let disk = host.add_disk("fake0", "serial-0", geometry());
        let node = start(&host);
        // The process has not found anything to change yet.
        disk.set_opened(true);
        let refused = node.pool.create(&request("a", usage, MIB)).expect_err("it would write into the volume");
        assert!(chain(&refused).contains("pid 7"), "{refused:?}");
        assert!(node.pool.volumes().is_empty());
        disk.set_opened(false);
        node.pool.create(&request("a", usage, MIB)).expect("it is free");
    }
}
