//! The filesystem that somebody mounted at a path of the host: opened without a link on the way, and then proven to be
//! the root of a mount. So the folder below a mount point is never taken for what should be mounted on it.
//!
//! Takes in a path as the host's processes see it; gives out a [`MountedFilesystem`]. Nothing is written. It may block
//! as long as a dead disk does.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;
use nix::sys::statvfs::fstatvfs;

use super::path::mounted;
use crate::host::directory_tree::DirectoryTree;
use crate::host::error::HostError;
use crate::host::links::host_root;
use crate::host::mountinfo;
use crate::host::port::{Mounted, MountedFilesystem, NoMountPoint};
use crate::host::roots::Roots;

pub fn mounted_filesystem(roots: &Roots, path: &Path) -> Result<Result<MountedFilesystem, NoMountPoint>, HostError> {
    let failed = |source| HostError::Io { what: "look at", object: path.display().to_string(), source };
    let errno = |errno: Errno| failed(errno.into());
    // If the host's processes are not in sight, the path is one of this process.
    let (below, of) = match host_root(&roots.proc) {
        Some(host) => (host, "1"),
        None => (open(Path::new("/"), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).map_err(errno)?, "self"),
    };
    // Not O_NOFOLLOW: with it a link at the end would only be no folder.
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let opened = match openat2(&below, path, OpenHow::new().flags(flags).resolve(resolve)) {
        Ok(opened) => opened,
        Err(Errno::ENOENT) => return Ok(Err(NoMountPoint::Absent)),
        Err(Errno::ELOOP) => return Ok(Err(NoMountPoint::Link)),
        Err(Errno::ENOTDIR) => return Ok(Err(NoMountPoint::NoFolder)),
        Err(why) => return Err(errno(why)),
    };
    let table = roots.proc.join(of).join("mountinfo");
    let mount = match mounted(&table, opened.as_fd()).map_err(errno)? {
        (Mounted::Whole, Some(row)) => row.mount,
        (Mounted::Part, Some(_)) => return Ok(Err(NoMountPoint::Part)),
        // Without a row it was unmounted since.
        (Mounted::Nothing, _) | (_, None) => return Ok(Err(NoMountPoint::NotMounted)),
    };
    let text = fs::read(&table).map_err(failed)?;
    let all =
        mountinfo::parse(text).map_err(|why| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, why)))?;
    let is_of_system = all.iter().any(|one| one.target == Path::new("/") && one.device == mount.device);
    // glibc has the two words of the number in the other order than `stat`, which people can ask.
    let fsid = fstatvfs(&opened).map_err(errno)?.filesystem_id().rotate_left(u32::BITS);
    Ok(Ok(MountedFilesystem { mount, fsid, is_of_system, root: Arc::new(DirectoryTree::of(opened, path)) }))
}
