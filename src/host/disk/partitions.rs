//! The partitions that the kernel keeps on a disk. Takes in numbers and extents, asks sysfs and BLKPG.
//!
//! BLKRRPART is never used: it fails while any partition is in use, and drops localpool's partitions that another tool
//! mapped.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use super::lock::is_only_among_the_dying;
use super::{HeldPartition, Partitions, RealDisk, prove_unbound};
use crate::host::block::{Mapping, PartitionMap};
use crate::host::command::close_for_good;
use crate::host::error::HostError;
use crate::host::extent::Extent;
use crate::host::port::Access;
use crate::host::raw::DevNo;
use crate::host::{holder, ioctl};

/// sysfs counts in these, whatever the sector of the disk is.
const SYSFS_SECTOR: u64 = 512;

impl PartitionMap for RealDisk {
    fn mapped(&self) -> Result<Vec<Mapping>, HostError> {
        let dir = self.sysfs();
        let failed = |source| HostError::Io { what: "list the partitions of", object: self.path_text(), source };
        let mut mappings = Vec::new();
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?.path();
            // Only a partition has this file; one that goes away meanwhile counts as not mapped.
            if let Some(mapping) = read_mapping(&entry).map_err(failed)? {
                mappings.push(mapping);
            }
        }
        mappings.sort_unstable();
        Ok(mappings)
    }

    fn map(&self, number: u32, extent: Extent) -> Result<(), HostError> {
        self.may_change()?;
        // devtmpfs makes the node before the ioctl returns, so there is nothing to wait for. In a container
        // with a /dev of its own it never appears; whoever needs it says so.
        match ioctl::add_partition(&self.file, number, extent) {
            Ok(()) => {}
            Err(error) if is(&error, Errno::EBUSY) => self.settle_collision(number, extent)?,
            Err(source) => return Err(self.partition_error("map", number, extent, source)),
        }
        self.end_claim();
        Ok(())
    }

    fn unmap(&self, number: u32) -> Result<(), HostError> {
        self.may_change()?;
        self.let_go(|held| held.number == number);
        let until = Instant::now() + self.readers_may_take;
        loop {
            match ioctl::delete_partition(&self.file, number) {
                Ok(()) => return Ok(()),
                Err(error) if is(&error, Errno::ENXIO) => return Ok(()),
                Err(error) if is(&error, Errno::EBUSY) => {}
                Err(source) => {
                    return Err(HostError::Io { what: "unmap", object: self.partition_text(number), source });
                }
            }
            // Any open descriptor makes it busy: udev that probes what mkfs has just closed, a blkid that looks at all
            // devices. Those go away by themselves; a process that holds it exclusively uses it.
            if let Err(busy @ HostError::Busy { .. }) = self.prove_unused(number) {
                return Err(busy);
            }
            if Instant::now() >= until {
                return Err(self.in_use(number));
            }
            sleep(Duration::from_millis(5));
        }
    }

    fn resize(&self, number: u32, extent: Extent) -> Result<(), HostError> {
        self.may_change()?;
        ioctl::resize_partition(&self.file, number, extent)
            .map_err(|source| self.partition_error("resize", number, extent, source))
    }

    fn prove_unused(&self, number: u32) -> Result<(), HostError> {
        let Some((opened, device)) = self.open_exclusively(number)? else {
            // Nobody can have open what the kernel does not have.
            return Ok(());
        };
        close_for_good(opened);
        prove_unbound(device, &self.partition_text(number))
    }

    fn hold(&self, number: u32) -> Result<(), HostError> {
        self.may_change()?;
        self.let_go(|_| true);
        let opened = match self.open_exclusively(number) {
            // The holder keeps everybody else out, and does nothing with it any more.
            Err(HostError::Busy { .. }) if is_only_among_the_dying(&self.file) => return Ok(()),
            opened => opened?,
        };
        let Some((hold, _)) = opened else {
            let what = format!("{} is not mapped, so it cannot be held", self.partition_text(number));
            return Err(HostError::Unsupported { what });
        };
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(HeldPartition { number, hold });
        Ok(())
    }

    fn node(&self, number: u32) -> PathBuf {
        PathBuf::from(partition_name(&self.path.to_string_lossy(), number))
    }
}

impl RealDisk {
    /// By number, so that a rename of the disk cannot lead to another one.
    fn sysfs(&self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{}", self.devno))
    }

    pub(super) fn end_claim(&self) {
        if let Some(hold) = self.claim.lock().unwrap_or_else(PoisonError::into_inner).take() {
            close_for_good(hold);
        }
    }

    /// Lets go of the partition that is held, if it is this one.
    pub(super) fn let_go(&self, which: impl FnOnce(&mut HeldPartition) -> bool) {
        if let Some(held) = self.held.lock().unwrap_or_else(PoisonError::into_inner).take_if(which) {
            close_for_good(held.hold);
        }
    }

    /// The number of any mapped partition.
    pub(super) fn any_mapped(&self) -> Option<u32> {
        let entries = fs::read_dir(self.sysfs()).ok()?;
        let mut numbers = entries.filter_map(|entry| read_number(&entry.ok()?.path().join("partition")).ok()?);
        numbers.find_map(|number| u32::try_from(number).ok())
    }

    fn path_text(&self) -> String {
        self.path.display().to_string()
    }

    fn partition_text(&self, number: u32) -> String {
        format!("partition {number} of {}", self.path.display())
    }

    fn in_use(&self, number: u32) -> HostError {
        let device = self.partition_device(number).ok().flatten();
        let object = match device.and_then(holder::of) {
            Some(by) => format!("{}, {by},", self.partition_text(number)),
            None => self.partition_text(number),
        };
        HostError::Busy { object }
    }

