//! Arrays that are not started, away, copied, released by half, or whose set was made again: nothing of theirs is called
//! deleted, and no disk takes a place beside data.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use localpool::agent::{Run, Verb};
use localpool::claim::{Blankness, Glob, Promise, Rule};
use localpool::device::label::{ErasePolicy, Layout, SetRef};
use localpool::device::{Believed, SetName, Verdict};
use localpool::host::fake::{FakeHost, Fate, SparseBytes};
use localpool::host::{Arrays, DeviceKind, Geometry, Host, RawDisk, chain};
use localpool::pool::{LabelledDisk, WantedUsage};
use uuid::Uuid;

use crate::arrays::made;
use crate::crash::array::{DISKS, array, array_rule, geometry, passes, start};
use crate::node::{MIB, Node, adopt, id, request, rule};

fn uuid(node: &Node) -> Uuid {
    let label = |disk: &LabelledDisk| disk.shown().content.label.layout.member();
    node.pool.labelled_disks().iter().find_map(|disk| label(disk)).expect("a member").array
}

fn member_ids(node: &Node) -> Vec<String> {
    let mut all: Vec<(u32, String)> = node
        .pool
        .disk_views()
        .iter()
        .filter_map(|disk| Some((disk.layout.member()?.place, disk.id.to_string())))
        .collect();
    all.sort();
    all.into_iter().map(|(_, id)| id).collect()
}

fn release(node: &mut Node, disk: &str) -> Result<Vec<String>, String> {
    node.agent.verb(&Verb::ReleaseDisk { disk: disk.to_owned(), run: Run::Real }).map_err(|error| chain(&error))
}

fn give_up(node: &mut Node, disk: &str) -> Result<Vec<String>, String> {
    node.agent.verb(&Verb::GiveUpDisk { disk: disk.to_owned(), run: Run::Real }).map_err(|error| chain(&error))
}

#[test]
fn a_volume_of_an_array_that_is_not_started_yet_is_not_called_deleted() {
    let (host, node) = made();
    drop(node);
    host.reboot(Fate::Whole);
    host.state.lose();
    let mut node = start(&host).expect("starts");
    node.agent.pass().expect("a pass");
    let answer = node.pool.delete(id("a"));
    passes(&mut node).expect("passes");
    let is_there = node.pool.usable(id("a")).is_ok();
    assert!(answer.is_err() || !is_there, "it was called deleted ({answer:?}), and is there");
}

#[test]
fn a_volume_of_an_array_that_misses_a_member_is_not_called_deleted() {
    let (host, node) = made();
    drop(node);
    host.reboot(Fate::Whole);
    host.state.lose();
    let platter = host.unplug("fake1").expect("it was there");
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    let answer = node.pool.delete(id("a"));
    host.plug("fake1", "fake1", platter);
    passes(&mut node).expect("passes");
    let is_there = node.pool.usable(id("a")).is_ok();
    assert!(answer.is_err() || !is_there, "it was called deleted ({answer:?}), and is there");
}

#[test]
fn a_volume_is_not_made_again_elsewhere_while_its_array_is_not_started() {
    let (host, node) = made();
    drop(node);
    host.reboot(Fate::Whole);
    host.state.lose();
    // Another set, which has a disk of its own.
    host.add_disk("fake2", "fake2", geometry());
    let other = || {
        let mut rule = rule(&Layout::Carved {}, ErasePolicy::Discard);
        rule.set = SetRef::new(SetName::new("default", "other"), "uid-other");
        rule.filter.exclude_names = DISKS.iter().map(|glob| Glob::parse(glob).expect("a glob")).collect();
        rule
    };
    let mut node = Node::start(&host, vec![other()], Duration::ZERO).expect("starts");
    for _ in 0..2 {
        node.agent.pass().expect("a pass");
    }
    let answer = node.pool.create(&request("a", WantedUsage::Block, 5 * MIB)).map(drop);
    passes(&mut node).expect("passes");
    assert!(node.pool.usable(id("a")).is_ok(), "made again: {answer:?}; {:?}", node.pool.usable(id("a")).map(drop));
}

