//! The three filesystems: made, mounted, grown, checked, identified; and tools that fail.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use localpool::host::{
    BlockDevice, Extent, FilesystemTimeouts, Filesystems, FsIdentity, FsKind, HostError, Mounts, PartitionMap,
    RealDisk, RealFilesystems, RealMounts,
};
use localpool_testing::{MIB, run, skipped};
use uuid::Uuid;

use crate::fixture::{Loop, SECTORS, Target, extent, mount};
use crate::needs_root;

/// The same for one device, and different for each that exists at the same time: mkfs.btrfs looks at all devices.
fn uuid(device: &Path) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, device.as_os_str().as_encoded_bytes())
}

fn make(kind: FsKind, device: &Path) -> Result<(), HostError> {
    RealFilesystems::default().make(kind, device, uuid(device))
}

fn identity(device: &Path) -> Option<FsIdentity> {
    RealFilesystems::default().identify(device).unwrap()
}

fn of(kind: FsKind, device: &Path) -> Option<FsIdentity> {
    Some(FsIdentity { kind: kind.name().into(), uuid: Some(uuid(device)) })
}

/// A disk with partition 2 at 2 MiB.
fn partition(disk: &Loop, size: u64) -> (RealDisk, PathBuf) {
    let open = disk.own();
    open.map(2, Extent::sized(2 * MIB, size).unwrap()).unwrap();
    let node = open.node(2);
    (open, node)
}

/// Root without this capability (some sandboxes) cannot grow a mounted ext4.
fn may_grow_mounted_ext4() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() & (1 << CAP_SYS_RESOURCE) != 0
}

#[test]
fn loop_each_filesystem_is_made_with_its_uuid_mounted_and_grown_while_in_use() {
    needs_root!();
    for sector in SECTORS {
        for kind in FsKind::ALL {
            let disk = Loop::new(1024 * MIB, sector);
            let target = Target::new(&disk, "mnt");
            let (open, node) = partition(&disk, 320 * MIB);
            assert_eq!(identity(&node), None);
            make(kind, &node).unwrap();
            assert_eq!(identity(&node), of(kind, &node));
            RealFilesystems::default().check(kind, &node).unwrap();
            mount(&node, &target, kind);
            fs::write(target.0.join("file"), "content").unwrap();

            let before = RealMounts.usage(&target.0).unwrap();
            open.resize(2, extent(2, 802)).unwrap();
            let grow = || RealFilesystems::default().grow(kind, &node, Some(&target.0));
            if kind == FsKind::Ext4 && !may_grow_mounted_ext4() {
                let Err(HostError::Unsupported { what }) = grow() else { panic!("ext4 grew without the capability") };
                assert!(what.contains("CAP_SYS_RESOURCE"), "{what}");
                skipped("ext4 that grows while mounted needs CAP_SYS_RESOURCE");
                continue;
            }
            for _ in 0..2 {
                grow().unwrap();
            }
            let after = RealMounts.usage(&target.0).unwrap();
            assert!(after.total > before.total + 400 * MIB, "{kind:?}: {before:?} {after:?}");
            assert_eq!(fs::read_to_string(target.0.join("file")).unwrap(), "content");

            RealMounts.unmount(&target.0).unwrap();
            assert_eq!(identity(&node), of(kind, &node));
            RealFilesystems::default().check(kind, &node).unwrap();
        }
    }
}

#[test]
fn loop_ext4_grows_while_it_is_not_mounted_and_the_others_say_that_they_cannot() {
    needs_root!();
    for kind in FsKind::ALL {
        let disk = Loop::new(1024 * MIB, 512);
        let target = Target::new(&disk, "mnt");
        let (open, node) = partition(&disk, 320 * MIB);
        make(kind, &node).unwrap();
        mount(&node, &target, kind);
        fs::write(target.0.join("file"), "content").unwrap();
        RealMounts.unmount(&target.0).unwrap();
        if kind == FsKind::Ext4 {
            // Mounted long after its last check, which resize2fs refuses.
            run("debugfs", &["-w", "-R", "set_super_value lastcheck 20200101", node.to_str().unwrap()]);
        }
        open.resize(2, extent(2, 802)).unwrap();
        match (kind, RealFilesystems::default().grow(kind, &node, None)) {
            (FsKind::Ext4, grown) => grown.unwrap(),
            (_, refused) => {
                assert!(matches!(refused, Err(HostError::Unsupported { .. })), "{refused:?}");
                continue;
            }
        }
        mount(&node, &target, kind);
        assert!(RealMounts.usage(&target.0).unwrap().total > 700 * MIB);
        assert_eq!(fs::read_to_string(target.0.join("file")).unwrap(), "content");
    }
}

