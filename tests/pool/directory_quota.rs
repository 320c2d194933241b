//! Volumes that are folders, each kept within its size by project quota.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use localpool::claim::Rule;
use localpool::device::label::{ErasePolicy, Layout, Quota};
use localpool::host::fake::{FakeHost, FakeQuota, Fate, Fault, Platter};
use localpool::host::{Extent, FilesystemRoot, FsKind, FsUsage, Geometry, Host, ProjectId, chain};
use localpool::pool::{PoolError, WantedUsage};

use crate::node::{MIB, Node, id, problem, request, rule};

pub const XFS: WantedUsage = WantedUsage::Mount(Some(FsKind::Xfs));
pub const SIZE: u64 = 1 << 30;

pub fn start(host: &Arc<FakeHost>) -> Node {
    let rule = Rule { fs: FsKind::Xfs, ..rule(&Layout::Directory { quota: Quota::Project }, ErasePolicy::Discard) };
    Node::start(host, vec![rule], Duration::ZERO).expect("starts")
}

fn blank() -> (Arc<FakeHost>, Arc<Platter>) {
    let host = Arc::new(FakeHost::default());
    let disk = host.add_disk("fake0", "SERIAL-1", Geometry { size: SIZE, sector: 512, offloads_zeroes: true });
    (host, disk)
}

pub fn limited() -> (Arc<FakeHost>, Arc<Platter>, Node) {
    let (host, disk) = blank();
    let mut node = start(&host);
    node.passes().expect("claims");
    (host, disk, node)
}

pub fn again(host: &Arc<FakeHost>, node: Node) -> Node {
    drop(node);
    let mut node = start(host);
    node.passes().expect("a pass");
    node
}

pub fn root(host: &FakeHost, node: &Node) -> Arc<dyn FilesystemRoot> {
    let disk = node.pool.disk_views().remove(0);
    let at = host.own_mounts().join(disk.id.as_str());
    host.mounts().open_root(&at, Path::new("/dev/fake0p2")).expect("mounted")
}

pub fn message_of<T: std::fmt::Debug>(done: Result<T, PoolError>) -> String {
    chain(&done.expect_err("refused"))
}

pub fn create(node: &Node, name: &str, size: u64) {
    node.pool.create(&request(name, XFS, size)).expect("made");
}

pub fn folder(name: &str) -> PathBuf {
    Path::new("volumes").join(id(name).to_string())
}

pub fn record(name: &str) -> PathBuf {
    Path::new("records").join(format!("{}.json", id(name)))
}

/// The tenant of a volume writes a file of that many bytes.
pub fn write(root: &dyn FilesystemRoot, name: &str, bytes: u64) -> Result<(), String> {
    let text = "x".repeat(usize::try_from(bytes).expect("it fits"));
    root.write(&folder(name).join("file"), &text).map_err(|error| chain(&error))
}

pub fn project(root: &dyn FilesystemRoot, name: &str) -> ProjectId {
    root.project_of(&folder(name)).expect("asked")
}

/// The limit that the filesystem has for a volume.
pub fn limit(root: &dyn FilesystemRoot, name: &str) -> Option<u64> {
    root.project_usage(project(root, name)).expect("asked").most_bytes
}

fn usage(node: &Node, name: &str) -> Option<FsUsage> {
    let view = node.pool.volume(id(name)).expect("it is there");
    node.pool.quota_usage(&view).map(|usage| usage.expect("measured"))
}

#[test]
fn a_volume_that_is_full_refuses_more_and_its_neighbour_writes_on() {
    let (host, _disk, node) = limited();
    create(&node, "a", 2 * MIB);
    create(&node, "b", 2 * MIB);
    let root = root(&host, &node);
    let full = write(&*root, "a", 2 * MIB + 1).expect_err("it is too much");
    assert!(full.contains("No space left on device"), "{full}");
    write(&*root, "a", 2 * MIB).expect("just what it has");
    write(&*root, "b", MIB).expect("it has room");
    let [a, b] = ["a", "b"].map(|name| usage(&node, name).expect("by its quota"));
    assert_eq!((a.total, a.used, a.available, a.inodes_used), (2 * MIB, 2 * MIB, 0, 2));
    assert_eq!((b.total, b.used, b.available, b.inodes_used), (2 * MIB, MIB, MIB, 2));
}

