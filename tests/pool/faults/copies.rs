//! A disk that leaves and comes back, and copies of it: which of them is the disk of the pool.

use std::sync::Arc;
use std::time::Duration;

use localpool::agent::{Run, Verb};
use localpool::pool::{PoolError, Standing};

use crate::node::{BLOCK, MIB, adopt, carved, geometry, id, problem, request, standing, start};

#[test]
fn a_disk_that_leaves_and_comes_back_under_another_name_has_the_same_volumes_and_others_go_on() {
    let (host, _, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    host.add_disk("fake1", "SERIAL-2", geometry());
    node.passes().expect("claims the second");

    let platter = host.unplug("fake0").expect("it was there");
    node.passes().expect("a pass");
    let gone = node.pool.volume(id("a")).expect("it is remembered");
    assert_eq!(gone.standing, Standing::Missing);
    assert!(matches!(node.pool.delete(id("a")), Err(PoolError::DiskAway { .. })), "nothing is lost by a request");
    node.pool.create(&request("b", BLOCK, MIB)).expect("the other disk goes on");

    host.plug("fake7", "SERIAL-1", platter);
    node.passes().expect("a pass");
    let back = node.pool.usable(id("a")).expect("it is back");
    assert!(back.node.starts_with("/dev/fake7p2"), "{:?}", back.node);
    node.pool.delete(id("a")).expect("and can be deleted");
}

#[test]
fn a_copy_of_a_pool_disk_is_not_used_and_the_original_stays_ready() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let copy = host.add_disk("fake1", "SERIAL-9", geometry());
    copy.put_content(disk.content());
    let before = copy.content();
    let pass = node.passes().expect("a pass");
    assert_eq!(standing(&node), Standing::Ready);
    assert_eq!(node.pool.labelled_disks().len(), 1);
    assert!(pass.problems.contains_key("fake1"), "{:?}", pass.problems);
    node.pool.create(&request("b", BLOCK, MIB)).expect("the original goes on");
    assert!(copy.content() == before, "the copy is untouched");

    // Both copies are on hardware that no label names: neither is used.
    host.unplug("fake0");
    let another = host.add_disk("fake2", "SERIAL-8", geometry());
    another.put_content(copy.content());
    let mut fresh = start(&host);
    fresh.passes().expect("a pass");
    assert!(fresh.pool.labelled_disks().is_empty(), "nobody can tell which one is right");
}

#[test]
fn a_known_copy_never_takes_the_place_of_its_original_until_it_is_adopted() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let copy = host.add_disk("fake1", "SERIAL-9", geometry());
    copy.put_content(disk.content());
    let before = copy.content();
    assert!(problem(&mut node, "fake1").contains("same identity"));
    assert!(
        node.agent.verb(&adopt("/dev/fake1", Run::Dry)).expect_err("not beside it").to_string().contains("/dev/fake0")
    );

    // However long it is away, and also for a process that has not seen both.
    let original = host.unplug("fake0").expect("it was there");
    for restart in [false, true, true] {
        if restart {
            node = start(&host);
        }
        let why = problem(&mut node, "fake1");
        assert!(why.contains("a copy of the pool disk") && why.contains("(serial-Fake_Disk-SERIAL-1)"), "{why}");
        assert!(node.pool.usable(id("a")).is_err(), "its volume is away");
        let dry = node.agent.verb(&adopt("/dev/fake1", Run::Dry)).expect("it could be").join("\n");
        assert!(dry.contains("would make /dev/fake1") && dry.contains(&id("a").to_string()), "{dry}");
    }
    assert!(copy.content() == before, "the copy is untouched");
    host.plug("fake5", "SERIAL-1", Arc::clone(&original));
    assert!(problem(&mut node, "fake1").contains("/dev/fake5 is the hardware that the label was written on"));
    assert_eq!((standing(&node), node.pool.usable(id("a")).is_ok()), (Standing::Ready, true));

    host.unplug("fake5");
    node.passes().expect("a pass");
    node.agent.verb(&adopt("/dev/fake1", Run::Real)).expect("adopted");
    node.passes().expect("a pass");
    node.pool.usable(id("a")).expect("it is the disk now");
    node.pool.create(&request("b", BLOCK, MIB)).expect("and is written to");
    // The earlier original is a copy from then on: beside the other one, and alone after a restart.
    host.plug("fake0", "SERIAL-1", original);
    assert!(problem(&mut node, "fake0").contains("/dev/fake1 is the hardware that the label was written on"));
    assert!(node.pool.usable(id("b")).is_ok());
    host.unplug("fake1");
    let mut node = start(&host);
    assert!(problem(&mut node, "fake0").contains("a copy of the pool disk"));
    assert!(node.pool.labelled_disks().is_empty());
}