#[test]
fn loop_the_minimum_size_of_each_filesystem_is_enough_and_half_of_it_fails_with_a_message() {
    needs_root!();
    for sector in SECTORS {
        for kind in FsKind::ALL {
            let disk = Loop::new(512 * MIB, sector);
            let target = Target::new(&disk, "mnt");
            let (open, node) = partition(&disk, kind.minimum_bytes());
            make(kind, &node).unwrap();
            mount(&node, &target, kind);
            fs::write(target.0.join("file"), vec![1; 1 << 20]).unwrap();
            if kind == FsKind::Ext4 {
                let features = run("dumpe2fs", &["-h", node.to_str().unwrap()]);
                assert!(features.contains("has_journal"), "{features}");
                continue;
            }
            RealMounts.unmount(&target.0).unwrap();
            open.unmap(2).unwrap();
            let (_, node) = partition(&disk, kind.minimum_bytes() / 2);
            let Err(HostError::Command { program, stderr, .. }) = make(kind, &node) else {
                panic!("{kind:?} was made")
            };
            assert_eq!(program, format!("mkfs.{}", kind.name()));
            assert!(!stderr.is_empty());
        }
    }
}

#[test]
fn loop_a_filesystem_is_made_over_any_other_and_again_over_itself_and_leaves_one_signature() {
    needs_root!();
    let disk = Loop::new(400 * MIB, 512);
    let (_open, node) = partition(&disk, 320 * MIB);
    for before in FsKind::ALL {
        for after in FsKind::ALL {
            make(before, &node).unwrap();
            make(after, &node).unwrap();
            assert_eq!(identity(&node), of(after, &node), "{after:?} over {before:?}");
        }
    }
}

