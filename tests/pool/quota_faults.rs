//! Volumes that are folders with limits, where one volume, its record, the filesystem or a person does what must not
//! cost the others anything.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use localpool::agent::{Run, Verb};
use localpool::claim::Rule;
use localpool::device::label::{ErasePolicy, Layout, Quota};
use localpool::host::fake::{FakeHost, FakeQuota, Fate, Fault};
use localpool::host::{Extent, FilesystemRoot, FsKind, Geometry, Host, ProjectId};
use localpool::pool::VolumeView;

use crate::directory_quota::{
    SIZE, XFS, again, create, folder, limit, limited, message_of, project, record, root, start, write,
};
use crate::node::{MIB, Node, id, request, rule};

const EVERYWHERE: Extent = Extent { start: 0, end: SIZE };

/// Changes the record of a volume.
fn edit(root: &dyn FilesystemRoot, name: &str, from: &str, to: &str) {
    let text = root.read(&record(name)).expect("read").expect("there");
    assert!(text.contains(from), "{text}");
    root.write(&record(name), &text.replace(from, to)).expect("written");
}

/// Three volumes, what was done to the one in the middle, and the next start: it cannot be used, and says why, and all
/// that is possible with the others is possible.
fn costs_one(change: impl FnOnce(&FakeHost, &dyn FilesystemRoot), why: &str) -> (Arc<FakeHost>, Node) {
    let (host, _disk, node) = limited();
    ["a", "b", "c"].iter().for_each(|name| create(&node, name, MIB));
    let root = root(&host, &node);
    change(&host, &*root);
    let node = again(&host, node);
    let said = message_of(node.pool.usable(id("b")));
    assert!(said.contains("cannot be used") && said.contains(why), "{said}");
    for name in ["a", "c"] {
        assert_eq!(node.pool.usable(id(name)).expect("it is well").size, MIB);
        assert_eq!(limit(&*root, name), Some(MIB));
    }
    create(&node, "d", MIB);
    node.pool.expand(id("c"), 2 * MIB, None).expect("there is room");
    node.pool.delete(id("a")).expect("deleted");
    (host, node)
}

#[test]
fn a_project_that_cannot_be_read_costs_its_volume_alone_until_it_can_be_read() {
    let damage = |host: &FakeHost, root: &dyn FilesystemRoot| {
        host.mounts.set_quota(FakeQuota::Damaged(project(root, "b")));
    };
    let (host, node) = costs_one(damage, "its limit could not be set: read the quota of a project");
    node.pool.work_until_idle().expect("tried");
    assert!(node.pool.usable(id("b")).is_err(), "it is as it was");
    host.mounts.set_quota(FakeQuota::AsMounted);
    node.pool.work_until_idle().expect("tried");
    node.pool.usable(id("b")).expect("it can be read again");
    again(&host, node).pool.usable(id("b")).expect("it can be read again");
}

#[test]
fn a_limit_that_could_not_be_set_does_not_wait_until_all_that_was_deleted_is_removed() {
    let damage = |host: &FakeHost, root: &dyn FilesystemRoot| {
        host.mounts.set_quota(FakeQuota::Damaged(project(root, "b")));
    };
    let (host, node) = costs_one(damage, "its limit could not be set");
    let root = root(&host, &node);
    let in_trash = || root.names(Path::new("trash")).expect("read");
    let trash = Path::new("trash").join(in_trash().first().expect("one was deleted"));
    let member = node.pool.members().remove(0);
    let mut files = 0;
    let mut work = || {
        // Somebody fills it as fast as it is removed.
        root.write(&trash.join(format!("late-{files}")), "of a tenant").expect("written");
        files += 1;
        member.work().expect("removes");
    };
    host.mounts.set_quota(FakeQuota::AsMounted);
    work();
    assert!(node.pool.usable(id("b")).is_err(), "not with each part of a folder");
    host.advance(Duration::from_secs(60));
    work();
    node.pool.usable(id("b")).expect("it can be read again");
    assert_eq!(in_trash().len(), 1, "and the folder is there still");
}

