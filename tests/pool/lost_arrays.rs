//! Arrays that lost a member for good: it is given up, and the others are free again by a release, and not before.

use std::sync::Arc;

use localpool::agent::{DiskTask, Run, Verb};
use localpool::device::DiskId;
use localpool::host::fake::{FakeHost, Fate, Fault, Platter, SparseBytes};
use localpool::host::{Extent, chain};

use crate::crash::array::{geometry, passes};
use crate::crash::lost_array::{Ids, LOST, OTHERS, assert_blank, give_up, made, release, start, without_one};
use crate::node::{Node, adopt, id};

fn contents(host: &FakeHost) -> Vec<SparseBytes> {
    OTHERS.iter().map(|name| host.platter(name).expect("it is there").content()).collect()
}

fn order(node: &mut Node, disk: &DiskId, task: DiskTask) -> Result<String, String> {
    let done = node.agent.verb(&Verb::Order { disk: disk.clone(), task });
    done.map(|lines| lines.join("\n")).map_err(|error| chain(&error))
}

#[test]
fn a_member_is_not_released_before_the_one_that_is_lost_was_given_up() {
    let (host, mut node, ids) = without_one();
    let before = contents(&host);
    let lost = ids.lost();
    for why in [
        release(&mut node, &ids.members[0], Run::Dry).expect_err("it may hold data"),
        release(&mut node, &ids.members[0], Run::Real).expect_err("it may hold data"),
        order(&mut node, &ids.members[0], DiskTask::Release).expect_err("it may hold data"),
    ] {
        assert!(why.contains(&format!("if they are lost for good, give up {lost} (member 2 of 3")), "{why}");
    }
    assert!(contents(&host) == before, "nothing is written");
    assert!(
        node.pool.lacks_array_of(&ids.members[0]) || node.pool.disk_views().iter().any(|view| view.id == ids.array)
    );
}

#[test]
fn the_array_is_given_up_with_a_member_and_a_release_of_another_one_frees_all_that_are_here() {
    let (host, mut node, Ids { array, uuid, members }) = without_one();
    let (before, lost) = (contents(&host), &members[1]);
    assert!(node.pool.delete(id("a")).is_err(), "the array may come back");
    let lines = give_up(&mut node, lost, Run::Dry).expect("it is missing").join("\n");
    assert!(
        lines.contains(&format!("the array {array} is given up with it\nvolume {} is given up", id("a"))),
        "{lines}"
    );
    assert!(lines.contains(&format!("`localpool disk release {}`", members[0])), "{lines}");
    assert!(!node.pool.journal().has_given_up(&array), "a dry run");
    give_up(&mut node, lost, Run::Real).expect("it is missing");
    passes(&mut node).expect("passes");
    node.pool.delete(id("a")).expect("nobody waits for what was on it");
    let problems = node.passes().expect("a pass").problems;
    assert!(problems["fake0"].contains(&format!("it was given up: `localpool disk release {}`", members[0])));
    let lines = release(&mut node, &members[0], Run::Dry).expect("it can be").join("\n");
    let freed = "/dev/fake0, /dev/fake2: all disks that are here of the array";
    assert!(lines.contains(&format!("would free {freed} md-{uuid}")), "{lines}");
    assert!(contents(&host) == before, "giving up and dry runs write to no other member");

    let lines = release(&mut node, &members[0], Run::Real).expect("released").join("\n");
    assert!(lines.contains(&format!("freed {freed}")), "{lines}");
    assert_blank(&host, &OTHERS, "after the release");
    assert!(OTHERS.iter().all(|name| host.platter(name).expect("it is there").mapping(2).is_none()), "no partition");
    passes(&mut node).expect("passes");
    assert!(node.pool.disk_views().is_empty(), "and no set takes them again");

    // A new disk takes the place of the lost one, in an array of its own.
    host.add_disk("fake3", "fake3", geometry());
    for name in OTHERS {
        node.agent.verb(&adopt(&format!("/dev/{name}"), Run::Real)).expect("it may be claimed again");
    }
    passes(&mut node).expect("passes");
    let new = node.pool.disk_views().iter().find_map(|view| view.array).expect("a new array");
    assert_ne!(new, uuid);
}

