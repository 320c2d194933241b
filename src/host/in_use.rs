//! Who uses a device: mounts in every mount namespace in sight, members of a mounted btrfs, swap.
//!
//! Takes in the scanned devices and /proc, with its list of swaps; marks `mounts`, `swap`, and, if a mount table makes no
//! sense, `unreadable`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::read;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::error::HostError;
use super::links::{DevTree, names_in, node_number};
use super::mountinfo::{Namespace, namespaces, unescape};
use super::port::Mount;
use super::raw::{MountHow, MountUse, RawDisk};
use super::roots::Roots;

/// The namespace of a btrfs member's mount use, if its mount is in no namespace that we can see.
pub const UNSEEN_NAMESPACE: u64 = 0;

pub(super) fn mark(roots: &Roots, tree: &DevTree, disks: &mut [RawDisk]) -> Result<(), HostError> {
    let btrfs = BtrfsMembers::read(&roots.sys, tree)?;
    for namespace in namespaces(&roots.proc)? {
        match &namespace.mounts {
            Ok(mounts) => {
                for mount in mounts {
                    mark_mount(&namespace, mount, tree, &btrfs, disks);
                }
            }
            // Any device may be mounted there: none is known to be free.
            Err(why) => {
                let message = format!("the mounts of namespace {} cannot be parsed: {why}", namespace.inode);
                disks.iter_mut().for_each(|disk| disk.cannot_be_known(&message));
            }
        }
    }
    for disk in disks.iter_mut() {
        disk.mounts.sort();
        disk.mounts.dedup();
    }
    for (uuid, member) in btrfs.labelled_disks() {
        if disks[member].mounts.is_empty() {
            let target = PathBuf::from(format!("/sys/fs/btrfs/{uuid}"));
            disks[member].mounts.push(MountUse { target, namespace: UNSEEN_NAMESPACE, how: MountHow::Filesystem });
        }
    }
    mark_swaps(roots, tree, disks)
}

fn mark_mount(namespace: &Namespace, mount: &Mount, tree: &DevTree, btrfs: &BtrfsMembers, disks: &mut [RawDisk]) {
    let mut mark = |index: usize, how| {
        disks[index].mounts.push(MountUse { target: mount.target.clone(), namespace: namespace.inode, how });
    };
    let on = filesystem_devices(mount, tree, btrfs);
    for index in &on {
        mark(*index, MountHow::Filesystem);
    }
    if let Some(index) = mounted_node(namespace, mount, tree) {
        mark(index, MountHow::Node);
    }
    // The kernel knows better what is mounted now than a record that udev made before.
    for index in on {
        disks[index].fs_type = Some(mount.fs_type.clone());
    }
}

/// The devices that the mounted filesystem is on.
fn filesystem_devices(mount: &Mount, tree: &DevTree, btrfs: &BtrfsMembers) -> Vec<usize> {
    if let Some(index) = tree.by_number(mount.device) {
        return vec![index];
    }
    // A filesystem of several devices has a number of its own, and names one of them as its source.
    if mount.device.major != 0 || !mount.source.starts_with("/dev/") {
        return Vec::new();
    }
    let found = tree.by_path(Path::new(&mount.source));
    let named = match found {
        Some(index) => vec![index],
        // bcachefs names them all.
        None => mount.source.split(':').filter_map(|source| tree.by_path(Path::new(source))).collect(),
    };
    named.iter().flat_map(|index| btrfs.with(*index)).collect()
}

/// Filesystems that a device node may live on and that answer a stat without asking a server.
const LOCAL: [&str; 8] = ["devtmpfs", "tmpfs", "ramfs", "rootfs", "overlay", "ext4", "xfs", "btrfs"];

