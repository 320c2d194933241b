//! A disk that was copied to another one, which took its place: the old one comes back, as it was then.

use std::sync::Arc;

use localpool::host::fake::{FakeHost, Platter};
use localpool::pool::apply::member::Standing;

use crate::fake_node::{MIB, Node, id, request};
use crate::{BLOCK, adopt, carved, geometry, problem, start};

/// The copy is in use, with a volume that the old disk, which is away, does not have.
fn replaced() -> (Arc<FakeHost>, Arc<Platter>, Arc<Platter>, Node) {
    replaced_by("SERIAL-NEW")
}

fn replaced_by(serial: &str) -> (Arc<FakeHost>, Arc<Platter>, Arc<Platter>, Node) {
    let (host, old, mut node) = carved();
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    host.unplug("fake0");
    node.passes().expect("looks");
    let new = host.add_disk("fake1", serial, geometry());
    new.put_content(old.content());
    node.passes().expect("looks");
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
    // Nothing tells it from others after a restart: then neither is used.
    node = start(&host);
    assert!(!problem(&mut node, "fake0").is_empty() && !problem(&mut node, "fake1").is_empty());
    assert!(node.pool.delete(id("b")).is_err(), "nobody knows that it is gone");
    assert!(old.content() == is_old && new.content() == is_new, "something was written");
}

#[test]
fn where_nobody_remembers_which_one_was_in_use_neither_is_used_until_one_is_adopted() {
    let (host, old, new, node) = replaced();
    drop(node);
    host.plug("fake0", "SERIAL-1", Arc::clone(&old));
    let (is_old, is_new) = (old.content(), new.content());
    let mut node = start(&host);
    for name in ["fake0", "fake1"] {
        assert!(problem(&mut node, name).contains("cannot be told"), "{name}");
    }
    assert!(node.pool.delete(id("b")).is_err(), "nobody knows that it is gone");
    assert!(node.pool.create(&request("b", BLOCK, MIB)).is_err(), "nor that it is not there");
    assert!(old.content() == is_old && new.content() == is_new, "something was written");
    node.agent.verb(&adopt("/dev/fake1", false)).expect("adopted");
    node.passes().expect("looks");
    assert_eq!(node.pool.members()[0].shown().standing, Standing::Ready);
    node.pool.usable(id("b")).expect("it is there");
}
