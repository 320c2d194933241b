//! What a tenant may leave in a folder that is to be removed, and what others may have there.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use localpool::host::{
    Emptying, FilesystemRoot, Filesystems, FsKind, HostError, Mounts, RealFilesystems, RealMounts, TargetAccess, chain,
};
use localpool_testing::{MIB, run, text};
use nix::fcntl::{OFlag, RenameFlags, renameat2};
use nix::mount::MsFlags;
use nix::sys::stat::Mode;
use uuid::Uuid;

use crate::fixture::{Loop, Target};
use crate::needs_root;

/// Of one call.
const MOST: usize = 100;

/// A filesystem with a folder that is to be removed.
struct Bed {
    root: std::sync::Arc<dyn FilesystemRoot>,
    tree: PathBuf,
    // Unmounted before its disk goes.
    _target: Target,
    disk: Loop,
}

/// Below its root.
const TREE: &str = "trash/tree";

fn bed() -> Bed {
    let disk = Loop::new(320 * MIB, 512);
    RealFilesystems::default().make(FsKind::Xfs, &disk.node, Uuid::new_v4()).unwrap();
    let target = Target::new(&disk, "mnt");
    RealMounts.mount(&disk.node, &target.0, FsKind::Xfs, &[]).unwrap();
    let tree = target.0.join(TREE);
    fs::create_dir_all(&tree).unwrap();
    let root = RealMounts.open_root(&target.0, &disk.node).unwrap();
    Bed { root, tree, _target: target, disk }
}

impl Bed {
    /// Removes it; gives how many calls that took.
    fn remove(&self) -> Result<usize, HostError> {
        let mut calls = 1;
        while self.root.empty_some(Path::new(TREE), MOST)? == Emptying::Begun {
            calls += 1;
            assert!(calls < 10_000, "it does not end");
        }
        self.root.remove_empty(Path::new(TREE)).map(|()| calls)
    }

    fn removed(&self) -> usize {
        let calls = self.remove().unwrap();
        assert!(!self.tree.exists());
        assert_eq!(fs::read_dir(self.tree.parent().unwrap()).unwrap().count(), 0, "nothing of it is beside it");
        calls
    }

    /// What stays of it, and why.
    fn kept(&self, left: &[&str]) -> String {
        let why = chain(&self.remove().unwrap_err());
        let mut names: Vec<_> = fs::read_dir(&self.tree).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, left, "{why}");
        why
    }
}

/// Sets attributes of files and folders.
fn chattr(attribute: &str, path: &Path) {
    run("chattr", &[attribute, text(path)]);
}

#[test]
fn loop_a_tree_is_removed_bit_by_bit_however_wide_it_is() {
    needs_root!();
    let bed = bed();
    (0..950).for_each(|n| drop(File::create(bed.tree.join(n.to_string())).unwrap()));
    assert_eq!(bed.root.empty_some(Path::new(TREE), MOST).unwrap(), Emptying::Begun);
    assert_eq!(fs::read_dir(&bed.tree).unwrap().count(), 850);
    let calls = bed.removed();
    assert!((9..=10).contains(&calls), "{calls}");
    assert_eq!(bed.remove().unwrap(), 1, "it is gone already");
}

/// Folders in folders, so deep that no path leads to the last one. The file in each is a hundred bytes.
fn nest(tree: &Path, depth: usize, name: &str) {
    let mode = Mode::S_IRWXU;
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY;
    let mut at = nix::fcntl::open(tree, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        nix::sys::stat::mkdirat(&at, name, mode).unwrap();
        at = nix::fcntl::openat(&at, name, flags, Mode::empty()).unwrap();
        drop(nix::fcntl::openat(&at, "file", OFlag::O_CREAT | OFlag::O_WRONLY, mode).unwrap());
    }
}

#[test]
fn loop_a_tree_deeper_than_any_path_is_gone_only_when_all_of_it_is() {
    needs_root!();
    let bed = bed();
    // 300 times 201 bytes; PATH_MAX is 4096.
    nest(&bed.tree, 300, &"d".repeat(200));
    nest(&bed.tree, 65, "e");
    let mut calls = 0;
    while bed.root.empty_some(Path::new(TREE), MOST).unwrap() == Emptying::Begun {
        calls += 1;
        let beside = fs::read_dir(bed.tree.parent().unwrap()).unwrap().count();
        assert_eq!(beside, 1, "what is left of it is in it, where it counts");
    }
    assert!((6..40).contains(&calls), "{calls}");
    bed.removed();
}

