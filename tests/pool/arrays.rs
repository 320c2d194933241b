//! An array of the pool's disks after a boot, and with members that are missing, copied or somebody else's.

use std::sync::Arc;

use localpool::agent::{Run, Verb};
use localpool::device::{
    Verdict,
    label::{Layout, Quota},
};
use localpool::host::fake::{FakeHost, Fate};
use localpool::host::{Arrays, FsKind, Geometry, NewArray, chain};
use localpool::pool::{Standing, WantedUsage};

use crate::crash::array::{DISKS, array, array_rule, geometry, machine, passes, start};
use crate::node::{MIB, Node, id, request};

/// A machine with an array that has a volume.
pub fn made() -> (Arc<FakeHost>, Node) {
    let host = machine();
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    node.pool.create(&request("a", WantedUsage::Block, 5 * MIB)).expect("there is room");
    node.agent.pass().expect("a pass");
    (host, node)
}

fn problems(node: &mut Node) -> String {
    let pass = node.passes().expect("a pass");
    DISKS.iter().filter_map(|name| pass.problems.get(*name).cloned()).collect::<Vec<_>>().join("; ")
}

#[test]
fn the_disks_of_a_set_become_one_array_that_has_all_of_its_volumes() {
    let (_, node) = made();
    assert_eq!(node.pool.members().len(), 3, "two members, and the array");
    let view = array(&node).expect("the array").disk_view().expect("a view");
    assert!(view.size > geometry().size, "of both disks: {}", view.size);
    for disk in node.pool.disk_views().iter().filter(|disk| disk.layout.member().is_some()) {
        assert_eq!((disk.free, disk.volumes), (0, 0), "a member offers nothing");
    }
    let volume = node.pool.usable(id("a")).expect("it is there");
    assert_eq!(volume.disk, view.id);
}

#[test]
fn the_volumes_of_an_array_can_be_folders_of_one_filesystem_and_are_there_after_a_boot() {
    let host = Arc::new(FakeHost::default());
    for name in DISKS {
        host.add_disk(name, name, Geometry { size: 1 << 30, ..geometry() });
    }
    let start = || {
        let layout = Layout::Directory { quota: Quota::None };
        let rule = localpool::claim::Rule { layout, fs: FsKind::Xfs, ..array_rule() };
        Node::start(&host, vec![rule], std::time::Duration::ZERO).expect("starts")
    };
    let mut node = start();
    passes(&mut node).expect("passes");
    node.pool.create(&request("a", WantedUsage::Mount(Some(FsKind::Xfs)), 5 * MIB)).expect("there is room");
    let free = node.pool.disk_views().iter().map(|disk| disk.free).sum::<u64>();
    assert!(free > 1 << 30, "of both disks: {free}");
    drop(node);
    host.reboot(Fate::Whole);
    let mut node = start();
    passes(&mut node).expect("passes");
    assert!(node.pool.usable(id("a")).is_ok(), "{}", problems(&mut node));
}

#[test]
fn one_disk_is_an_array_too() {
    let host = machine();
    host.unplug("fake1");
    let rule = localpool::claim::Rule { min_devices: 1, ..array_rule() };
    let mut node = Node::start(&host, vec![rule], std::time::Duration::ZERO).expect("starts");
    passes(&mut node).expect("passes");
    assert!(array(&node).is_some_and(|member| member.is_usable()));
}

#[test]
fn after_a_boot_the_array_is_started_and_its_volumes_are_there_though_every_object_and_the_journal_are_lost() {
    let (host, node) = made();
    drop(node);
    host.reboot(Fate::Whole);
    host.state.lose();
    let mut node = Node::start(&host, Vec::new(), std::time::Duration::ZERO).expect("starts");
    passes(&mut node).expect("passes");
    assert!(array(&node).is_some_and(|member| member.is_usable()), "it is started without its set");
    assert!(node.pool.usable(id("a")).is_ok());
}

