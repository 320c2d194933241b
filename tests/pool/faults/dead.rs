//! A disk of the pool that never comes back, in a node that lives: a person gives it up, and nothing waits for it.

use std::sync::Arc;

use localpool::agent::{DiskTask, Reconciler, Run, Verb};
use localpool::device::{
    DiskId, Owner,
    label::{ErasePolicy, Layout},
};
use localpool::host::{
    Extent, Host, Lit, chain,
    fake::{FakeHost, Fault, Platter},
};
use localpool::pool::{Change, Cordon, Doubt, Made, Pool, PoolError, Standing, Workers};

use crate::node::{BLOCK, MIB, Node, adopt, geometry, id, problem, request, rule};

fn start(host: &Arc<FakeHost>, layout: &Layout) -> Node {
    let mut node =
        Node::start(host, vec![rule(layout, ErasePolicy::Discard)], std::time::Duration::ZERO).expect("starts");
    node.passes().expect("a pass");
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
        node.passes().expect("a pass");
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
            let message = doubt.message().expect("it says which disk");
            assert!(message.contains(disk.as_str()) && message.contains("erases nothing"), "{message}");
            assert_eq!(node.pool.delete(id("a")).expect("nobody waits"), Change::AlreadySo);
        }
        // It was not dead: its data is there, but belongs to nobody unless the disk says whose it is.
        host.plug("fake0", "SERIAL-1", platter);
        node.passes().expect("a pass");
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
    node.passes().expect("a pass");
    host.unplug("fake0");
    node.passes().expect("a pass");
    let before = copies.each_ref().map(|copy| copy.content());
    node.agent.verb(&release(disk.as_str(), Run::Real)).expect("it is away, and no copy is meant");
    assert!(copies.each_ref().map(|copy| copy.content()) == before, "a copy was written");
    assert!(node.pool.disk_views().is_empty(), "{:?}", node.pool.disk_views());
    assert!(node.pool.delete(id("a")).is_err(), "the copies have it");
    for name in ["fake1", "fake2"] {
        host.unplug(name);
    }
    node.passes().expect("a pass");
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
    node.passes().expect("a pass");
    node.agent.verb(&release(disk.as_str(), Run::Real)).expect("given up");
    host.plug("fake0", "SERIAL-1", platter);
    node.passes().expect("a pass");
    node.agent.verb(&adopt("/dev/fake0", Run::Real)).expect("adopted");
    node.passes().expect("a pass");
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
    node.passes().expect("a pass");
    let there = Arc::new(FakeHost::default());
    let copy = there.add_disk("fake1", "SERIAL-9", geometry());
    copy.put_content(original.content());
    let machine: Arc<dyn Host> = Arc::clone(&there) as Arc<dyn Host>;
    let owner = Owner { cluster: "test".to_owned(), node: "node-2".into() };
    let pool = Arc::new(Pool::open(Arc::clone(&machine), owner, Workers::Caller).expect("a pool"));
    let mut other = Reconciler::new(machine, pool, std::time::Duration::ZERO, Vec::new());
    other.pass().expect("a pass");
    other.verb(&adopt("/dev/fake1", Run::Real)).expect("adopted there");
    host.unplug("fake0");
    node.passes().expect("a pass");
    host.plug("fake1", "SERIAL-9", copy);
    node.passes().expect("a pass");
    node.agent.verb(&release(disk.as_str(), Run::Real)).expect("the missing one is meant");
}

/// A labelled disk with a volume, given up while it was away and back; and what was on it before.
fn back(host: &Arc<FakeHost>) -> (Node, DiskId, Arc<Platter>) {
    host.add_disk("fake0", "SERIAL-1", geometry());
    let mut node = start(host, &Layout::Carved {});
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let disk = node.pool.members()[0].id().clone();
    let platter = host.unplug("fake0").expect("it was there");
    node.passes().expect("a pass");
    node.agent.verb(&release(disk.as_str(), Run::Real)).expect("given up");
    host.plug("fake0", "SERIAL-1", Arc::clone(&platter));
    node.passes().expect("a pass");
    (node, disk, platter)
}

fn is_held(node: &Node) -> bool {
    let views = node.pool.disk_views();
    let is_shown = views.len() == 1 && views[0].cordon == Some(Cordon::GivenUp) && views[0].volumes == 1;
    let usable = node.pool.usable(id("a"));
    let refused = node.pool.create(&request("b", BLOCK, MIB));
    let said = |error: PoolError| error.to_string().contains("given up while it was missing");
    // It was chosen before, and was given up since.
    let chosen = node.pool.create_on(&request("c", BLOCK, MIB), Some(&views[0].id));
    let refused_there = chosen.is_ok_and(|made| matches!(made, Made::Full));
    is_shown && refused_there && usable.is_err_and(said) && refused.is_err_and(said)
}

