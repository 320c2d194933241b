//! The machine as everything else sees it: [`Host`], and what it has. Values, and traits that `real`, `fake` and `dry`
//! implement.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::array_state::ArrayState;
use super::block::Disk;
use super::error::HostError;
use super::filesystem_root::FilesystemRoot;
use super::filesystem_state::FilesystemState;
use super::fs_usage::FsUsage;
use super::health::{DiskReport, IoErrors, WriteCounts};
use super::raw::{DevNo, Probe, RawDisk};
use super::slot_light::{Lit, SlotLight};
use super::state::StateStore;

/// A machine with disks. All calls block; the async edge calls them from blocking threads.
///
/// One trait: looks (`agent`, `health`) and opens (`pool`) need the same scan of the same machine.
pub trait Host: Send + Sync + 'static {
    /// Every block device and partition, as the kernel describes it. Opens no device.
    fn scan(&self) -> Result<Vec<RawDisk>, HostError>;

    /// Looks at a device's content, read-only: signatures, partition table kind, O_EXCL.
    fn probe(&self, disk: &RawDisk) -> Probe;

    /// What a disk reports of itself. Opens it read-only, and may take some seconds.
    fn report(&self, disk: &RawDisk) -> DiskReport;

    /// What the kernel counted of a disk; `None` if it does not count that. Opens no device.
    fn io_errors(&self, disk: &RawDisk) -> Option<IoErrors>;

    /// What the kernel counts of the writes to a disk; `None` if it does not count them. Opens no device.
    fn writes(&self, _disk: &RawDisk) -> Option<WriteCounts> {
        None
    }

    /// The md arrays that a device is, or is built on. Opens no device.
    fn arrays(&self, _disk: &RawDisk) -> Vec<ArrayState> {
        Vec::new()
    }

    /// The light of the slot that a disk is in; `None` if Linux knows none. Opens no device.
    fn slot_light(&self, _disk: &RawDisk) -> Option<SlotLight> {
        None
    }

    /// Turns that light on or off, and says how it is then. WriteCounts to nothing else.
    fn set_slot_light(&self, disk: &RawDisk, _lit: Lit) -> Result<SlotLight, HostError> {
        Err(HostError::Unsupported { what: format!("the slot of {} has no light", disk.path.display()) })
    }

    /// Opens a whole disk, after checking that the node still is the device that was scanned.
    fn open(&self, disk: &RawDisk, access: Access) -> Result<Arc<dyn Disk>, HostError>;

    /// mkfs, fsck and grow.
    fn filesystems(&self) -> &dyn Filesystems;

    /// The mount table of the namespace that volumes are published in.
    fn mounts(&self) -> &dyn Mounts;

    /// Documents that survive the process.
    fn state(&self) -> &dyn StateStore;

    /// Where this driver mounts filesystems of its own: a folder that need not be there.
    fn own_mounts(&self) -> PathBuf;

    /// Monotonic time since some fixed point; never goes back, unaffected by the wall clock.
    fn monotonic(&self) -> Duration;
}

/// What a disk is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// O_RDONLY: to look. Closing it makes no udev event.
    Look,
    /// O_RDWR | O_DIRECT with flock LOCK_SH, for life.
    Own,
    /// O_RDONLY with O_EXCL: proves that nobody uses one of our disks. Closing it makes no udev event.
    Alone,
    /// Like `Own`, with O_EXCL, and only if nobody else has a lock: the last check of a disk that is unclaimed by all
    /// other evidence.
    Claim,
}

/// A filesystem that we make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FsKind {
    Ext4,
    Xfs,
    Btrfs,
}

/// Makes, checks and grows filesystems on a device node. Every call has a timeout of its own.
pub trait Filesystems: Send + Sync {
    /// mkfs, whatever is there, then fsync of the device. `uuid` becomes the filesystem's UUID.
    fn make(&self, kind: FsKind, device: &Path, uuid: uuid::Uuid) -> Result<(), HostError>;

    /// Repairs what is safe to repair before a mount (`e2fsck -p`); xfs and btrfs are not touched.
    fn check(&self, kind: FsKind, device: &Path) -> Result<(), HostError>;

    /// Grows to the size of the device. `mounted_at` is where it is mounted, if it is.
    fn grow(&self, kind: FsKind, device: &Path, mounted_at: Option<&Path>) -> Result<(), HostError>;

    /// What a probe finds there now: type and UUID.
    fn identify(&self, device: &Path) -> Result<Option<FsIdentity>, HostError>;
}

/// What a filesystem says it is. `kind` is blkid's TYPE, which may be one that we do not make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsIdentity {
    pub kind: String,
    pub uuid: Option<uuid::Uuid>,
}

/// What a bind mount lets its user do at its target, or a device everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetAccess {
    ReadWrite,
    ReadOnly,
}

impl TargetAccess {
    pub fn of(read_only: bool) -> Self {
        if read_only { Self::ReadOnly } else { Self::ReadWrite }
    }

    pub fn is_read_only(self) -> bool {
        self == Self::ReadOnly
    }
}

/// Mounts and what they need. Targets are absolute and have been validated by the caller.
///
/// One trait: `volume` needs all of it, and the checkup's part of it is no other one.
pub trait Mounts: Send + Sync {
    fn table(&self) -> Result<Vec<Mount>, HostError>;

