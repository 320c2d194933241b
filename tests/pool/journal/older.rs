//! The journal is older than a volume: neither the device nor the volume is taken, erased or called deleted.

use std::time::Duration;

use localpool::agent::{Run, Verb};
use localpool::claim::{Reclaim, Rule};
use localpool::device::label::{ErasePolicy, Layout};
use localpool::host::Host as _;
use localpool::pool::{Doubt, JOURNAL, PoolError, ReportedVolume};

use crate::journal::{STATES, older, pool, reported, reporting, start};
use crate::node::{BLOCK, MIB, Node, id, request, rule};

#[test]
fn a_volume_that_is_younger_than_the_journal_is_neither_erased_nor_called_deleted_nor_given_to_another() {
    for state in STATES {
        for is_late in [false, true] {
            let (host, device, reported) = older(state);
            let before = device.content();
            let mut node = start(&host, &Layout::RawDevice {}, &Err("no answer".to_owned()));
            if is_late {
                node.passes().expect("a pass");
                node.pool.create(&request("c", BLOCK, MIB)).expect_err("nobody has told yet");
                node.pool.delete(id("b")).expect_err("nobody has told yet");
                let disk = &reported.as_ref().expect("told")[0].disk;
                assert_ne!(node.pool.doubt(id("b"), Some(disk)), Doubt::None, "{state}");
                node.pool.work_until_idle().expect("nothing to do yet");
                node.agent = node.agent.asking_for_volumes(reporting(reported));
            } else {
                node = start(&host, &Layout::RawDevice {}, &reported);
            }
            let pass = node.passes().expect("a pass");
            node.pool.work_until_idle().expect("nothing to do");
            node.pool.create(&request("c", BLOCK, MIB)).expect_err("not another's");
            let error = node.pool.delete(id("b")).expect_err("not erased, so not deleted");
            assert!(matches!(error, PoolError::DiskAway { .. }), "{state} {is_late}: {error}");
            if state == "volume" {
                node.pool.usable(id("a")).expect_err("it may be there no more");
                node.pool.delete(id("a")).expect_err("it would erase another");
            }
            let why = pass.problems["fake0"].clone();
            let way_out = if state == "volume" { "localpool volume settle" } else { "localpool disk adopt" };
            assert!(why.contains(&id("b").to_string()) && why.contains(way_out), "{why}");
            assert!(device.content() == before, "{state} {is_late}: something was written");
        }
    }
}

#[test]
fn an_object_that_this_version_cannot_read_keeps_its_device_from_an_older_journal() {
    for state in STATES {
        let (host, device, reported) = older(state);
        let unread =
            reported.expect("told").into_iter().map(|reported| ReportedVolume { volume: None, ..reported }).collect();
        let before = device.content();
        let mut node = start(&host, &Layout::RawDevice {}, &Ok(unread));
        let pass = node.passes().expect("a pass");
        node.pool.work_until_idle().expect("nothing to do");
        node.pool.create(&request("c", BLOCK, MIB)).expect_err("it is not free");
        assert!(pass.problems["fake0"].contains("this version cannot read"), "{:?}", pass.problems);
        assert!(device.content() == before, "{state}: something was written");
    }
}

#[test]
fn a_device_that_an_older_journal_has_as_given_up_and_that_has_another_volume_since_is_nobodys() {
    let (host, device, reported) = older("free");
    let mut node = start(&host, &Layout::RawDevice {}, &reported);
    node.passes().expect("a pass");
    let release = Verb::ReleaseDisk { disk: "/dev/fake0".to_owned(), run: Run::Real };
    node.agent.verb(&release).expect("given up");
    let given_up = host.state().load(JOURNAL).expect("read").expect("there");
    device.poke(30 * MIB, &[0; 4096]);
    let adopt = Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run: Run::Real };
    node.agent.verb(&adopt).expect("sets may have it");
    node.passes().expect("claims");
    node.pool.create(&request("c", BLOCK, MIB)).expect("made");
    let later = super::reported(&node, "c");
    drop(node);
    host.state().store(JOURNAL, &given_up).expect("put back");
    for (reported, name, is_there) in [(&reported, "b", false), (&later, "c", true)] {
        let mut node = start(&host, &Layout::RawDevice {}, reported);
        node.passes().expect("a pass");
        assert_eq!(node.pool.delete(id(name)).is_err(), is_there, "{name}");
    }
}

#[test]
fn a_device_that_an_older_journal_has_as_released_and_that_has_a_volume_since_is_nobodys_and_is_adopted_again() {
    let (host, device, _) = pool();
    let mut node = start(&host, &Layout::RawDevice {}, &Ok(Vec::new()));
    node.passes().expect("a pass");
    node.pool.delete(id("a")).expect("deleted");
    node.pool.work_until_idle().expect("erased");
    let verb = |node: &mut Node, adopt| {
        let (disk, run) = ("/dev/fake0".to_owned(), Run::Real);
        let verb = if adopt { Verb::AdoptDisk { disk, run } } else { Verb::ReleaseDisk { disk, run } };
        node.agent.verb(&verb).expect("done").join("\n")
    };
    verb(&mut node, false);
    let older = host.state().load(JOURNAL).expect("read").expect("there");
    verb(&mut node, true);
    node.passes().expect("claims");
    node.pool.create(&request("b", BLOCK, MIB)).expect("made");
    let reported = reported(&node, "b");
    host.state().store(JOURNAL, &older).expect("put back");
    let before = device.content();
    let mut node = start(&host, &Layout::RawDevice {}, &reported);
    node.passes().expect("a pass");
    node.pool.delete(id("b")).expect_err("not erased, so not deleted");
    assert!(verb(&mut node, true).contains(&format!("with volume {}", id("b"))));
    node.passes().expect("a pass");
    node.pool.usable(id("b")).expect("adopted again");
    assert!(device.content() == before, "something was written");
}

#[test]
fn a_set_that_releases_disks_releases_none_that_an_older_journal_calls_done_with() {
    for told_first in [false, true] {
        let (host, device, reported) = older("erased");
        let before = device.content();
        let release = Rule { reclaim: Reclaim::Release, ..rule(&Layout::RawDevice {}, ErasePolicy::Discard) };
        let node = Node::start(&host, vec![release], Duration::ZERO).expect("starts");
        let reported = if told_first { reported } else { Err("no answer".to_owned()) };
        let mut node = Node { pool: node.pool, agent: node.agent.asking_for_volumes(reporting(reported)) };
        node.passes().expect("a pass");
        assert_eq!(node.pool.members().len(), 1, "{told_first}: it was released");
        assert!(device.content() == before);
    }
}
