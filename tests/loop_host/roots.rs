//! The root of a mounted filesystem: names below it, no links, no other mounts.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use localpool::host::{
    Emptying, Filesystems, FsKind, HostError, Mounts, RealFilesystems, RealMounts, TargetAccess, chain,
};
use localpool_testing::MIB;
use uuid::Uuid;

use crate::fixture::{Loop, Target};
use crate::needs_root;

/// A disk with xfs, and where it is mounted.
fn mounted() -> (Loop, Target) {
    let disk = Loop::new(320 * MIB, 512);
    RealFilesystems::default().make(FsKind::Xfs, &disk.node, Uuid::new_v4()).unwrap();
    let target = Target::new(&disk, "mnt");
    RealMounts.mount(&disk.node, &target.0, FsKind::Xfs, &[]).unwrap();
    (disk, target)
}

fn message_of<T: std::fmt::Debug>(done: Result<T, HostError>) -> String {
    chain(&done.unwrap_err())
}

#[test]
fn loop_files_and_folders_of_a_root_are_made_moved_and_removed() {
    needs_root!();
    let (disk, target) = mounted();
    let root = RealMounts.open_root(&target.0, &disk.node).unwrap();
    let [a, b, file] = ["a", "b", "a/file"].map(Path::new);
    assert_eq!(root.names(a).unwrap(), [""; 0], "it is not there");
    root.make_folder(a, 0o755).unwrap();
    root.make_folder(a, 0o700).unwrap();
    assert_eq!(fs::metadata(target.0.join("a")).unwrap().permissions().mode() & 0o777, 0o755, "it stays as it was");
    assert_eq!(root.read(file).unwrap(), None);
    root.write(file, "one").unwrap();
    root.write(file, "two").unwrap();
    assert_eq!((root.read(file).unwrap().as_deref(), root.names(a).unwrap()), (Some("two"), vec!["file".to_owned()]));
    root.make_folder(b, 0o755).unwrap();
    assert!(message_of(root.rename(a, b)).contains("File exists"), "nothing is replaced");
    root.rename(a, Path::new("b/c")).unwrap();
    assert_eq!(root.read(Path::new("b/c/file")).unwrap().as_deref(), Some("two"));
    root.remove_file(Path::new("b/c/file")).unwrap();
    root.remove_file(Path::new("b/c/file")).unwrap();
    assert!(root.usage().unwrap().total > 200 * MIB);
}

#[test]
fn loop_a_root_follows_no_link_and_enters_no_other_mount() {
    needs_root!();
    let (disk, target) = mounted();
    let root = RealMounts.open_root(&target.0, &disk.node).unwrap();
    let outside = disk.file("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "of others").unwrap();
    symlink(&outside, target.0.join("link")).unwrap();
    symlink(outside.join("file"), target.0.join("file-link")).unwrap();
    let inner = target.0.join("inner");
    fs::create_dir(&inner).unwrap();
    RealMounts.bind(&outside, &inner, TargetAccess::ReadWrite).unwrap();
    let inside: Vec<PathBuf> = ["link/file", "file-link", "inner/file", "../outside/file"].map(PathBuf::from).into();
    for path in &inside {
        assert!(root.read(path).is_err(), "{}", path.display());
        // A link itself may be replaced, as it is not followed.
        if path != Path::new("file-link") {
            assert!(root.write(path, "mine").is_err(), "{}", path.display());
        }
    }
    let refused = message_of(root.empty_some(Path::new("inner"), 10));
    assert!(refused.contains("inner cannot be removed: something is mounted there"), "{refused}");
    assert!(message_of(root.remove_empty(Path::new("inner"))).contains("something is mounted there"));
    assert_eq!(root.empty_some(Path::new("link"), 10).unwrap(), Emptying::Empty);
    root.remove_empty(Path::new("link")).unwrap();
    assert!(!target.0.join("link").is_symlink(), "the link goes, and not what it leads to");
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "of others");
    RealMounts.unmount(&inner).unwrap();
}

#[test]
fn loop_a_root_is_that_of_the_device_and_stays_so() {
    needs_root!();
    let (disk, target) = mounted();
    let (other, _elsewhere) = mounted();
    let refused = message_of(RealMounts.open_root(&target.0, &other.node).map(drop));
    assert!(refused.contains(&format!("the filesystem of {} is not mounted there", other.path())), "{refused}");
    let root = RealMounts.open_root(&target.0, &disk.node).unwrap();
    // What is mounted over it is not what was opened.
    RealMounts.mount(&other.node, &target.0, FsKind::Xfs, &[]).unwrap();
    root.write(Path::new("file"), "mine").unwrap();
    assert!(!target.0.join("file").exists());
    RealMounts.unmount(&target.0).unwrap();
    assert_eq!(fs::read_to_string(target.0.join("file")).unwrap(), "mine");
    drop(root);
}

#[test]
fn loop_a_folder_of_the_filesystem_that_is_mounted_in_its_place_is_no_root() {
    needs_root!();
    let (disk, target) = mounted();
    let folder = target.0.join("volumes");
    fs::create_dir(&folder).unwrap();
    RealMounts.bind(&folder, &target.0, TargetAccess::ReadWrite).unwrap();
    let opened = RealMounts.open_root(&target.0, &disk.node).map(drop);
    RealMounts.unmount(&target.0).unwrap();
    assert!(message_of(opened).contains("a folder of it is mounted there"), "a tenant decides what is in it");
    RealMounts.open_root(&target.0, &disk.node).unwrap();
}