#[test]
fn a_disk_that_was_given_up_is_held_when_it_is_back_until_a_person_adopts_it_whatever_the_node_forgets() {
    let host = Arc::new(FakeHost::default());
    let (mut node, disk, platter) = back(&host);
    assert!(is_held(&node), "{:?}", node.pool.disk_views());
    for forgets in [false, true] {
        drop(node);
        if forgets {
            host.state.lose();
        }
        node = start(&host, &Layout::Carved {});
        assert!(is_held(&node), "{forgets}: {:?}", node.pool.disk_views());
    }
    let again = node.pool.create(&request("a", BLOCK, MIB)).expect_err("nobody decided that it is used again");
    assert!(again.to_string().contains("disk adopt"), "{again}");

    let before = platter.content();
    let dry = node.agent.verb(&adopt(disk.as_str(), Run::Dry)).expect("a dry run").join("\n");
    assert!(dry.contains("would take") && dry.contains(&id("a").to_string()), "{dry}");
    let refused = node.agent.verb(&release(disk.as_str(), Run::Real)).expect_err("it has a volume");
    assert!(chain(&refused).contains("1 volume"), "{}", chain(&refused));
    assert!(platter.content() == before, "it was written");
    let order = Verb::Order { disk, task: DiskTask::Adopt };
    node.agent.verb(&order).expect("taken back");
    node.passes().expect("a pass");
    for restart in [false, true] {
        if restart {
            drop(node);
            node = start(&host, &Layout::Carved {});
        }
        node.pool.usable(id("a")).expect("it is back");
        assert_eq!(node.pool.disk_views()[0].cordon, None);
    }
    node.pool.create(&request("b", BLOCK, MIB)).expect("it offers its space again");
}

#[test]
fn what_is_ordered_deleted_on_a_disk_that_was_given_up_and_is_back_is_not_erased_before_a_person_adopts_the_disk() {
    let host = Arc::new(FakeHost::default());
    let (mut node, disk, _) = back(&host);
    let data = node.pool.volume(id("a")).expect("it is here");
    for again in [false, true] {
        assert_eq!(node.pool.delete(id("a")).expect("nobody waits"), Change::Kept, "{again}");
    }
    node.pool.work_until_idle().expect("nothing to erase");
    assert!(is_held(&node), "{:?}", node.pool.disk_views());
    assert_eq!(node.pool.disk_views()[0].erasing, 0);
    let refused = node.agent.verb(&release(disk.as_str(), Run::Real)).expect_err("its data is there");
    assert!(chain(&refused).contains("1 volume"), "{}", chain(&refused));

    node.agent.verb(&adopt(disk.as_str(), Run::Real)).expect("taken back");
    node.passes().expect("a pass");
    let found = node.pool.volume(id("a")).expect("its data is there");
    assert_eq!(found.size, data.size);
    assert!(found.record.is_some_and(|record| record.found), "its deletion was ordered: it is given to nobody");
    node.pool.adopt_volume(id("a")).expect("a person wants it gone");
    assert_eq!(node.pool.delete(id("a")).expect("it is here"), Change::Done);
    node.pool.work_until_idle().expect("erased");
    assert!(node.pool.volumes().is_empty());
    node.agent.verb(&release(disk.as_str(), Run::Real)).expect("nothing is on it");
}

#[test]
fn a_disk_that_was_given_up_and_cannot_be_marked_when_it_is_back_is_not_used() {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "SERIAL-1", geometry());
    let mut node = start(&host, &Layout::Carved {});
    node.pool.create(&request("a", BLOCK, MIB)).expect("made");
    let disk = node.pool.members()[0].id().clone();
    let platter = host.unplug("fake0").expect("it was there");
    node.passes().expect("a pass");
    node.agent.verb(&release(disk.as_str(), Run::Real)).expect("given up");
    let whole = Extent { start: 0, end: geometry().size };
    platter.inject(Fault { what: "write", range: whole, times: u32::MAX });
    host.plug("fake0", "SERIAL-1", Arc::clone(&platter));
    node.passes().expect("a pass");
    assert!(node.pool.usable(id("a")).is_err() && node.pool.create(&request("b", BLOCK, MIB)).is_err());
    platter.clear_faults();
    node.passes().expect("a pass");
    assert!(is_held(&node), "{:?}", node.pool.disk_views());
}

