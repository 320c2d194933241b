//! How a mounted filesystem is, as the kernel says it, and the announcements that the mount table has changed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use localpool::host::{
    Announcements, FilesystemState, Filesystems, FsKind, Host, HostError, Mount, Mounts, PartitionMap, RealFilesystems,
    RealHost, RealMounts, Roots, StateDir, TargetAccess,
};
use localpool_testing::{MIB, eventually, run};
use uuid::Uuid;

use crate::fixture::{Loop, Target, extent, mount};
use crate::needs_root;

/// A disk with a filesystem on the whole of it.
fn made(kind: FsKind) -> Loop {
    let disk = Loop::new(kind.minimum_bytes().next_multiple_of(64 * MIB), 512);
    RealFilesystems::default().make(kind, &disk.node, Uuid::new_v4()).unwrap();
    disk
}

/// The same, mounted.
fn mounted(kind: FsKind) -> (Loop, Target) {
    let disk = made(kind);
    // Spaces and newlines are escaped in mountinfo.
    let target = Target::new(&disk, "a mount\npoint");
    mount(&disk.node, &target, kind);
    (disk, target)
}

fn row(target: &Path) -> Mount {
    let table = RealMounts.table().unwrap();
    table.into_iter().rfind(|mount| mount.target == target).expect("it is mounted")
}

fn state(target: &Target) -> FilesystemState {
    RealMounts.filesystem_state(&row(&target.0)).unwrap()
}

/// How a filesystem of this kind is if nothing has happened to it.
fn well(kind: FsKind) -> FilesystemState {
    let errors = (kind != FsKind::Xfs).then_some(0);
    FilesystemState { is_read_only: false, errors, is_shut_down: false }
}

fn shut_down(target: &Target) {
    run("xfs_io", &["-x", "-c", "shutdown", target.0.to_str().unwrap()]);
}

fn trigger_error(node: &Path) {
    let name = node.file_name().unwrap().to_str().unwrap();
    fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "a test").unwrap();
}

#[test]
fn loop_a_filesystem_that_is_well_says_so_and_one_that_is_remounted_read_only_says_that() {
    needs_root!();
    for kind in FsKind::ALL {
        let (disk, target) = mounted(kind);
        assert_eq!(state(&target), well(kind), "{kind:?}");
        let published = Target::new(&disk, "published");
        RealMounts.bind(&target.0, &published.0, TargetAccess::ReadWrite).unwrap();
        run("mount", &["-o", "remount,ro", target.0.to_str().unwrap()]);
        assert_eq!(state(&target), FilesystemState { is_read_only: true, ..well(kind) }, "{kind:?}");
    }
}

#[test]
fn loop_a_filesystem_that_somebody_asked_to_mount_read_only_is_well() {
    needs_root!();
    for kind in FsKind::ALL {
        let disk = made(kind);
        let (staged, published) = (Target::new(&disk, "staged"), Target::new(&disk, "published"));
        RealMounts.mount(&disk.node, &staged.0, kind, &["ro".to_owned()]).unwrap();
        RealMounts.bind(&staged.0, &published.0, TargetAccess::ReadOnly).unwrap();
        assert_eq!([state(&staged), state(&published)], [well(kind), well(kind)], "{kind:?}");
    }
}

#[test]
fn loop_a_read_only_bind_is_no_read_only_filesystem_and_a_writable_bind_of_one_is() {
    needs_root!();
    for kind in FsKind::ALL {
        let (disk, staged) = mounted(kind);
        let published = Target::new(&disk, "published");
        RealMounts.bind(&staged.0, &published.0, TargetAccess::ReadOnly).unwrap();
        assert!(published.options().iter().any(|word| word == "ro"));
        assert_eq!(state(&published), well(kind), "{kind:?}");

        let writable = Target::new(&disk, "writable");
        RealMounts.bind(&staged.0, &writable.0, TargetAccess::ReadWrite).unwrap();
        // Of the superblock, through one of its mounts.
        run("mount", &["-o", "remount,ro", staged.0.to_str().unwrap()]);
        for target in [&staged, &published, &writable] {
            assert!(state(target).is_read_only, "{kind:?} at {}", target.0.display());
        }
    }
}

/// The kernel counts an error a moment after the write that triggers it.
fn until(target: &Target, wanted: FilesystemState) {
    let came = eventually(Duration::from_secs(60), || state(target) == wanted);
    assert!(came, "{:?}, not {wanted:?}", state(target));
}

#[test]
fn loop_ext4_counts_its_errors_and_says_that_they_made_it_read_only() {
    needs_root!();
    // In a partition, as most volumes are.
    let disk = Loop::new(64 * MIB, 512);
    let open = disk.own();
    open.map(2, extent(2, 50)).unwrap();
    let node = open.node(2);
    RealFilesystems::default().make(FsKind::Ext4, &node, Uuid::new_v4()).unwrap();
    let target = Target::new(&disk, "mnt");
    mount(&node, &target, FsKind::Ext4);
    for count in 1..3 {
        trigger_error(&node);
        until(&target, FilesystemState { errors: Some(count), ..well(FsKind::Ext4) });
    }
    RealMounts.unmount(&target.0).unwrap();
    // The count is in the superblock. This time the kernel stops the writes.
    RealMounts.mount(&node, &target.0, FsKind::Ext4, &["errors=remount-ro".to_owned()]).unwrap();
    assert_eq!(state(&target), FilesystemState { errors: Some(2), ..well(FsKind::Ext4) });
    trigger_error(&node);
    assert!(fs::write(target.0.join("file"), "x").is_err());
    until(&target, FilesystemState { is_read_only: true, errors: Some(3), is_shut_down: false });
    RealMounts.unmount(&target.0).unwrap();
    open.unmap(2).unwrap();
}

