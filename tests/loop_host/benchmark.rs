//! What a disk can do, measured by the real fio on a real filesystem.

use std::fs;
use std::time::Duration;

use localpool::host::{
    BenchmarkBounds, DevNo, DiskFigures, Filesystems, FsKind, Host, HostError, Mount, Mounts, RealFilesystems,
    RealHost, RealMounts, Roots, StateDir,
};
use localpool_testing::MIB;
use nix::sys::statvfs::statvfs;
use uuid::Uuid;

use crate::fixture::{Loop, Target, mount};
use crate::needs_root;

const BOUNDS: BenchmarkBounds = BenchmarkBounds { most_bytes: 64 * MIB, run: Duration::from_secs(1) };

/// A disk with this filesystem, mounted at the target.
fn mounted(size: u64, kind: FsKind) -> (Loop, Target, Mount) {
    let disk = Loop::new(size, 512);
    RealFilesystems::default().make(kind, &disk.node, Uuid::new_v4()).unwrap();
    let target = Target::new(&disk, "measured");
    mount(&disk.node, &target, kind);
    let row = RealMounts.table().unwrap().into_iter().find(|row| row.target == target.0).unwrap();
    (disk, target, row)
}

fn benchmark(row: &Mount) -> Result<DiskFigures, HostError> {
    let state = tempfile::tempdir().unwrap();
    let host = RealHost::new(Roots::default(), RealFilesystems::default(), StateDir::at(state.path()));
    host.benchmark(row, BOUNDS)
}

#[test]
fn loop_a_disk_is_measured_by_a_file_that_nobody_sees_and_that_is_gone_afterwards() {
    needs_root!();
    for kind in [FsKind::Ext4, FsKind::Xfs] {
        let (_disk, target, row) = mounted(1024 * MIB, kind);
        fs::write(target.0.join("data"), "a tenant's").unwrap();
        let names = || {
            let mut names: Vec<_> = fs::read_dir(&target.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let free = || statvfs(&target.0).unwrap().blocks_free();
        nix::unistd::sync();
        let (names_before, free_before) = (names(), free());
        let DiskFigures { read_iops, read_bandwidth, write_iops, write_bandwidth } = benchmark(&row).unwrap();
        for figure in [read_iops, read_bandwidth, write_iops, write_bandwidth] {
            assert!(figure > 0);
        }
        assert!(read_bandwidth > MIB && write_bandwidth > MIB, "bytes in a second, and not requests");
        assert_eq!(names(), names_before);
        nix::unistd::sync();
        // What a journal or a log takes meanwhile is not the file.
        assert!(free_before.abs_diff(free()) * statvfs(&target.0).unwrap().fragment_size() < 16 * MIB);
        assert_eq!(fs::read_to_string(target.0.join("data")).unwrap(), "a tenant's");
    }
}

#[test]
fn loop_a_filesystem_without_room_is_not_measured_and_says_how_much_it_needs() {
    needs_root!();
    let (_disk, target, row) = mounted(128 * MIB, FsKind::Ext4);
    let Err(HostError::Unsupported { what }) = benchmark(&row) else { panic!("it was measured") };
    assert!(what.contains("needs 640 MiB") && what.contains(target.0.to_str().unwrap()), "{what}");
}

#[test]
fn loop_what_is_not_the_filesystem_that_was_meant_is_not_measured() {
    needs_root!();
    let (_disk, _target, row) = mounted(1024 * MIB, FsKind::Ext4);
    let other = Mount { device: DevNo { major: row.device.major, minor: row.device.minor + 1 }, ..row.clone() };
    assert!(matches!(benchmark(&other), Err(HostError::Changed { .. })));
}
