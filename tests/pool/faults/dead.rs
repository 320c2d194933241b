//! A disk of the pool that never comes back, in a node that lives: a person gives it up, and nothing waits for it.

use std::sync::Arc;

use localpool::agent::{Reconciler, Run, Verb};
use localpool::device::{
    Owner,
    label::{ErasePolicy, Layout},
};
use localpool::host::{Host, fake::FakeHost};
use localpool::pool::{Change, Doubt, Pool, Standing, Workers};

use crate::node::{BLOCK, MIB, Node, adopt, geometry, id, problem, request, rule};

fn start(host: &Arc<FakeHost>, layout: &Layout) -> Node {
    let mut node =
        Node::start(host, vec![rule(layout, ErasePolicy::Discard)], std::time::Duration::ZERO).expect("starts");
    node.passes().expect("looks");
    node
}

fn release(disk: &str, run: Run) -> Verb {
    Verb::ReleaseDisk { disk: disk.to_owned(), run }
}

#[test]
fn the_volumes_of_a_disk_that_is_given_up_are_waited_for_no_more_also_after_a_restart() {
    for layout in [Layout::Carved {}, Layout::RawDevice {}] {
        let host = Arc::new(FakeHost::default());
        host.add_disk("fake0", "SERIAL-1", geometry());
        let mut node = start(&host, &layout);
        node.pool.create(&request("a", BLOCK, MIB)).expect("made");
        let disk = node.pool.members()[0].id().clone();
        let platter = host.unplug("fake0").expect("it was there");
        node.passes().expect("looks");
        let doubt = |node: &Node| node.pool.doubt(id("a"), Some(&disk));
        assert!(node.pool.delete(id("a")).is_err(), "{layout:?}");

        let says = node.agent.verb(&release(disk.as_str(), Run::Dry)).expect("a dry run").join("\n");
        assert!(says.contains(&format!("volume {}", id("a"))) && says.contains("given up"), "{says}");
        assert!(node.pool.delete(id("a")).is_err(), "a dry run changes nothing");
        node.agent.verb(&release(disk.as_str(), Run::Real)).expect("given up");
        for restart in [false, true] {
            if restart {
                node = start(&host, &layout);
            }
            let doubt = doubt(&node);
            assert!(matches!(doubt, Doubt::GivenUp(_)), "{layout:?} {restart}: {doubt:?}");
            let words = doubt.words().expect("it says which disk");
            assert!(words.contains(disk.as_str()) && words.contains("erases nothing"), "{words}");
            assert_eq!(node.pool.delete(id("a")).expect("nobody waits"), Change::AlreadySo);
        }
        // It was not dead: its data is there, but belongs to nobody unless the disk says whose it is.
        host.plug("fake0", "SERIAL-1", platter);
        node.passes().expect("looks");
        assert_eq!(node.pool.volume(id("a")).is_ok(), layout == Layout::Carved {});
        assert!(matches!(doubt(&node), Doubt::None | Doubt::GivenUp(_)), "{:?}", doubt(&node));
    }
}

#[test]
fn a_dead_disk_is_given_up_by_its_id_beside_a_copy_of_it() {
    let host = Arc::new(FakeHost::default());
    let original = host.add_disk("fake0", "SERIAL-1", geometry());
    let mut node = start(&host, &Layout::Carved {});
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let disk = node.pool.members()[0].id().clone();
    let copies = ["fake1", "fake2"].map(|name| host.add_disk(name, &format!("COPY-{name}"), geometry()));
    copies.iter().for_each(|copy| copy.put_content(original.content()));
    node.passes().expect("looks");
    host.unplug("fake0");
    node.passes().expect("looks");
    let before = copies.each_ref().map(|copy| copy.content());
    node.agent.verb(&release(disk.as_str(), Run::Real)).expect("it is away, and no copy is meant");
    assert!(copies.each_ref().map(|copy| copy.content()) == before, "a copy was written");
    assert!(node.pool.disk_views().is_empty(), "{:?}", node.pool.disk_views());
    assert!(node.pool.delete(id("a")).is_err(), "the copies have it");
    for name in ["fake1", "fake2"] {
        host.unplug(name);
    }
    node.passes().expect("looks");
    assert_eq!(node.pool.delete(id("a")).expect("nobody waits"), Change::AlreadySo);
}

