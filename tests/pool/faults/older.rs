//! A disk was copied to another one, which took its place: the old one comes back, as it was then.

use std::sync::Arc;

use localpool::agent::Run;
use localpool::host::Host as _;
use localpool::host::fake::{FakeHost, Platter};
use localpool::pool::{JOURNAL, Standing};

use crate::faults::older_state::is_refused_until_it_is_adopted;
use crate::node::{BLOCK, MIB, Node, adopt, carved, geometry, id, problem, request, start};

/// The copy is in use, with a volume that is not on the old disk, which is away.
fn replaced() -> (Arc<FakeHost>, Arc<Platter>, Arc<Platter>, Node) {
    replaced_by("SERIAL-NEW")
}

fn replaced_by(serial: &str) -> (Arc<FakeHost>, Arc<Platter>, Arc<Platter>, Node) {
    let (host, old, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    host.unplug("fake0");
    node.passes().expect("a pass");
    let new = host.add_disk("fake1", serial, geometry());
    new.put_content(old.content());
    node.passes().expect("a pass");
    node.pool.create(&request("b", BLOCK, MIB)).expect("it is the disk now");
    (host, old, new, node)
}

#[test]
fn a_disk_that_comes_back_as_it_was_before_it_was_replaced_does_not_take_the_place_of_the_one_in_use() {
    let (host, old, new, mut node) = replaced();
    host.plug("fake0", "SERIAL-1", Arc::clone(&old));
    let (is_old, is_new) = (old.content(), new.content());
    for restart in [false, true] {
        if restart {
            node = start(&host);
        }
        let why = problem(&mut node, "fake0");
        assert!(why.contains("same identity"), "{why:?}");
        assert_eq!(problem(&mut node, "fake1"), "");
        node.pool.usable(id("b")).expect("what was acknowledged is there");
        assert!(old.content() == is_old && new.content() == is_new, "something was written");
    }
}

#[test]
fn a_disk_without_an_id_of_its_own_stays_the_disk_as_well_while_it_is_in_use() {
    let (host, old, new, mut node) = replaced_by("");
    host.plug("fake0", "SERIAL-1", Arc::clone(&old));
    let (is_old, is_new) = (old.content(), new.content());
    let why = problem(&mut node, "fake0");
    assert!(why.contains("same identity"), "{why:?}");
    node.pool.usable(id("b")).expect("what was acknowledged is there");
    // After a restart nothing distinguishes it from others: then neither is used.
    node = start(&host);
    assert!(!problem(&mut node, "fake0").is_empty() && !problem(&mut node, "fake1").is_empty());
    assert!(node.pool.delete(id("b")).is_err(), "nobody knows that it is gone");
    assert!(old.content() == is_old && new.content() == is_new, "something was written");
}

#[test]
fn which_one_was_in_use_is_known_after_a_restart_though_no_scan_came_since_it_was_made_the_disk() {
    let (host, old, _, node) = replaced();
    drop(node);
    host.plug("fake0", "SERIAL-1", Arc::clone(&old));
    let is_old = old.content();
    let mut node = start(&host);
    let why = problem(&mut node, "fake0");
    assert!(why.contains("same identity"), "{why:?}");
    assert_eq!(problem(&mut node, "fake1"), "");
    node.pool.usable(id("b")).expect("what was acknowledged is there");
    assert!(old.content() == is_old, "something was written");
}

#[test]
fn where_nobody_remembers_which_one_was_in_use_neither_is_used_until_one_is_adopted() {
    let (host, old, new, node) = replaced();
    drop(node);
    host.plug("fake0", "SERIAL-1", Arc::clone(&old));
    let (is_old, is_new) = (old.content(), new.content());
    // An earlier version did not record it.
    let journal = host.state().load(JOURNAL).expect("read").expect("there");
    let lines = journal.lines().filter(|line| !line.contains("\"hardware\": \"serial-"));
    host.state().store(JOURNAL, &lines.collect::<Vec<_>>().join("\n")).expect("stored");
    let mut node = start(&host);
    for name in ["fake0", "fake1"] {
        assert!(problem(&mut node, name).contains("it is not known which of them"), "{name}");
    }
    assert!(node.pool.delete(id("b")).is_err(), "nobody knows that it is gone");
    assert!(node.pool.create(&request("b", BLOCK, MIB)).is_err(), "nor that it is not there");
    assert!(old.content() == is_old && new.content() == is_new, "something was written");
    node.agent.verb(&adopt("/dev/fake1", Run::Real)).expect("adopted");
    node.passes().expect("a pass");
    assert_eq!(node.pool.labelled_disks()[0].shown().standing, Standing::Ready);
    node.pool.usable(id("b")).expect("it is there");
}

#[test]
fn an_older_copy_that_comes_back_alone_is_not_used_and_what_was_made_since_is_not_called_deleted() {
    let (host, old, _, mut node) = replaced();
    node.passes().expect("a pass");
    host.unplug("fake1");
    node.passes().expect("a pass");
    host.plug("fake0", "SERIAL-1", Arc::clone(&old));
    is_refused_until_it_is_adopted(&host, &old, node);
}

#[test]
fn a_disk_that_is_back_and_cannot_be_opened_says_why_in_each_pass_and_does_not_leave_again() {
    let (host, old, _, mut node) = replaced();
    node.passes().expect("a pass");
    host.unplug("fake1");
    node.passes().expect("a pass");
    host.plug("fake0", "SERIAL-1", Arc::clone(&old));
    for _ in 0..2 {
        node.passes().expect("a pass");
        let shown = node.pool.labelled_disks()[0].shown();
        assert!(
            matches!(&shown.standing, Standing::NotReady(why) if why.contains("in an earlier state")),
            "{:?}",
            shown.standing
        );
        assert_eq!(shown.raw.name, "fake0", "it is named where it is");
    }
    host.unplug("fake0");
    node.passes().expect("a pass");
    assert_eq!(node.pool.labelled_disks()[0].shown().standing, Standing::Missing);
}

#[test]
fn what_was_given_up_for_an_earlier_state_does_not_take_its_place_when_it_comes_back() {
    for more in [0, 3] {
        let (host, disk, mut node) = carved();
        node.pool.create(&request("a", BLOCK, MIB)).expect("made");
        node.passes().expect("a pass");
        let earlier = disk.content();
        for name in ["b", "d"] {
            node.pool.create(&request(name, BLOCK, MIB)).expect("made");
        }
        node.pool.work_until_idle().expect("mirrors");
        let later = disk.content();
        drop(node);
        disk.put_content(earlier);
        let mut node = start(&host);
        assert!(problem(&mut node, "fake0").contains("in an earlier state"));
        node.agent.verb(&adopt("/dev/fake0", Run::Real)).expect("adopted");
        assert_eq!(problem(&mut node, "fake0"), "");
        for name in ["c", "f", "g"].into_iter().take(more) {
            node.pool.create(&request(name, BLOCK, MIB)).expect("acknowledged");
        }
        drop(node);
        disk.put_content(later);
        let mut node = start(&host);
        let why = problem(&mut node, "fake0");
        assert!(why.contains("in an earlier state"), "{more}: {why:?}");
        assert!(node.pool.usable(id("a")).is_err(), "its data is another one");
        for name in ["c", "f", "g"].into_iter().take(more) {
            assert!(node.pool.delete(id(name)).is_err(), "{name} was acknowledged, and never deleted");
        }
    }
}

#[test]
fn what_was_given_up_stays_so_though_the_agent_dies_right_after_the_adoption() {
    let (host, disk, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    node.passes().expect("a pass");
    let earlier = disk.content();
    node.pool.create(&request("b", BLOCK, MIB)).expect("made");
    let later = disk.content();
    drop(node);
    disk.put_content(earlier);
    let mut node = start(&host);
    assert!(problem(&mut node, "fake0").contains("in an earlier state"));
    node.agent.verb(&adopt("/dev/fake0", Run::Real)).expect("adopted");
    drop(node);
    disk.put_content(later);
    let mut node = start(&host);
    let why = problem(&mut node, "fake0");
    assert!(why.contains("in an earlier state"), "{why:?}");
}

#[test]
fn a_known_copy_that_is_older_than_the_disk_was_is_adopted_at_once_and_it_is_said_what_is_not_on_it() {
    let (host, _, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let copy = host.add_disk("fake1", "SERIAL-9", geometry());
    copy.put_content(host.platter("fake0").expect("it is there").content());
    node.passes().expect("a pass");
    assert!(problem(&mut node, "fake1").contains("same identity"));
    node.pool.create(&request("b", BLOCK, MIB)).expect("made");
    node.passes().expect("a pass");
    host.unplug("fake0");
    assert!(problem(&mut node, "fake1").contains("a copy of the pool disk"));
    let says = node.agent.verb(&adopt("/dev/fake1", Run::Dry)).expect("would do it").join("\n");
    assert!(says.contains(&format!("volume {} is not on it, and is given up", id("b"))), "{says}");
    node.agent.verb(&adopt("/dev/fake1", Run::Real)).expect("adopted");
    assert_eq!(problem(&mut node, "fake1"), "");
    node.pool.usable(id("a")).expect("it is there");
    node.pool.delete(id("b")).expect("it is on no disk");
}
