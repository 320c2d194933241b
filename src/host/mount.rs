//! Mounts, their targets and how full they are.
//!
//! Takes in validated absolute paths; gives out what the kernel did. A target is opened with O_PATH |
//! O_NOFOLLOW and used through that descriptor, so that what was checked is what is mounted on, even if
//! somebody swaps the path for a symlink in between.
//!
//! A bind of a device node cannot be made read-only: a read-only mount guards files, not the devices behind
//! nodes. For a raw block volume the device's own flag does that (`device`).

mod device;
mod identity;
mod mounted;
mod options;
mod path;
mod quota;
mod shown;
mod source;
mod state;
mod unmount;

use std::fs::{self, DirBuilder, File, FileType, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sys::statvfs::statvfs;

pub(super) use self::device::bound_at;
use self::options::{Options, kept_flags};
pub(super) use self::path::device_of;
use super::directory_tree::DirectoryTree;
use super::error::HostError;
use super::filesystem_root::FilesystemRoot;
use super::filesystem_state::FilesystemState;
use super::fs_usage::FsUsage;
use super::port::{
    DeviceLimits, FsKind, Mount, MountSource, MountedFilesystem, Mounts, NoMountPoint, PathState, TargetAccess,
    TargetKind,
};
use super::project_quota::ModuleLoading;
use super::roots::Roots;

/// For what we make on the way to a target: only root and its group may look in.
const DIRECTORY_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;

/// The mounts of the namespace that this process lives in.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealMounts;

impl Mounts for RealMounts {
    fn table(&self) -> Result<Vec<Mount>, HostError> {
        super::mountinfo::own(Path::new("/proc"))
    }

    fn mount(&self, device: &Path, target: &Path, kind: FsKind, options: &[String]) -> Result<(), HostError> {
        let parsed = Options::parse(options)?;
        let pinned = Pinned::open(target)?;
        pinned.expect(TargetKind::Directory)?;
        let data = (!parsed.data.is_empty()).then_some(parsed.data.as_str());
        mount(Some(device), &pinned.proc_path(), Some(kind.name()), parsed.flags, data).map_err(|errno| {
            let object = || format!("{} on {}", device.display(), target.display());
            match errno {
                Errno::EBUSY => HostError::Busy { object: object() },
                Errno::ENODEV => HostError::Unsupported { what: format!("the kernel has no {}", kind.name()) },
                Errno::EINVAL => HostError::Io {
                    what: "mount",
                    object: object(),
                    source: io::Error::new(
                        io::ErrorKind::InvalidInput,
                        format!("no {} there, or one of the options is not known: {options:?}", kind.name()),
                    ),
                },
                _ => HostError::Io { what: "mount", object: object(), source: errno.into() },
            }
        })
    }

    fn bind(&self, source: &Path, target: &Path, access: TargetAccess) -> Result<(), HostError> {
        let from = Pinned::open(source)?;
        let to = Pinned::open(target)?;
        to.expect(if from.kind.is_dir() { TargetKind::Directory } else { TargetKind::File })?;
        let none: Option<&str> = None;
        mount(Some(&from.proc_path()), &to.proc_path(), none, MsFlags::MS_BIND, none)
            .map_err(|errno| failed("bind to", target, errno))?;
        if access == TargetAccess::ReadWrite {
            return Ok(());
        }
        make_read_only(target).inspect_err(|_| {
            // A bind that is writable against the request must not stay. Should this fail too, the caller's
            // retry finds a mount without `ro` in the table.
            if let Err(error) = self.unmount(target) {
                tracing::warn!(target = %target.display(), %error, "a writable bind mount could not be removed");
            }
        })
    }

    fn unmount(&self, target: &Path) -> Result<(), HostError> {
        unmount::unmount(target)
    }

    fn detach(&self, target: &Path) -> Result<(), HostError> {
        unmount::detach(target)
    }

    fn supports_project_quota(&self, loading: ModuleLoading) -> Result<(), HostError> {
        quota::supports_project_quota(&Roots::default().proc, loading)
    }

    fn open_root(&self, target: &Path, node: &Path) -> Result<Arc<dyn FilesystemRoot>, HostError> {
        let root = DirectoryTree::open(target, node)?;
        // A mount of one of its folders has the same device, and whoever has the folder decides what is in it.
        let is_whole = |mount: &Mount| mount.root == Path::new("/");
        match self.table()?.iter().rfind(|mount| mount.target == target).is_some_and(is_whole) {
            true => Ok(Arc::new(root)),
            false => {
                let why = format!("not the filesystem of {} but a folder of it is mounted there", node.display());
                Err(HostError::Changed { path: target.to_owned(), why })
            }
        }
    }

    fn mounted_filesystem(&self, path: &Path) -> Result<Result<MountedFilesystem, NoMountPoint>, HostError> {
        mounted::mounted_filesystem(&Roots::default(), path)
    }

    fn make_target(&self, target: &Path, kind: TargetKind) -> Result<(), HostError> {
        let Some(parent) = target.parent() else {
            return Err(HostError::Unsupported { what: format!("{} cannot be mounted on", target.display()) });
        };
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(parent)
            .map_err(|source| io_error("make the directory", parent, source))?;
        let made = match kind {
            TargetKind::Directory => DirBuilder::new().mode(DIRECTORY_MODE).create(target),
            // O_EXCL follows no symlink, not even one that leads nowhere.
            TargetKind::File => OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(target).map(drop),
        };
        match made {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Pinned::open(target)?.expect(kind),
            Err(source) => Err(io_error("make the target", target, source)),
        }
    }

    fn has_target(&self, target: &Path) -> Result<bool, HostError> {
        match fs::symlink_metadata(target) {
            Ok(_) => Ok(true),
            Err(error) if is_absent(&error) => Ok(false),
            Err(source) => Err(io_error("look at", target, source)),
        }
    }

    fn remove_target(&self, target: &Path) -> Result<(), HostError> {
        let found = match fs::symlink_metadata(target) {
            Ok(found) => found,
            Err(error) if is_absent(&error) => return Ok(()),
            Err(source) => return Err(io_error("look at", target, source)),
        };
        let removed = match TargetSort::of(found.file_type()) {
            TargetSort::Directory => fs::remove_dir(target),
            TargetSort::File if found.len() == 0 => fs::remove_file(target),
            TargetSort::File => return Err(wrong_target(target, "is a file with content, so it is not a target")),
            // A device here means that one is mounted on the target.
            TargetSort::Device => return Err(HostError::Busy { object: target.display().to_string() }),
            TargetSort::Symlink | TargetSort::Other => {
                return Err(wrong_target(target, "is neither a directory, a file nor a device, so it is not a target"));
            }
        };
        match removed {
            Ok(()) => Ok(()),
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                Err(HostError::Busy { object: target.display().to_string() })
            }
            Err(source) => Err(io_error("remove the target", target, source)),
        }
    }

    fn is_from(&self, mount: &Mount, source: MountSource<'_>) -> bool {
        device::is_from(mount, source)
    }

    fn can_show_on_host(&self, folder: &Path) -> Result<(), HostError> {
        shown::can_show_on_host(&Roots::default().proc, folder)
    }

    fn show_on_host(&self, source: &Path, at: &Path) -> Result<(), HostError> {
        shown::show_on_host(&Roots::default().proc, source, at)
    }

    fn hide_from_host(&self, at: &Path) -> Result<(), HostError> {
        self.unmount(at)?;
        shown::remove_mount_point(at);
        Ok(())
    }

    fn stale_bind_of(&self, table: &[Mount], node: &Path) -> Option<PathBuf> {
        device::stale_bind_of(table, node)
    }

    fn is_read_only(&self, node: &Path) -> Result<bool, HostError> {
        device::is_read_only(node)
    }

    fn set_access(&self, node: &Path, access: TargetAccess) -> Result<(), HostError> {
        device::set_access(node, access)
    }

    fn device_limits(&self, node: &Path) -> Option<DeviceLimits> {
        device::device_limits(&Roots::default().sys, node)
    }

    fn usage(&self, path: &Path) -> Result<FsUsage, HostError> {
        let found = fs::metadata(path).map_err(|source| io_error("look at", path, source))?;
        if matches!(TargetSort::of(found.file_type()), TargetSort::Device) {
            // statvfs would measure devtmpfs, the filesystem that the node is in.
            let what = format!("{} is a device node: it has a size, and no usage", path.display());
            return Err(HostError::Unsupported { what });
        }
        let stats = statvfs(path).map_err(|errno| failed("measure", path, errno))?;
        Ok(FsUsage::of(&stats))
    }

    fn filesystem_state(&self, mount: &Mount) -> Result<FilesystemState, HostError> {
        state::filesystem_state(&Roots::default(), mount)
    }

    fn path_state(&self, path: &Path) -> Result<PathState, HostError> {
        path::path_state(&Roots::default(), path)
    }

    fn path_identity(&self, path: &Path) -> Option<String> {
        path::path_identity(&Roots::default(), path)
    }
}

