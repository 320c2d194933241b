//! Devices behind mounts: which mount is from which device, and the device's own read-only flag.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::source::is_of_filesystem;
use crate::host::error::HostError;
use crate::host::links::node_number;
use crate::host::port::{DeviceLimits, Mount, MountSource, TargetAccess};
use crate::host::raw::DevNo;
use crate::host::{ioctl, mountinfo};

/// Whether `mount` shows the directory of `source`, or is a bind of the node of its device.
pub fn is_from(mount: &Mount, source: MountSource<'_>) -> bool {
    let Some(device) = node_number(source.device) else { return false };
    // A bound node is seen through its target, whatever filesystem the node's file is in.
    if is_in_dev(mount) {
        let is_its_node = |node: BoundNode| node.number == device && !node.is_stale;
        return source.is_whole() && bound(mount).is_some_and(is_its_node);
    }
    is_of_filesystem(mount, source, device)
}

/// Where a node is bind-mounted whose device is gone and whose number the device at `node` has now. Partitions get new
/// numbers when the kernel reads a table again; a user of such a node then reads and writes somebody else's data.
pub fn stale_bind_of(table: &[Mount], node: &Path) -> Option<PathBuf> {
    let device = node_number(node)?;
    let is_stale = |mount: &&Mount| bound(mount).is_some_and(|node| node.number == device && node.is_stale);
    table.iter().find(is_stale).map(|mount| mount.target.clone())
}

/// A device node that is bind-mounted.
struct BoundNode {
    number: DevNo,
    /// Its device has gone, and the node with it: the mount alone keeps the file.
    is_stale: bool,
}

fn bound(mount: &Mount) -> Option<BoundNode> {
    if !is_in_dev(mount) || mount.root == Path::new("/") {
        return None;
    }
    let found = std::fs::metadata(&mount.target).ok().filter(|found| found.file_type().is_block_device())?;
    Some(BoundNode { number: DevNo::of(found.rdev()), is_stale: found.nlink() == 0 })
}

/// Filesystems that directories of device nodes are in.
fn is_in_dev(mount: &Mount) -> bool {
    matches!(mount.fs_type.as_str(), "devtmpfs" | "tmpfs")
}

/// Where a node of the device is bind-mounted. Such a mount holds nothing open, so no exclusive open fails because of
/// it; yet its user can open the device at any time, or whatever device has its number then.
pub fn bound_at(device: DevNo) -> Result<Option<PathBuf>, HostError> {
    let table = mountinfo::own(Path::new("/proc"))?;
    let is_bound = |mount: &Mount| bound(mount).is_some_and(|node| node.number == device);
    Ok(table.into_iter().find(is_bound).map(|mount| mount.target))
}

/// How sysfs says that the device at `node` is.
pub fn device_limits(sys: &Path, node: &Path) -> Option<DeviceLimits> {
    let folder = sys.join("dev/block").join(node_number(node)?.to_string());
    let number =
        |attribute| -> Option<u64> { std::fs::read_to_string(folder.join(attribute)).ok()?.trim().parse().ok() };
    // In units of 512 bytes, whatever sectors the device has.
    Some(DeviceLimits { size: number("size")?.checked_mul(512)?, is_read_only: number("ro")? != 0 })
}

pub fn is_read_only(node: &Path) -> Result<bool, HostError> {
    open(node).and_then(|device| ioctl::is_read_only(&device)).map_err(|source| failed("look at", node, source))
}

pub fn set_access(node: &Path, access: TargetAccess) -> Result<(), HostError> {
    let set = open(node).and_then(|device| ioctl::set_access(&device, access));
    set.map_err(|source| failed("set the read-only flag of", node, source))
}

fn open(node: &Path) -> io::Result<File> {
    File::open(node)
}

fn failed(what: &'static str, node: &Path, source: io::Error) -> HostError {
    HostError::Io { what, object: node.display().to_string(), source }
}
