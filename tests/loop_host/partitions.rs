//! The kernel's partitions, in use and not.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::mpsc;
use std::time::Duration;

use localpool::host::{
    BlockDevice, Filesystems, FsKind, HostError, Mapping, Mounts, PartitionMap, RealFilesystems, RealMounts,
};
use localpool_testing::MIB;
use uuid::Uuid;

use crate::fixture::{Loop, SECTORS, Target, extent, mount};
use crate::needs_root;

fn message_of(error: &HostError) -> String {
    match error {
        HostError::Io { source, .. } => format!("{error}: {source}"),
        _ => error.to_string(),
    }
}

#[test]
fn loop_partitions_come_and_go_by_number_and_each_step_may_be_repeated() {
    needs_root!();
    for sector in SECTORS {
        let disk = Loop::new(64 * MIB, sector);
        let open = disk.own();
        for _ in 0..2 {
            open.map(7, extent(2, 10)).unwrap();
            open.map(1, extent(1, 2)).unwrap();
        }
        assert_eq!(
            open.mapped().unwrap(),
            [Mapping { number: 1, extent: extent(1, 2) }, Mapping { number: 7, extent: extent(2, 10) }]
        );
        assert!(open.node(7).exists(), "{}", open.node(7).display());
        open.write_at(2 * MIB, &[7; 4096]).unwrap();
        assert_eq!(fs::read(open.node(7)).unwrap()[..4096], [7; 4096]);
        for _ in 0..2 {
            open.unmap(7).unwrap();
        }
        assert_eq!(open.mapped().unwrap(), [Mapping { number: 1, extent: extent(1, 2) }]);
        assert!(!open.node(7).exists());
    }
}

#[test]
fn loop_a_partition_in_the_way_is_named_and_nothing_changes() {
    needs_root!();
    let disk = Loop::new(64 * MIB, 512);
    let open = disk.own();
    open.map(2, extent(2, 10)).unwrap();
    let before = open.mapped().unwrap();
    let same_number = open.map(2, extent(2, 11)).unwrap_err();
    assert!(
        message_of(&same_number).contains("the kernel has partition 2 at 2097152..10485760"),
        "{}",
        message_of(&same_number)
    );
    let overlap = open.map(3, extent(9, 20)).unwrap_err();
    assert!(message_of(&overlap).contains("the kernel has partition 2"), "{}", message_of(&overlap));
    assert!(open.map(4, extent(63, 65)).is_err(), "beyond the end of the disk");
    assert!(open.resize(2, extent(3, 12)).is_err(), "a resize that moves");
    assert!(open.resize(9, extent(30, 32)).is_err(), "a resize of nothing");
    assert_eq!(open.mapped().unwrap(), before);
}

#[test]
fn loop_a_mounted_partition_is_busy_and_stays_mapped_with_its_data() {
    needs_root!();
    let disk = Loop::new(64 * MIB, 512);
    let target = Target::new(&disk, "mnt");
    let open = disk.own();
    open.map(2, extent(2, 34)).unwrap();
    RealFilesystems::default().make(FsKind::Ext4, &open.node(2), Uuid::new_v4()).unwrap();
    mount(&open.node(2), &target, FsKind::Ext4);
    fs::write(target.0.join("file"), "content").unwrap();

    for refused in [open.unmap(2), open.prove_unused(2)] {
        let Err(HostError::Busy { object }) = refused else { panic!("{refused:?}") };
        assert_eq!(object, format!("partition 2 of {}, mounted at {},", disk.path(), target.0.display()));
    }
    assert_eq!(open.mapped().unwrap(), [Mapping { number: 2, extent: extent(2, 34) }]);
    // It grows while it is in use, and meanwhile its neighbour comes and goes.
    open.map(3, extent(50, 60)).unwrap();
    open.resize(2, extent(2, 50)).unwrap();
    assert!(open.resize(2, extent(2, 51)).is_err(), "over its neighbour");
    open.unmap(3).unwrap();
    assert_eq!(open.mapped().unwrap(), [Mapping { number: 2, extent: extent(2, 50) }]);
    assert_eq!(fs::read_to_string(target.0.join("file")).unwrap(), "content");

    RealMounts.unmount(&target.0).unwrap();
    open.prove_unused(2).unwrap();
    open.unmap(2).unwrap();
}

#[test]
fn loop_unused_is_proven_against_exclusive_openers_only() {
    needs_root!();
    let disk = Loop::new(16 * MIB, 512);
    let open = disk.own();
    open.prove_unused(5).expect("what is not mapped is in nobody's use");
    open.map(5, extent(1, 2)).unwrap();
    // Even a reader keeps the kernel from removing the partition: the driver waits for a reader that ends, and does not
    // wait too long for one that does not.
    let reader = fs::File::open(open.node(5)).unwrap();
    open.prove_unused(5).unwrap();
    assert!(matches!(open.unmap(5), Err(HostError::Busy { .. })));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            drop(reader);
        });
        open.unmap(5).unwrap();
    });
    open.map(5, extent(1, 2)).unwrap();
    let holder = OpenOptions::new().read(true).custom_flags(nix::libc::O_EXCL).open(open.node(5)).unwrap();
    let Err(HostError::Busy { object }) = open.prove_unused(5) else { panic!("it is held") };
    assert!(object.contains(", open in ") && object.contains(&format!("(pid {})", std::process::id())), "{object}");
    drop(holder);
    open.unmap(5).unwrap();
}

#[test]
fn loop_who_holds_a_partition_exclusively_is_not_waited_for_however_long_readers_may_take() {
    needs_root!();
    let disk = Loop::new(16 * MIB, 512);
    let open = disk.own().waiting_for_readers_at_most(Duration::from_secs(24 * 3600));
    open.map(5, extent(1, 2)).unwrap();
    let holder = OpenOptions::new().read(true).custom_flags(nix::libc::O_EXCL).open(open.node(5)).unwrap();
    // A reader that never ends.
    let (reply, answer) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| reply.send(open.unmap(5)).unwrap());
        let unmapped = answer.recv_timeout(Duration::from_secs(60));
        drop(holder);
        assert!(matches!(unmapped, Ok(Err(HostError::Busy { .. }))), "{unmapped:?}");
    });
    open.unmap(5).unwrap();
}

#[test]
fn loop_a_partition_without_its_node_is_told_apart_from_one_in_use() {
    needs_root!();
    let disk = Loop::new(16 * MIB, 512);
    // A second node of the same disk, in a directory that no devtmpfs serves: a container's own /dev.
    let mut raw = disk.raw();
    raw.path = disk.file("disk7");
    let dev = nix::sys::stat::makedev(raw.devno.major.into(), raw.devno.minor.into());
    nix::sys::stat::mknod(&raw.path, nix::sys::stat::SFlag::S_IFBLK, nix::sys::stat::Mode::S_IRUSR, dev).unwrap();
    let open = localpool::host::RealDisk::open(&raw, localpool::host::Access::Own).unwrap();
    open.map(1, extent(1, 2)).unwrap();
    let error = open.prove_unused(1).unwrap_err();
    assert!(message_of(&error).contains("disk7p1 does not exist"), "{}", message_of(&error));
    // Another device under that name is not taken for the partition.
    nix::sys::stat::mknod(&open.node(1), nix::sys::stat::SFlag::S_IFBLK, nix::sys::stat::Mode::S_IRUSR, dev).unwrap();
    assert!(matches!(open.prove_unused(1), Err(HostError::Changed { .. })));
    open.unmap(1).unwrap();
}
