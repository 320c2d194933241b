//! Loop devices on image files of a test. Whoever attaches one detaches it, also after a panic.

use std::fs::{self, File};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::{eventually, run, text};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDevice {
    pub node: PathBuf,
    pub image: PathBuf,
}

/// A loop device on an image in a folder of its own; all of it is removed with this value.
pub struct TempLoop {
    device: LoopDevice,
    pub folder: TempDir,
}

impl TempLoop {
    pub fn new(size: u64, options: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("localpool-loop-").tempdir().unwrap();
        let file = folder.path().join("disk.img");
        image(&file, size);
        Self { device: LoopDevice::attach(&file, options), folder }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Deref for TempLoop {
    type Target = LoopDevice;

    fn deref(&self) -> &LoopDevice {
        &self.device
    }
}

impl Drop for TempLoop {
    fn drop(&mut self) {
        self.device.detach_if_mine();
    }
}

/// Makes a sparse file.
pub fn image(path: &Path, size: u64) {
    File::create(path).unwrap().set_len(size).unwrap();
}

/// The loop devices on images below a directory, by image.
pub fn attached(dir: &Path) -> Vec<LoopDevice> {
    let devices = fs::read_dir("/sys/block").unwrap().filter_map(|entry| Some(entry.ok()?.file_name()));
    let device = |name: std::ffi::OsString| {
        let device = LoopDevice { node: Path::new("/dev").join(name), image: PathBuf::new() };
        let image = device.backing()?;
        image.starts_with(dir).then_some(LoopDevice { image, ..device })
    };
    let mut devices: Vec<LoopDevice> = devices.filter_map(device).collect();
    devices.sort_by(|a, b| a.image.cmp(&b.image));
    devices
}

impl LoopDevice {
    /// `options` are those of losetup, with the device or `--find`.
    pub fn attach(image: &Path, options: &[&str]) -> Self {
        let shown = run("losetup", &[&["--show"], options, &[text(image)]].concat());
        let device = Self { node: PathBuf::from(shown.trim()), image: image.to_owned() };
        // Partitions from BLKPG outlive the binding of a loop device.
        device.unmap();
        device
    }

    /// Kernel name.
    pub fn name(&self) -> &str {
        self.node.file_name().unwrap().to_str().unwrap()
    }

    pub fn path(&self) -> &str {
        text(&self.node)
    }

    fn sysfs(&self, name: &str) -> PathBuf {
        Path::new("/sys/block").join(self.name()).join(name)
    }

    /// The file that the device is on, by the kernel; `None` if it is on none.
    pub fn backing(&self) -> Option<PathBuf> {
        let file = fs::read_to_string(self.sysfs("loop/backing_file")).ok()?;
        Some(PathBuf::from(file.trim_end_matches('\n').trim_end_matches(" (deleted)")))
    }

    /// The kernel names of the partitions that are mapped, in no order.
    pub fn mapped(&self) -> Vec<String> {
        let entries = fs::read_dir(self.sysfs("")).into_iter().flatten().flatten();
        let partitions = entries.filter(|entry| entry.path().join("partition").exists());
        partitions.map(|entry| entry.file_name().to_str().unwrap().to_owned()).collect()
    }

    /// Unmaps all partitions. One that somebody has open for a moment is waited for.
    pub fn unmap(&self) {
        let unmapped = eventually(Duration::from_secs(5), || {
            self.mapped().is_empty() || {
                let _ = Command::new("partx").args(["--delete", self.path()]).output();
                self.mapped().is_empty()
            }
        });
        if !unmapped && !std::thread::panicking() {
            panic!("partitions of {} stay: {:?}", self.path(), self.mapped());
        }
    }

    /// Removes the image from the device; it must be free afterwards.
    pub fn detach(&self) {
        self.unmap();
        run("losetup", &["--detach", self.path()]);
        let is_free = eventually(Duration::from_secs(5), || self.backing().is_none());
        assert!(is_free, "somebody keeps {} open", self.path());
    }

    /// At the end of a test, however it ended. The device may be another test's by now; then it is left as it is.
    pub fn detach_if_mine(&self) {
        if self.backing().is_some_and(|file| file == self.image) {
            self.unmap();
            let _ = Command::new("losetup").args(["--detach", self.path()]).output();
        }
    }

    /// Makes the kernel announce a change of the device.
    pub fn announce(&self) {
        fs::write(self.sysfs("uevent"), "change").unwrap();
    }

    /// Write requests, discards and flushes that the kernel has sent to the device, also for earlier images.
    pub fn writes(&self) -> u64 {
        let stat = fs::read_to_string(self.sysfs("stat")).unwrap();
        let fields: Vec<u64> = stat.split_whitespace().map(|field| field.parse().unwrap()).collect();
        fields[4] + fields[11] + fields[15]
    }
}
