//! A loop disk of the demo's own: an image file, and the device on it.
//!
//! Reads what is on it without the driver: the partition table on the device, the bytes in the image. Writes only the
//! kernel's list of its partitions, and that only before the driver starts and after it is gone.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use uuid::Uuid;

use super::error::DemoError;
use crate::host::{
    Access, DeviceKind, Extent, HostError, PartitionMap, RawDisk, RealDisk, Roots, TimedCommand, sysfs::scan,
    table::read_copies,
};

const LOSETUP_MAY_TAKE: Duration = Duration::from_secs(20);
/// How long other users of the disk may take to finish, such as an mkfs whose driver was killed.
const USERS_MAY_TAKE: Duration = Duration::from_secs(15);
const PIECE: usize = 1 << 20;

/// An image file with a loop device on it.
#[derive(Debug)]
pub struct LoopDisk {
    image: PathBuf,
    raw: RawDisk,
}

/// What a range of a disk reads as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadBack {
    pub not_zero: u64,
    /// Bytes that the image freed in its filesystem, so that they read as zeros.
    pub holes: u64,
}

impl LoopDisk {
    /// A blank disk, without partitions.
    pub fn attach(image: PathBuf, size: u64) -> Result<Self, DemoError> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&image);
        let sized = file.and_then(|file| file.set_len(size));
        sized.map_err(DemoError::io("make the image", image.display()))?;
        let losetup = TimedCommand::new("losetup", LOSETUP_MAY_TAKE);
        let shown = losetup.args(["--find".as_ref(), "--show".as_ref(), image.as_os_str()]).run();
        let shown = shown.map_err(DemoError::host("make a loop device"))?;
        let node = PathBuf::from(shown.stdout.trim());
        match scanned(&node, &image) {
            Ok(raw) => {
                let disk = Self { image, raw };
                // An earlier user of this loop device may have left the kernel partitions that are not on our disk.
                disk.forget_partitions()
                    .inspect_err(|_| drop(detach(&node)))
                    .map_err(DemoError::host("remove the old partitions"))?;
                Ok(disk)
            }
            Err(error) => {
                // Nobody who would tidy up knows of the device yet.
                let _ = detach(&node);
                Err(error)
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.raw.path
    }

    pub fn size(&self) -> u64 {
        self.raw.size
    }

    pub fn image(&self) -> &Path {
        &self.image
    }

    /// Number and place of a partition in the primary table.
    pub fn partition(&self, guid: Uuid) -> Result<Option<(u32, Extent)>, DemoError> {
        let disk = RealDisk::open(&self.raw, Access::ReadOnly).map_err(DemoError::host("look at a disk"))?;
        let table = read_copies(&disk).primary.map_err(|error| {
            let message = format!("its partition table cannot be read: {}", crate::host::chain(&error));
            DemoError::wrong(&self.path().display().to_string(), message)
        })?;
        Ok(table.find(guid).map(|(number, entry)| (number, entry.extent)))
    }

    /// Reads a whole range in the image, with the bytes that the device would return.
    pub fn content(&self, range: Extent) -> Result<ReadBack, DemoError> {
        let read = File::open(&self.image).and_then(|image| content(&image, range));
        read.map_err(DemoError::io("read", self.image.display()))
    }

    /// Unmaps all partitions and detaches the device. If it is bound to another file by now, it is not touched.
    pub fn detach(&self) -> Result<(), HostError> {
        if !self.is_bound() {
            return Ok(());
        }
        // A partition that stays mapped would come back with the next user of the device.
        let forgotten = self.forget_partitions();
        let detached = detach(&self.raw.path);
        let until = Instant::now() + USERS_MAY_TAKE;
        while detached.is_ok() && self.is_bound() {
            if Instant::now() >= until {
                return Err(HostError::Busy { object: self.raw.path.display().to_string() });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        forgotten.and(detached)
    }

    fn is_bound(&self) -> bool {
        let backing = fs::read_to_string(format!("/sys/block/{}/loop/backing_file", self.raw.name));
        backing.is_ok_and(|file| Path::new(file.trim_end()) == self.image)
    }

    fn forget_partitions(&self) -> Result<(), HostError> {
        let disk = RealDisk::open(&self.raw, Access::Own)?;
        for mapping in disk.mapped()? {
            let until = Instant::now() + USERS_MAY_TAKE;
            loop {
                match disk.unmap(mapping.number) {
                    Err(HostError::Busy { .. }) if Instant::now() < until => {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    done => break done?,
                }
            }
        }
        Ok(())
    }
}

fn detach(node: &Path) -> Result<(), HostError> {
    TimedCommand::new("losetup", LOSETUP_MAY_TAKE).args(["--detach".as_ref(), node.as_os_str()]).run().map(drop)
}

/// What the kernel says of the device, if that is the one on our image.
fn scanned(node: &Path, image: &Path) -> Result<RawDisk, DemoError> {
    let file = fs::metadata(image).map_err(DemoError::io("look at", image.display()))?;
    let disks = scan(&Roots::default()).map_err(DemoError::host("look for block devices"))?;
    let found = disks.into_iter().find(|disk| disk.path == node);
    let is_ours = |disk: &RawDisk| match &disk.kind {
        DeviceKind::Loop(Some(backing)) => backing.inode == Some((file.dev(), file.ino())),
        _ => false,
    };
    found.filter(is_ours).ok_or_else(|| {
        let what = format!("losetup named it for {}, but the kernel does not know it under that name", image.display());
        DemoError::wrong(&node.display().to_string(), what)
    })
}

fn content(image: &File, range: Extent) -> io::Result<ReadBack> {
    let mut found = ReadBack::default();
    let mut piece = vec![0; PIECE];
    let mut at = range.start;
    while at < range.end {
        let data = seek(image, at, Whence::SeekData)?.unwrap_or(range.end).min(range.end);
        found.holes += data - at;
        let hole = seek(image, data, Whence::SeekHole)?.unwrap_or(range.end).min(range.end);
        at = data;
        while at < hole {
            let want = usize::try_from(hole - at).unwrap_or(PIECE).min(PIECE);
            image.read_exact_at(&mut piece[..want], at)?;
            found.not_zero += piece[..want].iter().filter(|byte| **byte != 0).count() as u64;
            at += want as u64;
        }
    }
    Ok(found)
}

/// Where the next data, or the next hole, begins; `None` after the last.
fn seek(image: &File, from: u64, to: Whence) -> io::Result<Option<u64>> {
    let from = i64::try_from(from).map_err(io::Error::other)?;
    match lseek(image, from, to) {
        Ok(at) => u64::try_from(at).map(Some).map_err(io::Error::other),
        Err(Errno::ENXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_in_a_range_of_holes_is_found_and_its_neighbours_outside_are_not() {
        let image = tempfile::tempfile().expect("a file");
        image.set_len(64 << 20).expect("sparse");
        let range = Extent { start: 10 << 20, end: 40 << 20 };
        image.write_all_at(b"x", range.start - 1).expect("written");
        image.write_all_at(b"x", range.end).expect("written");
        assert_eq!(content(&image, range).expect("read").not_zero, 0);
        image.write_all_at(b"xyz", (25 << 20) + 17).expect("written");
        let found = content(&image, range).expect("read");
        assert_eq!(found.not_zero, 3);
        assert!(found.holes < range.len(), "{found:?}");
    }
}
