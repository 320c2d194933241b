//! Filesystems that an administrator named, on a machine in memory: each outcome as it comes and goes, and what is
//! written.

use std::collections::BTreeMap;
use std::path::Path;

use uuid::Uuid;

use super::*;
use crate::device::FilesystemName;
use crate::device::label::Quota;
use crate::health::{EarlierFilesystems, WantedFilesystems};
use crate::host::fake::Fault;
use crate::host::{FilesystemRoot, Mounts as _, NoMountPoint};
use crate::pool::{FilesystemReason, NamedFilesystem};

const CONFIG: &str = "localpool-disk.cfg";

fn named(name: &str, path: &str) -> NamedFilesystem {
    NamedFilesystem {
        name: name.into(),
        path: path.into(),
        quota: Quota::Project,
        allows_scheduling: true,
        tags: Default::default(),
        reserved: None,
        stray_fields: Vec::new(),
    }
}

fn wanted(all: &[NamedFilesystem]) -> WantedFilesystems {
    WantedFilesystems { named: all.to_vec(), defaults: Some(Vec::new()) }
}

/// A node with two disks of the pool, and others with XFS that are mounted nowhere yet.
fn with_disks(names: &[&str]) -> Node {
    let node = node();
    let geometry = Geometry { size: 64 << 20, sector: 512, offloads_zeroes: true };
    for name in names {
        node.host.add_disk(name, name, geometry);
        node.host.filesystems().make(FsKind::Xfs, &device(name), Uuid::new_v4()).expect("made");
    }
    node
}

fn device(name: &str) -> PathBuf {
    Path::new("/dev").join(name)
}

impl Node {
    fn mount(&self, disk: &str, path: &str) {
        let quota = ["prjquota".to_owned()];
        self.host.mounts.mount(&device(disk), Path::new(path), FsKind::Xfs, &quota).expect("mounted");
    }

    fn unmount(&self, path: &str) {
        self.host.mounts.unmount(Path::new(path)).expect("unmounted");
    }

    fn root(&self, disk: &str, path: &str) -> Arc<dyn FilesystemRoot> {
        self.host.mounts.open_root(Path::new(path), &device(disk)).expect("its root")
    }

    fn name(&self, all: &[NamedFilesystem]) {
        self.board.filesystems().name(wanted(all), &EarlierFilesystems::default());
    }

    /// The diskUUID of each name, and why it is not ready.
    fn said(&self) -> Vec<(Option<Uuid>, &'static str)> {
        let all = self.board.filesystems().reports().into_iter();
        let word = |report: crate::health::FilesystemReport| {
            (report.uuid, report.problem.map_or("ready", |problem| FilesystemReason::from(&problem).word()))
        };
        all.map(|(_, report)| report.map_or((None, "unknown"), word)).collect()
    }
}

#[test]
fn a_new_filesystem_gets_a_disk_uuid_in_its_file_and_a_later_checkup_changes_nothing() {
    let mut node = with_disks(&["one"]);
    node.mount("one", "/mnt/one");
    node.name(&[named("one", "/mnt/one")]);
    assert!(node.checkup());
    let [(Some(uuid), "ready")] = node.said()[..] else { panic!("{:?}", node.said()) };
    let root = node.root("one", "/mnt/one");
    let text = root.read(Path::new(CONFIG)).expect("read").expect("written");
    assert!(text.contains(&uuid.to_string()), "{text}");
    assert_eq!(root.names(Path::new("")).expect("listed"), [CONFIG], "nothing else is left there");
    assert!(!node.checkup(), "nothing has changed");
    // The process begins again, and its status was lost.
    node.name(&[]);
    node.name(&[named("one", "/mnt/one")]);
    assert!(node.checkup());
    assert_eq!(node.said(), [(Some(uuid), "ready")], "the file says it");
}

#[test]
fn a_forgotten_mount_after_a_reboot_is_not_ready_and_nothing_is_written_until_it_is_mounted_again() {
    let mut node = with_disks(&["one", "blank"]);
    node.mount("one", "/mnt/one");
    node.name(&[named("one", "/mnt/one")]);
    node.checkup();
    let [(uuid @ Some(_), "ready")] = node.said()[..] else { panic!("{:?}", node.said()) };
    node.unmount("/mnt/one");
    assert!(node.checkup());
    assert_eq!(node.said(), [(uuid, "NotMounted")]);
    // Somebody mounts another one, without a file: it is not taken for a new disk.
    node.mount("blank", "/mnt/one");
    node.checkup();
    assert_eq!(node.said(), [(uuid, "ConfigMissing")]);
    assert_eq!(node.root("blank", "/mnt/one").names(Path::new("")).expect("listed"), [""; 0]);
    node.unmount("/mnt/one");
    node.mount("one", "/mnt/one");
    node.host.mounts.set_fsid(&device("one"), 0xdead);
    assert!(node.checkup());
    assert_eq!(node.said(), [(uuid, "ready")], "and its fsid is another one now");
}

