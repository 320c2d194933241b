//! What sort of block device a directory of sysfs describes.
//!
//! Takes in the directory and its kernel name, gives out a [`DeviceKind`]; a device that fits nothing known
//! is `Other` with its driver's name, never a disk.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::directory::{Directory, Notes};
use crate::host::ioctl;
use crate::host::raw::{DeviceKind, Dm, LoopBacking, Md};
use crate::host::udev::md_uuid;

/// Peripheral device types of SCSI (SPC) that are disks: direct access, simplified, host-managed zones.
const SCSI_DISKS: [&str; 3] = ["0", "14", "20"];
const SCSI_ROM: &str = "5";

/// `dev` is where its device node is.
pub(super) fn kind(
    node: &Directory,
    entry: &str,
    dev: &Path,
    has: impl Fn(&str) -> bool,
    notes: &mut Notes,
) -> DeviceKind {
    if has("dm") {
        return DeviceKind::Dm(dm(node, notes));
    }
    if has("md") {
        return DeviceKind::Md(md(node, notes));
    }
    match driver(entry) {
        "loop" => DeviceKind::Loop(has("loop").then(|| backing(node, &dev.join(entry), notes)).flatten()),
        "sr" => DeviceKind::Rom,
        "fd" => DeviceKind::Floppy,
        "ram" => DeviceKind::Ram,
        "zram" => DeviceKind::Zram,
        "nbd" | "rbd" | "drbd" | "etherd" | "rnbd" => DeviceKind::Network,
        "sd" => match node.text("device/type").as_deref() {
            Some(SCSI_ROM) => DeviceKind::Rom,
            Some(kind) if !SCSI_DISKS.contains(&kind) => DeviceKind::Other(format!("SCSI type {kind}")),
            _ => DeviceKind::Disk,
        },
        "mmcblk" if entry.contains("boot") || entry.contains("rpmb") => DeviceKind::Other("mmc boot area".into()),
        "nvme" | "vd" | "xvd" | "hd" | "mmcblk" | "pmem" | "cciss" | "ida" => DeviceKind::Disk,
        other => DeviceKind::Other(other.to_owned()),
    }
}

/// The letters that a driver begins its devices' names with: `nvme` of `nvme0n1`, `sd` of `sdaa`.
fn driver(entry: &str) -> &str {
    let letters = entry.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(entry.len());
    // The drivers that count in letters, not in numbers.
    ["sd", "vd", "xvd", "hd"]
        .into_iter()
        .find(|prefix| letters == entry.len() && entry.starts_with(prefix) && entry.len() > prefix.len())
        .unwrap_or(&entry[..letters])
}

fn dm(node: &Directory, notes: &mut Notes) -> Dm {
    Dm {
        name: notes.word(node, "dm/name"),
        uuid: notes.word(node, "dm/uuid"),
        suspended: notes.flag(node, "dm/suspended"),
    }
}

fn md(node: &Directory, notes: &mut Notes) -> Md {
    Md {
        uuid: notes.optional_word(node, "md/uuid").as_deref().and_then(md_uuid),
        level: node.text("md/level"),
        state: node.text("md/array_state"),
    }
}

const DELETED: &str = " (deleted)";

fn backing(node: &Directory, device: &Path, notes: &mut Notes) -> Option<LoopBacking> {
    let name = notes.word(node, "loop/backing_file");
    if name.is_empty() {
        return None;
    }
    let found = |file: &Path| std::fs::metadata(file).ok().map(|found| (found.dev(), found.ino()));
    let file = PathBuf::from(&name);
    // In a container the path leads nowhere, or to another file. The kernel knows better, if it may be asked.
    let inode = std::fs::File::open(device).ok().and_then(|device| ioctl::loop_file(device).ok());
    let Some(gone) = name.strip_suffix(DELETED) else {
        // A file on a server that does not answer would block us for ever, so we look for it only if we must.
        let inode = inode.or_else(|| found(&file));
        return Some(LoopBacking { file, inode, deleted: false });
    };
    // A file may really be called `x (deleted)`: then it still exists.
    match found(&file) {
        None => Some(LoopBacking { file: gone.into(), inode, deleted: true }),
        by_path => Some(LoopBacking { file, inode: inode.or(by_path), deleted: false }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_read_from_the_kernel_name() {
        for (name, expected) in [
            ("sda", "sd"),
            ("sdaa", "sd"),
            ("vdc", "vd"),
            ("xvdba", "xvd"),
            ("nvme0n1", "nvme"),
            ("mmcblk0boot0", "mmcblk"),
            ("cciss!c0d0", "cciss"),
            ("etherd!e1.0", "etherd"),
            ("bcache0", "bcache"),
            ("mtdblock3", "mtdblock"),
            ("md127", "md"),
            ("sr0", "sr"),
            ("0", ""),
        ] {
            assert_eq!(driver(name), expected, "{name}");
        }
    }
}