#[test]
fn a_file_in_the_place_of_a_folder_costs_its_volume_alone() {
    let replace = |_: &FakeHost, root: &dyn FilesystemRoot| {
        root.rename(&folder("b"), Path::new("aside")).expect("moved");
        root.write(&folder("b"), "no folder").expect("written");
    };
    costs_one(replace, "Not a directory");
}

#[test]
fn a_size_that_is_no_limit_costs_its_volume_alone() {
    let shrink = |_: &FakeHost, root: &dyn FilesystemRoot| edit(root, "b", "\"size\": 1048576", "\"size\": 511");
    costs_one(shrink, "Invalid argument");
}

#[test]
fn a_project_that_no_volume_may_have_costs_its_volume_alone_and_limits_nobody() {
    for number in [0, 7, (1 << 30) - 1, u32::MAX] {
        let number = ProjectId::new(number);
        let change = |_: &FakeHost, root: &dyn FilesystemRoot| {
            let own = project(root, "b");
            edit(root, "b", &format!("\"project\": {own}"), &format!("\"project\": {number}"));
        };
        let (host, node) = costs_one(change, &format!("names project {number}, and those of volumes are 1073741824"));
        let root = root(&host, &node);
        assert_eq!(root.project_usage(number).expect("asked").most_bytes, None);
        assert_ne!(project(&*root, "b"), number, "the folder stays as it is");
    }
}

#[test]
fn a_folder_whose_record_was_lost_does_not_keep_a_project_that_no_volume_may_have() {
    let (host, _disk, node) = limited();
    create(&node, "a", MIB);
    let root = root(&host, &node);
    let lost = node.pool.volume(id("a")).expect("made").record.expect("described");
    root.remove_file(&record("a")).expect("removed");
    root.put_in_project(&folder("a"), ProjectId::new(7)).expect("put");
    let node = again(&host, node);
    let disk = node.pool.disk_views().remove(0).id;
    node.pool.describe_volume(id("a"), &disk, &lost).expect("described");
    node.pool.usable(id("a")).expect("it has a project");
    assert!(project(&*root, "a").number() >= 1 << 30);
    assert_eq!(limit(&*root, "a"), Some(MIB));
}

#[test]
fn a_limit_that_changes_nothing_is_not_taken_for_one() {
    let (host, _disk, node) = limited();
    create(&node, "a", MIB);
    let root = root(&host, &node);
    host.mounts.set_quota(FakeQuota::Ignored);
    let why = message_of(node.pool.create(&request("b", XFS, MIB)));
    assert!(why.contains("did not get 1048576 bytes as its only limit: its limit of bytes is none"), "{why}");
    let why = message_of(node.pool.expand(id("a"), 2 * MIB, None));
    assert!(why.contains("did not get 2097152 bytes as its only limit: its limit of bytes is 1048576"), "{why}");
    let node = again(&host, node);
    assert!(message_of(node.pool.usable(id("a"))).contains("its limit could not be set"));
    host.mounts.set_quota(FakeQuota::AsMounted);
    let node = again(&host, node);
    node.pool.usable(id("a")).expect("it is limited");
    assert_eq!(limit(&*root, "a"), Some(2 * MIB));
}

#[test]
fn what_is_written_while_a_volume_shrinks_is_counted_before_it_is_smaller() {
    let (host, disk, node) = limited();
    create(&node, "a", 4 * MIB);
    let root = root(&host, &node);
    disk.set_hangs_at(Some("tree limit"));
    let pool = Arc::clone(&node.pool);
    let shrinking = std::thread::spawn(move || message_of(pool.expand(id("a"), MIB, Some(2 * MIB))));
    disk.until_somebody_waits();
    write(&*root, "a", 3 * MIB).expect("it has room still");
    disk.set_hangs_at(None);
    let why = shrinking.join().expect("it ends");
    assert!(why.contains("use 3145728 bytes"), "{why}");
    assert_eq!(limit(&*root, "a"), Some(4 * MIB), "the limit of before is there again");
    assert_eq!(node.pool.usable(id("a")).expect("it is there").size, 4 * MIB);
    let node = again(&host, node);
    assert_eq!(node.pool.usable(id("a")).expect("it is there").size, 4 * MIB);
}