#[test]
fn a_file_that_is_deleted_is_never_written_again() {
    let mut node = with_disks(&["one"]);
    node.mount("one", "/mnt/one");
    node.name(&[named("one", "/mnt/one")]);
    node.checkup();
    let root = node.root("one", "/mnt/one");
    let text = root.read(Path::new(CONFIG)).expect("read").expect("written");
    root.remove_file(Path::new(CONFIG)).expect("removed");
    for _ in 0..3 {
        node.checkup();
        assert_eq!(node.said()[0].1, "ConfigMissing");
        assert_eq!(root.read(Path::new(CONFIG)).expect("read"), None);
    }
    root.write(Path::new(CONFIG), &text).expect("put back");
    assert!(node.checkup());
    assert_eq!(node.said()[0].1, "ready");
}

#[test]
fn the_wrong_disk_at_a_path_is_not_ready_and_its_file_is_not_changed() {
    let mut node = with_disks(&["one", "two"]);
    node.mount("one", "/mnt/one");
    node.mount("two", "/mnt/two");
    node.name(&[named("one", "/mnt/one"), named("two", "/mnt/two")]);
    node.checkup();
    let before = node.said();
    assert_eq!(before.iter().map(|(_, word)| *word).collect::<Vec<_>>(), ["ready", "ready"]);
    let text = |disk: &str, path: &str| node.root(disk, path).read(Path::new(CONFIG)).expect("read");
    let texts = [text("one", "/mnt/one"), text("two", "/mnt/two")];
    for path in ["/mnt/one", "/mnt/two"] {
        node.unmount(path);
    }
    node.mount("two", "/mnt/one");
    node.mount("one", "/mnt/two");
    assert!(node.checkup());
    assert_eq!(node.said(), [(before[0].0, "WrongDisk"), (before[1].0, "WrongDisk")]);
    let text = |disk: &str, path: &str| node.root(disk, path).read(Path::new(CONFIG)).expect("read");
    assert_eq!([text("one", "/mnt/two"), text("two", "/mnt/one")], texts);
}

#[test]
fn two_new_names_on_one_filesystem_are_both_not_ready_and_get_no_file_and_a_new_one_beside_an_existing_alone_is_not() {
    let mut node = with_disks(&["one"]);
    node.mount("one", "/mnt/one");
    node.mount("one", "/mnt/again");
    let [first, second] = [named("first", "/mnt/one"), named("second", "/mnt/again")];
    node.name(&[first.clone(), second.clone()]);
    node.checkup();
    assert_eq!(node.said(), [(None, "DuplicateFilesystem"), (None, "DuplicateFilesystem")]);
    assert_eq!(node.root("one", "/mnt/one").names(Path::new("")).expect("listed"), [""; 0]);
    node.name(std::slice::from_ref(&first));
    node.checkup();
    let [(uuid @ Some(_), "ready")] = node.said()[..] else { panic!("{:?}", node.said()) };
    node.name(&[first, second, named("third", "/mnt/one")]);
    node.checkup();
    let duplicate = (None, "DuplicateFilesystem");
    assert_eq!(node.said(), [(uuid, "ready"), duplicate, duplicate]);
}

#[test]
fn a_copy_of_a_disk_has_a_duplicate_uuid_and_the_existing_disk_stays_ready() {
    let mut node = with_disks(&["one", "copy"]);
    node.mount("one", "/mnt/one");
    node.name(&[named("one", "/mnt/one")]);
    node.checkup();
    let [(uuid @ Some(_), "ready")] = node.said()[..] else { panic!("{:?}", node.said()) };
    let text = node.root("one", "/mnt/one").read(Path::new(CONFIG)).expect("read").expect("written");
    node.mount("copy", "/mnt/copy");
    node.root("copy", "/mnt/copy").write(Path::new(CONFIG), &text).expect("copied");
    node.name(&[named("a copy", "/mnt/copy"), named("one", "/mnt/one")]);
    node.checkup();
    assert_eq!(node.said(), [(None, "DuplicateUUID"), (uuid, "ready")]);
    // Nobody knows the first one any more: none of them is chosen.
    node.name(&[]);
    node.name(&[named("a copy", "/mnt/copy"), named("one", "/mnt/one")]);
    node.checkup();
    assert_eq!(node.said(), [(None, "DuplicateUUID"), (None, "DuplicateUUID")]);
}

