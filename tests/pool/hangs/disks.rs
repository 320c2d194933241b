//! A disk that hangs: the other disks and all that only reads answer.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use localpool::agent::{Run, Verb};
use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::Geometry;
use localpool::host::fake::{FakeHost, Platter};
use localpool::pool::{Change, PoolError, Selector};

use crate::hangs::{AT_MOST, answers, delete_that_hangs, two_disks};
use crate::node::{MIB, MOUNT, Node, id, request, rule};

#[test]
fn a_disk_that_hangs_in_an_operation_keeps_nothing_of_the_other_disks_from_answering() {
    for layout in [Layout::Carved {}, Layout::RawDevice {}] {
        let (_host, [sick, _well], node) = two_disks(&layout);
        let deleting = delete_that_hangs(&node, &sick, "small");
        let pool = &node.pool;
        let large = id("large");
        assert_eq!(answers("a list", pool, |pool| pool.volumes().len()), 2, "{layout:?}");
        assert_eq!(answers("a list of disks", pool, |pool| pool.disk_views().len()), 2);
        assert!(answers("a lookup", pool, move |pool| pool.usable(large).is_ok()));
        let capacity = answers("capacity", pool, |pool| pool.capacity(&Selector::default(), MOUNT));
        assert_eq!(capacity.available > 0, layout == Layout::Carved {});
        answers("a mark", pool, move |pool| pool.mark_formatted(large)).expect("a healthy disk");
        answers("an expansion", pool, move |pool| pool.expand(large, 100 * MIB, None)).expect("a healthy disk");
        let repeated = answers("a repeated create", pool, |pool| pool.create(&request("large", MOUNT, 100 * MIB)));
        assert_eq!(repeated.expect("a healthy disk").1, Change::AlreadySo);
        answers("a delete", pool, move |pool| pool.delete(large)).expect("a healthy disk");

        sick.set_hangs(false);
        deleting.join().expect("no bug").expect("it answers again");
        assert!(pool.volumes().is_empty());
    }
}

#[test]
fn a_new_volume_goes_past_a_disk_that_hangs_to_one_that_answers() {
    let (_host, [sick, _well], node) = two_disks(&Layout::Carved {});
    let deleting = delete_that_hangs(&node, &sick, "small");
    // The disk that hangs is chosen first, as it is the smallest with enough room.
    let made = answers("a create", &node.pool, |pool| pool.create(&request("new", MOUNT, 16 * MIB)));
    let (view, _) = made.expect("another disk serves");
    assert!(view.node.to_string_lossy().contains("fake1"), "{}", view.node.display());
    sick.set_hangs(false);
    deleting.join().expect("no bug").expect("it answers again");
}

#[test]
fn who_wants_a_disk_that_hangs_is_told_to_come_back_and_which_disk_it_is() {
    for (layout, message) in [(Layout::Carved {}, "/dev/fake0"), (Layout::RawDevice {}, "/dev/fake0")] {
        let (_host, [sick, _well], node) = two_disks(&layout);
        let deleting = delete_that_hangs(&node, &sick, "small");
        let small = id("small");
        let error = answers("a second delete", &node.pool, move |pool| pool.delete(small)).expect_err("it hangs");
        assert!(error.is_locked(), "{error:?}");
        assert!(error.to_string().contains(message), "{error}");
        assert!(error.to_string().contains("has been under way for 1"), "{error}");
        sick.set_hangs(false);
        deleting.join().expect("no bug").expect("it answers again");
        assert_eq!(node.pool.delete(small).expect("it is gone"), Change::AlreadySo);
    }
}

