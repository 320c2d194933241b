//! Loop devices, partitions and mounts that clean up after themselves, also when a test panics.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use localpool::host::{Access, DevNo, DeviceKind, Extent, FsKind, Mounts, PartitionMap, RawDisk, RealDisk, RealMounts};
use localpool_testing::loops::TempLoop;
use localpool_testing::{MIB, is_root};

pub const SECTORS: [u32; 2] = [512, 4096];

static TURN: Mutex<()> = Mutex::new(());

/// The turn of a test that needs root; `None` without root. One at a time: a program that one test starts has, until
/// its exec, copies of the exclusive descriptors of the others, and mkfs.btrfs opens every device of the machine.
pub fn turn() -> Option<MutexGuard<'static, ()>> {
    is_root().then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Takes the turn for the rest of the test, or ends a test that needs root if there is no root.
#[macro_export]
macro_rules! needs_root {
    () => {
        let Some(_turn) = $crate::fixture::turn() else { return };
    };
}

/// A loop device on an image of its own.
pub struct Loop {
    device: TempLoop,
    sector: u32,
}

impl Deref for Loop {
    type Target = TempLoop;

    fn deref(&self) -> &TempLoop {
        &self.device
    }
}

impl Loop {
    pub fn new(size: u64, sector: u32) -> Self {
        Self::bind(size, sector, &["--find"])
    }

    /// A device whose table the kernel reads when it is asked to.
    pub fn with_table(size: u64) -> Self {
        Self::bind(size, 512, &["--partscan", "--find"])
    }

    /// On a device so high that no `losetup --find` takes it while it is unbound.
    pub fn aside(size: u64, sector: u32, number: u32) -> Self {
        Self::bind(size, sector, &[&format!("/dev/loop{number}")])
    }

    fn bind(size: u64, sector: u32, device: &[&str]) -> Self {
        let sector_size = sector.to_string();
        let options = [&["--sector-size", &*sector_size], device].concat();
        let disk = Self { device: TempLoop::new(size, &options), sector };
        assert_eq!(disk.own().mapped().unwrap(), [], "a partition of an earlier user of the device");
        disk
    }

    /// What a scan would say about it.
    pub fn raw(&self) -> RawDisk {
        let dev = fs::metadata(&self.node).unwrap().rdev();
        let attribute = |name: &str| fs::read_to_string(format!("/sys/class/block/{}/{name}", self.name())).unwrap();
        let devno = DevNo {
            major: u32::try_from(nix::sys::stat::major(dev)).unwrap(),
            minor: u32::try_from(nix::sys::stat::minor(dev)).unwrap(),
        };
        RawDisk {
            size: attribute("size").trim().parse::<u64>().unwrap() * 512,
            logical_sector: self.sector,
            physical_sector: self.sector,
            offloads_zeroes: true,
            discards: true,
            diskseq: Some(attribute("diskseq").trim().parse().unwrap()),
            ..RawDisk::named(self.name().into(), self.node.clone(), devno, DeviceKind::Loop(None))
        }
    }

    pub fn own(&self) -> RealDisk {
        RealDisk::open(&self.raw(), Access::Own).unwrap()
    }
}

/// A directory for a test to mount on, unmounted at the end however often it was mounted.
pub struct Target(pub PathBuf);

impl Target {
    pub fn new(disk: &Loop, name: &str) -> Self {
        let path = disk.file(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn mounted(&self) -> bool {
        RealMounts.table().unwrap().iter().any(|mount| mount.target == self.0)
    }

    pub fn options(&self) -> Vec<String> {
        let table = RealMounts.table().unwrap();
        table.iter().rfind(|mount| mount.target == self.0).expect("it is mounted").options.clone()
    }
}

impl AsRef<Path> for Target {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        while Command::new("umount").arg("-n").arg(&self.0).output().is_ok_and(|out| out.status.success()) {}
    }
}

pub fn extent(start_mib: u64, end_mib: u64) -> Extent {
    Extent { start: start_mib * MIB, end: end_mib * MIB }
}

pub fn mount(device: &Path, target: &Target, kind: FsKind) {
    RealMounts.mount(device, &target.0, kind, &[]).unwrap();
}