#[test]
fn a_volume_grows_and_shrinks_with_its_limit_but_not_below_what_its_files_use() {
    let (host, _disk, node) = limited();
    create(&node, "a", 2 * MIB);
    let root = root(&host, &node);
    let before = node.pool.disk_views().remove(0).free;
    assert_eq!(node.pool.expand(id("a"), 5 * MIB, None).expect("there is room").size, 5 * MIB);
    assert_eq!(limit(&*root, "a"), Some(5 * MIB));
    write(&*root, "a", 2 * MIB).expect("it has room");
    let why = message_of(node.pool.expand(id("a"), MIB, Some(2 * MIB)));
    assert!(why.contains("use 2097152 bytes (2.0 MiB), so it cannot shrink to 2097152"), "{why}");
    assert_eq!(limit(&*root, "a"), Some(5 * MIB), "nothing has changed");
    // As large as may be, in whole MiB.
    let view = node.pool.expand(id("a"), MIB, Some(4 * MIB - 1)).expect("its files have room");
    assert_eq!((view.size, view.record.expect("described").required), (3 * MIB, 3 * MIB));
    assert_eq!(limit(&*root, "a"), Some(3 * MIB));
    assert_eq!(node.pool.disk_views().remove(0).free, before - MIB, "others can have the rest");
    let why = message_of(node.pool.expand(id("a"), 2 * MIB + 1, Some(3 * MIB - 1)));
    assert!(why.contains("is below the 3145728 bytes") && why.contains("whole MiB"), "{why}");
    assert_eq!(node.pool.expand(id("a"), MIB, Some(3 * MIB)).expect("it has that").size, 3 * MIB);
    drop(root);
    let node = again(&host, node);
    assert_eq!(node.pool.usable(id("a")).expect("it is there").size, 3 * MIB);
}

#[test]
fn a_project_belongs_to_nobody_else_while_files_of_a_deleted_volume_are_there() {
    let (host, _disk, node) = limited();
    create(&node, "a", MIB);
    let root = root(&host, &node);
    let first = project(&*root, "a");
    assert_ne!(first, ProjectId::NONE);
    node.pool.delete(id("a")).expect("deleted");
    create(&node, "b", MIB);
    assert_ne!(project(&*root, "b"), first, "the files of the deleted one are there still");
    node.pool.work_until_idle().expect("removed");
    create(&node, "c", MIB);
    let third = project(&*root, "c");
    assert_eq!(third.number(), first.number() + 2, "those behind all that are in use come first");
    let text = root.read(&record("c")).expect("read").expect("there");
    assert!(text.contains(&format!("\"project\": {third}")), "{text}");
}

#[test]
fn limits_and_projects_are_set_again_at_the_next_start() {
    let (host, _disk, node) = limited();
    create(&node, "a", 2 * MIB);
    let root = root(&host, &node);
    let own = project(&*root, "a");
    // Its tenant owns the folder.
    root.put_in_project(&folder("a"), ProjectId::NONE).expect("put");
    root.limit_project(own, 9 * MIB).expect("limited");
    let node = again(&host, node);
    assert_eq!((project(&*root, "a"), limit(&*root, "a")), (own, Some(2 * MIB)));
    drop(node);
}

#[test]
fn of_two_records_with_one_project_neither_volume_is_usable_and_a_third_is() {
    let (host, _disk, node) = limited();
    ["a", "b", "c"].iter().for_each(|name| create(&node, name, MIB));
    let root = root(&host, &node);
    let [a, b] = ["a", "b"].map(|name| project(&*root, name));
    let text = root.read(&record("b")).expect("read").expect("there");
    let copied = text.replace(&b.to_string(), &a.to_string());
    root.write(&record("b"), &copied).expect("written");
    let node = again(&host, node);
    for name in ["a", "b"] {
        let why = message_of(node.pool.usable(id(name)));
        assert!(why.contains("name the same project") && why.contains(&id("a").to_string()), "{why}");
        assert!(why.contains(&id("b").to_string()), "{why}");
        assert!(message_of(node.pool.delete(id(name))).contains("name the same project"));
    }
    node.pool.usable(id("c")).expect("it has a project of its own");
    assert_eq!(project(&*root, "b"), b, "nothing was changed by guess");
    root.write(&record("b"), &text).expect("written");
    let node = again(&host, node);
    node.pool.usable(id("a")).expect("corrected");
    node.pool.usable(id("b")).expect("corrected");
}

#[test]
fn a_volume_whose_record_was_lost_keeps_the_project_of_its_folder() {
    let (host, _disk, node) = limited();
    create(&node, "a", MIB);
    let root = root(&host, &node);
    let own = project(&*root, "a");
    let lost = node.pool.volume(id("a")).expect("made").record.expect("described");
    root.remove_file(&record("a")).expect("removed");
    let node = again(&host, node);
    let disk = node.pool.disk_views().remove(0).id;
    node.pool.describe_volume(id("a"), &disk, &lost).expect("described");
    let text = root.read(&record("a")).expect("read").expect("there");
    assert!(text.contains(&format!("\"project\": {own}")), "{text}");
    assert_eq!(limit(&*root, "a"), Some(MIB));
}

