//! What sort of block device a directory of sysfs describes, who made it, how it is attached, and what names its firmware
//! has for it.
//!
//! Takes in the directory and its path under /sys/devices, gives out a [`SysfsIdentity`] and a [`DeviceKind`]; a device
//! that fits nothing known is `Other` with its driver's name, never a disk.

use std::collections::HashMap;
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::directory::{Directory, Notes, printable};
use crate::host::ioctl;
use crate::host::raw::{DeviceKind, Dm, LoopBacking, Md};
use crate::host::udev::md_uuid;

#[derive(Debug, Default)]
pub(super) struct SysfsIdentity {
    pub vendor: Option<String>,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub wwid: Option<String>,
    pub transport: Option<String>,
    pub state: Option<String>,
}

/// Reads what the disk and the device that it belongs to say. `has` answers whether the disk's own
/// directory has such an entry.
pub(super) fn identity(
    disk: &Directory,
    entry: &str,
    place: &Path,
    has: impl Fn(&str) -> bool,
    notes: &mut Notes,
) -> SysfsIdentity {
    let mut own = |attribute| has(attribute).then(|| notes.optional_word(disk, attribute)).flatten();
    let (serial, wwid) = (own("serial"), own("wwid"));
    if !has("device") {
        return SysfsIdentity { serial, wwid, ..SysfsIdentity::default() };
    }
    let device = match disk.child("device") {
        Ok(device) => device,
        Err(why) => {
            notes.add("device", &why);
            return SysfsIdentity { serial, wwid, ..SysfsIdentity::default() };
        }
    };
    let state = device.text("state");
    if entry.starts_with("nvme") {
        // A controller's serial is that of all its namespaces: only the namespace's own wwid names a disk.
        let (model, serial) = (notes.optional_word(&device, "model"), notes.optional_word(&device, "serial"));
        return SysfsIdentity { vendor: None, model, serial, wwid, transport: nvme_transport(&device), state };
    }
    let transport = transport(place);
    if entry.starts_with("mmcblk") {
        let (model, serial) = (notes.optional_word(&device, "name"), notes.optional_word(&device, "serial"));
        return SysfsIdentity { vendor: None, model, serial, wwid, transport, state };
    }
    SysfsIdentity {
        vendor: device.text("vendor"),
        model: notes.optional_word(&device, "model"),
        serial: serial
            .or_else(|| notes.optional_word(&device, "serial"))
            .or_else(|| unit_serial(&notes.optional(&device, "vpd_pg80")?)),
        wwid: wwid
            .or_else(|| notes.optional_word(&device, "wwid"))
            .or_else(|| designator(&notes.optional(&device, "vpd_pg83")?)),
        transport,
        state,
    }
}

/// The parent of a namespace is a controller; that of a multipath head is the subsystem, which lists its controllers.
fn nvme_transport(parent: &Directory) -> Option<String> {
    let controllers = || parent.entries(".").unwrap_or_default().into_iter();
    let transport = parent.text("transport").or_else(|| {
        controllers()
            .filter(|name| name.strip_prefix("nvme").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit())))
            .find_map(|name| parent.text(&format!("{name}/transport")))
    });
    match transport.as_deref() {
        Some("pcie") | None => Some("nvme".into()),
        _ => transport,
    }
}

