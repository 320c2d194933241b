//! A real block device: bytes by O_DIRECT, its kernel partitions, its lock.
//!
//! Takes in a scanned [`RawDisk`] and proves that the node still leads to it; gives out a [`Disk`].
//!
//! Every read and write goes past the page cache. A whole disk and each of its partitions have page
//! caches of their own, which know nothing of each other, so only O_DIRECT shows what the medium holds.
//! Before an erase the partition is unmapped: the kernel then writes back and drops the partition's
//! cache, so that no page of the earlier tenant can be written over the zeros later.

mod aligned;
mod lock;
mod partitions;

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use self::aligned::AlignedBuffer;
use self::lock::NodeLock;
use super::block::{BlockDevice, Disk, Geometry, IoError, Openers, PartitionMap};
use super::error::HostError;
use super::extent::Extent;
use super::mount::bound_at;
use super::port::Access;
use super::raw::{DevNo, DeviceKind, RawDisk};
use super::{holder, ioctl};

/// How long those who only read a partition may keep it from being unmapped.
const READERS_MAY_TAKE: Duration = Duration::from_secs(2);
/// How long another process (udev, a partitioning tool) may hold the node's lock before we give up.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// The same before a claim: longer than udev needs to look. A process that locks an unclaimed disk for longer is about
/// to use it or already does, for example an agent with another state directory.
const CLAIM_LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest range of one BLKZEROOUT or BLKDISCARD: short enough that an erase can be stopped.
const CHUNK: u64 = 1 << 30;
/// The longest read in one piece, which bounds the buffer.
const READ_PIECE: u64 = 1 << 20;

/// An open block device of this machine.
#[derive(Debug)]
pub struct RealDisk {
    file: File,
    path: PathBuf,
    devno: DevNo,
    geometry: Geometry,
    access: Access,
    partitions: Partitions,
    lock: NodeLock,
    lock_wait: Duration,
    readers_may_take: Duration,
    /// The exclusive hold of [`Access::Claim`]. It ends with the first partition that is mapped, as the
    /// kernel mounts no partition of a disk that is held exclusively.
    claim: Mutex<Option<File>>,
    /// The exclusive hold of a partition, see [`PartitionMap::hold`].
    held: Mutex<Option<HeldPartition>>,
}

#[derive(Debug)]
struct HeldPartition {
    number: u32,
    hold: File,
}

/// Whether the kernel keeps partitions on this sort of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Partitions {
    ByKernel,
    /// Device mapper maps partitions as devices of its own; partitions have none at all.
    None,
}

impl RealDisk {
    /// Opens the node and proves that it still is the device that was scanned.
    pub fn open(disk: &RawDisk, access: Access) -> Result<Self, HostError> {
        // Taken before the descriptor that stays, so that a disk in use is never opened for writing: the
        // close of a writable descriptor makes udev probe the disk.
        let claim = match access {
            Access::ReadOnly | Access::Own => None,
            Access::Alone | Access::Claim => {
                let hold = open_verified(disk, Mode::Read, libc::O_EXCL).map_err(|error| named(error, disk))?;
                prove_unbound(disk.devno, &disk.path.display())?;
                Some(hold)
            }
        };
        let mode = match access {
            Access::ReadOnly | Access::Alone => Mode::Read,
            Access::Own | Access::Claim => Mode::Write,
        };
        let file = open_verified(disk, mode, libc::O_DIRECT)?;
        match access {
            Access::ReadOnly | Access::Alone => {}
            Access::Own => lock::shared(&file, &disk.path, LOCK_TIMEOUT)?,
            Access::Claim => lock::first(&file, &disk.path, CLAIM_LOCK_TIMEOUT)?,
        }
        let failed =
            |source| HostError::Io { what: "read the size of", object: disk.path.display().to_string(), source };
        let sector = ioctl::sector(&file).map_err(failed)?;
        let size = ioctl::size(&file).map_err(failed)?;
        Ok(Self {
            file,
            path: disk.path.clone(),
            devno: disk.devno,
            // A loop device's file may end inside a sector; that rest cannot be reached by O_DIRECT.
            geometry: Geometry { size: size - size % u64::from(sector), sector, offloads_zeroes: disk.offloads_zeroes },
            access,
            partitions: match disk.kind {
                DeviceKind::Dm(_) | DeviceKind::Partition(_) => Partitions::None,
                _ => Partitions::ByKernel,
            },
            lock: NodeLock::default(),
            lock_wait: LOCK_TIMEOUT,
            readers_may_take: READERS_MAY_TAKE,
            claim: Mutex::new(claim),
            held: Mutex::default(),
        })
    }