/// Volume `small` is on both disks: it was made again while the first disk was away and the journal lost.
fn in_conflict() -> (Arc<FakeHost>, Arc<Platter>, Node) {
    let (host, [_small, large], node) = two_disks(&Layout::Carved {});
    let platter = host.unplug("fake0").expect("it was there");
    drop(node);
    host.state.lose();
    let rules = vec![rule(&Layout::Carved {}, ErasePolicy::Discard)];
    let mut node = Node::start(&host, rules, Duration::ZERO).expect("starts");
    node.passes().expect("a pass");
    node.pool.create(&request("small", MOUNT, 16 * MIB)).expect("nobody knows better");
    host.plug("fake0", "fake0", platter);
    node.passes().expect("a pass");
    assert!(matches!(node.pool.usable(id("small")), Err(PoolError::Conflict { .. })));
    (host, large, node)
}

fn settle(keep: &str) -> Verb {
    Verb::SettleVolume { volume: id("small"), keep: keep.to_owned(), run: Run::Real }
}

#[test]
fn a_conflict_on_a_disk_that_hangs_is_not_settled_and_keeps_no_pass_waiting() {
    let (_host, large, node) = in_conflict();
    large.set_hangs_at(Some("sync"));
    let settle = settle("/dev/fake0");
    let (reply, answer) = mpsc::channel();
    let asked = settle.clone();
    let asking = thread::spawn(move || {
        let mut node = node;
        let _ = reply.send(node.agent.verb(&asked).map_err(|error| error.to_string()));
        node
    });
    let refused = answer.recv_timeout(AT_MOST).expect("the agent answers though the disk does not");
    let refused = refused.expect_err("it is not done yet");
    assert!(refused.contains("has not answered yet"), "{refused}");
    large.set_hangs_at(None);
    let mut node = asking.join().expect("no bug");
    // It continues in the background, and a repeated call finds it done or does it.
    let (told, kept) = (AT_MOST, id("small"));
    let deadline = std::time::Instant::now() + told;
    while node.pool.usable(kept).is_err() {
        assert!(std::time::Instant::now() < deadline, "it was never settled");
        let _ = node.agent.verb(&settle);
        node.passes().expect("a pass");
    }
    assert!(node.pool.usable(kept).expect("usable").node.starts_with("/dev/fake0p2"));
}

#[test]
fn a_conflict_that_is_being_settled_is_not_settled_the_other_way_meanwhile() {
    let (_host, large, mut node) = in_conflict();
    large.set_hangs_at(Some("sync"));
    node.agent.verb(&settle("/dev/fake0")).expect_err("it hangs");
    let second = node.agent.verb(&settle("/dev/fake1")).map_err(|error| error.to_string());
    large.set_hangs_at(None);
    node.pool.labelled_disks().iter().for_each(|disk| drop(disk.lock()));
    node.passes().expect("a pass");
    assert!(node.pool.volume(id("small")).is_ok(), "{second:?}: on no disk: {:?}", node.pool.volumes());
}

#[test]
fn while_the_state_directory_hangs_all_that_only_reads_answers() {
    for layout in [Layout::Carved {}, Layout::RawDevice {}] {
        let (host, _disks, node) = two_disks(&layout);
        host.add_disk("fake2", "fake2", Geometry { size: 512 * MIB, sector: 512, offloads_zeroes: true });
        let mut node = node;
        node.passes().expect("claims");
        host.state.gate.set_hangs_at(Some("store"));
        let pool = Arc::clone(&node.pool);
        let creating = thread::spawn(move || pool.create(&request("new", MOUNT, 16 * MIB)).map(drop));
        host.state.gate.until_somebody_waits();
        let (pool, large) = (&node.pool, id("large"));
        assert_eq!(answers("a list", pool, |pool| pool.volumes().len()), 2, "{layout:?}");
        assert_eq!(answers("a list of disks", pool, |pool| pool.disk_views().len()), 3);
        assert!(answers("a lookup", pool, move |pool| pool.usable(large).is_ok()));
        assert!(answers("capacity", pool, |pool| pool.capacity(&Selector::default(), MOUNT)).available > 0);
        assert!(answers("a lookup of what is nowhere", pool, |pool| pool.usable(id("nowhere")).is_err()));
        host.state.gate.set_hangs_at(None);
        creating.join().expect("no bug").expect("it answers again");
        assert_eq!(node.pool.volumes().len(), 3);
    }
}