#[test]
fn a_file_that_is_truncated_of_another_product_or_of_another_node_is_not_used_and_not_changed() {
    let mut node = with_disks(&["one"]);
    node.mount("one", "/mnt/one");
    let root = node.root("one", "/mnt/one");
    let theirs = r#"{"diskName":"a","diskUUID":"2a2a9d8f-6c1e-4a52-8f0e-1f2d3c4b5a69"}"#;
    let of_other = r#"{"format":1,"diskUUID":"2a2a9d8f-6c1e-4a52-8f0e-1f2d3c4b5a69","cluster":"c","node":"other"}"#;
    let newer = r#"{"format":2,"diskUUID":"2a2a9d8f-6c1e-4a52-8f0e-1f2d3c4b5a69","cluster":"c","node":"n"}"#;
    for text in ["", "{", theirs, of_other, newer] {
        root.write(Path::new(CONFIG), text).expect("written");
        node.name(&[]);
        node.name(&[named("one", "/mnt/one")]);
        node.checkup();
        assert_eq!(node.said(), [(None, "ConfigUnusable")], "{text}");
        assert_eq!(root.read(Path::new(CONFIG)).expect("read").as_deref(), Some(text));
    }
    // Longhorn's file says nothing here, and stays.
    root.remove_file(Path::new(CONFIG)).expect("removed");
    root.write(Path::new("longhorn-disk.cfg"), theirs).expect("written");
    node.checkup();
    let [(Some(uuid), "ready")] = node.said()[..] else { panic!("{:?}", node.said()) };
    assert_ne!(uuid.to_string(), "2a2a9d8f-6c1e-4a52-8f0e-1f2d3c4b5a69");
    assert_eq!(root.read(Path::new("longhorn-disk.cfg")).expect("read").as_deref(), Some(theirs));
}

#[test]
fn what_is_no_mount_of_an_administrators_own_filesystem_is_refused_with_its_reason() {
    let mut node = with_disks(&["one", "system"]);
    node.mount("system", "/");
    node.mount("system", "/mnt/system");
    node.mount("one", "/mnt/one");
    node.host
        .mounts
        .bind(Path::new("/mnt/one/folder"), Path::new("/mnt/part"), TargetAccess::ReadWrite)
        .expect("bound");
    let volume = mounted(&node);
    node.host.mounts.mount(&volume.node, Path::new("/mnt/volume"), FsKind::Xfs, &[]).expect("mounted");
    node.host.mounts.set_no_mount_point(Path::new("/mnt/link"), NoMountPoint::Link);
    let paths = ["/", "/mnt/system", "/mnt/part", "/mnt/link", "/mnt/nothing", "/mnt/volume"];
    let all: Vec<NamedFilesystem> =
        paths.iter().zip(["a", "b", "c", "d", "e", "f"]).map(|(path, name)| named(name, path)).collect();
    node.name(&all);
    node.checkup();
    let words: Vec<&str> = node.said().iter().map(|(_, word)| *word).collect();
    let expected =
        ["EntryInvalid", "SystemFilesystem", "NotMounted", "NotMounted", "NotMounted", "LocalpoolFilesystem"];
    assert_eq!(words, expected);
    for (disk, path) in [("one", "/mnt/one"), ("system", "/mnt/system")] {
        assert_eq!(node.root(disk, path).names(Path::new("")).expect("listed"), [""; 0], "{path}");
    }
}

#[test]
fn a_filesystem_without_quota_gets_no_file_unless_none_is_wanted() {
    let mut node = with_disks(&["one"]);
    node.host.mounts.mount(&device("one"), Path::new("/mnt/one"), FsKind::Xfs, &[]).expect("mounted");
    node.name(&[named("one", "/mnt/one")]);
    node.checkup();
    assert_eq!(node.said(), [(None, "NoQuota")]);
    assert_eq!(node.root("one", "/mnt/one").names(Path::new("")).expect("listed"), [""; 0]);
    node.name(&[NamedFilesystem { quota: Quota::None, ..named("one", "/mnt/one") }]);
    node.checkup();
    assert_eq!(node.said()[0].1, "ready");
}

#[test]
fn a_filesystem_that_hangs_leaves_the_others_their_answer_and_keeps_what_was_known_of_it() {
    let mut node = with_disks(&["one", "two"]);
    node.mount("one", "/mnt/one");
    node.mount("two", "/mnt/two");
    node.name(&[named("one", "/mnt/one"), named("two", "/mnt/two")]);
    node.checkup();
    let before = node.said();
    node.host.mounts.gate.set_hangs_at(Some("/mnt/one"));
    node.unmount("/mnt/two");
    node.checkup();
    assert_eq!(node.said(), [before[0], (before[1].0, "NotMounted")]);
    node.host.advance(timeout::DEVICE_TIMEOUT);
    node.checkup();
    assert_eq!(node.said(), [(before[0].0, "NotAnswering"), (before[1].0, "NotMounted")]);
    node.host.mounts.gate.set_hangs_at(None);
    node.mount("two", "/mnt/two");
    while node.said() != before {
        node.checkup();
    }
}