/// Remounts a bind read-only. The remount sets all flags at once, so those that the source has must be named
/// again: some are locked in a user namespace, and none may be lost.
fn make_read_only(target: &Path) -> Result<(), HostError> {
    let stats = statvfs(target).map_err(|errno| failed("read the flags of the mount at", target, errno))?;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | kept_flags(stats.flags());
    let none: Option<&str> = None;
    // Opened again: the descriptor from before the bind leads to what is now covered.
    let covering = Pinned::open(target)?;
    mount(none, &covering.proc_path(), none, flags, none).map_err(|errno| failed("make read-only", target, errno))
}

/// A path that was looked at and stays the same thing while the descriptor is open.
struct Pinned<'a> {
    file: File,
    kind: FileType,
    path: &'a Path,
}

impl<'a> Pinned<'a> {
    fn open(path: &'a Path) -> Result<Self, HostError> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
            .open(path)
            .map_err(|source| io_error("open", path, source))?;
        let kind = file.metadata().map_err(|source| io_error("look at", path, source))?.file_type();
        match TargetSort::of(kind) {
            TargetSort::Symlink => Err(wrong_target(path, "is a symlink, which is not followed")),
            TargetSort::Other => Err(wrong_target(path, "is neither a directory, a file nor a block device")),
            TargetSort::Directory | TargetSort::File | TargetSort::Device => Ok(Self { file, kind, path }),
        }
    }

