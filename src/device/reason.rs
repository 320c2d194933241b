//! Why a device is not ours to take: each reason with its facts, and the sentence for people.
//!
//! The sentence stands behind a device's name in a table: it names what was found and, where that
//! helps, what the reader can do about it.

use crate::host::KernelName;
use std::borrow::Borrow;
use std::fmt;
use std::path::PathBuf;

use super::disk_id::DiskId;
use super::pv_name::PvName;
use super::set_name::SetName;
use super::size::Size;

/// Anything smaller is nobody's data disk: a label, a table and its copy leave no room to speak of.
pub const FLOOR: u64 = 8 << 20;

/// Why a device is not ours to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A path of a multipath device or a member of an array: what is built on it shows its content.
    Component {
        of: KernelName,
        how: Holder,
    },
    /// A mapped device or array on one of our disks or volumes: a tenant's.
    OnPoolVolume {
        below: KernelName,
    },
    /// An array that a set has made of its disks, without a label of its own yet.
    OfSet {
        set: SetName,
    },
    /// On a bare device that was given up with what its volume's user wrote there.
    OnGivenUp {
        below: KernelName,
    },
    /// A loop device over a block device, such as kubelet makes for raw block volumes.
    LoopOverDevice {
        device: PathBuf,
    },
    NoMedium,
    Mounted {
        device: KernelName,
        target: PathBuf,
    },
    Swap {
        device: KernelName,
    },
    /// The device node is bind-mounted: somebody's raw block volume.
    NodeBound {
        device: KernelName,
        target: PathBuf,
    },
    Held {
        device: KernelName,
        by: KernelName,
        how: Holder,
    },
    /// Another provisioner's link or device node leads to it.
    Offered {
        device: KernelName,
        by: PathBuf,
    },
    /// Another provisioner's PersistentVolume names it.
    Promised {
        volume: PvName,
        provisioner: Option<String>,
    },
    /// A partition of a disk that is in use as a whole.
    DiskInUse {
        disk: KernelName,
        why: Box<Reason>,
    },
    CdRom,
    Floppy,
    RamDisk,
    Zram,
    Network,
    ReadOnly {
        device: KernelName,
    },
    Removable {
        device: KernelName,
    },
    NotRunning {
        device: KernelName,
        state: String,
    },
    /// The backing file of a loop device was deleted: its data is gone with the loop device.
    BackingDeleted {
        file: PathBuf,
    },
    /// Shingled and zoned disks that must be written in order.
    Zoned {
        model: String,
    },
    BootPartition {
        label: String,
    },
    HasPartitions {
        names: Vec<KernelName>,
    },
    TooSmall {
        size: u64,
    },
    Busy,
    HasTable {
        kind: String,
    },
    HasSignature {
        kind: String,
        label: Option<String>,
    },
    /// Other devices have the same identity: a copy, or two paths to one disk.
    SameIdentity {
        id: DiskId,
        others: Vec<PathBuf>,
    },
}

/// What sort of device holds another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    Array,
    Multipath,
    Mapped,
    Bcache,
    Loop,
    Other,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Array => "a RAID array",
            Self::Multipath => "a multipath device",
            Self::Mapped => "a device-mapper device",
            Self::Bcache => "a bcache device",
            Self::Loop => "a loop device",
            Self::Other => "another device",
        })
    }
}

