//! What a path of the host is now: a mount point, a directory, a block device, or nothing.
//!
//! Takes in a path as the host's processes see it; gives out a [`PathState`]. Nothing is opened but the path itself,
//! and nothing is written. It may block as long as a dead disk or server does.

use std::fs;
use std::io::Error;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::sys::statvfs::fstatvfs;

use super::identity;
use super::state::state_of_row;
use crate::host::error::HostError;
use crate::host::filesystem_state::FilesystemState;
use crate::host::fs_usage::FsUsage;
use crate::host::links::{host_root, open_below};
use crate::host::mountinfo::{self, Row};
use crate::host::port::{Mount, Mounted, PathState};
use crate::host::raw::DevNo;
use crate::host::roots::Roots;

pub fn path_state(roots: &Roots, path: &Path) -> Result<PathState, HostError> {
    let failed =
        |errno: Errno| HostError::Io { what: "look at", object: path.display().to_string(), source: errno.into() };
    let OpenedPath { found, table, is_of_host } = open_path(roots, path);
    let found = match (found, is_of_host) {
        (Ok(found), _) => found,
        (Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP), true) => return Ok(PathState::Absent),
        // A container does not have all paths of its host.
        (Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP), false) => {
            let what =
                format!("/proc/1/root cannot be opened, so nobody knows whether the host has {}", path.display());
            return Err(HostError::Unsupported { what });
        }
        (Err(errno), _) => return Err(failed(errno)),
    };
    let stat = fstat(&found).map_err(failed)?;
    let size = |number: u64| size(roots, DevNo::of(number));
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFBLK => Ok(PathState::Device { size: size(stat.st_rdev) }),
        SFlag::S_IFDIR => {
            let (mounted, mount) = mounted(&table, found.as_fd()).map_err(failed)?;
            Ok(PathState::Directory {
                mounted,
                device_size: size(stat.st_dev),
                usage: FsUsage::of(&fstatvfs(&found).map_err(failed)?),
                filesystem: mount.and_then(|row| state_of(roots, row, found.as_fd())),
            })
        }
        _ => Ok(PathState::Other),
    }
}

pub fn path_identity(roots: &Roots, path: &Path) -> Option<String> {
    let OpenedPath { found, table, .. } = open_path(roots, path);
    let found = found.ok()?;
    let stat = fstat(&found).ok()?;
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFBLK => identity::of_device(roots, DevNo::of(stat.st_rdev)),
        SFlag::S_IFDIR => identity::of_filesystem(roots, &mounted(&table, found.as_fd()).ok()?.1?.mount),
        _ => None,
    }
}

struct OpenedPath {
    found: Result<OwnedFd, Errno>,
    /// The mount table that has the path.
    table: PathBuf,
    /// The path is the host's, and not that of this process.
    is_of_host: bool,
}

fn open_path(roots: &Roots, path: &Path) -> OpenedPath {
    let root = host_root(&roots.proc);
    let found = match &root {
        Some(root) => open_below(root, path),
        None => open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()),
    };
    let table = roots.proc.join(if root.is_some() { "1" } else { "self" }).join("mountinfo");
    OpenedPath { found, table, is_of_host: root.is_some() }
}

/// In bytes; `None`: no such device. A number with major 0 is made up.
fn size(roots: &Roots, device: DevNo) -> Option<u64> {
    let sectors = fs::read_to_string(roots.sys.join("dev/block").join(device.to_string()).join("size")).ok()?;
    sectors.trim().parse::<u64>().ok()?.checked_mul(512)
}

