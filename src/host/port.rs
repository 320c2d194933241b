//! The machine as everything else sees it: [`Host`], and what it has. Values, and traits that `real`, `fake` and `dry`
//! implement.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::array_state::ArrayState;
use super::block::Disk;
use super::disk_figures::{BenchmarkBounds, DiskFigures, MachineModel};
use super::error::HostError;
use super::filesystem_root::FilesystemRoot;
use super::filesystem_state::FilesystemState;
use super::fs_usage::FsUsage;
use super::health::{DiskReport, IoErrors, WriteCounts};
use super::machine_start::MachineStart;
use super::project_quota::ModuleLoading;
use super::raw::{DevNo, Probe, RawDisk};
use super::slot_light::{Lit, SlotLight};
use super::state::StateStore;

/// A machine with disks. All calls block; the async edge calls them from blocking threads.
///
/// One trait: those who read (`agent`, `health`) and those who open (`pool`) need the same scan of the same machine.
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

    /// For how long a disk was busy since the kernel found it; `None`: nobody counts that. Opens no device.
    fn busy_time(&self, _disk: &RawDisk) -> Option<Duration> {
        None
    }

    /// Measures the disk of a filesystem that is mounted, by a file without a name in it: it takes a minute, and space
    /// for that time. It may block as long as the disk does.
    fn benchmark(&self, mount: &Mount, _bounds: BenchmarkBounds) -> Result<DiskFigures, HostError> {
        Err(HostError::Unsupported { what: format!("{} cannot be measured", mount.target.display()) })
    }

    /// What the firmware says of the machine.
    fn model(&self) -> MachineModel {
        MachineModel::default()
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

    /// Makes, starts and stops md arrays.
    fn md(&self) -> &dyn Arrays;

    /// The mount table of the namespace that volumes are published in.
    fn mounts(&self) -> &dyn Mounts;

    /// Documents that survive the process.
    fn state(&self) -> &dyn StateStore;

    /// Where this driver mounts filesystems of its own: a folder that need not be there.
    fn own_mounts(&self) -> PathBuf;

    /// Which start of the machine this is; `None`: nobody can say it.
    fn machine_start(&self) -> Option<MachineStart> {
        None
    }

    /// Monotonic time since some fixed point; never goes back, unaffected by the wall clock.
    fn monotonic(&self) -> Duration;
}

/// What a disk is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// O_RDONLY: to read. Closing it makes no udev event.
    ReadOnly,
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

/// An array that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewArray {
    pub uuid: uuid::Uuid,
    /// `raid0`.
    pub level: &'static str,
    /// Bytes; whole KiB.
    pub chunk: u64,
    /// In the order of their places.
    pub members: Vec<PathBuf>,
}

/// What is done with arrays.
pub trait Arrays: Send + Sync {
    /// Whether arrays can be made here. The text says what is missing.
    fn supported(&self) -> Result<(), HostError>;

    /// Makes an array of just these devices, whatever is on them, and starts it.
    fn make(&self, array: &NewArray) -> Result<(), HostError>;

    /// Starts an array that was made. Each of the devices must be a member of it, and none may lack.
    fn assemble(&self, uuid: uuid::Uuid, members: &[PathBuf]) -> Result<(), HostError>;

    /// Stops an array that nobody uses, if it is still the one that was scanned: the numbers of arrays are used again. What
    /// is on its members stays.
    fn stop(&self, array: &RawDisk) -> Result<(), HostError>;
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

    /// Whether the kernel can keep projects of XFS within limits: an error says what is missing. Mounted with the
    /// option `prjquota`, a filesystem does.
    fn supports_project_quota(&self, loading: ModuleLoading) -> Result<(), HostError>;

    /// The root of the filesystem of the device at `node`, which must be what is mounted at `target`.
    fn open_root(&self, target: &Path, node: &Path) -> Result<Arc<dyn FilesystemRoot>, HostError>;

    /// The filesystem that somebody mounted at a path of the host. It may block as long as a dead disk does.
    fn mounted_filesystem(&self, path: &Path) -> Result<Result<MountedFilesystem, NoMountPoint>, HostError>;

    /// Makes an empty directory or file to mount on. There already, of that type: success.
    fn make_target(&self, target: &Path, kind: TargetKind) -> Result<(), HostError>;

    /// Removes what `make_target` made. Not there is success; not empty is an error.
    fn remove_target(&self, target: &Path) -> Result<(), HostError>;

    /// Whether there is something at a target, be it what `make_target` made. It looks past no link.
    fn has_target(&self, target: &Path) -> Result<bool, HostError>;

    /// Whether a mount is from a source: from its directory or a directory below that. A mount from a whole device may
    /// also be a bind of the device's node.
    fn is_from(&self, mount: &Mount, source: MountSource<'_>) -> bool;

    /// Whether directories can be bound below a folder of the host, as far as that is known beforehand: an error says what
    /// has to be changed. Nothing is made there.
    fn can_show_on_host(&self, folder: &Path) -> Result<(), HostError>;

    /// Binds a directory at a path of the host, where all of its processes see it. The folder above must be there, for
    /// this process, too, with no link on the way. The last name is made, so that nobody can write below it while nothing
    /// is mounted there. What is not empty, or mounted already, is an error and stays.
    fn show_on_host(&self, source: &Path, at: &Path) -> Result<(), HostError>;

    /// Ends what `show_on_host` did. In use is an error, not there is success.
    fn hide_from_host(&self, at: &Path) -> Result<(), HostError> {
        self.unmount(at)
    }

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

    /// Which filesystem is mounted at a path of the host, or which device it leads to: `KIND-NAME`, which stays the
    /// same after a boot. Only words of one kind can be compared. `None`: nothing is there, or nobody says. It may
    /// block, too.
    fn path_identity(&self, path: &Path) -> Option<String>;
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

/// The kernel adds it to the root of a mount whose directory was removed. No name has a slash, so no
/// other root ends so.
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
    /// for a subPath: whoever has that reads and writes the volume. A directory that was removed does not count,
    /// whatever has its path now: there is no file in it, and none can be made. It counts for a whole filesystem,
    /// which it keeps in use.
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

/// A filesystem that is mounted at a path, from its root on.
#[derive(Clone)]
pub struct MountedFilesystem {
    /// Its row in the host's table.
    pub mount: Mount,
    /// The number that `stat --file-system --format %i` shows. Another mount of the same filesystem may have another.
    pub fsid: u64,
    /// It is the filesystem of the host's `/`, too.
    pub is_of_system: bool,
    /// Opened at the path, and proven to be the root of that mount: what is mounted there later changes nothing of it.
    /// As long as it is open, nobody can unmount the filesystem.
    pub root: Arc<dyn FilesystemRoot>,
}

impl fmt::Debug for MountedFilesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mount, fsid, is_of_system, root: _ } = self;
        f.debug_struct("MountedFilesystem")
            .field("mount", mount)
            .field("fsid", fsid)
            .field("is_of_system", is_of_system)
            .finish_non_exhaustive()
    }
}

/// Why a path is not where a filesystem is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMountPoint {
    #[error("there is nothing")]
    Absent,
    #[error("it is a symbolic link, or leads through one")]
    Link,
    #[error("it is no folder")]
    NoFolder,
    #[error("nothing is mounted there")]
    NotMounted,
    #[error("a folder of a filesystem is mounted there, and not the filesystem from its root on")]
    Part,
}
