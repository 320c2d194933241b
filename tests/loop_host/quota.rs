//! Projects of XFS: what a kernel with quota counts and enforces, and what one without says.

use std::fs;
use std::path::Path;

use localpool::host::{
    Filesystems, FsKind, HostError, ModuleLoading, Mounts, ProjectId, QuotaState, RealFilesystems, RealMounts, chain,
};
use localpool_testing::{MIB, skipped};
use uuid::Uuid;

use crate::fixture::{Loop, Target};
use crate::needs_root;

const SEVEN: ProjectId = ProjectId::new(7);

/// A disk with xfs, mounted with these options if that can be done.
fn mounted(options: &[&str]) -> (Loop, Target, Result<(), HostError>) {
    let disk = Loop::new(320 * MIB, 512);
    RealFilesystems::default().make(FsKind::Xfs, &disk.node, Uuid::new_v4()).unwrap();
    let target = Target::new(&disk, "mnt");
    let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
    let done = RealMounts.mount(&disk.node, &target.0, FsKind::Xfs, &options);
    (disk, target, done)
}

#[test]
fn loop_a_folder_and_what_is_made_in_it_are_of_its_project_on_every_kernel() {
    needs_root!();
    let (disk, target, done) = mounted(&[]);
    done.unwrap();
    let root = RealMounts.open_root(&target.0, &disk.node).unwrap();
    let [folder, inner] = ["folder", "folder/inner"].map(Path::new);
    root.make_folder(folder, 0o755).unwrap();
    assert_eq!(root.project_of(folder).unwrap(), ProjectId::NONE);
    root.put_in_project(folder, SEVEN).unwrap();
    root.make_folder(inner, 0o755).unwrap();
    assert_eq!([folder, inner].map(|path| root.project_of(path).unwrap()), [SEVEN; 2]);
    // It is moved out of the folder of its project, as a volume that is deleted.
    root.rename(inner, Path::new("outside")).unwrap();
    assert_eq!(root.project_of(Path::new("outside")).unwrap(), SEVEN);
}

#[test]
fn loop_a_filesystem_that_is_mounted_without_quota_says_so_and_limits_nothing() {
    needs_root!();
    let (disk, target, done) = mounted(&[]);
    done.unwrap();
    let root = RealMounts.open_root(&target.0, &disk.node).unwrap();
    assert_eq!(root.quota_state().unwrap(), QuotaState::NotCounted);
    assert!(root.limit_project(SEVEN, MIB).is_err());
    assert!(root.project_usage(SEVEN).is_err());
}

#[test]
fn loop_a_kernel_without_quota_says_so_and_does_not_mount_with_it() {
    needs_root!();
    let Err(why) = RealMounts.supports_project_quota(ModuleLoading::Allowed) else {
        skipped("the kernel has quota for XFS");
        return;
    };
    assert!(chain(&why).starts_with("the kernel "), "{}", chain(&why));
    let (_disk, _target, done) = mounted(&["prjquota"]);
    assert!(done.is_err(), "nothing is mounted as if it had limits");
}

#[test]
fn loop_a_project_is_counted_and_has_no_more_than_its_limit() {
    needs_root!();
    if RealMounts.supports_project_quota(ModuleLoading::Allowed).is_err() {
        skipped("the kernel has no quota for XFS");
        return;
    }
    let (disk, target, done) = mounted(&["prjquota"]);
    done.unwrap();
    let root = RealMounts.open_root(&target.0, &disk.node).unwrap();
    assert_eq!(root.quota_state().unwrap(), QuotaState::Enforced);
    assert!(root.project_usage(SEVEN).unwrap().is_unused());
    let folder = Path::new("folder");
    root.limit_project(SEVEN, 8 * MIB).unwrap();
    root.make_folder(folder, 0o755).unwrap();
    root.put_in_project(folder, SEVEN).unwrap();
    let file = |name: &str| target.0.join("folder").join(name);
    let full = fs::write(file("large"), vec![1; 9 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
    fs::remove_file(file("large")).unwrap();
    fs::write(target.0.join("beside"), vec![1; 9 << 20]).unwrap();
    // What was removed may still be counted for a moment.
    root.limit_project(SEVEN, 32 * MIB).unwrap();
    fs::write(file("large"), vec![1; 9 << 20]).unwrap();
    let used = root.project_usage(SEVEN).unwrap();
    assert_eq!((used.most_bytes, used.most_inodes), (Some(32 * MIB), None));
    assert!((9 * MIB..=32 * MIB).contains(&used.bytes) && used.inodes >= 2, "{used:?}");
    // The limits of project 0 would be those that all others begin with.
    assert!(root.limit_project(ProjectId::NONE, MIB).is_err());
    // It may be lower than what is there: then nothing more comes.
    root.limit_project(SEVEN, MIB).unwrap();
    assert!(fs::write(file("small"), vec![1; 1 << 20]).is_err());
}