#[test]
fn the_orders_of_the_device_pool_do_the_same() {
    let (host, mut node, ids) = without_one();
    assert!(
        node.pool.lacks_array_of(&ids.members[0]) || node.pool.disk_views().iter().any(|view| view.id == ids.array)
    );
    let done = order(&mut node, ids.lost(), DiskTask::GiveUp).expect("it is missing");
    assert!(done.contains(&format!("the array {} is given up with it", ids.array)), "{done}");
    passes(&mut node).expect("passes");
    assert!(!node.pool.lacks_array_of(&ids.members[0]), "an order Release of it waits no more");
    let done = order(&mut node, &ids.members[2], DiskTask::Release).expect("it may go");
    assert!(done.contains("freed /dev/fake0, /dev/fake2"), "{done}");
    assert_blank(&host, &OTHERS, "after the order");
    // This was done, and nobody could write it down.
    order(&mut node, ids.lost(), DiskTask::GiveUp).expect("done");
    order(&mut node, &ids.members[2], DiskTask::Release).expect("done");
}

#[test]
fn what_is_left_of_the_array_and_in_use_keeps_its_members_and_is_stopped_when_it_is_not() {
    let (host, mut node, ids) = made();
    host.unplug(LOST);
    host.md.break_down(ids.uuid);
    passes(&mut node).expect("passes");
    give_up(&mut node, ids.lost(), Run::Real).expect("it is missing");
    passes(&mut node).expect("passes");
    let (before, whole) = (contents(&host), host.md.platter(ids.uuid).expect("it was made"));
    whole.set_in_use(0, true);
    let why = release(&mut node, &ids.members[0], Run::Real).expect_err("a pod has a volume of it");
    assert!(why.contains("the array could not be stopped") && why.contains("in use"), "{why}");
    assert!(contents(&host) == before, "nothing is written");
    whole.set_in_use(0, false);
    let lines = release(&mut node, &ids.members[0], Run::Real).expect("released").join("\n");
    assert!(lines.contains("stopped /dev/md127, and freed /dev/fake0, /dev/fake2"), "{lines}");
    assert_blank(&host, &OTHERS, "after the release");
}

#[test]
fn a_member_that_comes_back_before_the_release_keeps_the_others_and_its_next_loss_is_another_one() {
    let (host, node, ids) = made();
    drop(node);
    host.reboot(Fate::Whole);
    let platter = host.unplug(LOST).expect("it was there");
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    give_up(&mut node, ids.lost(), Run::Real).expect("it is missing");
    passes(&mut node).expect("passes");
    host.plug(LOST, LOST, platter);
    passes(&mut node).expect("passes");
    let before = contents(&host);
    release(&mut node, &ids.members[0], Run::Real).expect_err("nothing of the array is lost");
    for disk in [ids.lost(), &ids.array] {
        passes(&mut node).expect("passes");
        node.agent.verb(&adopt(disk.as_str(), Run::Real)).expect("it is held");
    }
    passes(&mut node).expect("passes");
    assert!(node.pool.usable(id("a")).is_ok(), "all of it is there: {:?}", node.pool.usable(id("a")).map(drop));
    assert!(!node.pool.journal().has_given_up(&DiskId::of_array(ids.uuid)), "that is over since it ran again");
    drop(node);
    host.reboot(Fate::Whole);
    host.unplug(LOST);
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    let why = release(&mut node, &ids.members[0], Run::Real).expect_err("nobody gave it up this time");
    assert!(why.contains("if they are lost for good"), "{why}");
    assert!(contents(&host) == before, "nothing is written");
}

/// The array alone was given up, and its member is back: it runs, and is held.
#[test]
fn an_array_that_was_given_up_and_runs_again_is_held_and_its_members_are_not_released() {
    let (host, node, ids) = made();
    drop(node);
    host.reboot(Fate::Whole);
    let platter = host.unplug(LOST).expect("it was there");
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    give_up(&mut node, &ids.array, Run::Real).expect("it is missing");
    host.plug(LOST, LOST, platter);
    passes(&mut node).expect("passes");
    assert!(host.md.running(ids.uuid).is_some(), "it is whole");
    let before = contents(&host);
    let why = release(&mut node, &ids.members[0], Run::Real).expect_err("the array goes first");
    assert!(why.contains("release the array itself first"), "{why}");
    assert!(contents(&host) == before, "nothing is written");
}