#[test]
fn loop_btrfs_counts_the_blocks_that_do_not_match_their_checksum() {
    needs_root!();
    let (disk, target) = mounted(FsKind::Btrfs);
    let block = [0xab; 4096];
    fs::write(target.0.join("file"), block).unwrap();
    run("sync", &["-f", target.0.to_str().unwrap()]);
    RealMounts.unmount(&target.0).unwrap();
    let device = File::options().read(true).write(true).open(&disk.node).unwrap();
    let mut found = [0; 4096];
    let starts = (0..disk.raw().size).step_by(block.len());
    for start in starts {
        device.read_exact_at(&mut found, start).unwrap();
        if found == block {
            device.write_all_at(&[0xac], start).unwrap();
        }
    }
    device.sync_all().unwrap();
    drop(device);

    mount(&disk.node, &target, FsKind::Btrfs);
    assert_eq!(state(&target), well(FsKind::Btrfs));
    assert!(fs::read(target.0.join("file")).is_err());
    let errors = state(&target).errors;
    assert!(errors.is_some_and(|errors| errors > 0), "{errors:?}");
}

#[test]
fn loop_a_filesystem_that_was_shut_down_says_so_and_after_a_new_mount_is_well() {
    needs_root!();
    for kind in [FsKind::Ext4, FsKind::Xfs] {
        let (disk, target) = mounted(kind);
        let bound = Target::new(&disk, "bound");
        RealMounts.bind(&target.0, &bound.0, TargetAccess::ReadOnly).unwrap();
        // Not by the words of newer kernels alone.
        let mut before = row(&target.0);
        shut_down(&target);
        assert!(state(&target).is_shut_down, "{kind:?}");
        assert!(state(&bound).is_shut_down, "{kind:?} through a bind");
        before.options.retain(|word| word != "shutdown");
        assert!(RealMounts.filesystem_state(&before).unwrap().is_shut_down, "{kind:?} without the word");
        RealMounts.unmount(&bound.0).unwrap();
        RealMounts.unmount(&target.0).unwrap();
        mount(&disk.node, &target, kind);
        assert_eq!(state(&target), well(kind));
    }
}

#[test]
fn loop_a_filesystem_that_is_hidden_or_gone_is_not_taken_for_the_one_at_its_target() {
    needs_root!();
    let (disk, target) = mounted(FsKind::Ext4);
    let hidden = row(&target.0);
    run("mount", &["-t", "tmpfs", "none", target.0.to_str().unwrap()]);
    let changed = |mount: &Mount| match RealMounts.filesystem_state(mount) {
        Err(HostError::Changed { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(changed(&hidden), "another filesystem is there now");
    RealMounts.unmount(&target.0).unwrap();
    assert_eq!(RealMounts.filesystem_state(&hidden).unwrap(), well(FsKind::Ext4));
    RealMounts.unmount(&target.0).unwrap();
    assert_eq!(changed(&hidden), "another filesystem is there now");
    drop(disk);
}

#[test]
fn loop_a_disk_that_is_no_array_has_no_state_of_one() {
    needs_root!();
    let disk = Loop::new(MIB, 512);
    let state = StateDir::at(disk.folder.path());
    let host = RealHost::new(Roots::default(), RealFilesystems::default(), state);
    assert_eq!(host.arrays(&disk.raw()), []);
}

#[test]
fn loop_a_mount_an_unmount_and_a_remount_are_announced_once() {
    needs_root!();
    const SOON: Duration = Duration::from_secs(60);
    let disk = made(FsKind::Ext4);
    let target = Target::new(&disk, "mnt");
    let mut events = Announcements::of_mounts(&Roots::default()).unwrap();
    // Others on this machine mount too, so silence is only waited for.
    let until_silent = |events: &mut Announcements| while events.next(Duration::from_millis(100)).unwrap() {};
    until_silent(&mut events);

    mount(&disk.node, &target, FsKind::Ext4);
    assert!(events.next(SOON).unwrap(), "a mount before the wait");
    until_silent(&mut events);
    run("mount", &["-o", "remount,ro", target.0.to_str().unwrap()]);
    assert!(events.next(SOON).unwrap(), "a remount");
    until_silent(&mut events);
    let began = Instant::now();
    thread::scope(|threads| {
        threads.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            RealMounts.unmount(&target.0).unwrap();
        });
        assert!(events.next(SOON).unwrap(), "an unmount during the wait");
    });
    assert!(began.elapsed() < SOON);
    until_silent(&mut events);
}
