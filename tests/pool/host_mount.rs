//! A pool filesystem that the node has mounted for others than localpool, where its set says.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use localpool::claim::Rule;
use localpool::device::label::{ErasePolicy, Layout, Quota};
use localpool::host::fake::{FakeHost, Fate, Fault, Platter};
use localpool::host::{Extent, FilesystemRoot, FilesystemState, FsKind, Geometry, Host, Mount, chain};
use localpool::pool::{HostMount, Standing};

use crate::node::{MIB, Node, id, request, rule};

const FOLDER: &str = "/mnt/raid-disks";
const XFS: localpool::pool::WantedUsage = localpool::pool::WantedUsage::Mount(Some(FsKind::Xfs));

/// The set, whose filesystems are mounted below this folder.
fn mounted_below(folder: Option<&str>) -> Rule {
    let layout = Layout::Directory { quota: Quota::None };
    Rule { host_mount: folder.map(PathBuf::from), ..rule(&layout, ErasePolicy::Discard) }
}

/// An agent with this set, after it has looked and worked.
fn start(host: &Arc<FakeHost>, rules: Vec<Rule>) -> Node {
    let mut node = Node::start(host, rules, std::time::Duration::ZERO).expect("starts");
    settle(&mut node);
    node
}

fn settle(node: &mut Node) {
    node.passes().expect("a pass");
    node.pool.work_until_idle().expect("done");
}

fn machine() -> (Arc<FakeHost>, Arc<Platter>) {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { size: 1 << 30, sector: 512, offloads_zeroes: true });
    (host, disk)
}

fn mounted() -> (Arc<FakeHost>, Arc<Platter>, Node) {
    let (host, disk) = machine();
    let node = start(&host, vec![mounted_below(Some(FOLDER))]);
    (host, disk, node)
}

fn host_mount(node: &Node) -> HostMount {
    node.pool.disk_views().remove(0).host_mount
}

fn problem(node: &Node) -> String {
    host_mount(node).problem().unwrap_or_default().to_owned()
}

/// Where the disk is mounted for the node, below this folder.
fn path(node: &Node, folder: &str) -> PathBuf {
    Path::new(folder).join(node.pool.disk_views().remove(0).id.as_str())
}

/// What the node has mounted that is not the pool's own.
fn for_others(host: &FakeHost) -> Vec<Mount> {
    let table = host.mounts().table().expect("read");
    table.into_iter().filter(|mount| !mount.target.starts_with(host.own_mounts())).collect()
}

fn root(host: &FakeHost, node: &Node) -> Arc<dyn FilesystemRoot> {
    let at = host.own_mounts().join(node.pool.disk_views().remove(0).id.as_str());
    host.mounts().open_root(&at, Path::new("/dev/fake0p2")).expect("mounted")
}

#[test]
fn a_folder_of_the_filesystem_without_anything_of_the_pool_is_mounted_for_the_node() {
    let (host, _disk, node) = mounted();
    let at = path(&node, FOLDER);
    assert_eq!(host_mount(&node), HostMount::At(at.clone()));
    let [mount] = &for_others(&host)[..] else { panic!("one mount: {:?}", for_others(&host)) };
    assert_eq!((mount.target.as_path(), mount.root.as_path()), (at.as_path(), Path::new("/host")));
    assert_eq!(root(&host, &node).names(Path::new("host")).expect("read"), [""; 0]);
    node.pool.create(&request("a", XFS, MIB)).expect("and it is offered");
    let (plain, _disk) = machine();
    let unasked = start(&plain, vec![mounted_below(None)]);
    assert_eq!((host_mount(&unasked), for_others(&plain).len()), (HostMount::None, 0));
}

#[test]
fn it_is_mounted_again_after_a_restart_and_a_reboot_and_never_twice() {
    let (host, _disk, node) = mounted();
    root(&host, &node).write(Path::new("host/file"), "data").expect("written");
    drop(node);
    for is_reboot in [false, true, false] {
        if is_reboot {
            host.reboot(Fate::Lost);
        }
        let node = start(&host, vec![mounted_below(Some(FOLDER))]);
        assert_eq!(host_mount(&node), HostMount::At(path(&node, FOLDER)));
        assert_eq!(for_others(&host).len(), 1);
        assert_eq!(root(&host, &node).read(Path::new("host/file")).expect("read").as_deref(), Some("data"));
    }
}