    /// Mounts `device` at `target`; `options` are mount(8) words, such as `noatime` or `discard`.
    fn mount(&self, device: &Path, target: &Path, kind: FsKind, options: &[String]) -> Result<(), HostError>;

    /// Bind-mounts a directory or a device node; read-only by a remount of the bind.
    fn bind(&self, source: &Path, target: &Path, access: TargetAccess) -> Result<(), HostError>;

    /// Unmounts the top mount at `target`. Not mounted is success.
    fn unmount(&self, target: &Path) -> Result<(), HostError>;

    /// Takes the mount at `target` out of the table, whoever uses it or whatever hangs: it ends with its last user. Not
    /// mounted is success.
    fn detach(&self, target: &Path) -> Result<(), HostError>;

    /// The root of the filesystem of the device at `node`, which must be what is mounted at `target`.
    fn open_root(&self, target: &Path, node: &Path) -> Result<Arc<dyn FilesystemRoot>, HostError>;

    /// Makes an empty directory or file to mount on. There already, of that type: success.
    fn make_target(&self, target: &Path, kind: TargetKind) -> Result<(), HostError>;

    /// Removes what `make_target` made. Not there is success; not empty is an error.
    fn remove_target(&self, target: &Path) -> Result<(), HostError>;

    /// Whether a mount is from a source: from its directory or a directory below that. A mount from a whole device may
    /// also be a bind of the device's node.
    fn is_from(&self, mount: &Mount, source: MountSource<'_>) -> bool;

    /// Where in `table` a node is bound whose own device has gone and whose number the device at `node` has now.
    fn stale_bind_of(&self, table: &[Mount], node: &Path) -> Option<PathBuf>;

    /// BLKROGET and BLKROSET: a read-only bind of a device node keeps nobody from writing to the device.
    fn is_read_only(&self, node: &Path) -> Result<bool, HostError>;
    fn set_access(&self, node: &Path, access: TargetAccess) -> Result<(), HostError>;

    /// How the device at a node is; `None`: it is gone. Opens no device.
    fn device_limits(&self, node: &Path) -> Option<DeviceLimits>;

    /// Bytes and inodes of the filesystem at `path`.
    fn usage(&self, path: &Path) -> Result<FsUsage, HostError>;

    /// How the filesystem of a mount is. It looks at the filesystem's root through the target, so the mount must be the
    /// top one there. Opens no device and writes nothing, but may block as long as a dead disk does: whoever calls it
    /// has [`Timeouts`](super::timeout::Timeouts) for each device.
    fn filesystem_state(&self, mount: &Mount) -> Result<FilesystemState, HostError>;

    /// What a path of the host is. It may block, too.
    fn path_state(&self, path: &Path) -> Result<PathState, HostError>;
}

/// How the kernel has a disk or a partition now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Bytes.
    pub size: u64,
    /// By its own flag or that of its disk.
    pub is_read_only: bool,
}

/// What a volume is mounted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    Directory,
    File,
}

/// One line of mountinfo, unescaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `major:minor` of the mounted filesystem's device.
    pub device: DevNo,
    /// Which part of that filesystem is mounted: `/`, or for a bind mount the path inside it.
    pub root: PathBuf,
    pub target: PathBuf,
    pub fs_type: String,
    pub source: String,
    /// Options of this mount and of its superblock, in one list.
    pub options: Vec<String>,
}

/// The kernel adds it to the root of a mount whose directory was removed. No name has a slash, so no other root ends so.
const REMOVED: &[u8] = b"//deleted";

/// What a volume is mounted from, as findmnt shows it: `/dev/sda1[/a]` is the directory `/a` of the filesystem on
/// `/dev/sda1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountSource<'a> {
    /// Path of the device's node.
    pub device: &'a Path,
    /// `/`: the filesystem from its root on, or the device itself.
    pub root: &'a Path,
}

impl<'a> MountSource<'a> {
    pub fn whole(device: &'a Path) -> Self {
        Self { device, root: Path::new("/") }
    }

    pub fn is_whole(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Whether a mount of its device with this root is from it. A directory below its own counts, as kubelet binds one
    /// for a subPath: whoever has that reads and writes the volume. A directory that was removed does not count, whatever
    /// has its path now: there is no file in it, and none can be made. It counts for a whole filesystem, which it keeps
    /// in use.
    pub fn has(&self, root: &Path) -> bool {
        let is_removed = || root.as_os_str().as_bytes().ends_with(REMOVED);
        self.is_whole() || (root.starts_with(self.root) && !is_removed())
    }
}

/// What a path of the host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// There is nothing.
    Absent,
    /// A node of a block device; `None`: the device is gone. In bytes.
    Device { size: Option<u64> },
    /// `device_size`: of the device of its filesystem, in bytes. `None`: the filesystem is not of one device.
    /// `filesystem`: how it is, if it is mounted there; `None`: nobody knows.
    Directory { mounted: Mounted, device_size: Option<u64>, usage: FsUsage, filesystem: Option<FilesystemState> },
    /// A file, or something else that no volume is.
    Other,
}

/// What is mounted at a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mounted {
    Nothing,
    /// A directory of a filesystem that has others, too (a bind mount).
    Part,
    /// A filesystem from its root on.
    Whole,
}