/// The device whose node is bind-mounted. A mount of a whole filesystem is no node.
fn mounted_node(namespace: &Namespace, mount: &Mount, tree: &DevTree) -> Option<usize> {
    if mount.root == Path::new("/") || !LOCAL.contains(&mount.fs_type.as_str()) {
        return None;
    }
    let by_node = || tree.by_number(node_number(&inside(&namespace.root, &mount.target))?);
    match mount.fs_type.as_str() {
        // The root is the node's name in /dev. A node that was removed still opens the device of its number.
        "devtmpfs" | "tmpfs" | "ramfs" => {
            let root = mount.root.to_string_lossy();
            let name = root.trim_start_matches('/');
            tree.by_name(Path::new(name.strip_suffix("//deleted").unwrap_or(name))).or_else(by_node)
        }
        _ => by_node(),
    }
}

fn inside(root: &Path, target: &Path) -> PathBuf {
    root.join(target.strip_prefix("/").unwrap_or(target))
}

/// /sys/fs/btrfs lists the members of every filesystem that is mounted.
struct BtrfsMembers {
    filesystems: BTreeMap<String, Vec<usize>>,
}

impl BtrfsMembers {
    fn read(sys: &Path, tree: &DevTree) -> Result<Self, HostError> {
        let folder = sys.join("fs/btrfs");
        let mut filesystems = BTreeMap::new();
        for filesystem in names_in(&folder)? {
            let devices = names_in(&folder.join(&filesystem).join("devices"))?;
            let kernel_name = |name: &PathBuf| name.to_string_lossy().replace('!', "/");
            let members = devices.iter().filter_map(|device| tree.by_name(Path::new(&kernel_name(device))));
            filesystems.insert(filesystem.to_string_lossy().into_owned(), members.collect());
        }
        Ok(Self { filesystems })
    }

    /// All members of the filesystem that a device belongs to; only itself if it belongs to none.
    fn with(&self, index: usize) -> Vec<usize> {
        let filesystem = self.filesystems.values().find(|members| members.contains(&index));
        filesystem.cloned().unwrap_or_else(|| vec![index])
    }

    fn labelled_disks(&self) -> impl Iterator<Item = (&str, usize)> {
        self.filesystems.iter().flat_map(|(uuid, members)| members.iter().map(move |member| (uuid.as_str(), *member)))
    }
}

fn mark_swaps(roots: &Roots, tree: &DevTree, disks: &mut [RawDisk]) -> Result<(), HostError> {
    let file = roots.proc.join("swaps");
    match read(&file) {
        Ok(text) => {
            for index in swap_devices(text).iter().filter_map(|path| tree.by_path(path)) {
                disks[index].swap = true;
                disks[index].fs_type = Some("swap".to_owned());
            }
            Ok(())
        }
        // A kernel without swap.
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) => Err(HostError::Io { what: "cannot read", object: file.display().to_string(), source }),
    }
}

/// Device nodes in use as swap, as the kernel writes them in `/proc/swaps`. Swap files are no devices.
pub(super) fn swap_devices(text: impl AsRef<[u8]>) -> Vec<PathBuf> {
    let lines = text.as_ref().split(|byte| *byte == b'\n').skip(1);
    lines
        .filter_map(|line| {
            let mut fields = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty());
            let name = unescape(fields.next()?);
            // A node that was removed while in use is still in use.
            let name = name.strip_suffix(b" (deleted)").unwrap_or(&name).to_vec();
            (fields.next()? == b"partition").then(|| PathBuf::from(OsString::from_vec(name)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn devices_are_listed_and_swap_files_are_not() {
        let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                    /dev/sda2                               partition\t8388604\t\t0\t\t-2\n\
                    /swap\\040file                           file\t\t1048572\t\t0\t\t-3\n\
                    /dev/odd\\040name                        partition\t4\t0\t-4\n\
                    /dev/dm-1\\040(deleted)                  partition\t4\t0\t-5\n";
        assert_eq!(swap_devices(text), ["/dev/sda2", "/dev/odd name", "/dev/dm-1"].map(PathBuf::from));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            swap_devices(&bytes);
        }
    }
}