/// How a SCSI, virtio or MMC disk is attached, from the buses on the way to it.
fn transport(place: &Path) -> Option<String> {
    let numbered = |part: &str, prefix: &str| {
        part.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    place.iter().rev().filter_map(|part| part.to_str()).find_map(|part| {
        [
            ("session", "iscsi"),
            ("rport-", "fc"),
            ("end_device-", "sas"),
            ("ata", "sata"),
            ("usb", "usb"),
            ("virtio", "virtio"),
            ("mmc", "mmc"),
        ]
        .into_iter()
        .find(|(prefix, _)| numbered(part, prefix))
        .map(|(_, transport)| transport.to_owned())
    })
}

/// The NUMA node of the PCI function that a disk is attached to, asked once for each function.
#[derive(Default)]
pub(super) struct NumaNodes {
    known: HashMap<PathBuf, Option<i32>>,
}

impl NumaNodes {
    /// `block` is the directory that `place` is relative to.
    pub fn of(&mut self, block: &Directory, place: &Path) -> Option<i32> {
        let function =
            place.ancestors().find(|part| part.file_name().and_then(|n| n.to_str()).is_some_and(pci_address))?;
        if let Some(node) = self.known.get(function) {
            return *node;
        }
        let text = function.join("numa_node").to_str().and_then(|file| block.text(file));
        let node = text.and_then(|text| text.parse().ok()).filter(|node| *node >= 0);
        self.known.insert(function.to_owned(), node);
        node
    }
}

/// `0000:3b:00.0`
fn pci_address(name: &str) -> bool {
    let hex = |part: &str, len| part.len() >= len && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut parts = name.split([':', '.']);
    let mut next = |len| parts.next().is_some_and(|part| hex(part, len));
    next(4) && next(2) && next(2) && next(1) && parts.next().is_none() && name.contains('.')
}

/// SCSI vital product data page 0x80: a four-byte header, then the serial in ASCII.
fn unit_serial(page: &[u8]) -> Option<String> {
    let [_, 0x80, high, low, text @ ..] = page else { return None };
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    printable(text.get(..len).unwrap_or(text))
}

/// SCSI vital product data page 0x83: the best name of the logical unit, written as the kernel's `wwid` is.
fn designator(page: &[u8]) -> Option<String> {
    let [_, 0x83, high, low, list @ ..] = page else { return None };
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    let mut rest = list.get(..len).unwrap_or(list);
    let mut best: Option<(u32, String)> = None;
    while let [_, association_and_kind, _, len, tail @ ..] = rest {
        let Some((name, after)) = tail.split_at_checked(usize::from(*len)) else { break };
        rest = after;
        let of_the_unit = association_and_kind >> 4 & 0b11 == 0;
        if let Some(found) = of_the_unit.then(|| designated(association_and_kind & 0xf, name)).flatten()
            && best.as_ref().is_none_or(|(rank, _)| found.0 > *rank)
        {
            best = Some(found);
        }
    }
    best.map(|(_, name)| name)
}

/// How good a designator is, and its text.
fn designated(kind: u8, name: &[u8]) -> Option<(u32, String)> {
    let hex = |prefix: &str| {
        name.iter().fold(prefix.to_owned(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    match (kind, name.len()) {
        (3, 16) => Some((5, hex("naa."))),
        (3, 8) => Some((4, hex("naa."))),
        (2, 8 | 12 | 16) => Some((3, hex("eui."))),
        (8, _) => Some((2, printable(name)?)),
        (1, _) => Some((1, format!("t10.{}", printable(name)?))),
        _ => None,
    }
}

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
    use proptest::prelude::*;

    #[test]
    fn the_transport_is_the_innermost_bus_on_the_way() {
        for (place, expected) in [
            ("../devices/pci0000:00/0000:00:17.0/ata3/host2/target2:0:0/2:0:0:0/block/sda", Some("sata")),
            (
                "../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/host0/port-0:0/end_device-0:0/target0:0:0/0:0:0:0/block/sdb",
                Some("sas"),
            ),
            ("../devices/pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdc", Some("usb")),
            ("../devices/platform/host7/session1/target7:0:0/7:0:0:1/block/sdd", Some("iscsi")),
            ("../devices/pci0000:80/0000:81:00.0/host8/rport-8:0-1/target8:0:0/8:0:0:0/block/sde", Some("fc")),
            ("../devices/pci0000:00/0000:00:05.0/virtio2/block/vda", Some("virtio")),
            ("../devices/platform/soc/fe340000.mmc/mmc_host/mmc0/mmc0:0001/block/mmcblk0", Some("mmc")),
            ("../devices/pci0000:00/0000:00:1f.0/host0/target0:2:0/0:2:0:0/block/sdf", None),
            ("../devices/virtual/block/loop0", None),
        ] {
            assert_eq!(transport(Path::new(place)).as_deref(), expected, "{place}");
        }
    }

    #[test]
    fn pci_addresses_are_told_from_the_other_parts_of_a_path() {
        for (name, expected) in [
            ("0000:3b:00.0", true),
            ("10000:e1:00.0", true),
            ("pci0000:3a", false),
            ("2:0:0:0", false),
            ("2-1:1.0", false),
            ("0000:00", false),
            ("block", false),
        ] {
            assert_eq!(pci_address(name), expected, "{name}");
        }
    }

    #[test]
    fn a_unit_serial_ends_where_its_page_says() {
        assert_eq!(unit_serial(b"\x00\x80\x00\x08  Z1D2E3xxxx").as_deref(), Some("Z1D2E3"));
        assert_eq!(unit_serial(b"\x00\x80\x00\x00"), None);
        assert_eq!(unit_serial(b"\x00\x83\x00\x04abcd"), None);
    }

    #[test]
    fn the_name_of_the_unit_wins_over_that_of_its_port_and_naa_over_t10() {
        let t10 = b"\x02\x01\x00\x0cATA     XYZ1";
        let port = b"\x61\x93\x00\x08\x50\x00\xc5\x00\x00\x00\x00\x01";
        let naa = b"\x01\x03\x00\x08\x50\x00\xc5\x00\x11\x22\x33\x44";
        let page = |parts: &[&[u8]]| {
            let list = parts.concat();
            [&[0, 0x83, 0, u8::try_from(list.len()).unwrap()], list.as_slice()].concat()
        };
        assert_eq!(designator(&page(&[t10, port, naa])).as_deref(), Some("naa.5000c50011223344"));
        assert_eq!(designator(&page(&[t10, port])).as_deref(), Some("t10.ATA     XYZ1"));
        assert_eq!(designator(&page(&[port])), None);
        assert_eq!(designator(&page(&[&naa[..7]])), None, "cut short");
    }

    proptest! {
        #[test]
        fn vital_product_data_of_any_bytes_never_panics(page in proptest::collection::vec(any::<u8>(), 0..300)) {
            unit_serial(&page);
            designator(&page);
            designator(&[&[0, 0x83, 1, 0], page.as_slice()].concat());
        }
    }

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