    fn partition_error(&self, what: &'static str, number: u32, extent: Extent, source: io::Error) -> HostError {
        HostError::Io { what, object: format!("{} as {extent}", self.partition_text(number)), source }
    }

    /// BLKPG itself would also accept a descriptor that is open for reading.
    fn may_change(&self) -> Result<(), HostError> {
        if matches!(self.access, Access::ReadOnly | Access::Alone) {
            let what = format!("{} is open to look, so its partitions stay as they are", self.path.display());
            return Err(HostError::Unsupported { what });
        }
        if self.partitions == Partitions::None {
            let what = format!("the kernel keeps no partitions on {}", self.path.display());
            return Err(HostError::Unsupported { what });
        }
        Ok(())
    }

    /// EBUSY from a map: the very same partition is there already, or another is in the way.
    fn settle_collision(&self, number: u32, extent: Extent) -> Result<(), HostError> {
        let mapped = self.mapped()?;
        if mapped.contains(&Mapping { number, extent }) {
            return Ok(());
        }
        let in_the_way = mapped.iter().find(|other| other.number == number || other.extent.overlaps(&extent));
        let why = match in_the_way {
            Some(other) => format!("the kernel has partition {} at {}", other.number, other.extent),
            None => "something else had the range, and no longer has".to_owned(),
        };
        let source = io::Error::new(io::ErrorKind::AlreadyExists, why);
        Err(self.partition_error("map", number, extent, source))
    }

    /// A mapped partition, opened exclusively, and its device number.
    fn open_exclusively(&self, number: u32) -> Result<Option<(File, DevNo)>, HostError> {
        let node = self.node(number);
        let Some(expected) = self.partition_device(number)? else { return Ok(None) };
        let failed = |source: io::Error| match source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EBUSY) => self.in_use(number),
            Some(Errno::ENOENT) => HostError::Unsupported {
                what: format!(
                    "the kernel has {}, but {} does not exist: /dev is not the host's devtmpfs",
                    self.partition_text(number),
                    node.display()
                ),
            },
            _ => HostError::Io { what: "open exclusively", object: node.display().to_string(), source },
        };
        let opened: File =
            OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(&node).map_err(failed)?;
        match opened.metadata().map(|node| DevNo::of(node.rdev())) {
            Ok(found) if found == expected => Ok(Some((opened, found))),
            other => {
                close_for_good(opened);
                let why = format!("it is device {}, the partition is {expected}", other.map_err(failed)?);
                Err(HostError::Changed { path: node, why })
            }
        }
    }

    /// Where sysfs keeps a partition, as the kernel names it after its disk.
    fn partition_by_name(&self, number: u32) -> Option<PathBuf> {
        let disk = fs::read_link(self.sysfs()).ok()?;
        Some(self.sysfs().join(partition_name(disk.file_name()?.to_str()?, number)))
    }

    /// The device number of a mapped partition.
    fn partition_device(&self, number: u32) -> Result<Option<DevNo>, HostError> {
        let failed = |source| HostError::Io { what: "find", object: self.partition_text(number), source };
        // A disk may have a hundred partitions, so the one is first looked for by its name. All are asked only if that
        // fails, as "not mapped" must be certain.
        if let Some(dir) = self.partition_by_name(number)
            && read_number(&dir.join("partition")).map_err(failed)? == Some(u64::from(number))
        {
            return read_devno(&dir.join("dev")).map_err(failed);
        }
        for entry in fs::read_dir(self.sysfs()).map_err(failed)? {
            let dir = entry.map_err(failed)?.path();
            if read_number(&dir.join("partition")).map_err(failed)? == Some(u64::from(number)) {
                return read_devno(&dir.join("dev")).map_err(failed);
            }
        }
        Ok(None)
    }
}

/// `nvme0n1p2`, `sda2`; of a kernel name or of a path that ends in one.
fn partition_name(disk: &str, number: u32) -> String {
    let separator = if disk.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
    format!("{disk}{separator}{number}")
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}

fn read_mapping(dir: &Path) -> io::Result<Option<Mapping>> {
    let Some(number) = read_number(&dir.join("partition"))? else { return Ok(None) };
    let Some(start) = read_number(&dir.join("start"))? else { return Ok(None) };
    let Some(size) = read_number(&dir.join("size"))? else { return Ok(None) };
    let extent = || Extent::sized(start.checked_mul(SYSFS_SECTOR)?, size.checked_mul(SYSFS_SECTOR)?);
    match (u32::try_from(number), extent()) {
        (Ok(number), Some(extent)) => Ok(Some(Mapping { number, extent })),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} is out of range", dir.display()))),
    }
}

fn read_number(file: &Path) -> io::Result<Option<u64>> {
    let Some(text) = read_attribute(file)? else { return Ok(None) };
    let odd = |_| io::Error::new(io::ErrorKind::InvalidData, format!("{} holds {text:?}", file.display()));
    text.parse().map(Some).map_err(odd)
}

fn read_devno(file: &Path) -> io::Result<Option<DevNo>> {
    let Some(text) = read_attribute(file)? else { return Ok(None) };
    let parsed = text
        .split_once(':')
        .and_then(|(major, minor)| Some(DevNo { major: major.parse().ok()?, minor: minor.parse().ok()? }));
    match parsed {
        Some(devno) => Ok(Some(devno)),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} holds {text:?}", file.display()))),
    }
}

/// `None` if the file is not there, or its device goes away while it is read.
fn read_attribute(file: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if [Errno::ENOENT, Errno::ENOTDIR, Errno::ENODEV].iter().any(|errno| is(&error, *errno)) => Ok(None),
        Err(error) => Err(error),
    }
}