#[test]
fn an_array_that_misses_a_member_is_told_and_never_made_again_and_is_back_with_it() {
    let (host, node) = made();
    drop(node);
    host.reboot(Fate::Whole);
    let platter = host.unplug("fake1").expect("it was there");
    // A new disk in its place is no member.
    let new = host.add_disk("fake2", "fake2", geometry());
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    let why = problems(&mut node);
    assert!(why.contains("needs all of its members") || why.contains("misses member 2"), "{why}");
    assert_eq!(new.write_count(), 0, "nothing takes its place");
    for disk in node.pool.disk_views() {
        let why = disk.array_problem.unwrap_or_default();
        assert!(why.contains("needs all of its members"), "the array and each member say it: {}: {why}", disk.id);
    }
    let error = chain(&node.pool.delete(id("a")).expect_err("it is on a disk that is away"));
    assert!(error.contains("is missing"), "{error}");
    host.plug("fake1", "fake1", platter);
    passes(&mut node).expect("passes");
    assert!(node.pool.usable(id("a")).is_ok(), "{}", problems(&mut node));
    assert!(node.pool.disk_views().iter().all(|disk| disk.array_problem.is_none()));
}

#[test]
fn no_blank_disk_becomes_a_member_of_an_array_whose_members_are_away_or_given_up() {
    let (host, node) = made();
    drop(node);
    host.reboot(Fate::Whole);
    let platters = DISKS.map(|name| host.unplug(name).expect("it was there"));
    let new = host.add_disk("fake2", "fake2", geometry());
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    assert_eq!(new.write_count(), 0, "all members are away");
    let is_of =
        |disk: &localpool::pool::DiskView, place: u32| disk.layout.member().is_some_and(|member| member.place == place);
    let views = node.pool.disk_views();
    let lost = views.iter().find(|disk| is_of(disk, 1)).expect("it is missed");
    let give_up = Verb::GiveUpDisk { disk: lost.id.to_string(), run: Run::Real };
    let lines = node.agent.verb(&give_up).expect("given up").join("\n");
    assert!(lines.contains("no disk takes its place in its array"), "{lines}");
    passes(&mut node).expect("passes");
    assert_eq!(new.write_count(), 0, "the other member may be made, and is away");
    let [first, _] = platters;
    host.plug("fake0", "fake0", first);
    passes(&mut node).expect("passes");
    assert_eq!(new.write_count(), 0, "it was made");
    let why = problems(&mut node);
    assert!(why.contains("misses member 2 of 2"), "{why}");
}

#[test]
fn an_array_and_its_members_are_one_disk_where_sizes_are_added_up() {
    let (_, node) = made();
    let views = node.pool.disk_views();
    let size = array(&node).and_then(|member| member.disk_view()).expect("the array").size;
    assert_eq!(views.iter().map(localpool::pool::DiskView::own_size).sum::<u64>(), size);
    let classes = node.pool.classes();
    assert_eq!(classes.values().map(|class| (class.size, class.divisible)).collect::<Vec<_>>(), [(size, size)]);
}

#[test]
fn an_array_whose_superblock_is_gone_is_a_condition_and_never_a_new_array() {
    let (host, node) = made();
    drop(node);
    host.reboot(Fate::Whole);
    let disk = host.platter("fake1").expect("it is there");
    disk.poke(2 * MIB + 4096, &[0; 4096]);
    let before = disk.content();
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    let why = problems(&mut node);
    assert!(why.contains("no superblock"), "{why}");
    assert!(disk.content() == before, "nothing is written where data may be");
}

#[test]
fn an_array_of_others_over_a_member_is_told_and_left_alone() {
    let (host, node) = made();
    drop(node);
    host.reboot(Fate::Whole);
    let other = uuid::Uuid::from_u128(0xbad);
    let members = vec!["/dev/fake0p2".into()];
    host.md.make(&NewArray { uuid: other, level: "raid0", chunk: 512 << 10, members }).expect("made by somebody");
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    let why = problems(&mut node);
    assert!(why.contains("is not the array that the labels of its members name"), "{why}");
    let name = host.md.running(other).expect("it still runs");
    let pass = node.agent.pass().expect("a pass");
    let found = pass.snapshot.devices.iter().find(|device| device.raw.name == name).expect("it is there");
    assert!(matches!(found.verdict, Verdict::Theirs(_)), "{:?}", found.verdict);
}

fn uuid(node: &Node) -> uuid::Uuid {
    let label = |disk: &localpool::pool::LabelledDisk| disk.shown().content.label.layout.member();
    node.pool.labelled_disks().iter().find_map(|disk| label(disk)).expect("a member").array
}

fn contents(host: &FakeHost) -> Vec<localpool::host::fake::SparseBytes> {
    DISKS.iter().map(|name| host.platter(name).expect("it is there").content()).collect()
}

