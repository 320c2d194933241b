//! The seam to one disk: bytes in and out, and the kernel's partition mapping.
//!
//! Table and label code sees only [`BlockDevice`]; it runs the same on `/dev/nvme0n1`, on a vector of
//! bytes, and on the fake disk of a crash test.

use std::path::PathBuf;

use super::error::HostError;
use super::extent::Extent;

/// The fixed facts of an open disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes.
    pub size: u64,
    /// Logical sector in bytes: 512 or 4096.
    pub sector: u32,
    /// The device zeroes by itself (queue/write_zeroes_max_bytes > 0).
    pub offloads_zeroes: bool,
}

/// Bytes of a disk. Offsets and lengths of writes are multiples of the sector.
pub trait BlockDevice: Send + Sync {
    fn geometry(&self) -> Geometry;

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), IoError>;

    /// One O_DIRECT write. Durable only after [`BlockDevice::sync`]; torn by a power cut before.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), IoError>;

    /// BLKZEROOUT: afterwards the range reads as zeros; durable only after sync.
    fn zero(&self, range: Extent) -> Result<(), IoError>;

    /// BLKDISCARD: a hint. Promises nothing about what the range reads as.
    fn discard(&self, range: Extent) -> Result<(), IoError>;

    /// Everything written before is on the medium when this returns.
    fn sync(&self) -> Result<(), IoError>;
}

/// The partitions of a disk that the kernel has mapped, through BLKPG (never BLKRRPART).
pub trait PartitionMap: Send + Sync {
    fn mapped(&self) -> Result<Vec<Mapping>, HostError>;

    /// BLKPG add. Mapped already with that extent: success.
    fn map(&self, number: u32, extent: Extent) -> Result<(), HostError>;

    /// BLKPG delete. Not mapped: success. In use: [`HostError::Busy`], and nothing has changed.
    fn unmap(&self, number: u32) -> Result<(), HostError>;

    /// BLKPG resize of a mapped partition, in use or not.
    fn resize(&self, number: u32, extent: Extent) -> Result<(), HostError>;

    /// Proves that nobody has the partition open exclusively (mount, dm, md): O_EXCL open and close.
    fn prove_unused(&self, number: u32) -> Result<(), HostError>;

    /// Keeps a mapped partition open exclusively until it is unmapped or the disk is dropped. Meanwhile the kernel
    /// refuses every exclusive open of the whole disk and does not read its table again. Held by another:
    /// [`HostError::Busy`].
    fn hold(&self, number: u32) -> Result<(), HostError>;

    /// The device node of a partition, such as `/dev/nvme0n1p2`.
    fn node(&self, number: u32) -> PathBuf;
}

/// An open whole disk. It stays open from claim to release; dropping it gives up the flock.
pub trait Disk: BlockDevice + PartitionMap {
    /// flock LOCK_EX for the life of the guard, LOCK_SH again after; waits for udev to let go. If others hold it for
    /// too long: [`HostError::Busy`], and the lock is shared as before.
    fn exclusive(&self) -> Result<Box<dyn Send + '_>, HostError>;

    /// Proves that no other process in sight has the disk itself open and that no loop device is over it. An exclusive
    /// open does not prove this: it fails only if the other open is exclusive too, and a plain open can still write.
    /// Waits a moment for processes that only look, as udev does.
    fn prove_unopened(&self, who: Openers) -> Result<(), HostError>;

    /// The whole-disk device node.
    fn path(&self) -> PathBuf;
}

/// Which processes count as having a disk open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Openers {
    All,
    /// Not those that only read: programs that watch disks keep them open.
    Writers,
}

/// A partition as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mapping {
    pub number: u32,
    pub extent: Extent,
}

/// A read, write, zero-out, discard or sync that failed.
#[derive(Debug, thiserror::Error)]
#[error("{what} of {disk} at {range}")]
pub struct IoError {
    pub what: &'static str,
    pub disk: PathBuf,
    pub range: Extent,
    #[source]
    pub source: std::io::Error,
}