#[test]
fn loop_old_signatures_at_both_ends_are_gone_after_a_mkfs() {
    needs_root!();
    let disk = Loop::new(400 * MIB, 512);
    let (open, node) = partition(&disk, 320 * MIB);
    // A member of an md array with its superblock at the end (format 1.0).
    let sector = (320 * MIB / 512 - 16) & !7;
    let mut superblock = [0_u8; 512];
    superblock[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    superblock[4] = 1;
    superblock[144..152].copy_from_slice(&sector.to_le_bytes());
    open.write_at(2 * MIB + sector * 512, &superblock).unwrap();
    assert_eq!(identity(&node).unwrap().kind, "linux_raid_member");
    // mkfs.ext4 alone would leave it there.
    make(FsKind::Ext4, &node).unwrap();
    assert_eq!(identity(&node), of(FsKind::Ext4, &node));
}

#[test]
fn loop_a_mkfs_on_a_device_in_use_is_refused_and_harms_nothing() {
    needs_root!();
    let disk = Loop::new(400 * MIB, 512);
    let target = Target::new(&disk, "mnt");
    let (_open, node) = partition(&disk, 320 * MIB);
    make(FsKind::Xfs, &node).unwrap();
    mount(&node, &target, FsKind::Xfs);
    fs::write(target.0.join("file"), "content").unwrap();
    for kind in FsKind::ALL {
        assert!(matches!(make(kind, &node), Err(HostError::Busy { .. })));
    }
    RealMounts.unmount(&target.0).unwrap();
    mount(&node, &target, FsKind::Xfs);
    assert_eq!(fs::read_to_string(target.0.join("file")).unwrap(), "content");
}

#[test]
fn loop_small_damage_to_ext4_is_repaired_and_large_damage_is_an_error_with_a_message() {
    needs_root!();
    let disk = Loop::new(100 * MIB, 512);
    let (_open, node) = partition(&disk, 64 * MIB);
    let text = node.to_str().unwrap();
    make(FsKind::Ext4, &node).unwrap();
    run("debugfs", &["-w", "-R", "set_super_value free_blocks_count 1", text]);
    run("debugfs", &["-w", "-R", "set_super_value state 0", text]);
    RealFilesystems::default().check(FsKind::Ext4, &node).unwrap();
    assert!(!run("dumpe2fs", &["-h", text]).contains("Free blocks:              1\n"));

    run("debugfs", &["-w", "-R", "clri <2>", text]);
    run("debugfs", &["-w", "-R", "set_super_value state 0", text]);
    let error = RealFilesystems::default().check(FsKind::Ext4, &node).unwrap_err();
    let HostError::Command { program, status, stderr } = &error else { panic!("{error}") };
    assert_eq!((program.as_str(), status.as_str()), ("e2fsck", "exit code 4"));
    assert!(stderr.contains("UNEXPECTED INCONSISTENCY"), "{stderr}");
}

#[test]
fn loop_a_filesystem_that_is_not_there_or_destroyed_is_not_named() {
    needs_root!();
    let disk = Loop::new(100 * MIB, 512);
    let (open, node) = partition(&disk, 64 * MIB);
    make(FsKind::Ext4, &node).unwrap();
    let mut reader = fs::File::open(&node).unwrap();
    reader.read_exact(&mut vec![0; 1 << 20]).unwrap();
    open.zero(extent(2, 66)).unwrap();
    assert_eq!(identity(&node), None, "the pages of the partition are older than the zeros");
    drop(reader);
    assert!(RealFilesystems::default().check(FsKind::Ext4, &node).is_err());
    assert!(RealFilesystems::default().identify(Path::new("/dev/localpool-none")).is_err());
}

/// A folder with a tool that does what the script says.
fn fake_tool(disk: &Loop, name: &str, script: &str) -> RealFilesystems {
    let file = disk.file(name);
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let limits = FilesystemTimeouts { make: Duration::from_secs(1), ..FilesystemTimeouts::default() };
    RealFilesystems::new(limits).with_search_path(disk.folder.path().as_os_str())
}

#[test]
fn loop_a_mkfs_that_hangs_fails_or_is_missing_is_an_error_of_its_own_and_the_device_is_free_after() {
    needs_root!();
    let disk = Loop::new(100 * MIB, 512);
    let (open, node) = partition(&disk, 64 * MIB);
    let device = node.display();
    let hanging = fake_tool(&disk, "mkfs.ext4", &format!("exec 3<{device}; /bin/sleep 1000"));
    let began = Instant::now();
    let error = hanging.make(FsKind::Ext4, &node, uuid(&node)).unwrap_err();
    assert_eq!(error.to_string(), "mkfs.ext4 did not end within 1 s and was stopped");
    assert!(began.elapsed() < Duration::from_secs(60));

    let failing = fake_tool(&disk, "mkfs.ext4", "echo 'no good' >&2; exit 7");
    let error = failing.make(FsKind::Ext4, &node, uuid(&node)).unwrap_err();
    assert_eq!(error.to_string(), "mkfs.ext4 failed with exit code 7: no good");

    let error = failing.make(FsKind::Xfs, &node, uuid(&node)).unwrap_err();
    assert_eq!(error.to_string(), "mkfs.xfs is not installed; it is in the Debian package xfsprogs");
    assert_eq!(identity(&node), None);
    open.unmap(2).unwrap();
}

#[test]
fn loop_a_made_filesystem_is_on_the_medium_when_make_returns() {
    needs_root!();
    let disk = Loop::new(400 * MIB, 512);
    for kind in FsKind::ALL {
        let (open, node) = partition(&disk, 320 * MIB);
        // Keeps the partition's cache alive, so that only a sync can bring the data to the image.
        let _reader = fs::File::open(&node).unwrap();
        make(kind, &node).unwrap();
        let (offset, magic): (u64, &[u8]) = match kind {
            FsKind::Ext4 => (1024 + 56, &[0x53, 0xef]),
            FsKind::Xfs => (0, b"XFSB"),
            FsKind::Btrfs => (0x10040, b"_BHRfS_M"),
        };
        let mut found = vec![0; magic.len()];
        fs::File::open(&disk.image).unwrap().read_exact_at(&mut found, 2 * MIB + offset).unwrap();
        assert_eq!(found, magic);
        drop(_reader);
        open.unmap(2).unwrap();
    }
}