#[test]
fn a_machine_that_cannot_make_arrays_gets_no_label_on_a_disk() {
    let host = machine();
    host.md.set_lacking("mdadm is not installed");
    let mut node = start(&host).expect("starts");
    let before = contents(&host);
    passes(&mut node).expect("passes");
    let pass = node.passes().expect("a pass");
    assert!(contents(&host) == before, "nothing is written");
    let why: Vec<String> = pass.outcomes[0].rejected.iter().map(|(_, why)| why.to_string()).collect();
    assert_eq!(why, vec!["its disks cannot become an array: mdadm is not installed"; 2]);
}

#[test]
fn an_array_that_the_host_started_before_the_agent_is_the_same_array_whatever_its_name() {
    let (host, node) = made();
    let array_uuid = uuid(&node);
    drop(node);
    host.reboot(Fate::Whole);
    // In another order, too.
    host.md.assemble(array_uuid, &["/dev/fake1p2".into(), "/dev/fake0p2".into()]).expect("started");
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    assert_eq!(problems(&mut node), "");
    assert!(node.pool.usable(id("a")).is_ok());
}

#[test]
fn an_array_that_lost_a_member_while_it_ran_is_started_again_when_the_member_is_back() {
    let (host, mut node) = made();
    let array_uuid = uuid(&node);
    let platter = host.unplug("fake1").expect("it was there");
    host.md.break_down(array_uuid);
    passes(&mut node).expect("passes");
    assert!(array(&node).is_none_or(|member| !member.is_usable()), "nothing on it can be used");
    let why = problems(&mut node);
    assert!(why.contains("cannot be used now"), "{why}");
    host.plug("fake1", "fake1", platter);
    passes(&mut node).expect("passes");
    passes(&mut node).expect("passes");
    assert!(node.pool.usable(id("a")).is_ok(), "{}", problems(&mut node));
}

#[test]
fn a_copy_of_a_member_takes_no_part_in_the_array_and_takes_no_place() {
    let (host, node) = made();
    let array_uuid = uuid(&node);
    drop(node);
    host.reboot(Fate::Whole);
    let copy = host.add_disk("fake2", "another", geometry());
    copy.put_content(host.platter("fake1").expect("it is there").content());
    let before = copy.content();
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    assert!(node.pool.usable(id("a")).is_ok(), "{}", problems(&mut node));
    assert!(copy.content() == before, "nothing is written to the copy");
    // The original is away: what is known to be a copy stays one.
    drop(node);
    host.reboot(Fate::Whole);
    host.unplug("fake1");
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    assert!(host.md.running(array_uuid).is_none());
    assert!(copy.content() == before, "nothing is written to the copy");
}

#[test]
fn disks_of_an_array_of_another_node_are_left_alone_until_all_of_it_is_adopted() {
    let (host, node) = made();
    let array_uuid = uuid(&node);
    drop(node);
    host.reboot(Fate::Whole);
    host.state.lose();
    let other = |host: &Arc<FakeHost>| {
        let owner = localpool::device::Owner { cluster: "test".to_owned(), node: "node-2".into() };
        let machine: Arc<dyn localpool::host::Host> = Arc::clone(host) as _;
        let pool = localpool::pool::Pool::open(Arc::clone(&machine), owner, localpool::pool::Workers::Caller);
        let pool = Arc::new(pool.expect("a pool"));
        let rules = vec![array_rule()];
        let agent = localpool::agent::Reconciler::new(machine, Arc::clone(&pool), std::time::Duration::ZERO, rules);
        Node { pool, agent }
    };
    let before = contents(&host);
    let mut node = other(&host);
    passes(&mut node).expect("passes");
    assert!(contents(&host) == before && host.md.running(array_uuid).is_none(), "neither written nor started");
    let adopt = |node: &mut Node, disk: &str| node.agent.verb(&crate::node::adopt(disk, Run::Real));
    adopt(&mut node, "/dev/fake0").expect("adopted");
    passes(&mut node).expect("passes");
    assert!(host.md.running(array_uuid).is_none(), "half of it is no array");
    adopt(&mut node, "/dev/fake1").expect("adopted");
    passes(&mut node).expect("passes");
    let name = host.md.running(array_uuid).expect("started");
    assert!(array(&node).is_none(), "its own label has the other node");
    adopt(&mut node, &format!("/dev/{name}")).expect("adopted");
    passes(&mut node).expect("passes");
    assert!(array(&node).is_some_and(|member| member.is_usable()));
}

