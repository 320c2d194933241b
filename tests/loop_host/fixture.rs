//! Loop devices, partitions and mounts that clean up after themselves, also when a test panics.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use localpool::host::{Access, DevNo, DeviceKind, Extent, FsKind, Mounts, PartitionMap, RawDisk, RealDisk, RealMounts};
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;
pub const SECTORS: [u32; 2] = [512, 4096];

static TURN: Mutex<()> = Mutex::new(());

/// The turn of a test that needs root; `None` without root, with a line that says so. One at a time: a program that one
/// test starts has, until its exec, copies of the exclusive descriptors of the others, and mkfs.btrfs opens every
/// device of the machine.
pub fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    if !nix::unistd::geteuid().is_root() {
        // In one write, so that the line stays whole beside those of other threads.
        let line = format!("skipped: {test} needs root and loop devices\n");
        eprint!("{line}");
        return None;
    }
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Takes the turn for the rest of the test, or ends a test that needs root if there is no root.
#[macro_export]
macro_rules! needs_root {
    () => {
        let test = std::thread::current();
        let Some(_turn) = $crate::fixture::turn(test.name().unwrap_or(module_path!())) else { return };
    };
}

/// Runs a tool for a test; if the tool fails, so does the test.
pub fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// An image file with a loop device on it.
pub struct Loop {
    pub path: PathBuf,
    pub dir: TempDir,
    sector: u32,
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
        let dir = tempfile::Builder::new().prefix("localpool-loop-").tempdir().unwrap();
        let image = dir.path().join("disk.img");
        File::create(&image).unwrap().set_len(size).unwrap();
        let sector_size = sector.to_string();
        let ways = [&["--show", "--sector-size", &sector_size], device, &[image.to_str().unwrap()]].concat();
        let shown = run("losetup", &ways);
        let disk = Self { path: PathBuf::from(shown.trim()), dir, sector };
        // Partitions from BLKPG outlive the binding of a loop device without partscan.
        disk.forget_partitions();
        assert_eq!(disk.own().mapped().unwrap(), [], "a partition of an earlier user of the device");
        disk
    }

    pub fn image(&self) -> PathBuf {
        self.dir.path().join("disk.img")
    }

    pub fn name(&self) -> String {
        self.path.file_name().unwrap().to_str().unwrap().to_owned()
    }

    pub fn text(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// What a scan would say about it.
    pub fn raw(&self) -> RawDisk {
        let dev = fs::metadata(&self.path).unwrap().rdev();
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
            ..RawDisk::named(self.name().into(), self.path.clone(), devno, DeviceKind::Loop(None))
        }
    }

    fn forget_partitions(&self) {
        let mapped = || {
            let entries = fs::read_dir(format!("/sys/class/block/{}", self.name()));
            entries
                .is_ok_and(|mut all| all.any(|entry| entry.is_ok_and(|entry| entry.path().join("partition").exists())))
        };
        for _ in 0..100 {
            if !mapped() {
                break;
            }
            let _ = Command::new("partx").args(["--delete", self.text()]).output();
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn own(&self) -> RealDisk {
        RealDisk::open(&self.raw(), Access::Own).unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // A test may have detached it, and then it may be somebody else's by now.
        let backing = fs::read_to_string(format!("/sys/class/block/{}/loop/backing_file", self.name()));
        if backing.is_ok_and(|file| Path::new(file.trim()) != self.image()) {
            return;
        }
        self.forget_partitions();
        let _ = Command::new("losetup").args(["--detach", self.text()]).output();
    }
}

/// A directory for a test to mount on, unmounted at the end however often it was mounted.
pub struct Target(pub PathBuf);

impl Target {
    pub fn new(disk: &Loop, name: &str) -> Self {
        let path = disk.dir.path().join(name);
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