#[test]
fn a_verb_for_a_disk_of_another_node_or_of_somebody_else_is_refused_with_a_message_and_writes_nothing() {
    let host = Arc::new(FakeHost::default());
    let (there, path) = (Arc::new(FakeHost::default()), "/dev/fake1");
    there.add_disk("fake1", "SERIAL-9", geometry());
    let machine: Arc<dyn Host> = Arc::clone(&there) as Arc<dyn Host>;
    let owner = Owner { cluster: "test".to_owned(), node: "node-2".into() };
    let pool = Arc::new(Pool::open(Arc::clone(&machine), owner, Workers::Caller).expect("a pool"));
    let rules = vec![rule(&Layout::Carved {}, ErasePolicy::Discard)];
    let mut other = Reconciler::new(machine, pool, std::time::Duration::ZERO, rules);
    (0..3).for_each(|_| drop(other.pass().expect("a pass")));
    let foreign = other.pool().members()[0].id().clone();
    host.plug("fake1", "SERIAL-9", there.unplug("fake1").expect("it was there"));
    host.add_disk("fake0", "SERIAL-1", geometry());
    super::mkfs(&host, id("theirs").uuid());
    let mut node = start(&host, &Layout::Carved {});
    let content = || ["fake0", "fake1"].map(|name| host.platter(name).expect("it is there").content());
    let before = content();

    let give_up = |disk: &str| Verb::GiveUpDisk { disk: disk.to_owned(), run: Run::Real };
    let order = |task| Verb::Order { disk: foreign.clone(), task };
    let refused = [
        (release(path, Run::Real), "node node-2"),
        (release(foreign.as_str(), Run::Real), "node node-2"),
        (give_up(foreign.as_str()), "node node-2"),
        (give_up(path), "node node-2"),
        (order(DiskTask::Release), "node node-2"),
        (order(DiskTask::GiveUp), "the node has it"),
        (release("/dev/fake0", Run::Real), "ext4"),
        (give_up("/dev/fake0"), "ext4"),
        (adopt("/dev/fake0", Run::Real), "ext4"),
        (release("gpt-elsewhere", Run::Real), "this node has no disk gpt-elsewhere"),
        (give_up("gpt-elsewhere"), "this node has no disk gpt-elsewhere"),
        (adopt("gpt-elsewhere", Run::Real), "this node has no disk gpt-elsewhere"),
        (Verb::LocateDisk { disk: "gpt-elsewhere".to_owned(), lit: Lit::On, run: Run::Real }, "no disk gpt-elsewhere"),
    ];
    for (verb, message) in refused {
        let error = node.agent.verb(&verb).expect_err("it is not ours");
        assert!(chain(&error).contains(message), "{verb:?}: {}", chain(&error));
    }
    node.passes().expect("a pass");
    assert!(content() == before, "it was written");
    assert!(node.pool.members().is_empty() && node.pool.journal().released().is_empty());
}

#[test]
fn giving_up_is_a_verb_of_its_own_that_does_nothing_to_a_disk_that_is_here() {
    let host = Arc::new(FakeHost::default());
    let platter = host.add_disk("fake0", "SERIAL-1", geometry());
    let mut node = start(&host, &Layout::Carved {});
    let disk = node.pool.members()[0].id().clone();
    let give_up = |text: &str, run| Verb::GiveUpDisk { disk: text.to_owned(), run };
    let before = platter.content();
    for text in [disk.as_str(), "/dev/fake0"] {
        let error = node.agent.verb(&give_up(text, Run::Real)).expect_err("it is here, and empty").to_string();
        assert!(error.contains("is not missing") && error.contains("by its id in status.disks"), "{error}");
        assert!(!error.contains("which was") && !error.contains("unplug"), "it may be a healthy disk: {error}");
    }
    assert!(platter.content() == before, "it was written");
    host.unplug("fake0");
    node.passes().expect("a pass");
    let dry = node.agent.verb(&give_up(disk.as_str(), Run::Dry)).expect("a dry run").join("\n");
    assert!(dry.contains("would give up") && node.pool.disk_views().len() == 1, "{dry}");
    node.agent.verb(&give_up(disk.as_str(), Run::Real)).expect("it is missing");
    assert!(node.pool.disk_views().is_empty());
}