#[test]
fn what_somebody_put_on_a_released_array_keeps_its_members_from_being_released() {
    let (host, mut node) = made();
    let array_uuid = uuid(&node);
    let release = |node: &mut Node, disk: &str| {
        let verb = Verb::ReleaseDisk { disk: disk.to_owned(), run: Run::Real };
        node.agent.verb(&verb).map_err(|error| chain(&error))
    };
    node.pool.delete(id("a")).expect("deleted");
    node.pool.work_until_idle().expect("erased");
    let whole = array(&node).expect("the array");
    release(&mut node, whole.id().as_str()).expect("it is empty");
    let platter = host.md.platter(array_uuid).expect("it is there");
    platter.poke(510, &[0x55, 0xaa]);
    passes(&mut node).expect("passes");
    let before = contents(&host);
    let why = release(&mut node, "/dev/fake0").expect_err("it holds something");
    assert!(why.contains("holds something that localpool did not make: a PMBR partition table"), "{why}");
    assert!(contents(&host) == before && host.md.running(array_uuid).is_some());
    platter.poke(510, &[0, 0]);
    release(&mut node, "/dev/fake0").expect("it is blank again");
}

#[test]
fn a_member_of_an_array_in_use_is_not_released_and_the_array_goes_first() {
    let (host, mut node) = made();
    let member = node.pool.disk_views().into_iter().find(|disk| disk.layout.member().is_some()).expect("a member");
    let release = |node: &mut Node, disk: &str, run| {
        node.agent.verb(&Verb::ReleaseDisk { disk: disk.to_owned(), run }).map_err(|error| chain(&error))
    };
    let before: Vec<_> = DISKS.iter().map(|name| host.platter(name).expect("there").content()).collect();
    let why = release(&mut node, member.id.as_str(), Run::Real).expect_err("it may hold data");
    assert!(why.contains("release the array itself first"), "{why}");
    let after: Vec<_> = DISKS.iter().map(|name| host.platter(name).expect("there").content()).collect();
    assert!(before == after, "nothing was written");

    node.pool.delete(id("a")).expect("deleted");
    node.pool.work_until_idle().expect("erased");
    let whole = array(&node).expect("the array");
    release(&mut node, whole.id().as_str(), Run::Real).expect("it is empty");
    passes(&mut node).expect("passes");
    assert!(array(&node).is_none(), "a released array is not claimed again");
    let lines = release(&mut node, member.id.as_str(), Run::Dry).expect("it can be").join("\n");
    assert!(lines.contains("would stop /dev/md127, the blank array of /dev/fake0, /dev/fake1"), "{lines}");
    release(&mut node, member.id.as_str(), Run::Real).expect("released with the other member");
    assert!(node.pool.members().is_empty());
    passes(&mut node).expect("passes");
    assert!(node.pool.members().is_empty(), "and no set takes them again");
}

#[test]
fn without_a_journal_a_missing_member_and_its_array_are_still_no_reason_to_make_one() {
    let (host, node) = made();
    drop(node);
    host.reboot(Fate::Whole);
    host.state.lose();
    host.unplug("fake0");
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    let why = problems(&mut node);
    assert!(why.contains("misses member 1 of 2"), "{why}");
    assert_eq!(node.pool.disk_views().len(), 1);
    assert_eq!(node.pool.disk_views()[0].standing, Standing::Ready);
}

#[test]
fn an_array_with_a_member_that_cannot_be_used_is_not_used() {
    let (host, mut node) = made();
    let old = host.platter("fake1").expect("it is there").content();
    node.pool.create(&request("b", WantedUsage::Block, 5 * MIB)).expect("there is room");
    let disk = node.pool.labelled_disks().into_iter().find(|disk| disk.shown().raw.name.as_str() == "fake1");
    let disk = disk.expect("it is a member");
    // The label of the member changes, and the journal knows that.
    disk.take_back().expect("written");
    disk.take_back().expect("written");
    node.agent.pass().expect("a pass");
    drop(node);
    host.reboot(Fate::Whole);
    // A state from before comes back on one of its members, and the host starts the array.
    host.platter("fake1").expect("it is there").put_content(old);
    let uuid = disk.shown().content.label.layout.member().expect("a member").array;
    host.md.assemble(uuid, &["/dev/fake0p2".into(), "/dev/fake1p2".into()]).expect("md does not know");
    let mut node = start(&host).expect("starts");
    passes(&mut node).expect("passes");
    let name = host.md.running(uuid).expect("it runs");
    let why = node.passes().expect("a pass").problems.get(&name).cloned().unwrap_or_default();
    assert!(why.contains("its member") && why.contains("cannot be used"), "{why}");
    assert!(array(&node).is_none_or(|member| !member.is_usable()));
}