#[test]
fn without_a_journal_an_array_is_given_up_by_its_own_id() {
    let (host, node, ids) = made();
    drop(node);
    host.reboot(Fate::Whole);
    host.state.lose();
    host.unplug(LOST);
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    let array = DiskId::of_array(ids.uuid);
    let why = chain(&node.pool.delete(id("a")).expect_err("it may be on the array"));
    assert!(why.contains(&format!("localpool disk give-up {array}")), "{why}");
    let why = release(&mut node, &ids.members[0], Run::Real).expect_err("it may hold data");
    assert!(why.contains(&format!("give up {array}")), "{why}");
    let lines = give_up(&mut node, &array, Run::Real).expect("members are missing").join("\n");
    assert!(lines.contains(&format!("gave up the array {array}, of which members are missing")), "{lines}");
    passes(&mut node).expect("passes");
    node.pool.delete(id("a")).expect("nobody waits for what was on it");
    release(&mut node, &ids.members[0], Run::Real).expect("released");
    assert_blank(&host, &OTHERS, "after the release");
}

/// A disk that is here and cannot be read.
fn plug_unreadable(host: &FakeHost, platter: Arc<Platter>) {
    plug_unreadable_as(host, LOST, platter);
}

fn plug_unreadable_as(host: &FakeHost, name: &str, platter: Arc<Platter>) {
    let range = Extent { start: 0, end: platter.geometry.size };
    platter.inject(Fault { what: "read", range, times: u32::MAX });
    host.plug(name, name, platter);
}

#[test]
fn a_member_that_is_here_and_cannot_be_read_keeps_the_array_where_no_journal_knows_it() {
    let (host, node, ids) = made();
    drop(node);
    host.reboot(Fate::Whole);
    host.state.lose();
    let platter = host.unplug(LOST).expect("it was there");
    plug_unreadable(&host, Arc::clone(&platter));
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    let array = DiskId::of_array(ids.uuid);
    let why = give_up(&mut node, &array, Run::Real).expect_err("it is here, and may be read again");
    assert!(why.contains("/dev/fake1 may be a member of its array"), "{why}");
    platter.clear_faults();
    host.unplug(LOST);
    passes(&mut node).expect("passes");
    host.plug(LOST, LOST, platter);
    passes(&mut node).expect("passes");
    assert!(node.pool.usable(id("a")).is_ok(), "nothing was lost: {:?}", node.pool.usable(id("a")).map(drop));
}

#[test]
fn a_member_that_is_back_and_cannot_be_read_yet_keeps_the_others_after_it_was_given_up() {
    let (host, node, ids) = made();
    drop(node);
    host.reboot(Fate::Whole);
    let platter = host.unplug(LOST).expect("it was there");
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    give_up(&mut node, ids.lost(), Run::Real).expect("it is missing");
    let before = contents(&host);
    plug_unreadable(&host, Arc::clone(&platter));
    passes(&mut node).expect("passes");
    for run in [Run::Dry, Run::Real] {
        let why = release(&mut node, &ids.members[0], run).expect_err("its data may be there");
        assert!(why.contains("/dev/fake1 may be a member of its array"), "{why}");
    }
    assert!(contents(&host) == before, "nothing is written");
    host.unplug(LOST);
    passes(&mut node).expect("passes");
    release(&mut node, &ids.members[0], Run::Real).expect("unplugged, it keeps nobody");
    assert_blank(&host, &OTHERS, "after the release");
}

#[test]
fn an_unreadable_disk_that_was_never_a_member_keeps_nobody_where_each_member_is_known() {
    let (host, mut node, ids) = without_one();
    host.add_disk("fake3", "fake3", geometry());
    let other = host.unplug("fake3").expect("it was there");
    plug_unreadable_as(&host, "fake3", other);
    passes(&mut node).expect("passes");
    give_up(&mut node, ids.lost(), Run::Real).expect("it is missing");
    drop(node);
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    release(&mut node, &ids.members[0], Run::Real).expect("the journal knows all three");
    assert_blank(&host, &OTHERS, "after the release");
}

#[test]
fn no_array_is_given_up_that_has_all_of_its_members() {
    let (host, mut node, ids) = made();
    let before = contents(&host);
    for disk in [&ids.array, ids.lost(), &DiskId::of_array(ids.uuid)] {
        give_up(&mut node, disk, Run::Real).expect_err("it is here");
        order(&mut node, disk, DiskTask::GiveUp).expect_err("it is here");
    }
    assert!(contents(&host) == before && node.pool.usable(id("a")).is_ok());
}
