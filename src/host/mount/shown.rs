//! A directory is bound at a path of the host, where the host and all pods see it.
//!
//! Takes in a directory and a path; gives out what is wrong with the path where it cannot be. What was checked is what is
//! mounted on: all goes from descriptors, and no link is followed. In a container only what is below a mount with the
//! propagation `Bidirectional` comes to the host, so the host is asked afterwards.

use std::ffi::OsStr;
use std::fs::read_link;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{FileStat, Mode, fstat, mkdirat};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::host::error::HostError;
use crate::host::links::host_root;
use crate::host::{ioctl, mountinfo};

/// What is told to whoever has to change the pod.
const NEEDED: &str = "add that folder to the chart's value node.hostMountDirs";

/// Asked before anything is taken for it. What has the name below the folder is not looked at.
pub fn can_show_on_host(proc: &Path, folder: &Path) -> Result<(), HostError> {
    let found = folder_of_host(host_root(proc).as_ref(), folder)?;
    let flags = fstatvfs(&found).map_err(|errno| failed("look at", folder, errno))?.flags();
    if flags.contains(FsFlags::ST_RDONLY) {
        return Err(not_writable(folder));
    }
    // In the host's own namespace all see what is mounted.
    let namespace = |process: &str| read_link(proc.join(process).join("ns/mnt"));
    let is_other = matches!((namespace("1"), namespace("self")), (Ok(host), Ok(own)) if host != own);
    match is_other && !mountinfo::is_shared(proc, &found)? {
        true => Err(wrong_target(folder, &format!("would be mounted on in the agent's pod alone: {NEEDED}"))),
        false => Ok(()),
    }
}

pub fn show_on_host(proc: &Path, source: &Path, at: &Path) -> Result<(), HostError> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let from = open(source, flags, Mode::empty()).map_err(|errno| failed("open", source, errno))?;
    let (above, name) = parted(at)?;
    let host = host_root(proc);
    let folder = folder_of_host(host.as_ref(), above)?;
    let point = mount_point(&folder, above, name)?;
    let none: Option<&str> = None;
    mount(Some(&proc_path(&from)), &proc_path(&point), none, MsFlags::MS_BIND, none)
        .map_err(|errno| failed("bind to", at, errno))?;
    let is_seen = || {
        let below = match &host {
            Some(host) => host.try_clone().map_err(|_| Errno::EMFILE)?,
            None => own_root()?,
        };
        Ok::<_, Errno>(is_same(&look(&below, at)?, &fstat(&from)?))
    };
    match is_seen() {
        Ok(true) => Ok(()),
        Ok(false) | Err(_) => {
            let _ = umount2(at, MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH);
            Err(wrong_target(at, &format!("would be mounted in the agent's pod alone: {NEEDED}")))
        }
    }
}

/// Removes the folder that was mounted on, if it is empty and nothing is mounted there.
pub fn remove_mount_point(at: &Path) {
    let Ok((above, name)) = parted(at) else { return };
    let Ok(folder) = own_root().and_then(|root| folder_below(&root, above)) else { return };
    let Ok(point) = openat2(&folder, name, in_place()) else { return };
    let _ = ioctl::allow_removal(&point);
    let _ = unlinkat(&folder, name, UnlinkatFlags::RemoveDir);
}

fn parted(at: &Path) -> Result<(&Path, &OsStr), HostError> {
    at.parent().zip(at.file_name()).ok_or_else(|| wrong_target(at, "cannot be mounted on"))
}

/// The folder above, which must be the same for this process and for the host.
fn folder_of_host(host: Option<&OwnedFd>, above: &Path) -> Result<OwnedFd, HostError> {
    let on_host = match host {
        Some(host) => {
            let missing = format!("the node has no such folder: {NEEDED}, which makes it");
            look(host, above).map_err(|errno| unusable(above, errno, &missing))?
        }
        None => own_root()
            .and_then(|root| look(&root, above))
            .map_err(|errno| unusable(above, errno, "there is no such folder: make it"))?,
    };
    let missing = format!("the agent's pod does not have that folder of the node: {NEEDED}");
    let folder = own_root().and_then(|root| folder_below(&root, above));
    let folder = folder.map_err(|errno| unusable(above, errno, &missing))?;
    let own = fstat(&folder).map_err(|errno| failed("look at", above, errno))?;
    if is_same(&own, &on_host) {
        return Ok(folder);
    }
    Err(wrong_target(above, &format!("is not the folder that the node has there: {NEEDED}")))
}

fn unusable(path: &Path, errno: Errno, absent: &str) -> HostError {
    match errno {
        Errno::ENOENT => HostError::Unsupported { what: format!("{}: {absent}", path.display()) },
        Errno::ELOOP => wrong_target(path, "is a symbolic link, or leads through one: name the folder itself"),
        Errno::ENOTDIR => wrong_target(path, "is no folder"),
        errno => failed("look at", path, errno),
    }
}

/// Makes the folder that is mounted on, or takes it as it was left. While nothing is mounted there nobody can make
/// anything in it, not even root: what is meant for the disk must not fill the node's own.
fn mount_point(folder: &OwnedFd, above: &Path, name: &OsStr) -> Result<OwnedFd, HostError> {
    let at = above.join(name);
    match mkdirat(folder, name, Mode::empty()) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(Errno::EROFS) => return Err(not_writable(above)),
        Err(errno) => return Err(failed("make the folder", &at, errno)),
    }
    let point = openat2(folder, name, in_place()).map_err(|errno| match errno {
        Errno::EXDEV => wrong_target(&at, "has something else mounted on it: unmount that"),
        errno => unusable(&at, errno, "it was removed"),
    })?;
    let listing = openat2(&point, ".", OpenHow::new().flags(FOLDER)).and_then(Dir::from_fd);
    let mut listing = listing.map_err(|errno| failed("read", &at, errno))?;
    let is_entry = |name: &[u8]| !matches!(name, b"." | b"..");
    if listing.iter().flatten().any(|entry| is_entry(entry.file_name().to_bytes())) {
        return Err(wrong_target(&at, "is not empty, and would be hidden: move away what is in it"));
    }
    if let Err(error) = ioctl::forbid_changes(&point) {
        tracing::info!(at = %at.display(), %error, "while nothing is mounted there only root can write below it");
    }
    Ok(point)
}

const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// A single name, which is no link and no mount.
fn in_place() -> OpenHow {
    OpenHow::new().flags(FOLDER).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV)
}

fn own_root() -> Result<OwnedFd, Errno> {
    open(Path::new("/"), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
}

fn folder_below(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS;
    openat2(root.as_fd(), path, OpenHow::new().flags(FOLDER).resolve(resolve))
}

fn look(root: &OwnedFd, path: &Path) -> Result<FileStat, Errno> {
    fstat(folder_below(root, path)?)
}

fn is_same(a: &FileStat, b: &FileStat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

/// A path that leads to exactly this file, whatever its own path leads to now.
fn proc_path(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn not_writable(folder: &Path) -> HostError {
    wrong_target(folder, &format!("cannot be written by the agent: {NEEDED}"))
}

fn wrong_target(path: &Path, why: &str) -> HostError {
    HostError::Unsupported { what: format!("{} {why}", path.display()) }
}

fn failed(what: &'static str, path: &Path, errno: Errno) -> HostError {
    HostError::Io { what, object: path.display().to_string(), source: errno.into() }
}