#[test]
fn a_disk_that_comes_back_on_other_hardware_joins_where_that_was_never_seen_beside_it() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let copy = host.add_disk("fake1", "SERIAL-9", geometry());
    copy.put_content(disk.content());
    node.passes().expect("a pass");
    // A known copy is away when the disk moves to another bus; at once, and over a restart.
    let copy = host.unplug("fake1").expect("it was there");
    let mut disk = host.unplug("fake0").expect("it was there");
    for (number, restart) in [(2, false), (3, true)] {
        host.plug("fake0", &format!("SERIAL-BY-BUS-{number}"), Arc::clone(&disk));
        if restart {
            node = start(&host);
        }
        node.passes().expect("a pass");
        node.pool.usable(id("a")).expect("it is the same disk");
        host.plug("fake1", "SERIAL-9", Arc::clone(&copy));
        assert!(problem(&mut node, "fake1").contains("/dev/fake0 is the hardware that the label was written on"));
        node.pool.usable(id("a")).expect("a copy takes nobody's disk away");
        host.unplug("fake1");
        disk = host.unplug("fake0").expect("it was there");
    }
}

#[test]
fn a_disk_that_is_still_listed_where_it_was_makes_no_copy_of_itself() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    host.plug("fake1", "SERIAL-1-BY-USB", disk);
    assert!(node.agent.pass().expect("a pass").ripe_in == Some(Duration::ZERO), "two scans, at once");
    host.unplug("fake0");
    node.passes().expect("a pass");
    node.pool.usable(id("a")).expect("it was moved");
}

#[test]
fn of_several_disks_that_nobody_can_tell_apart_none_is_used_until_one_is_adopted_though_the_others_leave() {
    let (host, disk, node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    drop(node);
    let copy = host.add_disk("fake1", "SERIAL-9", geometry());
    copy.put_content(disk.content());
    // Both are on other buses at once: the label names neither.
    for (name, serial) in [("fake0", "SERIAL-A"), ("fake1", "SERIAL-B")] {
        let platter = host.unplug(name).expect("it was there");
        host.plug(name, serial, platter);
    }
    let mut node = start(&host);
    assert!(problem(&mut node, "fake0").contains("`localpool disk adopt /dev/fake0`"));
    host.unplug("fake1");
    assert!(problem(&mut node, "fake0").contains("it is not known which one is the disk"));
    host.plug("fake1", "SERIAL-B", copy);
    node.passes().expect("a pass");
    node.agent.verb(&adopt("/dev/fake0", Run::Real)).expect("adopted");
    assert_eq!(problem(&mut node, "fake0"), "");
    node.pool.usable(id("a")).expect("usable");
}

#[test]
fn releasing_a_copy_does_nothing_to_the_original() {
    let (host, disk, mut node) = carved();
    host.add_disk("fake1", "SERIAL-9", geometry()).put_content(disk.content());
    node.passes().expect("a pass");
    let release = Verb::ReleaseDisk { disk: "/dev/fake1".to_owned(), run: Run::Real };
    let error = node.agent.verb(&release).expect_err("it is not in the pool").to_string();
    assert!(error.contains("same identity"), "{error}");
    assert_eq!(standing(&node), Standing::Ready);
}