    fn expect(&self, kind: TargetKind) -> Result<(), HostError> {
        match (kind, TargetSort::of(self.kind)) {
            // A device that is bound there already has the file's place.
            (TargetKind::Directory, TargetSort::Directory)
            | (TargetKind::File, TargetSort::File | TargetSort::Device) => Ok(()),
            (TargetKind::Directory, _) => Err(wrong_target(self.path, "is not a directory")),
            (TargetKind::File, _) => Err(wrong_target(self.path, "is not a file")),
        }
    }

    /// A path that leads to exactly this file, whatever the original path leads to now.
    fn proc_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

enum TargetSort {
    Directory,
    File,
    Device,
    Symlink,
    Other,
}

impl TargetSort {
    fn of(kind: FileType) -> Self {
        if kind.is_dir() {
            Self::Directory
        } else if kind.is_file() {
            Self::File
        } else if kind.is_block_device() {
            Self::Device
        } else if kind.is_symlink() {
            Self::Symlink
        } else {
            Self::Other
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn wrong_target(path: &Path, why: &str) -> HostError {
    HostError::Unsupported { what: format!("{} {why}", path.display()) }
}

fn failed(what: &'static str, path: &Path, errno: Errno) -> HostError {
    io_error(what, path, errno.into())
}

fn io_error(what: &'static str, path: &Path, source: io::Error) -> HostError {
    HostError::Io { what, object: path.display().to_string(), source }
}