    /// The same disk with another limit on how long [`Disk::exclusive`] waits.
    #[cfg(any(test, feature = "testing"))]
    pub fn waiting_at_most(mut self, lock_wait: Duration) -> Self {
        self.lock_wait = lock_wait;
        self
    }

    /// The same with another limit on how long [`PartitionMap::unmap`] waits for readers.
    #[cfg(any(test, feature = "testing"))]
    pub fn waiting_for_readers_at_most(mut self, readers_may_take: Duration) -> Self {
        self.readers_may_take = readers_may_take;
        self
    }

    /// Any partition, open for reading. As long as one is open, the kernel refuses to read the table again (BLKRRPART),
    /// which would drop all the others. It is needed because a process that raises its lock has no lock for a moment
    /// (see [`lock`]).
    fn open_partition(&self) -> Option<File> {
        let number = self.any_mapped()?;
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(self.node(number)).ok()
    }

    fn failed(&self, what: &'static str, range: Extent, source: io::Error) -> IoError {
        IoError { what, disk: self.path.clone(), range, source }
    }

    /// The range, if it lies on the disk and consists of whole sectors.
    fn whole_sectors(&self, what: &'static str, offset: u64, len: u64) -> Result<Extent, IoError> {
        let range = self.on_disk(what, offset, len)?;
        let sector = u64::from(self.geometry.sector);
        if range.start % sector != 0 || range.end % sector != 0 {
            let why = format!("not whole sectors of {sector} bytes");
            return Err(self.failed(what, range, io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        Ok(range)
    }

    fn on_disk(&self, what: &'static str, offset: u64, len: u64) -> Result<Extent, IoError> {
        let beyond = || io::Error::new(io::ErrorKind::InvalidInput, format!("the disk ends at {}", self.geometry.size));
        match Extent::sized(offset, len) {
            Some(range) if range.end <= self.geometry.size => Ok(range),
            Some(range) => Err(self.failed(what, range, beyond())),
            None => Err(self.failed(what, Extent { start: offset, end: u64::MAX }, beyond())),
        }
    }

    fn in_chunks(
        &self,
        what: &'static str,
        range: Extent,
        act: impl Fn(&File, Extent) -> io::Result<()>,
    ) -> Result<(), IoError> {
        self.whole_sectors(what, range.start, range.len())?;
        let mut start = range.start;
        while start < range.end {
            let chunk = Extent { start, end: range.end.min(start.saturating_add(CHUNK)) };
            act(&self.file, chunk).map_err(|source| self.failed(what, chunk, source))?;
            start = chunk.end;
        }
        Ok(())
    }
}

impl Drop for RealDisk {
    fn drop(&mut self) {
        self.end_claim();
        self.let_go(|_| true);
    }
}

impl BlockDevice for RealDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        let wanted = self.on_disk("read", offset, buf.len() as u64)?;
        let sector = u64::from(self.geometry.sector);
        let mut rest = buf;
        let mut at = wanted.start;
        while !rest.is_empty() {
            let first = at - at % sector;
            let last = wanted.end.min(first + READ_PIECE);
            let piece = Extent { start: first, end: last.next_multiple_of(sector) };
            let mut aligned = AlignedBuffer::new(piece.len()).map_err(|source| self.failed("read", piece, source))?;
            self.file
                .read_exact_at(aligned.as_mut(), piece.start)
                .map_err(|source| self.failed("read", piece, source))?;
            let skip = usize::try_from(at - first).expect("less than a sector");
            let take = rest.len().min(aligned.as_ref().len() - skip);
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(&aligned.as_ref()[skip..skip + take]);
            rest = later;
            at += take as u64;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        let range = self.whole_sectors("write", offset, data.len() as u64)?;
        let mut aligned = AlignedBuffer::new(range.len()).map_err(|source| self.failed("write", range, source))?;
        aligned.as_mut().copy_from_slice(data);
        // One pwrite; more only if the kernel took a part or a signal came first.
        self.file.write_all_at(aligned.as_ref(), offset).map_err(|source| self.failed("write", range, source))
    }

    fn zero(&self, range: Extent) -> Result<(), IoError> {
        // No fallback here: if the device cannot zero, the kernel writes zeros itself.
        self.in_chunks("zero", range, |file, chunk| ioctl::zero_out(file, chunk))
    }

    fn discard(&self, range: Extent) -> Result<(), IoError> {
        self.in_chunks("discard", range, |file, chunk| match ioctl::discard(file, chunk) {
            // A hint that the device cannot take is no failure.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            other => other,
        })
    }

    fn sync(&self) -> Result<(), IoError> {
        // On a block device fdatasync does more than write back the page cache: at its end, Linux flushes the device's
        // own write cache, which O_DIRECT alone does not do.
        let all = Extent { start: 0, end: self.geometry.size };
        self.file.sync_data().map_err(|source| self.failed("sync", all, source))
    }
}

impl Disk for RealDisk {
    fn exclusive(&self) -> Result<Box<dyn Send + '_>, HostError> {
        let _open = self.open_partition();
        Ok(Box::new(self.lock.exclusive(&self.file, &self.path, self.lock_wait)?))
    }

    fn prove_unopened(&self, who: Openers) -> Result<(), HostError> {
        let until = Instant::now() + READERS_MAY_TAKE;
        while let Some(by) = holder::opened_elsewhere(self.devno, who) {
            if Instant::now() >= until {
                return Err(HostError::Busy { object: format!("{}, {by},", self.path.display()) });
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
}

/// Opens the node of a scanned disk and proves that it is the same device, by number and sequence.
pub(super) fn open_verified(disk: &RawDisk, mode: Mode, flags: i32) -> Result<File, HostError> {
    let changed = |why: String| HostError::Changed { path: disk.path.clone(), why };
    // Looked at before it is opened: the open of a pipe or of another driver's node can hang or act.
    let before = std::fs::metadata(&disk.path).map_err(|source| open_error(&disk.path, source))?;
    if !before.file_type().is_block_device() {
        return Err(changed("it is not a block device".into()));
    }
    let file = OpenOptions::new()
        .read(true)
        .write(mode == Mode::Write)
        .custom_flags(flags)
        .open(&disk.path)
        .map_err(|source| open_error(&disk.path, source))?;
    let io = |source| HostError::Io { what: "identify", object: disk.path.display().to_string(), source };
    let found = DevNo::of(file.metadata().map_err(io)?.rdev());
    if found != disk.devno {
        return Err(changed(format!("it is device {found}, not {}", disk.devno)));
    }
    if let (Some(scanned), Some(now)) = (disk.diskseq, ioctl::disk_sequence(&file).map_err(io)?)
        && scanned != now
    {
        return Err(changed(format!("another disk has taken its number (sequence {now}, not {scanned})")));
    }
    Ok(file)
}

/// An exclusive open is not enough: a bind-mounted node is in use, though nobody may have it open now.
fn prove_unbound(device: DevNo, what: &dyn Display) -> Result<(), HostError> {
    match bound_at(device)? {
        None => Ok(()),
        Some(target) => Err(HostError::Busy { object: format!("{what}, bind-mounted at {},", target.display()) }),
    }
}

/// Who uses a disk that is busy, if that can be found out.
fn named(error: HostError, disk: &RawDisk) -> HostError {
    match error {
        HostError::Busy { object } => match holder::of(disk.devno) {
            Some(by) => HostError::Busy { object: format!("{object}, {by},") },
            None => HostError::Busy { object },
        },
        error => error,
    }
}

fn open_error(path: &Path, source: io::Error) -> HostError {
    let gone = |why: &str| HostError::Changed { path: path.to_owned(), why: why.to_owned() };
    match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EBUSY) => HostError::Busy { object: path.display().to_string() },
        Some(Errno::ENOENT) => gone("the node is gone"),
        Some(Errno::ENXIO | Errno::ENODEV) => gone("the device behind the node is gone"),
        Some(Errno::ENOMEDIUM) => gone("there is no medium in the drive"),
        _ => HostError::Io { what: "open", object: path.display().to_string(), source },
    }
}