#[test]
fn a_volume_whose_files_may_be_counted_elsewhere_does_not_shrink() {
    let (host, _disk, node) = limited();
    create(&node, "a", 4 * MIB);
    let root = root(&host, &node);
    let own = project(&*root, "a");
    root.put_in_project(&folder("a"), ProjectId::NONE).expect("its tenant owns it");
    let why = message_of(node.pool.expand(id("a"), MIB, Some(2 * MIB)));
    assert!(why.contains("is not of project") && why.contains("the next start"), "{why}");
    assert_eq!(root.project_usage(own).expect("asked").most_bytes, Some(4 * MIB));
    assert_eq!(node.pool.usable(id("a")).expect("it is there").size, 4 * MIB);
    let node = again(&host, node);
    assert_eq!(node.pool.expand(id("a"), MIB, Some(2 * MIB)).expect("its folder is back").size, 2 * MIB);
}

#[test]
fn a_record_that_cannot_be_written_leaves_a_volume_that_should_shrink_as_it_was() {
    let (host, disk, node) = limited();
    create(&node, "a", 4 * MIB);
    let root = root(&host, &node);
    disk.inject(Fault { what: "tree write", range: EVERYWHERE, times: 1 });
    assert!(node.pool.expand(id("a"), MIB, Some(2 * MIB)).is_err());
    assert_eq!(limit(&*root, "a"), Some(4 * MIB));
    assert_eq!(node.pool.usable(id("a")).expect("it is there").size, 4 * MIB);
}

#[test]
fn where_limits_are_switched_off_no_volume_grows_or_shrinks() {
    let (host, _disk, mut node) = limited();
    create(&node, "a", 3 * MIB);
    for (required, most) in [(5 * MIB, None), (MIB, Some(2 * MIB))] {
        host.mounts.set_quota(FakeQuota::SwitchedOff);
        let why = message_of(node.pool.expand(id("a"), required, most));
        assert!(why.contains("has its project quota switched off"), "{why}");
        host.mounts.set_quota(FakeQuota::AsMounted);
        node.passes().expect("a pass");
        assert_eq!(node.pool.usable(id("a")).expect("it is used again").size, 3 * MIB);
        assert_eq!(limit(&*root(&host, &node), "a"), Some(3 * MIB));
    }
}

#[test]
fn a_folder_that_was_not_moved_into_its_place_never_was_a_volume() {
    let (host, disk, mut node) = limited();
    let root = root(&host, &node);
    disk.inject(Fault { what: "tree move", range: EVERYWHERE, times: 1 });
    assert!(node.pool.create(&request("a", XFS, MIB)).is_err());
    assert_eq!(root.names(Path::new("making")).expect("read"), [id("a").to_string()]);
    assert_eq!(root.names(Path::new("volumes")).expect("read"), [""; 0]);
    node.passes().expect("a pass");
    assert_eq!(root.names(Path::new("making")).expect("read"), [""; 0]);
    assert_eq!(root.names(Path::new("records")).expect("read"), [""; 0], "it describes nothing");
    create(&node, "a", 2 * MIB);
    assert_eq!(limit(&*root, "a"), Some(2 * MIB));
    node.pool.work_until_idle().expect("removed");
    assert_eq!(root.names(Path::new("trash")).expect("read"), [""; 0]);
}

#[test]
fn a_project_that_cannot_be_asked_is_not_given_to_a_new_volume_and_stops_none() {
    let (host, _disk, node) = limited();
    create(&node, "a", MIB);
    let root = root(&host, &node);
    let next = ProjectId::new(project(&*root, "a").number() + 1);
    host.mounts.set_quota(FakeQuota::Damaged(next));
    create(&node, "b", MIB);
    assert_eq!(project(&*root, "b").number(), next.number() + 1);
}