#[test]
fn another_path_in_the_set_or_no_set_at_all_moves_nothing_that_is_mounted() {
    let (host, _disk, node) = mounted();
    let at = path(&node, FOLDER);
    drop(node);
    for rules in [vec![mounted_below(Some("/srv/disks"))], vec![mounted_below(None)], Vec::new()] {
        for is_reboot in [false, true] {
            if is_reboot {
                host.reboot(Fate::Lost);
            }
            let node = start(&host, rules.clone());
            assert_eq!(host_mount(&node), HostMount::At(at.clone()), "{rules:?}");
            assert_eq!(for_others(&host).len(), 1);
        }
    }
}

#[test]
fn a_path_that_cannot_be_mounted_on_is_said_and_tried_again_and_keeps_no_volume_from_anybody() {
    let (host, _disk) = machine();
    let before = start(&host, vec![mounted_below(None)]);
    let at = path(&before, FOLDER);
    drop(before);
    host.mounts.set_unshown(&at, Some("/mnt/raid-disks is a symbolic link"));
    let mut node = start(&host, vec![mounted_below(Some(FOLDER))]);
    let why = problem(&node);
    assert_eq!(
        why,
        format!("its filesystem is not mounted for the node at {}: /mnt/raid-disks is a symbolic link", at.display())
    );
    assert!(node.agent.pass().expect("a pass").ripe_in.is_some(), "no event says when it is possible");
    node.pool.create(&request("a", XFS, MIB)).expect("volumes do not need it");
    assert!(node.pool.disk_views()[0].failing.is_none(), "and nobody is told that the disk fails");
    // It was never mounted, so another path is taken.
    drop(node);
    let mut node = start(&host, vec![mounted_below(Some("/srv/disks"))]);
    assert_eq!(host_mount(&node), HostMount::At(path(&node, "/srv/disks")));
    settle(&mut node);
    assert_eq!(for_others(&host).len(), 1);
}

#[test]
fn no_disk_is_taken_for_a_path_that_nothing_could_be_mounted_at() {
    let (host, disk) = machine();
    let before = disk.content();
    host.mounts.set_unshown(Path::new(FOLDER), Some("the agent's pod does not have that folder"));
    let mut node = start(&host, vec![mounted_below(Some(FOLDER))]);
    let report = node.agent.pass().expect("a pass");
    let left = &report.outcomes[0];
    assert!(format!("{left:?}").contains("the agent's pod does not have that folder"), "people read why: {left:?}");
    assert!(report.ripe_in.is_some(), "no event says when it is possible");
    assert!(node.pool.disk_views().is_empty() && disk.content() == before, "nothing is written");
    // A set that does not need the path takes it, and the first one as soon as it can.
    host.mounts.set_unshown(Path::new(FOLDER), None);
    settle(&mut node);
    assert_eq!(host_mount(&node), HostMount::At(path(&node, FOLDER)));
}

#[test]
fn what_else_is_mounted_at_its_path_stays() {
    let (host, _disk) = machine();
    let before = start(&host, vec![mounted_below(None)]);
    let at = path(&before, FOLDER);
    drop(before);
    host.mounts().bind(Path::new("/dev/other"), &at, localpool::host::TargetAccess::ReadWrite).expect("bound");
    let node = start(&host, vec![mounted_below(Some(FOLDER))]);
    assert!(problem(&node).ends_with("something else is mounted there: unmount it"), "{}", problem(&node));
    assert_eq!(for_others(&host).len(), 1);
}

#[test]
fn a_disk_that_left_is_mounted_nowhere_and_one_that_is_back_where_it_was() {
    let (host, disk, mut node) = mounted();
    let at = path(&node, FOLDER);
    host.unplug("fake0");
    settle(&mut node);
    let view = node.pool.disk_views().remove(0);
    assert_eq!((view.standing, view.host_mount, for_others(&host).len()), (Standing::Missing, HostMount::None, 0));
    host.plug("fake1", "SERIAL-1", disk);
    settle(&mut node);
    assert_eq!(host_mount(&node), HostMount::At(at));
    assert_eq!(for_others(&host).len(), 1);
}