/// Both members are away after a boot, and one of them is given up: a spare disk gets its place, with the UUID of the
/// array that has data.
#[test]
fn no_disk_takes_the_place_of_a_member_that_was_given_up_of_an_array_with_data() {
    let (host, node) = made();
    let ids = member_ids(&node);
    drop(node);
    host.reboot(Fate::Whole);
    for name in DISKS {
        host.unplug(name);
    }
    let spare = host.add_disk("fake2", "fake2", geometry());
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    assert_eq!(spare.write_count(), 0, "as long as both are missed");
    give_up(&mut node, &ids[0]).expect("given up");
    passes(&mut node).expect("passes");
    let taken: Vec<String> = node
        .pool
        .disk_views()
        .iter()
        .map(|disk| format!("{} {:?} {:?}", disk.path.display(), disk.layout.member(), disk.standing))
        .collect();
    assert_eq!(spare.write_count(), 0, "{taken:#?}");
}

#[test]
fn a_second_array_never_gets_the_uuid_of_one_with_data_and_no_mixture_of_both_is_used() {
    let (host, node) = made();
    let (ids, was) = (member_ids(&node), uuid(&node));
    drop(node);
    host.reboot(Fate::Whole);
    let platters = DISKS.map(|name| host.unplug(name).expect("it was there"));
    for name in ["fake2", "fake3"] {
        host.add_disk(name, name, geometry());
    }
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    for id in &ids {
        give_up(&mut node, id).expect("given up");
        passes(&mut node).expect("passes");
    }
    passes(&mut node).expect("passes");
    let second = host.md.running(was);
    drop(node);
    for (name, platter) in DISKS.into_iter().zip(platters) {
        host.plug(name, name, platter);
    }
    host.reboot(Fate::Whole);
    let before = host.platter("fake0").expect("there").content();
    // udev starts one of both: md tells them by the UUID alone.
    let mixed = host.md.assemble(was, &["/dev/fake0p2".into(), "/dev/fake3p2".into()]);
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    let name = host.md.running(was);
    let pass = node.agent.pass().expect("a pass");
    let verdict =
        pass.snapshot.devices.iter().find(|one| Some(&one.raw.name) == name.as_ref()).map(|one| one.verdict.clone());
    let written = host.platter("fake0").expect("there").content() != before;
    assert!(
        second.is_none() && verdict != Some(Verdict::Ours),
        "the second array ran as {second:?} with the UUID of the first; the mixture ({mixed:?}) is {verdict:?}; the old member was written: {written}"
    );
}

#[test]
fn an_array_is_there_when_its_set_was_made_again_and_one_member_has_an_event() {
    let (_host, mut node) = made();
    let mut again = array_rule();
    again.set.uid = "another".into();
    node.agent.set_rules(vec![again]);
    passes(&mut node).expect("passes");
    assert!(node.pool.usable(id("a")).is_ok(), "before the event");
    node.agent.event(&"fake0".into());
    passes(&mut node).expect("passes");
    let problems = node.passes().expect("a pass").problems;
    assert!(node.pool.usable(id("a")).is_ok(), "{:?} {problems:#?}", node.pool.usable(id("a")).map(drop));
}

#[test]
fn a_released_array_is_adopted_as_the_release_says() {
    let (_host, mut node) = made();
    node.pool.delete(id("a")).expect("deleted");
    node.pool.work_until_idle().expect("erased");
    let whole = array(&node).expect("the array");
    let lines = release(&mut node, whole.id().as_str()).expect("it is empty").join("\n");
    let after = lines
        .split("`localpool disk adopt ")
        .nth(1)
        .expect("it names the way back")
        .split('`')
        .next()
        .expect("a path")
        .to_owned();
    passes(&mut node).expect("passes");
    let adopted = node.agent.verb(&adopt(&after, Run::Real)).map_err(|error| chain(&error));
    adopted.expect("as it was told");
    passes(&mut node).expect("passes");
    assert!(array(&node).is_some_and(|member| member.is_usable()));
}

