//! Volumes that are folders, on a disk of the pool and on a filesystem that an administrator named: each reason of their
//! mounts, as it comes and goes. What is wrong with one mount is of one volume, and what is wrong with the filesystem of
//! all on it.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::claim::{FilesystemChoice, Filter};
use crate::device::label::{Layout, Quota};
use crate::health::{EarlierFilesystems, WantedFilesystems};
use crate::host::Mounts as _;
use crate::pool::NamedFilesystem;

const GEOMETRY: Geometry = Geometry { size: 512 << 20, sector: 512, offloads_zeroes: true };
const A: &str = "/a";
const B: &str = "/b";

fn rule() -> Rule {
    Rule { layout: Layout::Directory { quota: Quota::None }, fs: FsKind::Xfs, ..sample::rule("set") }
}

/// Two volumes of one filesystem, mounted at `/a` and `/b` for kubelet, and another filesystem on `/dev/other`.
struct Folders {
    node: Node,
    a: VolumeView,
    b: VolumeView,
}

/// On a disk of the pool.
fn on_a_disk() -> Folders {
    let host = Arc::new(FakeHost::default());
    let disks = vec![host.add_disk("fake0", "fake0", GEOMETRY)];
    Folders::of(begun_on(host, disks, rule(), 1))
}

/// On a filesystem that an administrator mounted and named.
fn on_a_named_filesystem() -> Folders {
    let host = Arc::new(FakeHost::default());
    let (device, path) = (Path::new("/dev/fake0"), Path::new("/mnt/one"));
    let disks = vec![host.add_disk("fake0", "fake0", GEOMETRY)];
    host.filesystems().make(FsKind::Xfs, device, uuid::Uuid::new_v4()).expect("made");
    host.mounts.mount(device, path, FsKind::Xfs, &[]).expect("mounted");
    let filesystems = Some(FilesystemChoice { tags: BTreeSet::new() });
    let rule = Rule { filesystems, filter: Filter::any_of(Vec::new()), ..rule() };
    let mut node = begun_on(host, disks, rule, 0);
    node.agent = node.agent.attending(node.board.filesystems());
    let named = NamedFilesystem {
        name: "one".into(),
        path: path.into(),
        quota: Quota::None,
        allows_scheduling: true,
        tags: BTreeSet::new(),
        reserved: None,
        stray_fields: Vec::new(),
    };
    let wanted = WantedFilesystems { named: vec![named], defaults: Some(Vec::new()) };
    node.board.filesystems().name(wanted, &EarlierFilesystems::default());
    node.agent.pass().expect("a pass");
    node.checkup();
    node.agent.pass().expect("a pass");
    Folders::of(node)
}

impl Folders {
    fn of(node: Node) -> Self {
        node.host.add_disk("other", "other", GEOMETRY);
        let made = |name| made_as(&node.checkup.pool, name, WantedUsage::Mount(Some(FsKind::Xfs)));
        let (a, b) = (made("a"), made("b"));
        assert_eq!(a.node, b.node, "they are on one filesystem");
        let mut folders = Self { node, a, b };
        for (view, target) in [(folders.a.clone(), A), (folders.b.clone(), B)] {
            folders.bind(&view, target);
            folders.node.board.mounted(view.id, target.as_ref(), folders.node.board.unmounts());
        }
        folders.are("", "");
        folders
    }

    fn bind(&self, view: &VolumeView, target: &str) {
        let folder = &view.directory.as_ref().expect("it is a folder").path;
        self.node.host.mounts().bind(folder, target.as_ref(), TargetAccess::ReadWrite).expect("bound");
    }

    fn mount_other(&self, target: &str) {
        let kind = FsKind::Ext4;
        self.node.host.mounts().mount("/dev/other".as_ref(), target.as_ref(), kind, &[]).expect("mounted");
    }

    fn unmount(&self, target: &str) {
        self.node.host.mounts().unmount(target.as_ref()).expect("unmounted");
    }

    /// The filesystem of both says it wherever one asks.
    fn set_state(&self, state: FilesystemState) {
        for target in [A, B] {
            self.node.host.set_filesystem_state(target.as_ref(), state);
        }
    }

    /// The same of how full it is.
    fn set_usage(&self, usage: FsUsage) {
        for target in [A, B] {
            self.node.host.mounts.set_usage(target.as_ref(), usage);
        }
    }

    /// What the next checkup finds of the two.
    fn are(&mut self, a: &str, b: &str) {
        self.node.checkup();
        let found = [&self.a, &self.b].map(|view| volume_reasons(&self.node, view).join(" "));
        assert_eq!(found, [a, b]);
    }

    fn message(&self, view: &VolumeView) -> String {
        self.node.board.of_volume(view).message()
    }
}

/// The same, wherever the folders are.
fn everywhere(story: impl Fn(&mut Folders)) {
    for mut folders in [on_a_disk(), on_a_named_filesystem()] {
        story(&mut folders);
    }
}

#[test]
fn a_folder_that_somebody_unmounts_is_no_mount_point_and_the_others_of_its_filesystem_are_well() {
    everywhere(|folders| {
        folders.unmount(A);
        folders.are("NotMountPoint", "");
        folders.bind(&folders.a.clone(), A);
        folders.are("", "");
        folders.unmount(B);
        folders.node.board.unmounted(folders.b.id, B.as_ref());
        folders.are("", "");
    });
}

