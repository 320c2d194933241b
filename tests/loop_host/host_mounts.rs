//! A folder of a mounted filesystem that all processes of the host see at another path, too.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;

use localpool::host::{Filesystems, FsKind, HostError, Mounts, RealFilesystems, RealMounts, chain};
use localpool_testing::MIB;
use uuid::Uuid;

use crate::fixture::{Loop, Target, mount};
use crate::needs_root;

/// Two disks with ext4: that of the pool with a folder in it, and that of the node with one to mount below.
struct Machine {
    source: PathBuf,
    folder: PathBuf,
    _mounts: [Target; 2],
    _disks: [Loop; 2],
}

fn machine() -> Machine {
    let disks = [64, 64].map(|mib| {
        let disk = Loop::new(mib * MIB, 512);
        RealFilesystems::default().make(FsKind::Ext4, &disk.node, Uuid::new_v4()).unwrap();
        disk
    });
    let mounts = [0, 1].map(|number| {
        let target = Target::new(&disks[number], "mnt");
        mount(&disks[number].node, &target, FsKind::Ext4);
        target
    });
    let (source, folder) = (mounts[0].0.join("host"), mounts[1].0.join("raid-disks"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "data").unwrap();
    fs::create_dir(&folder).unwrap();
    Machine { source, folder, _mounts: mounts, _disks: disks }
}

fn refusal(result: Result<(), HostError>) -> String {
    chain(&result.unwrap_err())
}

#[test]
fn loop_a_folder_is_shown_at_a_path_and_nothing_can_be_made_there_while_it_is_not() {
    needs_root!();
    let machine = machine();
    let at = machine.folder.join("gpt-1");
    RealMounts.show_on_host(&machine.source, &at).unwrap();
    let shown = Target(at.clone());
    assert_eq!(fs::read_to_string(at.join("file")).unwrap(), "data");
    let table = RealMounts.table().unwrap();
    let found = table.iter().find(|mount| mount.target == at).unwrap();
    assert_eq!(found.root, PathBuf::from("/host"));
    let again = refusal(RealMounts.show_on_host(&machine.source, &at));
    assert!(again.contains("has something else mounted on it: unmount that"), "{again}");

    RealMounts.unmount(&at).unwrap();
    assert!(!shown.mounted());
    assert_eq!(fs::metadata(&at).unwrap().mode() & 0o777, 0);
    // Not even root, whose writes would fill the node's own disk.
    let refused = fs::write(at.join("file"), "lost").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(nix::libc::EPERM));
    RealMounts.show_on_host(&machine.source, &at).unwrap();
    assert_eq!(fs::read_to_string(at.join("file")).unwrap(), "data", "the folder is taken as it was left");

    let open = fs::File::open(at.join("file")).unwrap();
    assert!(matches!(RealMounts.hide_from_host(&at), Err(HostError::Busy { .. })), "somebody uses it");
    drop(open);
    RealMounts.hide_from_host(&at).unwrap();
    assert!(!at.exists(), "nothing is left");
    RealMounts.hide_from_host(&at).unwrap();
}

#[test]
fn loop_a_path_that_leads_elsewhere_or_has_something_in_it_is_refused_and_not_touched() {
    needs_root!();
    let machine = machine();
    let folder = &machine.folder;
    symlink(folder, folder.with_file_name("link")).unwrap();
    fs::write(folder.with_file_name("file"), "").unwrap();
    symlink("/tmp", folder.join("linked")).unwrap();
    fs::create_dir(folder.join("full")).unwrap();
    fs::write(folder.join("full/file"), "kept").unwrap();
    fs::write(folder.join("plain"), "kept").unwrap();
    for (at, words) in [
        (
            folder.with_file_name("link").join("gpt-1"),
            "is a symbolic link, or leads through one: name the folder itself",
        ),
        (folder.with_file_name("file").join("gpt-1"), "is no folder"),
        (folder.with_file_name("absent").join("gpt-1"), "no such folder: "),
        (folder.join("linked"), "is a symbolic link"),
        (folder.join("plain"), "is no folder"),
        (folder.join("full"), "is not empty, and would be hidden: move away what is in it"),
        (PathBuf::from("/"), "cannot be mounted on"),
    ] {
        let refused = refusal(RealMounts.show_on_host(&machine.source, &at));
        assert!(refused.contains(words), "{}: {refused}", at.display());
    }
    // The same is known of a folder before anything is taken for it, and nothing is made there.
    for (name, words) in [("link", "is a symbolic link"), ("file", "is no folder"), ("absent", "no such folder: ")] {
        let refused = refusal(RealMounts.can_show_on_host(&folder.with_file_name(name)));
        assert!(refused.contains(words), "{name}: {refused}");
    }
    RealMounts.can_show_on_host(folder).unwrap();
    assert!(!folder.join("gpt-1").exists());
    assert_eq!(fs::read_to_string(folder.join("full/file")).unwrap(), "kept");
    assert_eq!(fs::read_to_string(folder.join("plain")).unwrap(), "kept");
    let table = RealMounts.table().unwrap();
    assert!(table.iter().all(|mount| !mount.target.starts_with(folder)), "nothing is mounted");
}
