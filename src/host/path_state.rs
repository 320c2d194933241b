//! What a path of the host is now: a mount point, a directory, a block device, or nothing.
//!
//! Takes in a path as the host's processes see it; gives out a [`PathState`]. Nothing is opened but the path itself, and
//! nothing is written. It may block as long as a dead disk or server does.

use std::fs;
use std::io::Error;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::sys::statvfs::fstatvfs;

use super::error::HostError;
use super::links::open_on_host;
use super::mount::usage_of;
use super::port::FsUsage;
use super::raw::DevNo;
use super::roots::Roots;

/// What a path of the host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// There is nothing.
    Absent,
    /// A node of a block device; `None`: the device is gone. In bytes.
    Device { size: Option<u64> },
    /// `device_size`: of the device of its filesystem, in bytes. `None`: the filesystem is not of one device.
    Directory { is_mount_point: bool, device_size: Option<u64>, usage: FsUsage },
    /// A file, or something else that no volume is.
    Other,
}

pub fn path_state(roots: &Roots, path: &Path) -> Result<PathState, HostError> {
    let failed =
        |errno: Errno| HostError::Io { what: "look at", object: path.display().to_string(), source: errno.into() };
    let found = match open_on_host(path) {
        Ok(found) => found,
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(PathState::Absent),
        Err(errno) => return Err(failed(errno)),
    };
    let stat = fstat(&found).map_err(failed)?;
    let size = |number: u64| size(roots, DevNo::of(number));
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFBLK => Ok(PathState::Device { size: size(stat.st_rdev) }),
        SFlag::S_IFDIR => Ok(PathState::Directory {
            is_mount_point: is_mount_point(found.as_fd()).map_err(failed)?,
            device_size: size(stat.st_dev),
            usage: usage_of(&fstatvfs(&found).map_err(failed)?),
        }),
        _ => Ok(PathState::Other),
    }
}

/// In bytes; `None`: no such device. A number with major 0 is made up.
fn size(roots: &Roots, device: DevNo) -> Option<u64> {
    let sectors = fs::read_to_string(roots.sys.join("dev/block").join(device.to_string()).join("size")).ok()?;
    sectors.trim().parse::<u64>().ok()?.checked_mul(512)
}

/// Whether the directory above is in another mount. The device numbers of two directories do not tell: a bind mount of
/// a directory has the number of its filesystem.
fn is_mount_point(directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    let above = openat(directory, "..", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
    Ok(mount_id(directory)? != mount_id(above.as_fd())?)
}

fn mount_id(descriptor: BorrowedFd<'_>) -> Result<u64, Errno> {
    let io = |why: Error| Errno::from_raw(why.raw_os_error().unwrap_or(Errno::EIO as i32));
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd())).map_err(io)?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")).and_then(|id| id.trim().parse().ok());
    id.ok_or(Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_is_what_it_leads_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let state = |path: &Path| path_state(&Roots::default(), path).expect("read");
        fs::create_dir(at("a b\nc")).expect("a folder");
        fs::write(at("file"), "").expect("a file");
        symlink("a b\nc", at("link")).expect("a link");
        symlink("nowhere", at("dangling")).expect("a link");
        symlink("loop", at("loop")).expect("a link");
        for path in [at("a b\nc"), at("link")] {
            assert!(matches!(state(&path), PathState::Directory { is_mount_point: false, .. }), "{path:?}");
        }
        let PathState::Directory { is_mount_point: true, usage, .. } = state(Path::new("/proc")) else {
            panic!("/proc is a mount point")
        };
        assert_eq!(usage.total, 0);
        assert_eq!(state(&at("file")), PathState::Other);
        for path in ["none", "dangling", "loop", "file/below"] {
            assert_eq!(state(&at(path)), PathState::Absent, "{path}");
        }
        assert_eq!(state(Path::new("/dev/null")), PathState::Other);
    }
}