#[test]
fn a_folder_that_another_mount_covers_is_hidden_be_it_a_folder_of_the_same_filesystem() {
    everywhere(|folders| {
        let (a, b) = (folders.a.clone(), folders.b.clone());
        folders.mount_other(A);
        folders.are("WrongDevice", "");
        assert!(folders.message(&a).contains("another mount covers the volume at /a"), "{}", folders.message(&a));
        folders.unmount(A);
        folders.are("", "");
        folders.bind(&b, A);
        folders.are("WrongDevice", "");
        assert!(folders.message(&a).contains("another mount covers the volume at /a"), "{}", folders.message(&a));
        folders.unmount(A);
        folders.are("", "");
        folders.bind(&a, A);
        folders.are("", "");
    });
}

#[test]
fn what_is_mounted_in_place_of_a_folder_is_wrong_be_it_another_folder_or_another_filesystem() {
    everywhere(|folders| {
        let (a, b) = (folders.a.clone(), folders.b.clone());
        folders.unmount(A);
        for replace in [|folders: &Folders| folders.bind(&folders.b, A), |folders: &Folders| folders.mount_other(A)] {
            replace(folders);
            folders.are("WrongDevice", "");
            let message = folders.message(&a);
            assert!(message.contains("what is mounted is not the present device of the volume at /a"), "{message}");
            folders.unmount(A);
        }
        folders.bind(&a, A);
        folders.are("", "");
        // Of the other one, with whatever else is mounted: a folder is no other one for having more places.
        folders.bind(&b, "/more");
        folders.are("", "");
    });
}

#[test]
fn a_filesystem_that_fails_is_a_reason_of_each_folder_that_is_mounted_of_it() {
    everywhere(|folders| {
        let state = FilesystemState::default();
        for (state, reasons) in [
            (FilesystemState { is_read_only: true, ..state }, "FilesystemReadOnly"),
            (FilesystemState { is_shut_down: true, ..state }, "FilesystemShutDown"),
            (FilesystemState { errors: Some(3), ..state }, "FilesystemErrors"),
            (state, ""),
        ] {
            folders.set_state(state);
            folders.are(reasons, reasons);
        }
        let device = folders.a.node.clone();
        let mounts = &folders.node.host.mounts;
        mounts.set_access(&device, TargetAccess::ReadOnly).expect("set");
        folders.are("DeviceReadOnly", "DeviceReadOnly");
        folders.node.host.mounts.set_access(&device, TargetAccess::ReadWrite).expect("set");
        folders.node.host.mounts.set_device_size(&device, 1);
        folders.are("CapacityAboveDevice", "CapacityAboveDevice");
        folders.node.host.mounts.set_device_size(&device, GEOMETRY.size);
        folders.are("", "");
    });
}

#[test]
fn a_mount_that_nobody_told_of_is_looked_at_whatever_part_of_the_folder_it_is_of() {
    everywhere(|folders| {
        // As kubelet does for a subPath.
        let part = folders.a.directory.as_ref().expect("it is a folder").path.join("logs/today");
        folders.node.host.mounts().bind(&part, "/part".as_ref(), TargetAccess::ReadWrite).expect("bound");
        folders.node.board.unmounted(folders.a.id, A.as_ref());
        folders.unmount(A);
        folders.are("", "");
        let read_only = FilesystemState { is_read_only: true, ..FilesystemState::default() };
        folders.node.host.set_filesystem_state("/part".as_ref(), read_only);
        folders.are("FilesystemReadOnly", "");
        folders.node.host.set_filesystem_state("/part".as_ref(), FilesystemState::default());
        folders.mount_other("/part");
        folders.are("WrongDevice", "");
    });
}

#[test]
fn a_filesystem_without_a_free_inode_is_a_reason_of_all_folders_of_it_by_one_question_and_goes_as_that_of_others() {
    everywhere(|folders| {
        // It is of all volumes, so its size is not that of any.
        let full = FsUsage { total: 9 * GEOMETRY.size, used: 9 * GEOMETRY.size, inodes: 10, ..FsUsage::default() };
        folders.set_usage(full);
        let before = folders.node.host.mounts.measured();
        folders.are("InodesExhausted", "InodesExhausted");
        assert_eq!(folders.node.host.mounts.measured() - before, 1, "all of them have one filesystem");
        let message = folders.message(&folders.a.clone());
        assert!(message.contains("the filesystem that the volume shares with others has no free inode"), "{message}");

        folders.set_usage(FsUsage { inodes_free: 1, ..full });
        folders.are("InodesExhausted", "InodesExhausted");
        folders.node.host.advance(Duration::from_secs(600));
        folders.are("", "");
        // A filesystem that makes inodes as it needs them reports none in all.
        folders.set_usage(FsUsage { inodes: 0, ..full });
        folders.are("", "");
    });
}

#[test]
fn a_folder_that_does_not_say_how_full_its_filesystem_is_leaves_that_to_the_next_one() {
    everywhere(|folders| {
        let first = if folders.a.id < folders.b.id { A } else { B };
        folders.set_usage(FsUsage { inodes: 10, ..FsUsage::default() });
        folders.node.host.mounts.set_usage_error(first.as_ref(), nix::libc::EIO);
        folders.node.checkup();
        let found = [&folders.a, &folders.b].map(|view| volume_reasons(&folders.node, view).join(" "));
        assert!(found.contains(&"InodesExhausted".to_owned()), "{found:?}");
    });
}
