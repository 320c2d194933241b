//! What the kernel says of a block device, before anybody judges it.
//!
//! `scan` fills everything but [`Probe`], from sysfs, mountinfo, swaps, `/dev/disk` and udev's
//! database; nothing here is trusted further right than `device`.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::kernel_name::KernelName;

/// Device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DevNo {
    pub major: u32,
    pub minor: u32,
}

impl DevNo {
    /// From the kernel's `dev_t`, as stat gives it. Both halves have 32 bits.
    pub fn of(number: u64) -> Self {
        let half = |half: u64| u32::try_from(half).unwrap_or(u32::MAX);
        Self { major: half(nix::sys::stat::major(number)), minor: half(nix::sys::stat::minor(number)) }
    }
}

impl fmt::Display for DevNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A block device or partition as sysfs shows it. Absent facts are `None`, never an empty string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawDisk {
    /// Kernel name: `sda`, `nvme0n1p1`, `dm-0`.
    pub name: KernelName,
    /// Device node: `/dev/<name>`.
    pub path: PathBuf,
    pub devno: DevNo,
    pub kind: DeviceKind,
    /// Bytes.
    pub size: u64,
    /// Bytes: logical, physical.
    pub logical_sector: u32,
    pub physical_sector: u32,
    pub read_only: bool,
    pub removable: bool,
    pub rotational: bool,
    pub vendor: Option<String>,
    pub model: Option<String>,
    pub serial: Option<String>,
    /// `device/wwid` or `wwid`: `naa.…`, `eui.…`, `t10.…`, `nvme.…`.
    pub wwid: Option<String>,
    /// As lsblk's TRAN: `nvme`, `sata`, `sas`, `usb`, `iscsi`, `fc`, `virtio`, `tcp`, …
    pub transport: Option<String>,
    /// Where it is in the kernel's tree of devices, from `devices` on: the path shows how it is attached.
    pub sysfs_path: PathBuf,
    /// SCSI or NVMe device state (`running`, `live`, `offline`); dm says `suspended`.
    pub state: Option<String>,
    /// Links under /dev/disk and /dev/mapper that lead here, absolute, sorted.
    pub links: Vec<PathBuf>,
    /// Kernel names of the devices built on this one, and of those that it is built on.
    pub holders: Vec<KernelName>,
    pub slaves: Vec<KernelName>,
    /// Kernel names of its partitions, by number.
    pub partitions: Vec<KernelName>,
    /// Where it is in use as a filesystem or as a bind-mounted node, in any namespace we can see.
    pub mounts: Vec<MountUse>,
    pub swap: bool,
    /// What udev, a mount or the kernel's list of swaps says is on it: shown to people, and no decision depends on it.
    pub fs_type: Option<String>,
    /// queue/write_zeroes_max_bytes > 0 and queue/discard_max_bytes > 0.
    pub offloads_zeroes: bool,
    pub discards: bool,
    /// queue/zoned, unless it is `none`.
    pub zoned: Option<String>,
    pub numa_node: Option<i32>,
    pub offered: ForeignLink,
    /// Grows with each use of the same number by another device (kernel 5.15).
    pub diskseq: Option<u64>,
    /// Facts that nobody may guess (size, read-only, holders, …) and that could not be read, as text: without them
    /// nobody knows what the device is.
    pub unreadable: Option<String>,
}

impl RawDisk {
    /// A device of which nothing but the name is known: no size, no use, no facts.
    pub fn named(name: KernelName, path: PathBuf, devno: DevNo, kind: DeviceKind) -> Self {
        Self {
            name,
            path,
            devno,
            kind,
            size: 0,
            logical_sector: 0,
            physical_sector: 0,
            read_only: false,
            removable: false,
            rotational: false,
            vendor: None,
            model: None,
            serial: None,
            wwid: None,
            transport: None,
            sysfs_path: PathBuf::new(),
            state: None,
            links: Vec::new(),
            holders: Vec::new(),
            slaves: Vec::new(),
            partitions: Vec::new(),
            mounts: Vec::new(),
            swap: false,
            fs_type: None,
            offloads_zeroes: false,
            discards: false,
            zoned: None,
            numa_node: None,
            offered: ForeignLink::None,
            diskseq: None,
            unreadable: None,
        }
    }

    /// Adds to the words of `unreadable`.
    pub fn cannot_be_known(&mut self, why: &str) {
        self.unreadable =
            Some(self.unreadable.take().map_or_else(|| why.to_owned(), |known| format!("{known}; {why}")));
    }
}

/// What sort of block device it is, with what only that sort has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    Disk,
    Partition(Partition),
    Loop(Option<LoopBacking>),
    Dm(Dm),
    Md(Md),
    /// CD-ROM or DVD.
    Rom,
    Floppy,
    Ram,
    Zram,
    /// nbd, rbd, drbd: a disk of another machine.
    Network,
    /// Anything that we do not know; the kernel's name of it. The hidden paths of an NVMe multipath head
    /// have no device node, and a scan skips them.
    Other(String),
}