#[test]
fn a_mount_of_the_device_that_the_disk_was_before_it_was_plugged_again_without_an_agent_is_made_anew() {
    let (host, disk, node) = mounted();
    let at = path(&node, FOLDER);
    let before = for_others(&host).remove(0);
    drop(node);
    host.unplug("fake0");
    host.plug("fake1", "SERIAL-1", disk);
    let node = start(&host, vec![mounted_below(Some(FOLDER))]);
    assert_eq!(host_mount(&node), HostMount::At(at));
    let [mount] = &for_others(&host)[..] else { panic!("one mount: {:?}", for_others(&host)) };
    assert_ne!(mount.source, before.source, "programs get the disk that is there");
}

#[test]
fn what_keeps_the_pool_from_opening_it_for_now_takes_it_from_nobody_who_works_on_it() {
    let (host, disk, node) = mounted();
    let at = path(&node, FOLDER);
    // As an operation that was stopped leaves it; and the filesystem is full, so it cannot be moved away.
    root(&host, &node).make_folder(Path::new("making/a"), 0o700).expect("made");
    drop(node);
    disk.inject(Fault { what: "tree move", range: Extent { start: 0, end: 1 << 30 }, times: u32::MAX });
    let mut node = start(&host, vec![mounted_below(Some(FOLDER))]);
    assert!(matches!(node.pool.disk_views()[0].standing, Standing::NotReady(_)), "it cannot be opened now");
    let [mount] = &for_others(&host)[..] else { panic!("it stays: {:?}", for_others(&host)) };
    assert_eq!(mount.target, at);
    // One that has shut down comes back when nobody has it mounted any more.
    host.set_filesystem_state(&at, FilesystemState { is_shut_down: true, ..FilesystemState::default() });
    settle(&mut node);
    assert_eq!(for_others(&host), []);
    host.set_filesystem_state(&at, FilesystemState::default());
    disk.clear_faults();
    settle(&mut node);
    assert_eq!((host_mount(&node), for_others(&host).len()), (HostMount::At(at), 1));
}

#[test]
fn a_disk_with_what_others_keep_on_it_or_that_they_use_is_not_released() {
    let (host, _disk, node) = mounted();
    let at = path(&node, FOLDER);
    let release = || {
        let member = node.pool.members().remove(0);
        node.pool.release(&member).map_err(|error| chain(&error))
    };
    root(&host, &node).write(Path::new("host/file"), "data").expect("written");
    let why = release().expect_err("refused");
    assert!(why.contains("that do not belong to the pool: host/file"), "{why}");
    root(&host, &node).remove_file(Path::new("host/file")).expect("removed");
    host.mounts.set_unshown(&at, Some("the mount"));
    let why = release().expect_err("refused");
    assert!(why.contains(&format!("mounted for the node at {}: the mount is in use", at.display())), "{why}");
    host.mounts.set_unshown(&at, None);
    release().expect("released");
    assert_eq!(for_others(&host), []);
}

#[test]
fn a_record_that_cannot_be_read_or_names_another_place_is_said_and_nothing_is_mounted() {
    let other = |path: &str| format!("{{\"format\": 1, \"path\": \"{path}\"}}");
    for (text, words) in [
        ("{\"form".to_owned(), "it is cut short or damaged"),
        (other("/etc/passwd"), "/etc/passwd is no path of this disk"),
        (other("/mnt/raid-disks/gpt-other"), "is no path of this disk"),
        ("{\"format\": 2}".to_owned(), "it has format 2, written by a later version of localpool"),
    ] {
        let (host, _disk, node) = mounted();
        node.pool.create(&request("a", XFS, MIB)).expect("made");
        root(&host, &node).write(Path::new("host-mount.json"), &text).expect("written");
        drop(node);
        host.reboot(Fate::Lost);
        let node = start(&host, vec![mounted_below(Some(FOLDER))]);
        assert!(problem(&node).contains(words), "{}", problem(&node));
        assert_eq!(for_others(&host), []);
        node.pool.usable(id("a")).expect("its volumes are used as before");
    }
}