impl Reason {
    /// Whether it may be over without an event of the device. Written out, so that a new reason is decided on.
    pub fn may_pass(&self) -> bool {
        match self {
            // Another program has it open, another provisioner's object names it, or the kernel's word for it changes.
            Self::Busy | Self::Promised { .. } | Self::NotRunning { .. } => true,
            Self::DiskInUse { why, .. } => why.may_pass(),
            Self::Component { .. }
            | Self::OnPoolVolume { .. }
            | Self::OfSet { .. }
            | Self::OnGivenUp { .. }
            | Self::LoopOverDevice { .. }
            | Self::NoMedium
            | Self::Mounted { .. }
            | Self::Swap { .. }
            | Self::NodeBound { .. }
            | Self::Held { .. }
            | Self::Offered { .. }
            | Self::CdRom
            | Self::Floppy
            | Self::RamDisk
            | Self::Zram
            | Self::Network
            | Self::ReadOnly { .. }
            | Self::Removable { .. }
            | Self::BackingDeleted { .. }
            | Self::Zoned { .. }
            | Self::BootPartition { .. }
            | Self::HasPartitions { .. }
            | Self::TooSmall { .. }
            | Self::HasTable { .. }
            | Self::HasSignature { .. }
            | Self::SameIdentity { .. } => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Component { of, how } => write!(f, "a part of {of}, {how}: use {of} instead"),
            Self::OnPoolVolume { below } => {
                write!(f, "built on {below}, which belongs to a pool disk, by the user of that volume")
            }
            Self::OfSet { set } => write!(f, "an array of disks of the set {set}, and no other may use it"),
            Self::OnGivenUp { below } => write!(
                f,
                "on {below}, which was given up with its volume's data; `localpool disk adopt /dev/{below}` lets sets \
                 claim it, and `wipefs --all` blanks it if nobody needs it"
            ),
            Self::LoopOverDevice { device } => {
                write!(f, "a loop device over the block device {}: use that device instead", device.display())
            }
            Self::NoMedium => f.write_str("no medium: its size is zero"),
            Self::Mounted { device, target } => write!(f, "{device} is mounted at {}", target.display()),
            Self::Swap { device } => write!(f, "{device} is used as swap; `swapoff /dev/{device}` ends that"),
            Self::NodeBound { device, target } => {
                write!(f, "the device node of {device} is bind-mounted at {}: a raw block volume", target.display())
            }
            Self::Held { device, by, how } => write!(f, "{device} is held by {by}, {how}"),
            Self::Offered { device, by } => write!(f, "{device} is offered by a link: {}", by.display()),
            Self::Promised { volume, provisioner: Some(provisioner) } => {
                write!(f, "the PersistentVolume {volume} of provisioner {provisioner} promises it")
            }
            Self::Promised { volume, provisioner: None } => write!(f, "the PersistentVolume {volume} promises it"),
            Self::DiskInUse { disk, why } => write!(f, "its disk {disk} is in use as a whole: {why}"),
            Self::CdRom => f.write_str("a CD-ROM or DVD drive"),
            Self::Floppy => f.write_str("a floppy drive"),
            Self::RamDisk => f.write_str("a RAM disk: it loses its content at reboot"),
            Self::Zram => f.write_str("compressed RAM (zram): it loses its content at reboot"),
            Self::Network => f.write_str("a disk of another machine, reached over the network"),
            Self::ReadOnly { device } => write!(f, "{device} is read-only"),
            Self::Removable { device } => write!(f, "{device} is removable"),
            Self::NotRunning { device, state } => write!(f, "{device} is not running: its state is {state}"),
            Self::BackingDeleted { file } => {
                write!(f, "its backing file {} was deleted: the data ends with the loop device", file.display())
            }
            Self::Zoned { model } => write!(f, "a zoned disk ({model}) that must be written in order"),
            Self::BootPartition { label } => {
                write!(f, "its partition label {label:?} says that the machine boots from it")
            }
            Self::HasPartitions { names } => write!(f, "has partitions: {}", list(names)),
            Self::TooSmall { size } => write!(f, "smaller than {}: {}", Size(FLOOR), Size(*size)),
            Self::Busy => f.write_str("opened exclusively by another program"),
            Self::HasTable { kind } => {
                write!(f, "has a partition table ({kind}); `wipefs --all` blanks it if nothing on it is needed")
            }
            Self::HasSignature { kind, label } => {
                let label = label.as_ref().map_or_else(String::new, |label| format!(" with the label {label:?}"));
                write!(f, "holds {kind}{label}; `wipefs --all` blanks it if nothing on it is needed")
            }
            Self::SameIdentity { id, others } => {
                write!(f, "has the same identity ({id}) as {}: a copy, or another path to the same disk", paths(others))
            }
        }
    }
}

fn paths(all: &[PathBuf]) -> String {
    list(&all.iter().map(|path| path.display().to_string()).collect::<Vec<_>>())
}

/// The first few names; a person wants to know what there is, not all of it.
fn list(names: &[impl Borrow<str>]) -> String {
    const SHOWN: usize = 4;
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..SHOWN].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_names_is_cut_and_counted() {
        let words_of = |count: usize| {
            Reason::HasPartitions { names: (1..=count).map(|n| format!("sda{n}").into()).collect() }.to_string()
        };
        assert_eq!(words_of(1), "has partitions: sda1");
        assert_eq!(words_of(4), "has partitions: sda1, sda2, sda3, sda4");
        assert_eq!(words_of(5), "has partitions: sda1, sda2, sda3, sda4 and 1 more");
        assert_eq!(words_of(40), "has partitions: sda1, sda2, sda3, sda4 and 36 more");
    }
}