impl DeviceKind {
    /// `None`: it is no partition.
    pub fn partition(&self) -> Option<&Partition> {
        match self {
            Self::Partition(partition) => Some(partition),
            Self::Disk | Self::Loop(_) | Self::Dm(_) | Self::Md(_) => None,
            Self::Rom | Self::Floppy | Self::Ram | Self::Zram | Self::Network | Self::Other(_) => None,
        }
    }

    /// What a loop device is over; `None`: nothing, or it is no loop device.
    pub fn backing(&self) -> Option<&LoopBacking> {
        match self {
            Self::Loop(backing) => backing.as_ref(),
            Self::Disk | Self::Partition(_) | Self::Dm(_) | Self::Md(_) => None,
            Self::Rom | Self::Floppy | Self::Ram | Self::Zram | Self::Network | Self::Other(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Kernel name of the disk.
    pub disk: KernelName,
    pub number: u32,
    /// Bytes from the start of the disk.
    pub start: u64,
    /// From udev, or from the table if we read it; GPT only.
    pub part_uuid: Option<String>,
    pub part_label: Option<String>,
}

/// A bound loop device; an unbound one has size 0 and no backing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopBacking {
    pub file: PathBuf,
    /// Device and inode of the file: from the kernel, or by its path if the device cannot be asked.
    pub inode: Option<(u64, u64)>,
    pub deleted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dm {
    pub name: String,
    /// `LVM-…`, `CRYPT-…`, `mpath-…`; empty if the maker gave none.
    pub uuid: String,
    pub suspended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Md {
    pub uuid: Option<String>,
    /// `raid0`, `raid1`, `container`, …
    pub level: Option<String>,
    /// md/array_state: `clean`, `active`, `inactive`, …
    pub state: Option<String>,
}

/// Whether another provisioner has a device on offer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ForeignLink {
    #[default]
    None,
    /// By this link or device node in one of its folders.
    By(PathBuf),
    /// A folder could not be read; the text says which and why.
    NotKnown(String),
}

/// One use of a device in one mount namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountUse {
    pub target: PathBuf,
    /// Inode number of the mount namespace.
    pub namespace: u64,
    pub how: MountHow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MountHow {
    Filesystem,
    /// The device node itself is bind-mounted somewhere: a raw block volume.
    Node,
}

/// What a probe of the content found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Nobody read it, as the facts in sysfs decide already.
    NotRead,
    Read(ProbeResult),
    /// It could not be read; the text says why.
    Failed(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeResult {
    /// blkid's PTTYPE: `gpt`, `dos`, …; also a protective MBR or a lone backup that we saw ourselves.
    pub table: Option<String>,
    pub signatures: Vec<Signature>,
    /// O_EXCL said EBUSY.
    pub busy: bool,
}

/// One signature that libblkid recognises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// blkid's TYPE: `ext4`, `LVM2_member`, `crypto_LUKS`, …
    pub kind: String,
    /// blkid's USAGE: `filesystem`, `raid`, `crypto`, `other`.
    pub usage: String,
    pub label: Option<String>,
    pub uuid: Option<String>,
    /// Bytes from the start of the device.
    pub offset: u64,
}

/// Which of the devices with this number since the boot: the kernel counts them (`diskseq`, from Linux 5.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    devno: DevNo,
    diskseq: Option<u64>,
}

impl RawDisk {
    pub fn incarnation(&self) -> Incarnation {
        Incarnation { devno: self.devno, diskseq: self.diskseq }
    }

    /// Bytes that can be reached: not a partial last logical sector, which an open device's size does not include
    /// either.
    pub fn whole_sectors(&self) -> u64 {
        self.size - self.size % u64::from(self.logical_sector.max(1))
    }

    /// Whether its driver ends each request in its time. NVMe's and SCSI's do; virtio and device mapper wait for ever.
    pub fn has_timeouts(&self) -> bool {
        ["nvme", "sd"].iter().any(|driver| self.name.starts_with(driver))
    }
}

/// Whether the device with a kernel name is still the same one, and of the same size.
pub fn is_unchanged(was: &RawDisk, now: &RawDisk) -> bool {
    (was.incarnation(), was.size) == (now.incarnation(), now.size)
}

/// A GPT partition's GUID; the made-up ones of DOS tables contain the partition number and name nothing.
pub(crate) fn gpt_uuid(text: &str) -> Option<String> {
    let uuid = uuid::Uuid::try_parse(text).ok().filter(|_| text.len() == 36)?;
    Some(uuid.hyphenated().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_guid_names_a_partition() {
        let guid = "6D1F0C1E-2F2A-4F0E-9B57-0F4F4C9A5A01";
        assert_eq!(gpt_uuid(guid).as_deref(), Some("6d1f0c1e-2f2a-4f0e-9b57-0f4f4c9a5a01"));
        for other in ["a1b2c3d4-01", "", "6d1f0c1e2f2a4f0e9b570f4f4c9a5a01", "{6d1f0c1e-2f2a-4f0e-9b57-0f4f4c9a5a01}"] {
            assert_eq!(gpt_uuid(other), None, "{other}");
        }
    }
}
