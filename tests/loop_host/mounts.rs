//! Mounts, binds, targets that are not what they should be, and how full a filesystem is.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use localpool::health::{PathKind, WatchedPath};
use localpool::host::{
    Filesystems, FsKind, HostError, MountSource, Mounted, Mounts, PathState, RealFilesystems, RealMounts, TargetAccess,
    TargetKind,
};
use localpool_testing::{MIB, eventually, run};
use uuid::Uuid;

use crate::fixture::{Loop, Target, mount};
use crate::needs_root;

/// A disk with ext4 on the whole of it.
fn ext4() -> Loop {
    let disk = Loop::new(64 * MIB, 512);
    RealFilesystems::default().make(FsKind::Ext4, &disk.node, Uuid::new_v4()).unwrap();
    disk
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

fn refusal(result: Result<(), HostError>) -> String {
    match result {
        Err(HostError::Unsupported { what }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn loop_mount_options_reach_the_kernel_and_the_filesystem() {
    needs_root!();
    let disk = ext4();
    let target = Target::new(&disk, "mnt");
    let options = words(&["noatime", "nosuid,nodev", "commit=77", "x-mine=1", "ro"]);
    RealMounts.mount(&disk.node, &target.0, FsKind::Ext4, &options).unwrap();
    let has = target.options();
    for word in ["noatime", "nosuid", "nodev", "commit=77", "ro"] {
        assert!(has.iter().any(|other| other == word), "{word} in {has:?}");
    }
    assert!(fs::write(target.0.join("file"), "").is_err());
    let mounts = RealMounts.table().unwrap();
    let mount = mounts.iter().find(|mount| mount.target == target.0).unwrap();
    assert_eq!((mount.fs_type.as_str(), mount.source.as_str()), ("ext4", disk.path()));
    assert_eq!(mount.device, disk.raw().devno);
}

#[test]
fn loop_a_mount_that_cannot_be_is_an_error_with_a_message_and_nothing_is_mounted() {
    needs_root!();
    let disk = ext4();
    let target = Target::new(&disk, "mnt");
    let refused = |kind, options: &[&str]| {
        let error = RealMounts.mount(&disk.node, &target.0, kind, &words(options)).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(!target.mounted());
        format!("{error}: {source}")
    };
    assert!(refused(FsKind::Ext4, &["no-such-option"]).contains("no-such-option"));
    assert!(refused(FsKind::Xfs, &[]).contains("no xfs there"));
    assert!(refused(FsKind::Ext4, &["remount"]).contains("another operation"));

    mount(&disk.node, &target, FsKind::Ext4);
    let again = RealMounts.mount(&disk.node, &target.0, FsKind::Ext4, &[]);
    assert!(matches!(again, Err(HostError::Busy { .. })), "{again:?}");
}

#[test]
fn loop_a_read_only_bind_refuses_writes_keeps_the_flags_and_leaves_its_source_writable() {
    needs_root!();
    let disk = ext4();
    let (staged, published) = (Target::new(&disk, "staged"), Target::new(&disk, "published"));
    RealMounts.mount(&disk.node, &staged.0, FsKind::Ext4, &words(&["noexec", "nosuid", "noatime"])).unwrap();
    RealMounts.bind(&staged.0, &published.0, TargetAccess::ReadOnly).unwrap();
    let error = fs::write(published.0.join("file"), "x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(nix::libc::EROFS));
    fs::write(staged.0.join("file"), "x").unwrap();
    assert_eq!(fs::read_to_string(published.0.join("file")).unwrap(), "x");
    let has = published.options();
    for word in ["ro", "noexec", "nosuid", "noatime"] {
        assert!(has.iter().any(|other| other == word), "{word} in {has:?}");
    }
    assert!(!staged.options().iter().any(|word| word == "ro"));

    let writable = Target::new(&disk, "writable");
    RealMounts.bind(&staged.0, &writable.0, TargetAccess::ReadWrite).unwrap();
    fs::write(writable.0.join("other"), "y").unwrap();
}

#[test]
fn loop_a_device_node_is_bound_to_a_file_and_the_file_is_then_the_device() {
    needs_root!();
    let disk = Loop::new(8 * MIB, 512);
    let path = disk.file("pod/block");
    RealMounts.make_target(&path, TargetKind::File).unwrap();
    let target = Target(path);
    RealMounts.bind(&disk.node, &target.0, TargetAccess::ReadWrite).unwrap();
    let bound = fs::metadata(&target.0).unwrap();
    assert!(bound.file_type().is_block_device());
    assert_eq!(bound.rdev(), fs::metadata(&disk.node).unwrap().rdev());
    assert!(refusal(RealMounts.usage(&target.0).map(drop)).contains("is a device node"));
    // A repeated call finds the target in its place, and a mounted target is never removed.
    RealMounts.make_target(&target.0, TargetKind::File).unwrap();
    assert!(matches!(RealMounts.remove_target(&target.0), Err(HostError::Busy { .. })));
    RealMounts.unmount(&target.0).unwrap();
    assert!(fs::metadata(&target.0).unwrap().is_file());
    RealMounts.remove_target(&target.0).unwrap();
    RealMounts.remove_target(&target.0).unwrap();
    assert!(!target.0.exists());
}

#[test]
fn loop_a_target_that_is_a_symlink_or_of_another_type_is_refused_and_not_touched() {
    needs_root!();
    let disk = ext4();
    let dir = disk.folder.path();
    let real = Target::new(&disk, "real");
    let (link, dangling, file, folder) = (dir.join("link"), dir.join("dangling"), dir.join("file"), dir.join("folder"));
    symlink(&real.0, &link).unwrap();
    symlink(dir.join("nowhere"), &dangling).unwrap();
    fs::write(&file, "").unwrap();
    fs::create_dir(&folder).unwrap();

    for path in [&link, &dangling] {
        for kind in [TargetKind::Directory, TargetKind::File] {
            assert!(refusal(RealMounts.make_target(path, kind)).contains("is a symlink"));
        }
        assert!(refusal(RealMounts.mount(&disk.node, path, FsKind::Ext4, &[])).contains("is a symlink"));
        assert!(refusal(RealMounts.bind(&folder, path, TargetAccess::ReadWrite)).contains("is a symlink"));
        assert!(RealMounts.remove_target(path).is_err());
        RealMounts.unmount(path).unwrap();
        assert!(path.is_symlink());
    }
    assert!(!dir.join("nowhere").exists());
    assert!(refusal(RealMounts.make_target(&file, TargetKind::Directory)).contains("is not a directory"));
    assert!(refusal(RealMounts.make_target(&folder, TargetKind::File)).contains("is not a file"));
    assert!(refusal(RealMounts.mount(&disk.node, &file, FsKind::Ext4, &[])).contains("is not a directory"));
    assert!(refusal(RealMounts.bind(&folder, &file, TargetAccess::ReadWrite)).contains("is not a directory"));
    assert!(refusal(RealMounts.bind(&disk.node, &folder, TargetAccess::ReadWrite)).contains("is not a file"));
    assert!(RealMounts.make_target(&file.join("below"), TargetKind::Directory).is_err());
    assert!(!real.mounted());

    mount(&disk.node, &real, FsKind::Ext4);
    RealMounts.unmount(&link).unwrap();
    assert!(real.mounted(), "the unmount followed a symlink");
}

#[test]
fn loop_targets_are_made_with_their_parents_for_nobody_else_and_removed_only_when_empty() {
    needs_root!();
    let disk = Loop::new(MIB, 512);
    let target = disk.file("a/b/c");
    for _ in 0..2 {
        RealMounts.make_target(&target, TargetKind::Directory).unwrap();
    }
    for made in [target.as_path(), target.parent().unwrap()] {
        assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o027, 0, "{}", made.display());
    }
    fs::write(target.join("precious"), "x").unwrap();
    assert!(RealMounts.remove_target(&target).is_err());
    assert!(refusal(RealMounts.remove_target(&target.join("precious"))).contains("is a file with content"));
    assert_eq!(fs::read_to_string(target.join("precious")).unwrap(), "x");
    fs::remove_file(target.join("precious")).unwrap();
    RealMounts.remove_target(&target).unwrap();
    RealMounts.remove_target(&target).unwrap();
    RealMounts.remove_target(&target.join("below/nothing")).unwrap();
    assert!(RealMounts.make_target(Path::new("/"), TargetKind::Directory).is_err());
}

#[test]
fn loop_mounts_of_two_directories_of_one_filesystem_are_told_apart_until_their_directory_is_moved_or_removed() {
    needs_root!();
    let disk = ext4();
    let whole = Target::new(&disk, "whole");
    mount(&disk.node, &whole, FsKind::Ext4);
    let bound = ["a", "b", "a/below one"].map(|name| {
        let source = whole.0.join(name);
        fs::create_dir(&source).unwrap();
        let target = Target::new(&disk, &name.replace('/', "-"));
        RealMounts.bind(&source, &target.0, TargetAccess::ReadWrite).unwrap();
        target
    });
    let of = |source: MountSource<'_>| {
        let table = RealMounts.table().unwrap();
        let is_from =
            |target: &Target| table.iter().any(|mount| mount.target == target.0 && RealMounts.is_from(mount, source));
        bound.each_ref().map(is_from)
    };
    let below = |root: &'static str| MountSource { device: &disk.node, root: Path::new(root) };
    assert_eq!(of(MountSource::whole(&disk.node)), [true, true, true]);
    assert_eq!((of(below("/a")), of(below("/b"))), ([true, false, true], [false, true, false]));
    assert_eq!(of(below("/a/below one")), [false, false, true]);
    fs::rename(whole.0.join("a"), whole.0.join("moved")).unwrap();
    fs::remove_dir(whole.0.join("b")).unwrap();
    assert_eq!((of(below("/a")), of(below("/b"))), ([false; 3], [false; 3]));
    assert_eq!(of(below("/moved")), [true, false, true]);
    assert_eq!(of(MountSource::whole(&disk.node)), [true, true, true]);
    let other = Loop::new(64 * MIB, 512);
    assert_eq!(of(MountSource { device: &other.node, root: Path::new("/moved") }), [false; 3]);
}

#[test]
fn loop_unmount_of_nothing_is_success_and_of_a_mount_in_use_is_busy() {
    needs_root!();
    let disk = ext4();
    let target = Target::new(&disk, "mnt");
    RealMounts.unmount(&target.0).unwrap();
    RealMounts.unmount(&target.0.join("nothing")).unwrap();
    mount(&disk.node, &target, FsKind::Ext4);
    let open = File::create(target.0.join("file")).unwrap();
    let error = RealMounts.unmount(&target.0).unwrap_err();
    assert!(matches!(error, HostError::Busy { .. }), "{error}");
    assert!(matches!(RealMounts.remove_target(&target.0), Err(HostError::Busy { .. })));
    assert!(target.mounted());
    drop(open);
    RealMounts.unmount(&target.0).unwrap();
    RealMounts.unmount(&target.0).unwrap();
    assert!(!target.mounted());
}

#[test]
fn loop_a_filesystem_that_somebody_measures_at_this_moment_is_unmounted_a_moment_later() {
    needs_root!();
    let disk = ext4();
    let target = Target::new(&disk, "mnt");
    mount(&disk.node, &target, FsKind::Ext4);
    let unmounted_beside_a_measurement = || {
        let stops = std::sync::atomic::AtomicBool::new(false);
        let unmounted = std::thread::scope(|scope| {
            let file = fs::File::open(&target.0).unwrap();
            let (measured, begun) = std::sync::mpsc::channel();
            let stops = &stops;
            scope.spawn(move || {
                let _file = file;
                // The unmount finds it in use at least once.
                begun.recv().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(30));
                stops.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            measured.send(()).unwrap();
            RealMounts.unmount(&target.0)
        });
        assert!(unmounted.is_err() || stops.into_inner());
        unmounted.is_ok()
    };
    // On a busy machine a moment may be far longer.
    assert!((0..20).any(|_| unmounted_beside_a_measurement()), "it is not waited for");
    assert!(!target.mounted());
}

#[test]
fn loop_usage_is_what_df_says() {
    needs_root!();
    let disk = ext4();
    let target = Target::new(&disk, "mnt");
    mount(&disk.node, &target, FsKind::Ext4);
    fs::write(target.0.join("file"), vec![1; 5 << 20]).unwrap();
    run("sync", &[]);
    let usage = RealMounts.usage(&target.0).unwrap();
    let df = run("df", &["-B1", "--output=size,used,avail,itotal,iused,iavail", target.0.to_str().unwrap()]);
    let theirs: Vec<u64> = df.lines().nth(1).unwrap().split_whitespace().map(|word| word.parse().unwrap()).collect();
    let ours = [usage.total, usage.used, usage.available, usage.inodes, usage.inodes_used, usage.inodes_free];
    assert_eq!(ours, theirs[..]);
    assert!(usage.used >= 5 * MIB);
    assert!(RealMounts.usage(&target.0.join("nothing")).is_err());
}

/// What is wrong with a path that must be a mount point, if a PersistentVolume promises so much.
fn wrong(path: &Path, capacity: u64, kind: PathKind) -> String {
    let (volume, uid, is_mounted) = ("v".into(), "u".into(), kind == PathKind::Filesystem);
    let watched = WatchedPath { volume, uid, path: path.to_owned(), capacity, kind, is_mounted, claim: None };
    let found = watched.findings(&RealMounts.path_state(path).unwrap());
    found.iter().map(|finding| finding.reason.word()).collect::<Vec<_>>().join(" ")
}

#[test]
fn loop_a_path_that_leads_to_a_device_has_the_size_of_the_device_also_when_that_shrinks() {
    needs_root!();
    let disk = Loop::new(8 * MIB, 512);
    let link = disk.file("a link\nto it");
    symlink(&disk.node, &link).unwrap();
    for path in [&link, &disk.node] {
        assert_eq!(RealMounts.path_state(path).unwrap(), PathState::Device { size: Some(8 * MIB) });
        assert_eq!(wrong(path, 8 * MIB, PathKind::Block), "");
        assert_eq!(wrong(path, 8 * MIB + 1, PathKind::Filesystem), "MisMatchedVolSize");
    }
    File::options().write(true).open(&disk.image).unwrap().set_len(4 * MIB).unwrap();
    run("losetup", &["--set-capacity", disk.path()]);
    assert_eq!(wrong(&link, 8 * MIB, PathKind::Block), "MisMatchedVolSize");
    assert_eq!(wrong(&disk.file(""), 1, PathKind::Block), "HostPathNotExist", "a directory is no device");
}

#[test]
fn loop_a_path_is_measured_as_the_filesystem_that_is_mounted_there_and_is_no_mount_point_without_it() {
    needs_root!();
    let disk = Loop::new(64 * MIB, 512);
    run("mkfs.ext4", &["-q", "-N", "16", disk.path()]);
    let target = Target::new(&disk, "a mount\npoint");
    let state = || RealMounts.path_state(&target.0).unwrap();
    let kind = PathKind::Filesystem;
    assert!(matches!(state(), PathState::Directory { mounted: Mounted::Nothing, .. }), "{:?}", state());
    assert_eq!(wrong(&target.0, 9 << 60, kind), "NotMountPoint", "its size is not asked for any more");
    mount(&disk.node, &target, FsKind::Ext4);
    let PathState::Directory { mounted: Mounted::Whole, device_size, usage, .. } = state() else {
        panic!("{:?}", state())
    };
    assert_eq!((device_size, usage), (Some(64 * MIB), RealMounts.usage(&target.0).unwrap()));
    assert_eq!(wrong(&target.0, 64 * MIB, kind), "", "a filesystem is smaller than its device");
    assert_eq!(wrong(&target.0, 64 * MIB + 1, kind), "MisMatchedVolSize");
    fs::write(target.0.join("file"), vec![1; 9 << 20]).unwrap();
    run("sync", &["-f", target.0.to_str().unwrap()]);
    assert_eq!(wrong(&target.0, 8 * MIB, kind), "MisMatchedVolSize", "more is used than was promised");
    let made = (0..1000).take_while(|n| File::create(target.0.join(n.to_string())).is_ok()).count();
    assert!((1..1000).contains(&made), "{made}");
    assert_eq!(wrong(&target.0, 64 * MIB, kind), "InodesExhausted");
    let folder = target.0.join("0");
    fs::remove_file(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    let part = Target::new(&disk, "part");
    RealMounts.bind(&folder, &part.0, TargetAccess::ReadWrite).unwrap();
    assert_eq!(wrong(&part.0, 8 * MIB, kind), "InodesExhausted", "what is used of a part is not known");
}

#[test]
fn loop_a_path_whose_filesystem_turns_read_only_or_shuts_down_says_so() {
    needs_root!();
    for shut_down in [false, true] {
        let disk = ext4();
        let (mounted, path) = (Target::new(&disk, "mnt"), Target::new(&disk, "a path\nof it"));
        mount(&disk.node, &mounted, FsKind::Ext4);
        RealMounts.bind(&mounted.0, &path.0, TargetAccess::ReadWrite).unwrap();
        assert_eq!(wrong(&path.0, MIB, PathKind::Filesystem), "");
        let below = mounted.0.to_str().unwrap();
        match shut_down {
            false => run("mount", &["-o", "remount,ro", below]),
            true => run("xfs_io", &["-x", "-c", "shutdown", below]),
        };
        let expected = if shut_down { "FilesystemShutDown" } else { "FilesystemReadOnly" };
        assert_eq!(wrong(&path.0, MIB, PathKind::Filesystem), expected);
    }
}

#[test]
fn loop_a_path_that_is_read_only_as_it_was_mounted_is_well_whatever_is_bound_from_it() {
    needs_root!();
    let disk = ext4();
    let (path, bound) = (Target::new(&disk, "mnt"), Target::new(&disk, "bound"));
    let [below, above] = [&path, &bound].map(|target| target.0.to_str().unwrap());
    run("mount", &["-o", "ro", disk.path(), below]);
    assert_eq!(wrong(&path.0, MIB, PathKind::Filesystem), "");
    // As kubelet binds what a pod gets.
    run("mount", &["--bind", below, above]);
    run("mount", &["-o", "bind,remount,rw", above]);
    assert_eq!(wrong(&path.0, MIB, PathKind::Filesystem), "");
}

#[test]
fn loop_a_path_whose_filesystem_has_counted_errors_is_not_read_only_by_an_error_of_an_earlier_mount() {
    needs_root!();
    let disk = ext4();
    for field in ["error_count 3", "last_error_func ext4_journal_check_start"] {
        run("debugfs", &["-w", "-R", &format!("set_super_value {field}"), disk.path()]);
    }
    let path = Target::new(&disk, "mnt");
    run("mount", &[disk.path(), path.0.to_str().unwrap()]);
    assert_eq!(wrong(&path.0, MIB, PathKind::Filesystem), "FilesystemErrors");
    fs::write(path.0.join("file"), "it can be written").unwrap();
}

#[test]
fn loop_paths_that_share_a_filesystem_have_its_identity_and_a_directory_of_it_has_none() {
    needs_root!();
    let disk = Loop::new(256 * MIB, 512);
    run("mkfs.btrfs", &["-q", disk.path()]);
    let [whole, folder, subvolume] = ["mnt", "folder", "subvolume"].map(|name| Target::new(&disk, name));
    let at = |target: &Target| target.0.to_str().unwrap().to_owned();
    run("mount", &[disk.path(), &at(&whole)]);
    let (one, other) = (whole.0.join("one"), whole.0.join("other"));
    fs::create_dir(&one).unwrap();
    run("btrfs", &["subvolume", "create", other.to_str().unwrap()]);
    assert_eq!([&one, &other].map(|path| RealMounts.path_identity(path)), [None, None], "they are no mount points");
    RealMounts.bind(&one, &folder.0, TargetAccess::ReadWrite).unwrap();
    run("mount", &["-o", "subvol=other", disk.path(), &at(&subvolume)]);
    // Without udev nobody says it, of none of them.
    let words = || [&whole, &folder, &subvolume].map(|target| RealMounts.path_identity(&target.0));
    let are_same = || {
        let words = words();
        words.iter().all(|word| *word == words[0])
    };
    assert!(eventually(Duration::from_secs(60), are_same), "{:?}", words());
    assert!(words().iter().flatten().all(|word| word.starts_with("fs-")), "{:?}", words());
}