/// The release of the members stops after the first of them: what is left asks for no other disk.
#[test]
fn an_array_that_a_person_released_gets_no_new_member_when_its_release_was_stopped() {
    let mut taken = Vec::new();
    for n in 1..80 {
        let (host, mut node) = made();
        node.pool.delete(id("a")).expect("deleted");
        node.pool.work_until_idle().expect("erased");
        let whole = array(&node).expect("the array");
        release(&mut node, whole.id().as_str()).expect("it is empty");
        passes(&mut node).expect("passes");
        host.power.cut_after(n);
        let stopped = release(&mut node, "/dev/fake0");
        if stopped.is_ok() && !host.power.is_off() {
            break;
        }
        drop(node);
        host.reboot(Fate::Whole);
        let spare = host.add_disk("fake2", "fake2", geometry());
        let mut node = start(&host).expect("starts");
        passes(&mut node).expect("passes");
        if spare.write_count() > 0 {
            taken.push(n);
        }
    }
    assert!(taken.is_empty(), "a disk joined the released array when the release was stopped after effects {taken:?}");
}

/// A copy of the whole array on one disk is there at the first look after a boot, and the array is not.
#[test]
fn a_copy_of_an_array_on_one_disk_does_not_take_its_place_while_the_array_is_not_started() {
    for loses_journal in [false, true] {
        let (host, node) = made();
        let was = uuid(&node);
        let platter = host.md.platter(was).expect("it was made");
        drop(node);
        host.reboot(Fate::Whole);
        if loses_journal {
            host.state.lose();
        }
        let copy = host.add_disk("fake9", "fake9", Geometry { size: platter.geometry.size, ..geometry() });
        copy.put_content(platter.content());
        let before = copy.content();
        let mut node = start(&host).expect("starts");
        passes(&mut node).expect("passes");
        passes(&mut node).expect("passes");
        let pass = node.agent.pass().expect("a pass");
        let believed: Vec<String> = pass
            .snapshot
            .devices
            .iter()
            .filter(|one| one.label.is_some() && one.verdict == Verdict::Ours && one.believed == Believed::Yes)
            .map(|one| one.raw.name.to_string())
            .collect();
        assert!(
            copy.content() == before,
            "the copy was written (journal lost: {loses_journal}), and {believed:?} are used"
        );
    }
}

/// Tables of the array are gone (`sgdisk --zap-all` of the wrong device while the agent was off); its label is not.
#[test]
fn an_array_that_the_journal_knows_with_a_volume_is_not_claimed_anew() {
    let (host, node) = made();
    let was = uuid(&node);
    drop(node);
    host.reboot(Fate::Whole);
    let platter = host.md.platter(was).expect("it was made");
    platter.poke(0, &[0; 34 * 512]);
    platter.poke(platter.geometry.size - 33 * 512, &[0; 33 * 512]);
    let before = platter.content();
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    assert!(platter.content() == before, "a new label is over the old one");
}

fn contents(host: &FakeHost) -> Vec<SparseBytes> {
    DISKS.iter().map(|name| host.platter(name).expect("it is there").content()).collect()
}

/// A machine whose array was released, and is there without a label.
fn released() -> (Arc<FakeHost>, Node, Uuid) {
    let (host, mut node) = made();
    let was = uuid(&node);
    node.pool.delete(id("a")).expect("deleted");
    node.pool.work_until_idle().expect("erased");
    let whole = array(&node).expect("the array");
    release(&mut node, whole.id().as_str()).expect("it is empty");
    passes(&mut node).expect("passes");
    (host, node, was)
}