#[test]
fn without_quota_in_the_kernel_no_disk_is_claimed_and_a_claimed_one_is_not_used() {
    let (host, disk) = blank();
    host.mounts.set_quota(FakeQuota::NotInKernel);
    let mut node = start(&host);
    let report = node.passes().expect("a pass");
    let (_, why) = report.outcomes[0].rejected.first().expect("it is not taken");
    assert_eq!(
        why.to_string(),
        "nothing would keep a folder within the size of its volume: the kernel was built without quota for XFS; with \
         `quota: none` sizes are only counted"
    );
    assert!(node.pool.members().is_empty() && disk.is_zero(Extent { start: 0, end: SIZE }), "nothing was written");
    host.mounts.set_quota(FakeQuota::AsMounted);
    node.passes().expect("claims");
    create(&node, "a", MIB);
    // Limits hold on what is mounted with them, whatever the kernel says of itself.
    host.mounts.set_quota(FakeQuota::NotInKernel);
    let node = again(&host, node);
    node.pool.usable(id("a")).expect("it is limited");
    drop(node);
    host.reboot(Fate::Lost);
    let mut node = start(&host);
    let why = problem(&mut node, "fake0");
    assert!(why.contains("nothing would keep its volumes within their sizes: the kernel was built without"), "{why}");
    assert!(node.pool.usable(id("a")).is_err());
    host.mounts.set_quota(FakeQuota::AsMounted);
    node.passes().expect("a pass");
    node.pool.usable(id("a")).expect("it was tried again");
}

#[test]
fn a_filesystem_that_was_mounted_without_quota_is_mounted_with_it() {
    let (host, _disk, node) = limited();
    create(&node, "a", MIB);
    let at = host.mounts().table().expect("read").remove(0).target;
    host.mounts().unmount(&at).expect("unmounted");
    host.mounts().mount(Path::new("/dev/fake0p2"), &at, FsKind::Xfs, &[]).expect("mounted");
    let node = again(&host, node);
    node.pool.usable(id("a")).expect("it is used");
    let table = host.mounts().table().expect("read");
    assert_eq!(table.len(), 1, "{table:?}");
    assert!(table[0].options.iter().any(|option| option == "prjquota"), "{table:?}");
}

#[test]
fn where_limits_are_switched_off_nothing_is_promised_and_nothing_is_used_until_they_are_on() {
    let (host, _disk, mut node) = limited();
    create(&node, "a", 2 * MIB);
    host.mounts.set_quota(FakeQuota::SwitchedOff);
    let why = message_of(node.pool.create(&request("b", XFS, MIB)));
    assert!(why.contains("has its project quota switched off"), "{why}");
    assert!(message_of(node.pool.usable(id("a"))).contains("is not ready"));
    let why = problem(&mut node, "fake0");
    assert!(why.contains("so nothing would keep its volumes within their sizes"), "{why}");
    host.mounts.set_quota(FakeQuota::AsMounted);
    node.passes().expect("a pass");
    create(&node, "b", MIB);
    // A measurement notices it, too.
    host.mounts.set_quota(FakeQuota::SwitchedOff);
    assert!(usage(&node, "a").is_some());
    assert!(message_of(node.pool.usable(id("a"))).contains("switched off"));
}

#[test]
fn a_limit_that_cannot_be_set_leaves_the_volume_with_the_limit_of_its_record_in_the_end() {
    let (host, disk, mut node) = limited();
    let everywhere = Extent { start: 0, end: SIZE };
    for what in ["tree limit", "tree project"] {
        disk.inject(Fault { what, range: everywhere, times: 1 });
        assert!(node.pool.create(&request(what, XFS, MIB)).is_err(), "{what}");
        node.passes().expect("a pass");
        create(&node, what, MIB);
    }
    create(&node, "a", MIB);
    disk.inject(Fault { what: "tree limit", range: everywhere, times: 1 });
    assert!(node.pool.expand(id("a"), 3 * MIB, None).is_err());
    node.passes().expect("a pass");
    assert_eq!(node.pool.usable(id("a")).expect("it is read again").size, 3 * MIB);
    assert_eq!(limit(&*root(&host, &node), "a"), Some(3 * MIB));
}

#[test]
fn a_volume_that_nothing_limits_cannot_shrink() {
    let host = Arc::new(FakeHost::default());
    host.add_disk("fake0", "SERIAL-1", Geometry { size: SIZE, sector: 512, offloads_zeroes: true });
    let rule = Rule { fs: FsKind::Xfs, ..rule(&Layout::Directory { quota: Quota::None }, ErasePolicy::Discard) };
    let mut node = Node::start(&host, vec![rule], Duration::ZERO).expect("starts");
    node.passes().expect("claims");
    create(&node, "a", 3 * MIB);
    let why = message_of(node.pool.expand(id("a"), MIB, Some(2 * MIB)));
    assert!(why.contains("that the volume already has"), "{why}");
    assert_eq!(usage(&node, "a"), None, "only its filesystem says how full it is");
}
