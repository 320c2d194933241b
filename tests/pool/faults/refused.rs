//! A disk that refuses a write, a sync, an erasure or its lock: nothing is acknowledged, and it can be repeated.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use localpool::device::label::{ErasePolicy, Layout};
use localpool::health::Condition;
use localpool::host::fake::{FakeHost, Fate, Fault};
use localpool::host::{Extent, FsKind, Geometry};
use localpool::pool::{PoolError, Standing, WantedUsage};
use localpool::show::{devices::Format, health};

use crate::node::{BLOCK, MIB, Node, carved, geometry, id, request, rule, standing, start};

#[test]
fn a_table_copy_that_cannot_be_written_makes_the_disk_not_ready_until_it_can_and_nothing_is_acknowledged() {
    let primary = Extent { start: 512, end: 34 * 512 };
    let backup = Extent { start: 64 * MIB - 33 * 512, end: 64 * MIB };
    let label = Extent { start: MIB, end: 2 * MIB };
    for range in [primary, backup, label] {
        let (_host, disk, mut node) = carved();
        node.pool.create(&request("kept", BLOCK, MIB)).expect("a healthy disk");
        disk.inject(Fault { what: "write", range, times: u32::MAX });
        let error = node.pool.create(&request("new", BLOCK, MIB)).expect_err("it cannot be written");
        assert!(matches!(error, PoolError::Apply(_)), "{error:?}");
        assert!(matches!(standing(&node), Standing::NotReady(_)), "{range}: {:?}", standing(&node));
        assert!(
            matches!(node.pool.create(&request("other", BLOCK, MIB)), Err(PoolError::NoSet(_))),
            "it offers nothing"
        );
        assert_eq!(node.pool.volumes().len(), 1, "{range}: what was not acknowledged is not there");

        disk.clear_faults();
        node.passes().expect("a pass");
        assert_eq!(standing(&node), Standing::Ready, "{range}");
        node.pool.create(&request("new", BLOCK, MIB)).expect("a retry");
        assert_eq!(node.pool.volumes().len(), 2);
    }
}

#[test]
fn who_cannot_get_the_lock_of_a_disk_has_changed_nothing_and_may_come_back() {
    let (_host, disk, mut node) = carved();
    node.pool.create(&request("kept", BLOCK, MIB)).expect("a healthy disk");
    let (before, mapping) = (disk.content(), disk.mapping(2));
    disk.inject(Fault { what: "lock", range: Extent { start: 0, end: u64::MAX }, times: u32::MAX });
    let is_locked = |error| matches!(error, PoolError::Apply(error) if error.is_locked());
    assert!(is_locked(node.pool.create(&request("new", BLOCK, MIB)).expect_err("no lock")));
    assert!(is_locked(node.pool.expand(id("kept"), 2 * MIB, None).expect_err("no lock")));
    assert!(is_locked(node.pool.delete(id("kept")).expect_err("no lock")));
    assert!(disk.content() == before, "something was written");
    assert_eq!(disk.mapping(2), mapping, "the volume is mapped as before");
    assert_eq!(standing(&node), Standing::Ready);

    disk.clear_faults();
    node.pool.create(&request("new", BLOCK, MIB)).expect("a retry");
    node.pool.delete(id("kept")).expect("a retry");
    assert_eq!(node.pool.volumes().len(), 1);
    node.passes().expect("a pass");
    node.pool.work_until_idle().expect("erases");
}

#[test]
fn a_disk_whose_lock_others_keep_when_it_comes_is_looked_at_again_soon_without_an_event() {
    let (host, disk, node) = carved();
    drop(node);
    // A table that must be repaired, which needs the lock.
    disk.poke(64 * MIB - 512, &[0; 512]);
    disk.inject(Fault { what: "lock", range: Extent { start: 0, end: u64::MAX }, times: u32::MAX });
    let mut node = start(&host);
    let pass = node.agent.pass().expect("a pass");
    assert!(pass.problems["fake0"].contains("other processes hold its lock"), "{:?}", pass.problems);
    assert!(pass.ripe_in.is_some_and(|wait| wait <= Duration::from_secs(1)), "{:?}", pass.ripe_in);
    disk.clear_faults();
    assert_eq!(node.agent.pass().expect("a pass").problems.len(), 0);
    assert_eq!(standing(&node), Standing::Ready);
}

#[test]
fn a_disk_that_fails_to_sync_acknowledges_nothing() {
    let (_host, disk, node) = carved();
    disk.inject(Fault { what: "sync", range: Extent { start: 0, end: u64::MAX }, times: 1 });
    assert!(node.pool.create(&request("new", BLOCK, MIB)).is_err());
    assert!(node.pool.volumes().is_empty());
}

#[test]
fn space_that_cannot_be_zeroed_is_never_given_to_a_block_volume() {
    let (_host, disk, node) = carved();
    disk.inject(Fault { what: "zero", range: Extent { start: 2 * MIB, end: 64 * MIB }, times: u32::MAX });
    assert!(node.pool.create(&request("raw", BLOCK, MIB)).is_err());
    assert!(node.pool.volumes().is_empty());
    let ext4 = WantedUsage::Mount(Some(FsKind::Ext4));
    node.pool.create(&request("fs", ext4, 16 * MIB)).expect("a filesystem shows nothing of it");
}