#[test]
fn a_file_that_cannot_be_written_leaves_nothing_known_and_is_tried_again() {
    let mut node = with_disks(&["one"]);
    node.mount("one", "/mnt/one");
    let platter = node.host.platter("one").expect("plugged in");
    let all = crate::host::Extent { start: 0, end: u64::MAX };
    platter.inject(Fault { what: "tree move", range: all, times: u32::MAX });
    node.name(&[named("one", "/mnt/one")]);
    node.checkup();
    assert_eq!(node.said(), [(None, "ConfigNotWritten")]);
    platter.clear_faults();
    assert!(node.checkup());
    let [(Some(_), "ready")] = node.said()[..] else { panic!("{:?}", node.said()) };
    assert_eq!(node.root("one", "/mnt/one").names(Path::new("")).expect("listed"), [CONFIG]);
}

#[test]
fn a_look_that_hangs_before_it_writes_writes_nothing_after_the_name_was_removed() {
    let mut node = with_disks(&["one"]);
    node.mount("one", "/mnt/one");
    let platter = node.host.platter("one").expect("plugged in");
    platter.set_hangs_at(Some("tree"));
    let first = Arc::clone(&platter);
    // Its size, its file, the pool's claim of it, and its quota: a look that only reads. The next one would write.
    let answers = std::thread::spawn(move || {
        for _ in 0..4 {
            first.until_somebody_waits();
            first.let_one_through();
        }
        first.until_somebody_waits();
    });
    node.name(&[named("one", "/mnt/one")]);
    while !answers.is_finished() {
        node.checkup();
    }
    answers.join().expect("it hangs");
    node.name(&[]);
    node.checkup();
    // Its size, and that there is no file and no claim. It asks for the quota when it has written, or not.
    for _ in 0..3 {
        platter.let_one_through();
        platter.until_somebody_waits();
    }
    platter.set_hangs_at(None);
    assert_eq!(node.root("one", "/mnt/one").names(Path::new("")).expect("listed"), [""; 0]);
}

#[test]
fn what_an_earlier_agent_knew_counts_before_anything_is_written() {
    let mut node = with_disks(&["blank"]);
    node.mount("blank", "/mnt/one");
    let known = BTreeMap::from([(FilesystemName::from("one"), Uuid::from_u128(7))]);
    let earlier = EarlierFilesystems { known, ..EarlierFilesystems::default() };
    node.board.filesystems().name(wanted(&[named("one", "/mnt/one")]), &earlier);
    node.checkup();
    assert_eq!(node.said(), [(Some(Uuid::from_u128(7)), "ConfigMissing")]);
    assert_eq!(node.root("blank", "/mnt/one").names(Path::new("")).expect("listed"), [""; 0]);
}

#[test]
fn a_default_disk_is_named_after_its_fsid_when_it_is_first_mounted_and_keeps_that_name_and_its_disk_uuid() {
    let mut node = with_disks(&["one", "two"]);
    node.host.mounts.set_fsid(&device("one"), 0xfd00);
    let defaults = Some(["/mnt/one", "/mnt/two", "/"].map(|path| named("", path)).into());
    node.board.filesystems().name(WantedFilesystems { named: Vec::new(), defaults }, &EarlierFilesystems::default());
    let names = |node: &Node| {
        node.board.filesystems().named().into_iter().map(|(disk, _)| disk.name.to_string()).collect::<Vec<_>>()
    };
    assert!(node.checkup());
    assert_eq!((names(&node), node.board.filesystems().why_unnamed().len()), (Vec::new(), 3));
    assert!(!node.checkup());
    node.mount("one", "/mnt/one");
    assert!(node.checkup());
    assert_eq!(names(&node), ["default-disk-fd00"]);
    let [(Some(uuid), "ready")] = node.said()[..] else { panic!("{:?}", node.said()) };
    node.unmount("/mnt/one");
    node.checkup();
    assert_eq!(node.said(), [(Some(uuid), "NotMounted")]);
    node.mount("one", "/mnt/one");
    node.host.mounts.set_fsid(&device("one"), 0xbeef);
    node.checkup();
    assert_eq!((names(&node), node.said()), (vec!["default-disk-fd00".to_owned()], vec![(Some(uuid), "ready")]));
    let why = node.board.filesystems().why_unnamed();
    assert!(why[Path::new("/")].to_string().contains("the node's own filesystem"), "{why:?}");
}
