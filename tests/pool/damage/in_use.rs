//! Partitions of the pool that somebody else uses.

use std::sync::Arc;
use std::time::Duration;

use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::fake::{FakeHost, Fate};
use localpool::host::{Extent, Geometry};
use localpool::pool::{PoolError, Selector, Standing};

use crate::node::{BLOCK, MIB, Node, carved, geometry, id, request, rule, start};

#[test]
fn what_somebody_has_of_a_deleted_volume_keeps_out_only_itself_and_is_erased_when_it_is_let_go() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("gone", BLOCK, 8 * MIB)).expect("room");
    node.pool.create(&request("kept", BLOCK, MIB)).expect("room");
    let extent = Extent { start: 2 * MIB, end: 10 * MIB };
    disk.poke(extent.start, &[0xaa; 4096]);
    node.pool.delete(id("gone")).expect("unused");
    drop(node);
    host.reboot(Fate::Whole);
    // The host's LVM has found an earlier tenant's volume group in it.
    disk.set_in_use(2, true);

    node = start(&host);
    let pass = node.passes().expect("a pass");
    assert!(pass.problems.is_empty(), "{:?}", pass.problems);
    assert!(pass.ripe_in.is_some(), "no event tells when it is let go");
    node.pool.usable(id("kept")).expect("its neighbour has nothing to do with it");
    let view = &node.pool.disk_views()[0];
    assert_eq!((&view.standing, view.erasing), (&Standing::Ready, 8 * MIB));
    assert!(view.busy.as_ref().is_some_and(|held| held.contains("fake0p2 is in use")), "{:?}", view.busy);
    node.pool.work_until_idle().expect("there is nothing that it could do");
    assert!(!disk.is_zero(extent), "it is not erased under who has it");
    node.pool.delete(id("kept")).expect("unused");
    node.pool.work_until_idle().expect("erases");
    assert_eq!(node.pool.disk_views()[0].erasing, 8 * MIB, "and what comes after it is erased");
    let member = node.pool.members().remove(0);
    assert!(node.pool.release(&member).is_err(), "a disk of which somebody has a part is not released");

    disk.set_in_use(2, false);
    node.agent.pass().expect("a pass");
    node.pool.work_until_idle().expect("erases");
    let view = &node.pool.disk_views()[0];
    assert_eq!((&view.busy, view.erasing, disk.mapping(2)), (&None, 0, None));
    assert!(disk.is_zero(extent));
}

#[test]
fn a_free_slot_that_somebody_has_is_not_offered_and_what_he_wrote_is_never_shown_to_a_tenant() {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { offloads_zeroes: false, ..geometry() });
    let slots = || vec![rule(&Layout::Slots { size: None, count: Some(2) }, ErasePolicy::Discard)];
    let start = || Node::start(&host, slots(), Duration::ZERO).expect("starts");
    let mut node = start();
    node.passes().expect("claims");
    node.pool.work_until_idle().expect("cleans both");
    let whole = node.pool.capacity(&Selector::default(), BLOCK).available;
    drop(node);
    host.reboot(Fate::Whole);
    disk.set_in_use(2, true);

    node = start();
    node.passes().expect("a pass");
    node.pool.work_until_idle().expect("nothing to do");
    assert_eq!(node.pool.capacity(&Selector::default(), BLOCK).available, whole / 2);
    let slot = disk.mapping(2).expect("the kernel still has it");
    disk.poke(slot.start + MIB, &[0xaa; 4096]);
    drop(node);
    // Whether or not the agent sees that it was let go.
    disk.set_in_use(2, false);
    node = start();
    node.passes().expect("a pass");
    for name in ["one", "two"] {
        node.pool.work_until_idle().expect("cleans");
        node.pool.create(&request(name, BLOCK, MIB)).expect("a slot");
    }
    assert!(disk.is_zero(slot), "a raw block volume shows only zeros at first");
}

#[test]
fn a_delete_of_a_volume_in_use_says_who_has_it() {
    let (_host, disk, node) = carved();
    node.pool.create(&request("used", BLOCK, MIB)).expect("room");
    disk.set_in_use(2, true);
    let error = node.pool.delete(id("used")).expect_err("it is in use");
    assert!(matches!(error, PoolError::InUse { .. }) && error.to_string().ends_with("fake0p2 is in use"), "{error}");
}