#[test]
fn loop_names_and_sorts_of_files_that_no_program_expects_are_removed() {
    needs_root!();
    let bed = bed();
    let long = "x".repeat(255);
    let names: [&[u8]; 8] =
        [b"a\nb", b" ", b"-rf", b"*", b"\xff\xfe", b"\x1b[2J", long.as_bytes(), "\u{202e}".as_bytes()];
    for name in names {
        let folder = bed.tree.join(OsStr::from_bytes(name));
        fs::create_dir(&folder).unwrap();
        File::create(folder.join(OsStr::from_bytes(name))).unwrap();
    }
    let at = |name: &str| bed.tree.join(name);
    nix::unistd::mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    run("mknod", &[text(&at("disk")), "b", "7", "250"]);
    symlink("nowhere", at("dangling")).unwrap();
    fs::create_dir(at("locked")).unwrap();
    run("chmod", &["000", text(&at("locked"))]);
    fs::hard_link(at(&format!("{long}/{long}")), at("hard")).unwrap();
    bed.removed();
}

#[test]
fn loop_a_link_goes_and_what_it_leads_to_stays() {
    needs_root!();
    let bed = bed();
    let outside = bed.disk.file("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "of others").unwrap();
    let beside = bed.tree.parent().unwrap().parent().unwrap().join("volumes");
    fs::create_dir(&beside).unwrap();
    fs::write(beside.join("file"), "of a neighbour").unwrap();
    symlink(&outside, bed.tree.join("out")).unwrap();
    symlink(outside.join("file"), bed.tree.join("file")).unwrap();
    symlink("../../volumes", bed.tree.join("beside")).unwrap();
    symlink("..", bed.tree.join("up")).unwrap();
    // A neighbour's file by a second name: root may have made that, and it is not the file.
    fs::hard_link(beside.join("file"), bed.tree.join("hard")).unwrap();
    bed.removed();
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "of others");
    assert_eq!(fs::read_to_string(beside.join("file")).unwrap(), "of a neighbour");
}

#[test]
fn loop_immutable_and_append_only_files_and_folders_are_removed() {
    needs_root!();
    let bed = bed();
    for (name, attribute) in [("immutable", "+i"), ("appended", "+a")] {
        let folder = bed.tree.join(name);
        fs::create_dir(&folder).unwrap();
        let file = folder.join("file");
        fs::write(&file, "for good").unwrap();
        nest(&folder, 70, "d");
        let deep = folder.join("d/".repeat(64));
        for path in [&file, &deep, &folder] {
            chattr(attribute, path);
        }
    }
    chattr("+i", &bed.tree);
    bed.removed();
}

#[test]
fn loop_an_immutable_folder_is_moved_to_what_is_to_be_removed() {
    needs_root!();
    let bed = bed();
    let volume = bed.tree.parent().unwrap().join("volume");
    fs::create_dir(&volume).unwrap();
    chattr("+i", &volume);
    // What a person protects of the pool's own folders stays so.
    let trash = bed.tree.parent().unwrap();
    chattr("+i", trash);
    let refused = bed.root.rename(Path::new("trash/volume"), Path::new("trash/tree/moved"));
    chattr("-i", trash);
    assert!(chain(&refused.unwrap_err()).contains("Operation not permitted"));
    chattr("+i", &volume);
    bed.root.rename(Path::new("trash/volume"), Path::new("trash/tree/moved")).unwrap();
    bed.removed();
}

#[test]
fn loop_what_is_mounted_in_a_tree_stays_and_says_so_and_all_else_goes() {
    needs_root!();
    let bed = bed();
    let others = bed.disk.file("others");
    fs::create_dir(&others).unwrap();
    fs::write(others.join("file"), "of others").unwrap();
    (0..450).for_each(|n| drop(File::create(bed.tree.join(format!("file-{n}"))).unwrap()));
    let [dir, file, own] = ["a-folder/in", "b-file", "c-own"].map(|name| bed.tree.join(name));
    fs::create_dir_all(&dir).unwrap();
    fs::create_dir(&own).unwrap();
    File::create(&file).unwrap();
    let beside = bed.tree.parent().unwrap().parent().unwrap().join("beside");
    fs::create_dir(&beside).unwrap();
    fs::write(beside.join("file"), "of a neighbour").unwrap();
    RealMounts.bind(&others, &dir, TargetAccess::ReadWrite).unwrap();
    run("mount", &["--bind", text(&others.join("file")), text(&file)]);
    // Of the same filesystem: no number of a device tells it.
    RealMounts.bind(&beside, &own, TargetAccess::ReadWrite).unwrap();
    let why = bed.kept(&["a-folder", "b-file", "c-own"]);
    assert!(why.contains(" cannot be removed: something is mounted there: unmount it; and so 2 more"), "{why}");
    assert!(
        ["a-folder/in", "b-file", "c-own"].iter().any(|name| why.contains(&format!("trash/tree/{name} "))),
        "{why}"
    );
    for target in [&dir, &file, &own] {
        RealMounts.unmount(target).unwrap();
    }
    bed.removed();
    assert_eq!(fs::read_to_string(others.join("file")).unwrap(), "of others");
    assert_eq!(fs::read_to_string(beside.join("file")).unwrap(), "of a neighbour");
}