/// Somebody stops the array and starts another one between the look and the stop: md gives that the same number.
#[test]
fn an_array_that_took_the_number_of_one_that_is_released_is_not_stopped_and_no_member_is_written() {
    let (host, mut node, _) = released();
    let before = contents(&host);
    let stranger = Uuid::from_u128(0xbad);
    host.md.take_number_of_the_next_stop(stranger);
    let why = release(&mut node, "/dev/fake0").expect_err("another array is there");
    assert!(why.contains("/dev/md127 is not the same device as before"), "{why}");
    assert!(contents(&host) == before, "no member is written");
    assert!(is_there(&host, stranger), "it still runs");
}

#[test]
fn an_array_that_took_the_number_of_one_that_is_over_is_not_stopped_either() {
    let (host, mut node) = made();
    let was = uuid(&node);
    let platter = host.unplug("fake1").expect("it was there");
    host.md.break_down(was);
    passes(&mut node).expect("passes");
    host.plug("fake1", "fake1", platter);
    let stranger = Uuid::from_u128(0xbad);
    host.md.take_number_of_the_next_stop(stranger);
    let mut problems = Vec::new();
    for _ in 0..8 {
        problems.extend(node.agent.pass().expect("a pass").problems.into_values());
    }
    assert!(problems.iter().any(|why| why.contains("is not the same device as before")), "{problems:#?}");
    assert!(is_there(&host, stranger), "it still runs");
}

fn is_there(host: &FakeHost, uuid: Uuid) -> bool {
    let is_it = |raw: &RawDisk| matches!(&raw.kind, DeviceKind::Md(md) if md.uuid == Some(uuid.to_string()));
    host.scan().expect("a scan").iter().any(is_it)
}

/// The node, whose agent asks what others promise from now on.
fn asking(node: Node, promises: &Arc<Mutex<Vec<Promise>>>) -> Node {
    let (Node { pool, agent }, promises) = (node, Arc::clone(promises));
    let ask = Box::new(move || Ok(promises.lock().expect("no panic").clone()));
    Node { pool, agent: agent.asking_promises(ask) }
}

#[test]
fn a_released_array_that_another_persistent_volume_promises_is_not_claimed_before_that_is_over() {
    let (host, node, was) = released();
    let promise = Promise { volume: "pv-1".into(), provisioner: None, path: "/dev/md127".into(), device: None };
    let promises = Arc::new(Mutex::new(vec![promise]));
    let mut node = asking(node, &promises);
    let platter = host.md.platter(was).expect("it is there");
    let before = platter.content();
    node.agent.verb(&adopt("/dev/md127", Run::Real)).expect("it may be claimed again");
    passes(&mut node).expect("passes");
    let why = node.passes().expect("a pass").problems["fake0"].clone();
    assert_eq!(why, "its array was not claimed: the PersistentVolume pv-1 promises it");
    assert!(array(&node).is_none() && platter.content() == before, "its bytes are promised");
    assert!(node.agent.pass().expect("a pass").ripe_in.is_some(), "no event announces when it is over");
    promises.lock().expect("no panic").clear();
    passes(&mut node).expect("passes");
    assert!(array(&node).is_some_and(|member| member.is_usable()));
}

#[test]
fn a_released_array_with_data_that_nothing_recognises_is_not_claimed_where_the_set_wants_zeros() {
    let (host, mut node, was) = released();
    node.agent.set_rules(vec![Rule { blankness: Blankness::Zeros, ..array_rule() }]);
    let platter = host.md.platter(was).expect("it is there");
    platter.poke(3 * MIB, &[7]);
    let before = platter.content();
    node.agent.verb(&adopt("/dev/md127", Run::Real)).expect("it may be claimed again");
    passes(&mut node).expect("passes");
    let why = node.passes().expect("a pass").problems["fake0"].clone();
    assert!(why.contains("it holds unrecognised data, first seen at byte 3145728"), "{why}");
    assert!(array(&node).is_none() && platter.content() == before, "nothing is written over it");
    platter.poke(3 * MIB, &[0]);
    node.agent.event(&"md127".into());
    passes(&mut node).expect("passes");
    assert!(array(&node).is_some_and(|member| member.is_usable()));
}