/// It is a mount point if the directory above is in another mount. The device numbers of two directories do not say so:
/// a bind mount of a directory has the number of its filesystem.
pub(super) fn mounted(table: &Path, directory: BorrowedFd<'_>) -> Result<(Mounted, Option<Row>), Errno> {
    let above = openat(directory, "..", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
    let id = mount_id(directory)?;
    if id == mount_id(above.as_fd())? {
        return Ok((Mounted::Nothing, None));
    }
    let row = mountinfo::numbered(&fs::read(table).unwrap_or_default(), &id);
    let is_whole = row.as_ref().is_some_and(|row| row.mount.root == Path::new("/"));
    Ok((if is_whole { Mounted::Whole } else { Mounted::Part }, row))
}

/// How the filesystem that is mounted at a directory is. This process may not have the mount at its path, so it is
/// asked through the open directory.
fn state_of(roots: &Roots, Row { mount, has_turned }: Row, directory: BorrowedFd<'_>) -> Option<FilesystemState> {
    let target = format!("/proc/self/fd/{}/.", directory.as_raw_fd()).into();
    state_of_row(roots, &Row { mount: Mount { target, ..mount }, has_turned }).ok()
}

/// The device of the mount that an open file of this process is in; `None`: the table below that /proc has no such mount.
pub fn device_of(proc: &Path, file: BorrowedFd<'_>) -> Result<Option<DevNo>, Errno> {
    let io = |why: Error| Errno::from_raw(why.raw_os_error().unwrap_or(Errno::EIO as i32));
    let table = fs::read(proc.join("self/mountinfo")).map_err(io)?;
    Ok(mountinfo::numbered(&table, &mount_id(file)?).map(|row| row.mount.device))
}

fn mount_id(descriptor: BorrowedFd<'_>) -> Result<String, Errno> {
    let io = |why: Error| Errno::from_raw(why.raw_os_error().unwrap_or(Errno::EIO as i32));
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd())).map_err(io)?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    id.map(|id| id.trim().to_owned()).ok_or(Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_device_of_an_open_file_is_that_of_its_mount_as_the_table_has_it() {
        let device = |path: &str| device_of(Path::new("/proc"), fs::File::open(path).expect("open").as_fd());
        let table = fs::read("/proc/self/mountinfo").expect("a table");
        let rows = mountinfo::parse(&table).expect("rows");
        let of_proc = rows.iter().rev().find(|row| row.target == Path::new("/proc")).expect("it is mounted");
        assert_eq!(device("/proc/self/status"), Ok(Some(of_proc.device)));
        assert_ne!(device("/dev/null"), Ok(Some(of_proc.device)));
        let empty = tempfile::tempdir().expect("a folder");
        fs::create_dir(empty.path().join("self")).expect("a folder");
        fs::write(empty.path().join("self/mountinfo"), "").expect("a table");
        assert_eq!(device_of(empty.path(), fs::File::open("/dev/null").expect("open").as_fd()), Ok(None));
    }

    #[test]
    fn a_path_is_what_it_leads_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        // The host's root, whether or not this process may look at it.
        fs::create_dir_all(at("proc/1")).expect("a folder");
        symlink("/", at("proc/1/root")).expect("a link");
        let roots = Roots { proc: at("proc"), ..Roots::default() };
        let state = |path: &Path| path_state(&roots, path).expect("read");
        fs::create_dir(at("a b\nc")).expect("a folder");
        fs::write(at("file"), "").expect("a file");
        symlink("a b\nc", at("link")).expect("a link");
        symlink("nowhere", at("dangling")).expect("a link");
        symlink("loop", at("loop")).expect("a link");
        for path in [at("a b\nc"), at("link")] {
            assert!(matches!(state(&path), PathState::Directory { mounted: Mounted::Nothing, .. }), "{path:?}");
        }
        fs::copy("/proc/self/mountinfo", at("proc/1/mountinfo")).expect("a copy");
        let PathState::Directory { mounted: Mounted::Whole, usage, .. } = state(Path::new("/proc")) else {
            panic!("/proc is a mount point")
        };
        assert_eq!(usage.total, 0);
        assert_eq!(path_identity(&roots, Path::new("/proc")), None, "it is of no device");
        assert_eq!(path_identity(&roots, &at("a b\nc")), None, "nothing is mounted there");
        assert_eq!(state(&at("file")), PathState::Other);
        for path in ["none", "dangling", "loop", "file/below"] {
            assert_eq!(state(&at(path)), PathState::Absent, "{path}");
        }
        assert_eq!(state(Path::new("/dev/null")), PathState::Other);
        let blind = Roots { proc: at("none"), ..Roots::default() };
        assert_eq!(path_state(&blind, &at("file")).expect("read"), PathState::Other);
        let unknown = path_state(&blind, &at("nowhere")).expect_err("the host may have it");
        assert!(matches!(unknown, HostError::Unsupported { .. }), "{unknown}");
    }
}