#[test]
fn loop_more_than_a_call_tries_that_cannot_be_removed_ends_it_with_a_reason() {
    needs_root!();
    let bed = bed();
    for n in 0..MOST + 5 {
        let file = bed.tree.join(format!("file-{n}"));
        File::create(&file).unwrap();
        run("mount", &["--bind", text(&file), text(&file)]);
    }
    let why = chain(&bed.remove().unwrap_err());
    assert!(why.contains(&format!("and so {} more", MOST - 1)), "{why}");
    (0..MOST + 5).for_each(|n| RealMounts.unmount(&bed.tree.join(format!("file-{n}"))).unwrap());
    bed.removed();
}

#[test]
fn loop_a_file_that_somebody_adds_meanwhile_goes_as_well() {
    needs_root!();
    let bed = bed();
    (0..250).for_each(|n| drop(File::create(bed.tree.join(n.to_string())).unwrap()));
    // A process that is in the folder still.
    let inside = nix::fcntl::open(&bed.tree, OFlag::O_DIRECTORY | OFlag::O_RDONLY, Mode::empty()).unwrap();
    assert_eq!(bed.root.empty_some(Path::new(TREE), MOST).unwrap(), Emptying::Begun);
    drop(nix::fcntl::openat(&inside, "late", OFlag::O_CREAT | OFlag::O_WRONLY, Mode::S_IRWXU).unwrap());
    bed.removed();
}

#[test]
fn loop_a_read_only_filesystem_keeps_all_of_it_and_says_why() {
    needs_root!();
    let bed = bed();
    File::create(bed.tree.join("file")).unwrap();
    let mount = bed.tree.ancestors().nth(2).unwrap();
    run("mount", &["-o", "remount,ro", text(mount)]);
    let why = bed.kept(&["file"]);
    run("mount", &["-o", "remount,rw", text(mount)]);
    assert!(why.contains("trash/tree/file cannot be removed: Read-only file system"), "{why}");
    bed.removed();
}

#[test]
fn loop_a_mount_whose_server_does_not_answer_is_not_asked() {
    needs_root!();
    let bed = bed();
    let inside = bed.tree.join("fuse");
    fs::create_dir(&inside).unwrap();
    File::create(bed.tree.join("file")).unwrap();
    // Nobody ever answers what is asked there.
    let server = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
    nix::mount::mount(Some("nobody"), &inside, Some("fuse"), MsFlags::empty(), Some(&*options)).unwrap();
    let (ended, end) = mpsc::channel();
    let root = std::sync::Arc::clone(&bed.root);
    let worker = thread::spawn(move || ended.send(root.empty_some(Path::new(TREE), MOST)));
    let emptied = end.recv_timeout(Duration::from_secs(60));
    // Whoever waits for an answer has none for good.
    drop(server);
    worker.join().unwrap().unwrap();
    let is_left = inside.parent().unwrap().join("file").exists();
    nix::mount::umount(&inside).unwrap();
    let why = chain(&emptied.expect("it hangs").unwrap_err());
    assert!(why.contains("trash/tree/fuse cannot be removed: something is mounted there"), "{why}");
    assert!(!is_left, "all else is gone");
    bed.removed();
}

#[test]
fn loop_a_tenant_who_swaps_folders_for_links_meanwhile_leads_nowhere() {
    needs_root!();
    let bed = bed();
    // Of the same filesystem: no number of a device tells it.
    let beside = bed.tree.ancestors().nth(2).unwrap().join("volumes");
    fs::create_dir_all(beside.join("in/in")).unwrap();
    fs::write(beside.join("in/file"), "of a neighbour").unwrap();
    let inside = nix::fcntl::open(&bed.tree, OFlag::O_DIRECTORY | OFlag::O_RDONLY, Mode::empty()).unwrap();
    let is_over = std::sync::Arc::new(AtomicBool::new(false));
    let seen = std::sync::Arc::clone(&is_over);
    let tenant = thread::spawn(move || {
        let mut swaps = 0;
        while !seen.load(Ordering::SeqCst) {
            // What is removed meanwhile is made again.
            let _ = nix::sys::stat::mkdirat(&inside, "a", Mode::S_IRWXU);
            let _ = nix::sys::stat::mkdirat(&inside, "a/in", Mode::S_IRWXU);
            let _ = nix::unistd::symlinkat("../../volumes", &inside, "b");
            let swap = renameat2(&inside, "a", &inside, "b", RenameFlags::RENAME_EXCHANGE);
            swaps += usize::from(swap.is_ok());
        }
        swaps
    });
    for _ in 0..3000 {
        let _ = bed.root.empty_some(Path::new(TREE), MOST);
    }
    is_over.store(true, Ordering::SeqCst);
    assert!(tenant.join().unwrap() > 0, "nothing was swapped");
    bed.removed();
    assert!(beside.join("in/in").is_dir());
    assert_eq!(fs::read_to_string(beside.join("in/file")).unwrap(), "of a neighbour");
}
