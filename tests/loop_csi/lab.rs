//! A directory for one test and everything that belongs to it: image files, loop devices, mounts. All is removed at the
//! end, also if the test panics. What belongs to it is found by looking at the machine, never by a list.

use std::fs::{self, File, OpenOptions};
use std::ops::Deref;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use localpool_testing::loops::{self, LoopDevice, attached};
use localpool_testing::{MIB, eventually, is_root, run};

use crate::content::fingerprint;

const DIRECTORY: &str = "localpool-csi-";

pub struct Lab {
    pub dir: PathBuf,
    _turn: Turn,
}

/// Drivers of other tests look at every disk, and hold it exclusively for that moment. Few tests are disturbed by that.
enum Turn {
    Shared(#[allow(dead_code, reason = "it is held, not used")] RwLockReadGuard<'static, ()>),
    Alone(#[allow(dead_code, reason = "it is held, not used")] RwLockWriteGuard<'static, ()>),
}

static TURN: RwLock<()> = RwLock::new(());

/// A loop device on an image file of a lab.
#[derive(Clone)]
pub struct Disk {
    device: LoopDevice,
    /// The kernel's counter continues from the last user of the loop device.
    writes_before: u64,
}

impl Deref for Disk {
    type Target = LoopDevice;

    fn deref(&self) -> &LoopDevice {
        &self.device
    }
}

/// Gets a lab for a test, or ends a test that needs root if there is no root.
#[macro_export]
macro_rules! lab {
    () => {
        $crate::lab!(new)
    };
    (alone) => {
        $crate::lab!(new_alone)
    };
    ($make:ident) => {
        match $crate::lab::Lab::$make() {
            Some(lab) => lab,
            None => return,
        }
    };
}

impl Lab {
    /// `None` without root, with a line that says so.
    pub fn new() -> Option<Self> {
        Self::with(|| Turn::Shared(TURN.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// While no other test runs.
    pub fn new_alone() -> Option<Self> {
        Self::with(|| Turn::Alone(TURN.write().unwrap_or_else(PoisonError::into_inner)))
    }

    fn with(turn: impl FnOnce() -> Turn) -> Option<Self> {
        if !is_root() {
            return None;
        }
        let turn = turn();
        // On a disk, not in memory: a loop device on tmpfs zeroes by writing, which changes much.
        let base = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        let dir = tempfile::Builder::new().prefix(DIRECTORY).tempdir_in(base).unwrap().keep();
        Some(Self { dir: fs::canonicalize(dir).unwrap(), _turn: turn })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A node name for this lab alone: a driver takes every disk with its node's name, whoever attached it.
    pub fn node(&self) -> String {
        let dir = self.dir.file_name().unwrap().to_str().unwrap();
        dir.replace(DIRECTORY, "node-").to_lowercase()
    }

    /// A volume name for this lab alone: the filesystem's UUID follows from it, and no kernel mounts two with one UUID.
    pub fn named(&self, name: &str) -> String {
        format!("{name}-{}", self.node())
    }

    pub fn disk(&self, name: &str, size: u64) -> Disk {
        self.disk_of(name, size, 512)
    }

    pub fn disk_of(&self, name: &str, size: u64, sector: u32) -> Disk {
        let image = self.image(name, size);
        self.attach(&image, sector)
    }

    /// A sparse file, not attached.
    pub fn image(&self, name: &str, size: u64) -> PathBuf {
        let image = self.path(&format!("{name}.img"));
        loops::image(&image, size);
        image
    }

    pub fn attach(&self, image: &Path, sector: u32) -> Disk {
        self.bind(image, sector, "--find")
    }

    /// On a device so high that no `losetup --find` takes it.
    pub fn attach_aside(&self, image: &Path) -> Disk {
        let number = 700 + std::process::id() % 100;
        self.bind(image, 512, &format!("/dev/loop{number}"))
    }

    fn bind(&self, image: &Path, sector: u32, device: &str) -> Disk {
        let device = LoopDevice::attach(image, &["--sector-size", &sector.to_string(), device]);
        let writes_before = device.writes();
        Disk { device, writes_before }
    }

    fn sweep(&self) -> Result<(), String> {
        let mut problems = Vec::new();
        for target in self.mounts().into_iter().rev() {
            if nix::mount::umount(&target).is_err() {
                let detached = nix::mount::umount2(&target, nix::mount::MntFlags::MNT_DETACH);
                problems.push(format!("{} was busy; detached: {detached:?}", target.display()));
            }
        }
        for disk in attached(&self.dir) {
            disk.unmap();
            let _ = Command::new("losetup").arg("--detach").arg(&disk.node).output();
        }
        if !eventually(Duration::from_secs(10), || attached(&self.dir).is_empty()) {
            let left: Vec<_> = attached(&self.dir).into_iter().map(|disk| disk.node).collect();
            problems.push(format!("still attached: {left:?}"));
        }
        let removed = fs::remove_dir_all(&self.dir);
        problems.extend(removed.err().map(|error| format!("{} stays: {error}", self.dir.display())));
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }

    /// Mount points below the directory, outer ones first.
    pub fn mounts(&self) -> Vec<PathBuf> {
        mount_table().into_iter().map(|mount| mount.target).filter(|target| target.starts_with(&self.dir)).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        match self.sweep() {
            Ok(()) => {}
            Err(problems) if std::thread::panicking() => eprintln!("the lab is not clean: {problems}"),
            Err(problems) => panic!("the lab is not clean: {problems}"),
        }
    }
}

impl Disk {
    pub fn write(&self, at: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(&self.image).unwrap();
        file.write_all_at(bytes, at).unwrap();
        file.sync_all().unwrap();
    }

    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        File::open(&self.image).unwrap().read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    /// Write requests, discards and flushes included, that the kernel has sent to the device since it is ours.
    pub fn writes(&self) -> u64 {
        self.device.writes() - self.writes_before
    }

    /// Its content, once nobody writes to it any more.
    pub fn fingerprint(&self) -> u64 {
        self.settle();
        fingerprint(&self.image)
    }

    /// Waits for the worker that writes a label over its older copy as well, a moment after each change. A disk without
    /// a label, or with one that no worker writes, is taken as it is.
    pub fn settle(&self) {
        if self.size() < 2 * MIB {
            return;
        }
        let alike = || {
            // Magic, and length and checksum of the text; between them is the sequence number.
            let [a, b] = [MIB, MIB + MIB / 2].map(|at| self.read(at, 48));
            (&a[..8], &a[40..]) == (&b[..8], &b[40..])
        };
        let rests = || {
            let writes = self.writes();
            std::thread::sleep(Duration::from_millis(100));
            writes == self.writes()
        };
        let timeout = Duration::from_secs(10);
        let _ = eventually(timeout, alike) && eventually(timeout, rests);
    }

    pub fn size(&self) -> u64 {
        fs::metadata(&self.image).unwrap().size()
    }

    /// What sgdisk says about the partition tables; it must find nothing wrong.
    pub fn assert_tables_verify(&self) {
        let output = run("sgdisk", &["--verify", self.path()]);
        assert!(output.contains("No problems found"), "sgdisk on {}: {output}", self.path());
    }

    /// Whether libblkid finds anything at all.
    pub fn is_blank(&self) -> bool {
        let probed = Command::new("blkid").args(["--probe", self.path()]).output().unwrap();
        probed.status.code() == Some(2) && probed.stdout.is_empty()
    }
}

/// One line of mountinfo.
pub struct Mounted {
    pub target: PathBuf,
    pub options: String,
    pub source: PathBuf,
}

/// The paths here have no character that the kernel would escape.
pub fn mount_table() -> Vec<Mounted> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let dash = fields.iter().position(|field| *field == "-").unwrap();
        let options = format!("{},{}", fields[5], fields[dash + 3]);
        Mounted { target: PathBuf::from(fields[4]), options, source: PathBuf::from(fields[dash + 2]) }
    };
    table.lines().map(line).collect()
}