#[test]
fn a_disk_that_fails_before_anything_is_made_leaves_the_volume_to_another_and_one_that_fails_later_does_not() {
    let zeros = Fault { what: "zero", range: Extent { start: 2 * MIB, end: 64 * MIB }, times: u32::MAX };
    let label = Fault { what: "write", range: Extent { start: MIB, end: 2 * MIB }, times: u32::MAX };
    let primary = Fault { what: "write", range: Extent { start: 512, end: 34 * 512 }, times: u32::MAX };
    let lock = Fault { what: "lock", range: Extent { start: 0, end: u64::MAX }, times: u32::MAX };
    let slot = Layout::Slots { size: None, count: Some(1) };
    let cases = [
        (&slot, &zeros, true),
        (&slot, &label, true),
        (&slot, &lock, true),
        (&slot, &primary, false),
        (&Layout::RawDevice {}, &zeros, true),
    ];
    for (layout, fault, goes_on) in cases {
        let host = Arc::new(FakeHost::default());
        // The smallest that holds a volume is chosen.
        let [small, large] = [("fake0", 64), ("fake1", 96)]
            .map(|(name, mib)| host.add_disk(name, name, Geometry { size: mib * MIB, ..geometry() }));
        let mut node = Node::start(&host, vec![rule(layout, ErasePolicy::Discard)], Duration::ZERO).expect("starts");
        node.passes().expect("claims");
        small.inject(fault.clone());
        let writes = large.write_count();

        let made = node.pool.create(&request("new", BLOCK, MIB));
        assert_eq!(made.is_ok(), goes_on, "{layout:?} {fault:?}: {made:?}");
        assert_eq!(node.pool.volumes().len(), usize::from(goes_on), "{layout:?} {fault:?}");
        assert_eq!(large.write_count() > writes, goes_on, "{layout:?} {fault:?}");
        if *fault == zeros {
            let error = node.pool.create(&request("more", BLOCK, MIB)).expect_err("the large one is full");
            let message = format!("{error:?}");
            assert!(message.contains("Io("), "it says what fails, not that nothing is free: {message}");
        }
    }
}

#[test]
fn an_erasure_that_fails_keeps_the_space_and_goes_on_later() {
    let (_host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, 8 * MIB)).expect("made");
    node.pool.delete(id("a")).expect("deleted");
    disk.inject(Fault { what: "zero", range: Extent { start: 2 * MIB, end: 64 * MIB }, times: u32::MAX });
    assert!(node.pool.work_until_idle().is_err());
    let free = |node: &Node| node.pool.labelled_disks()[0].lock().content().free().total();
    assert_eq!(free(&node), 53 * MIB, "what is not erased is not free");
    let said = health_of(&node);
    assert!(said.contains("8.0 MiB of deleted volumes are still to be erased"), "{said}");
    disk.clear_faults();
    node.passes().expect("a pass");
    node.pool.work_until_idle().expect("erased");
    assert_eq!(free(&node), 61 * MIB);
    let said = health_of(&node);
    assert!(said.contains("no disk that can be used has deleted volumes that are still to be erased"), "{said}");
}

/// What `localpool health` says of the disks.
fn health_of(node: &Node) -> String {
    let disks: Vec<_> = node.pool.disk_views().into_iter().map(|view| (view, Condition::default())).collect();
    health::render(&disks, &[], Some(&[]), Format::Table).expect("a text")
}

#[test]
fn a_disk_that_another_process_holds_is_not_used_and_not_written_before_that_one_lets_go() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    drop(node);
    host.restart_process();
    disk.set_in_use(1, true);
    // As while that process writes its tables: opening the disk would repair them.
    disk.poke(geometry().size - 512, &[0; 512]);
    let before = disk.content();
    let mapped: Vec<_> = (1..5).map(|number| disk.mapping(number)).collect();
    node = start(&host);
    let pass = node.passes().expect("a pass");
    let why = &pass.problems["fake0"];
    assert!(why.contains("another process") && why.contains("in use"), "{why}");
    assert!(node.pool.usable(id("a")).is_err());
    assert!(disk.content() == before, "it was written");
    assert_eq!((1..5).map(|number| disk.mapping(number)).collect::<Vec<_>>(), mapped);
    disk.set_in_use(1, false);
    node.passes().expect("a pass");
    node.pool.usable(id("a")).expect("it is free again");
    assert!(disk.content() != before, "and mended");
}

#[test]
fn what_a_killed_process_wrote_and_did_not_sync_is_synced_before_anybody_is_told_that_it_is_there() {
    let mut found = BTreeSet::new();
    for effects in 0..16 {
        let (host, _, node) = carved();
        host.power.cut_after(effects);
        let made = node.pool.create(&request("a", BLOCK, MIB));
        drop(node);
        host.restart_process();
        let listed = |host| {
            let mut node = start(host);
            node.passes().expect("a pass");
            node.pool.volume(id("a")).is_ok()
        };
        let is_there = listed(&host);
        host.reboot(Fate::Lost);
        assert_eq!(listed(&host), is_there, "after {effects} effects, of which the create is {made:?}");
        found.insert((made.is_ok(), is_there));
    }
    assert!(found.contains(&(false, true)), "none was killed between its last write and the sync: {found:?}");
}