#[test]
fn limits_are_gone_after_a_power_cut_and_there_again_before_anybody_uses_a_volume() {
    let (host, _disk, node) = limited();
    create(&node, "a", MIB);
    let at = host.mounts().table().expect("read").remove(0).target;
    drop(node);
    host.reboot(Fate::LastLost);
    let options = ["prjquota".to_owned()];
    host.mounts().mount(Path::new("/dev/fake0p2"), &at, FsKind::Xfs, &options).expect("mounted");
    let root = host.mounts().open_root(&at, Path::new("/dev/fake0p2")).expect("opened");
    assert_eq!(limit(&*root, "a"), None);
    host.mounts().unmount(&at).expect("unmounted");
    let mut node = start(&host);
    node.passes().expect("a pass");
    node.pool.usable(id("a")).expect("it is limited");
    assert_eq!(limit(&*root, "a"), Some(MIB));
}

fn settle(node: &mut Node, name: &str, keep: &str) -> Result<Vec<String>, String> {
    let settle = Verb::SettleVolume { volume: id(name), keep: keep.to_owned(), run: Run::Real };
    node.agent.verb(&settle).map_err(|error| error.to_string())
}

#[test]
fn a_conflict_of_projects_on_one_disk_is_not_settled_by_choosing_that_disk() {
    let (host, _disk, node) = limited();
    ["b", "c"].iter().for_each(|name| create(&node, name, MIB));
    let root = root(&host, &node);
    let [b, c] = ["b", "c"].map(|name| project(&*root, name).to_string());
    edit(&*root, "b", &b, &c);
    let mut node = again(&host, node);
    let refused = settle(&mut node, "b", "/dev/fake0").expect_err("nothing is settled by that");
    assert!(refused.contains("cannot be settled") && refused.contains("name the same project"), "{refused}");
}

/// The root of the filesystem that a volume is on.
fn root_of(host: &FakeHost, view: &VolumeView) -> Arc<dyn FilesystemRoot> {
    let at = view.directory.as_ref().expect("it is a folder").path.ancestors().nth(2).expect("in the pool's mount");
    host.mounts().open_root(at, &view.node).expect("mounted")
}

#[test]
fn a_volume_that_gets_another_id_keeps_what_is_said_of_its_project() {
    let host = Arc::new(FakeHost::default());
    for name in ["fake0", "fake1"] {
        host.add_disk(name, &format!("SERIAL-{name}"), Geometry { size: SIZE, sector: 512, offloads_zeroes: true });
    }
    let start = || {
        let rule = Rule { fs: FsKind::Xfs, ..rule(&Layout::Directory { quota: Quota::Project }, ErasePolicy::Discard) };
        let mut node = Node::start(&host, vec![rule], Duration::ZERO).expect("starts");
        node.passes().expect("a pass");
        node
    };
    let node = start();
    create(&node, "a", MIB);
    let kept = node.pool.volume(id("a")).expect("made");
    // Two volumes on the other disk: of the first one a copy of `a` is made, and both have one project.
    // No disk has room for all.
    let all: Vec<String> = (0..6).map(|number| format!("v{number}")).collect();
    all.iter().for_each(|name| create(&node, name, 300 * MIB));
    let is_there = |name: &&String| node.pool.volume(id(name)).expect("made").disk != kept.disk;
    let there: Vec<&String> = all.iter().filter(is_there).collect();
    let (one, two) = (there[0], there[1]);
    let root = root_of(&host, &node.pool.volume(id(one)).expect("made"));
    let [first, second] = [one, two].map(|name| project(&*root, name).to_string());
    edit(&*root, two, &second, &first);
    root.rename(&record(one), &record("a")).expect("moved");
    root.rename(&folder(one), &folder("a")).expect("moved");
    drop(node);
    let mut node = start();
    let keep = kept.node.display().to_string();
    settle(&mut node, "a", keep.trim_end_matches("p2")).expect("it is on two disks");
    let views = node.pool.volumes();
    let is_aside = |view: &&VolumeView| view.record.as_ref().is_some_and(|record| record.name.contains("-aside-"));
    let aside = views.iter().find(is_aside).expect("it has another id");
    for view in [aside, &node.pool.volume(id(two)).expect("it is there")] {
        let why = view.conflict.as_deref().unwrap_or_default();
        assert!(why.contains("name the same project") && why.contains(&aside.id.to_string()), "{view:?}");
    }
    node.pool.usable(id("a")).expect("it was kept");
}