#[test]
fn a_verb_that_names_several_disks_at_once_is_refused_and_says_how_to_name_one() {
    let host = Arc::new(FakeHost::default());
    let original = host.add_disk("fake0", "SERIAL-1", geometry());
    let node = start(&host, &Layout::Carved {});
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let disk = node.pool.members()[0].id().clone();
    drop(node);
    host.state.lose();
    // Both are on other buses: nothing shows which one is the disk.
    let platter = host.unplug("fake0").expect("it was there");
    host.plug("fake3", "SERIAL-A", platter);
    host.add_disk("fake4", "SERIAL-B", geometry()).put_content(original.content());
    let mut node = start(&host, &Layout::Carved {});
    let refused = node.agent.verb(&adopt(disk.as_str(), Run::Real)).expect_err("which of them?").to_string();
    for path in ["/dev/fake3", "/dev/fake4", "by its path"] {
        assert!(refused.contains(path), "{refused}");
    }
    assert!(!problem(&mut node, "fake3").is_empty() && !problem(&mut node, "fake4").is_empty());
    node.agent.verb(&adopt("/dev/fake4", Run::Real)).expect("this one");
    assert_eq!(problem(&mut node, "fake4"), "");
    assert_eq!(node.pool.labelled_disks()[0].shown().standing, Standing::Ready);
    // One of them is in use now, and the id means that one.
    let refused = node.agent.verb(&release(disk.as_str(), Run::Dry)).expect_err("it has a volume").to_string();
    assert!(!refused.contains("several"), "{refused}");
}

#[test]
fn a_deletion_is_not_waited_for_after_the_device_that_was_given_up_was_adopted() {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "SERIAL-1", geometry());
    let mut node = start(&host, &Layout::RawDevice {});
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let disk = node.pool.members()[0].id().clone();
    let platter = host.unplug("fake0").expect("it was there");
    platter.poke(0, &[0x77; 4096]);
    node.passes().expect("looks");
    node.agent.verb(&release(disk.as_str(), Run::Real)).expect("given up");
    host.plug("fake0", "SERIAL-1", platter);
    node.passes().expect("looks");
    node.agent.verb(&adopt("/dev/fake0", Run::Real)).expect("adopted");
    node.passes().expect("looks");
    assert!(node.pool.members().is_empty(), "it is not blank");
    let doubt = node.pool.doubt(id("a"), Some(&disk));
    assert!(matches!(doubt, Doubt::None | Doubt::GivenUp(_)), "{doubt:?}");
}

#[test]
fn a_missing_disk_is_given_up_by_its_id_beside_one_of_another_node() {
    let host = Arc::new(FakeHost::default());
    let original = host.add_disk("fake0", "SERIAL-1", geometry());
    let mut node = start(&host, &Layout::Carved {});
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let disk = node.pool.members()[0].id().clone();
    node.passes().expect("looks");
    let there = Arc::new(FakeHost::default());
    let copy = there.add_disk("fake1", "SERIAL-9", geometry());
    copy.put_content(original.content());
    let machine: Arc<dyn Host> = Arc::clone(&there) as Arc<dyn Host>;
    let owner = Owner { cluster: "test".to_owned(), node: "node-2".into() };
    let pool = Arc::new(Pool::open(Arc::clone(&machine), owner, Workers::Caller).expect("a pool"));
    let mut other = Reconciler::new(machine, pool, std::time::Duration::ZERO, Vec::new());
    other.pass().expect("looks");
    other.verb(&adopt("/dev/fake1", Run::Real)).expect("adopted there");
    host.unplug("fake0");
    node.passes().expect("looks");
    host.plug("fake1", "SERIAL-9", copy);
    node.passes().expect("looks");
    node.agent.verb(&release(disk.as_str(), Run::Real)).expect("the missing one is meant");
}
