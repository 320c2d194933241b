//! Volumes so large that zeroing them takes longer than a call: in pieces, which survive a stop and let others in
//! between.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use localpool::device::label::{ErasePolicy, EraseRecord, Layout};
use localpool::host::fake::{FakeHost, Fault, Platter};
use localpool::host::{Extent, FsKind, Geometry};
use localpool::pool::{PoolError, Progress, WantedUsage};

use crate::node::{BLOCK, MIB, Node, geometry, id, request, rule};

const GIB: u64 = 1024 * MIB;
const LARGE: u64 = 40 * GIB;
const EXT4: WantedUsage = WantedUsage::Mount(Some(FsKind::Ext4));

fn layouts() -> [Layout; 3] {
    [Layout::Whole {}, Layout::Carved {}, Layout::RawDevice {}]
}

fn start(host: &Arc<FakeHost>, layout: &Layout) -> Node {
    let mut node = Node::start(host, vec![rule(layout, ErasePolicy::Discard)], Duration::ZERO).expect("starts");
    node.passes().expect("a pass");
    node
}

/// A disk that can zero by itself, with something in its last GiB that nobody saw when it was claimed.
fn large(layout: &Layout) -> (Arc<FakeHost>, Arc<Platter>, Node) {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { size: LARGE, ..geometry() });
    let node = start(&host, layout);
    disk.poke(LARGE - GIB + 5 * MIB, &[0x55; 4096]);
    (host, disk, node)
}

fn wanted() -> u64 {
    LARGE - 8 * MIB
}

fn left(node: &Node) -> u64 {
    let error = node.pool.create(&request("a", BLOCK, wanted())).expect_err("it takes longer than a call");
    let PoolError::BeingZeroed { remaining: left, .. } = error else { panic!("{error:?}") };
    assert!(node.pool.volumes().is_empty(), "there is nothing of it before all is zeroed");
    left
}

#[test]
fn zeroing_a_large_volume_goes_on_where_it_was_stopped() {
    for layout in layouts() {
        let (host, disk, node) = large(&layout);
        let mut before = left(&node);
        assert!((LARGE / 2..LARGE - GIB).contains(&before), "{layout:?}: {before}");
        drop(node);
        // From here on, zeroing the part that is zero already fails, so it cannot be zeroed again.
        let begun = Extent { start: 2 * MIB, end: GIB };
        disk.inject(Fault { what: "zero", range: begun, times: u32::MAX });
        loop {
            // Killed after each call.
            let node = start(&host, &layout);
            match node.pool.create(&request("a", BLOCK, wanted())) {
                Ok(_) => break,
                Err(PoolError::BeingZeroed { remaining: left, .. }) => {
                    assert!(left < before, "{layout:?}: {left} of {before}");
                    before = left;
                }
                Err(error) => panic!("{layout:?}: {error:?}"),
            }
        }
        assert!(disk.is_zero(Extent { start: 2 * MIB, end: LARGE - MIB }), "{layout:?}");
    }
}

#[test]
fn the_zeroing_of_a_large_volume_goes_on_behind_its_caller() {
    for layout in layouts() {
        let (_host, disk, node) = large(&layout);
        left(&node);
        node.pool.work_until_idle().expect("zeroes");
        let writes = disk.write_count();
        node.pool.create(&request("a", BLOCK, wanted())).expect("all is zero");
        assert!(disk.write_count() < writes + 20, "{layout:?}: it was zeroed again");
        assert!(disk.is_zero(Extent { start: 2 * MIB, end: LARGE - MIB }), "{layout:?}");
        node.pool.delete(id("a")).expect("deleted");
    }
}

#[test]
fn a_bare_device_that_is_deleted_while_its_worker_ends_is_erased_all_the_same() {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "SERIAL-1", geometry());
    let node = start(&host, &Layout::RawDevice {});
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let member = node.pool.bare_devices().remove(0);
    thread::scope(|scope| {
        let held = member.lock();
        let working = scope.spawn(|| member.work());
        // It has started, and waits for the lock that the deletion holds.
        thread::sleep(Duration::from_millis(100));
        let erasing = EraseRecord { was: id("a"), policy: ErasePolicy::Zero, cursor: 0 };
        let deleted = node.pool.journal().change_bare(&member.id, |claim| {
            (claim.volume, claim.erasing) = (None, Some(erasing));
        });
        deleted.expect("written");
        drop(held);
        let done = working.join().expect("no bug").expect("works");
        assert_eq!(done, Progress::Worked, "nobody would start another worker");
    });
}

#[test]
fn what_others_want_of_a_disk_has_its_turn_while_it_is_zeroed() {
    let (_host, disk, node) = large(&Layout::Carved {});
    node.pool.create(&request("small", EXT4, 16 * MIB)).expect("made");
    disk.set_hangs_at(Some("zero"));
    thread::scope(|scope| {
        let zeroing = scope.spawn(|| node.pool.create(&request("a", BLOCK, LARGE / 2)));
        disk.until_somebody_waits();
        let other = scope.spawn(|| node.pool.expand(id("small"), 17 * MIB, None));
        // Both wait: one for the device, one for the lock.
        thread::sleep(Duration::from_millis(50));
        disk.set_hangs_at(None);
        other.join().expect("no bug").expect("grown");
        let made = zeroing.join().expect("no bug");
        assert!(matches!(made, Err(PoolError::BeingZeroed { .. })), "{made:?}");
    });
    assert_eq!(node.pool.volume(id("small")).expect("there").size, 17 * MIB);
}

#[test]
fn what_a_large_growth_adds_is_zeroed_before_it_is_there() {
    let (_host, disk, node) = large(&Layout::Carved {});
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let all = node.pool.volume(id("a")).expect("there").growable_to;
    let mut calls = 0;
    loop {
        match node.pool.expand(id("a"), all, None) {
            Ok(view) => break assert_eq!(view.size, all),
            Err(PoolError::BeingZeroed { .. }) => calls += 1,
            Err(error) => panic!("{error:?}"),
        }
        assert_eq!(node.pool.volume(id("a")).expect("there").size, MIB);
    }
    assert!((2..10).contains(&calls), "{calls}");
    assert!(disk.is_zero(Extent { start: 2 * MIB, end: LARGE - MIB }));
}
