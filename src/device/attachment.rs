//! Whether a device's bytes are in this machine or reached over a network, as far as the machine can tell.
//!
//! Takes in all devices of a machine, gives out an [`Attachment`] for each of them. A device that is built on others (a
//! partition, a mapping, an array, a loop device) is where those are; one of them over a network is enough.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host::{DevNo, DeviceKind, KernelName, RawDisk};

/// Where a device is, and how we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub reach: Reach,
    /// A few words: `iSCSI`, `Amazon EBS`. `None` for an ordinary disk of this machine.
    pub by: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reach {
    Local,
    /// Only a hypervisor could say.
    #[default]
    Unknown,
    Network,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "Local",
            Self::Unknown => "Unknown",
            Self::Network => "Network",
        })
    }
}

const fn local(by: &'static str) -> Attachment {
    Attachment { reach: Reach::Local, by: Some(by) }
}

const fn unknown(by: &'static str) -> Attachment {
    Attachment { reach: Reach::Unknown, by: Some(by) }
}

const fn network(by: &'static str) -> Attachment {
    Attachment { reach: Reach::Network, by: Some(by) }
}

const PLAIN: Attachment = Attachment { reach: Reach::Local, by: None };

/// What clouds and hypervisors call their disks. Both texts are prefixes; an empty one matches all. The first match
/// counts, so the more precise ones come first.
const PRODUCTS: [(&str, &str, Attachment); 18] = [
    ("", "Amazon Elastic Block Store", network("Amazon EBS")),
    ("", "Amazon EC2 NVMe Instance Storage", local("Amazon EC2 instance store")),
    ("Google", "PersistentDisk", network("Google Persistent Disk")),
    ("Google", "EphemeralDisk", local("Google Local SSD")),
    ("", "nvme_card-pd", network("Google Persistent Disk")),
    ("", "nvme_card", local("Google Local SSD")),
    ("", "MSFT NVMe Accelerator", network("Azure managed disk")),
    ("", "Microsoft NVMe Direct Disk", local("Azure local NVMe")),
    ("", "Alibaba Cloud Elastic Block Storage", network("Alibaba Cloud EBS")),
    ("ORACLE", "BlockVolume", network("Oracle Cloud block volume")),
    ("DO", "Volume", network("DigitalOcean volume")),
    ("HC", "Volume", network("Hetzner Cloud volume")),
    ("Linode", "Volume", network("Linode volume")),
    ("SCW", "b_ssd", network("Scaleway block storage")),
    ("QEMU", "", unknown("QEMU")),
    ("", "QEMU", unknown("QEMU")),
    ("VMware", "", unknown("VMware")),
    ("", "VMware", unknown("VMware")),
];

/// How Azure attaches the disks of its Hyper-V machines: the device on VMBus, and for some of them the LUN.
const AZURE: [(&str, Option<&str>, Attachment); 6] = [
    ("00000000-0000-", None, unknown("Azure system disk")),
    ("00000000-0001-", None, local("Azure temporary disk")),
    ("f8b3781a-1e82-4818-a1c3-63d806ec15bb", Some("0"), unknown("Azure system disk")),
    ("f8b3781a-1e82-4818-a1c3-63d806ec15bb", Some("1"), local("Azure temporary disk")),
    ("f8b3781a-1e82-4818-a1c3-63d806ec15bb", None, network("Azure managed disk")),
    // f8b3781b to f8b3781d: the controllers of data disks.
    ("f8b3781", None, network("Azure managed disk")),
];

/// All devices of a machine, indexed once.
pub struct Attachments<'a> {
    by_name: HashMap<&'a KernelName, &'a RawDisk>,
    by_number: HashMap<DevNo, &'a RawDisk>,
}

impl<'a> Attachments<'a> {
    pub fn new(all: impl IntoIterator<Item = &'a RawDisk>) -> Self {
        let mut index = Self { by_name: HashMap::new(), by_number: HashMap::new() };
        for raw in all {
            index.by_name.insert(&raw.name, raw);
            index.by_number.insert(raw.devno, raw);
        }
        index
    }

    pub fn of(&self, raw: &'a RawDisk) -> Attachment {
        let mut visited = HashSet::from([&raw.name]);
        let mut ahead = vec![raw];
        let mut worst: Option<Attachment> = None;
        while let Some(raw) = ahead.pop() {
            let below = self.below(raw);
            let found = match below.is_empty() {
                true => Some(of_one(raw)),
                false => None,
            };
            worst = match (worst, found) {
                (Some(worst), Some(found)) if found.reach > worst.reach => Some(found),
                (None, found) => found,
                (worst, _) => worst,
            };
            ahead.extend(below.into_iter().filter(|raw| visited.insert(&raw.name)));
        }
        worst.unwrap_or(unknown("what it is built on was not seen"))
    }

    /// The devices that a device is built on, as far as they were seen.
    fn below(&self, raw: &'a RawDisk) -> Vec<&'a RawDisk> {
        let named = |name: &KernelName| self.by_name.get(name).copied();
        match &raw.kind {
            DeviceKind::Partition(partition) => named(&partition.disk).into_iter().collect(),
            DeviceKind::Loop(Some(backing)) => {
                let number = backing.inode.map(|(device, _)| DevNo::of(device));
                // Number 0:x is a filesystem without a device of its own.
                number
                    .filter(|number| number.major != 0)
                    .and_then(|n| self.by_number.get(&n).copied())
                    .into_iter()
                    .collect()
            }
            _ => raw.slaves.iter().filter_map(named).collect(),
        }
    }
}

/// The attachment of a device that is not built on another one.
fn of_one(raw: &RawDisk) -> Attachment {
    match &raw.kind {
        DeviceKind::Disk => disk(raw),
        DeviceKind::Network => network(match raw.name.trim_end_matches(|c: char| !c.is_ascii_alphabetic()) {
            "nbd" => "nbd",
            "rbd" => "Ceph RBD",
            "drbd" => "DRBD",
            "rnbd" => "RNBD",
            _ => "ATA over Ethernet",
        }),
        DeviceKind::Ram | DeviceKind::Zram => local("memory"),
        DeviceKind::Rom | DeviceKind::Floppy => PLAIN,
        DeviceKind::Loop(None) => local("a loop device without a file"),
        DeviceKind::Loop(Some(_)) => unknown("a file of a filesystem that shows no device"),
        DeviceKind::Partition(_) | DeviceKind::Dm(_) | DeviceKind::Md(_) => unknown("what it is built on was not seen"),
        DeviceKind::Other(_) => unknown("an unknown type of device"),
    }
}

fn disk(raw: &RawDisk) -> Attachment {
    let nvme = raw.name.starts_with("nvme");
    // Whatever a target calls its disks, these transports lead to other machines.
    match (raw.transport.as_deref(), nvme) {
        (Some("iscsi"), _) => return network("iSCSI"),
        (Some("fc"), false) => return network("Fibre Channel"),
        (Some("fc"), true) => return network("NVMe over Fibre Channel"),
        (Some("tcp"), _) => return network("NVMe over TCP"),
        (Some("rdma"), _) => return network("NVMe over RDMA"),
        _ => {}
    }
    if begins(raw.vendor.as_deref(), "Msft") && begins(raw.model.as_deref(), "Virtual Disk") {
        return hyper_v(raw);
    }
    let product = PRODUCTS
        .iter()
        .find(|(vendor, model, _)| begins(raw.vendor.as_deref(), vendor) && begins(raw.model.as_deref(), model));
    if let Some((_, _, attachment)) = product {
        return *attachment;
    }
    match raw.transport.as_deref() {
        Some("virtio") => unknown("virtio"),
        None if raw.name.starts_with("xvd") => unknown("Xen"),
        None if raw.name.starts_with("pmem") => PLAIN,
        Some(_) => PLAIN,
        // First a controller that does not name its transport, as RAID cards; then a disk that is attached to nothing.
        None if raw.sysfs_path.components().any(|part| part.as_os_str().to_string_lossy().starts_with("pci")) => PLAIN,
        None => unknown("it is not known how it is attached"),
    }
}

fn begins(text: Option<&str>, start: &str) -> bool {
    start.is_empty() || text.is_some_and(|text| text.trim_start().starts_with(start))
}

/// A disk of Hyper-V is known by the bus that it is attached to, as all of them have the same name.
fn hyper_v(raw: &RawDisk) -> Attachment {
    let parts: Vec<_> = raw.sysfs_path.iter().map(|part| part.to_string_lossy()).collect();
    // host:channel:target:lun
    let lun = parts.iter().rev().find(|part| part.matches(':').count() == 3).and_then(|part| part.rsplit(':').next());
    let on = |bus: &str| parts.iter().any(|part| part.starts_with(bus) && part.matches('-').count() == 4);
    let known = AZURE.iter().find(|(bus, wanted, _)| on(bus) && wanted.is_none_or(|wanted| lun == Some(wanted)));
    known.map_or(unknown("Hyper-V"), |(_, _, attachment)| *attachment)
}

#[cfg(test)]
mod tests {
    use super::super::sample::{disk as blank, dm, loop_over, md, partition, with_kind};
    use super::*;

    fn reach(all: &[RawDisk], name: &str) -> Attachment {
        Attachments::new(all).of(all.iter().find(|raw| raw.name == name).expect("it is there"))
    }

    fn on(name: &str, transport: &str) -> RawDisk {
        RawDisk { transport: Some(transport.to_owned()), ..blank(name) }
    }

    #[test]
    fn a_wire_to_another_machine_goes_before_any_name() {
        for (name, transport, by) in [
            ("sda", "iscsi", "iSCSI"),
            ("sda", "fc", "Fibre Channel"),
            ("nvme1n1", "fc", "NVMe over Fibre Channel"),
            ("nvme1n1", "tcp", "NVMe over TCP"),
            ("nvme1n1", "rdma", "NVMe over RDMA"),
        ] {
            let raw = RawDisk { model: Some("nvme_card".to_owned()), ..on(name, transport) };
            assert_eq!(reach(&[raw], name), network(by));
        }
        for transport in ["sata", "sas", "usb", "nvme", "mmc"] {
            assert_eq!(reach(&[on("sda", transport)], "sda"), PLAIN, "{transport}");
        }
        assert_eq!(reach(&[on("vda", "virtio")], "vda").reach, Reach::Unknown);
    }

    #[test]
    fn what_stands_on_others_is_over_a_network_as_soon_as_one_of_them_is() {
        let all = [
            on("sda", "sata"),
            on("sdb", "iscsi"),
            on("vda", "virtio"),
            partition("sdb", 1, None),
            partition("sda", 1, None),
            dm("dm-0", "LVM-a", &["sda1", "sdb1"]),
            dm("dm-1", "LVM-b", &["sda1"]),
            dm("dm-2", "LVM-c", &["dm-1", "vda"]),
            md("md0", &["dm-2", "dm-0"]),
            dm("dm-3", "LVM-d", &["gone"]),
        ];
        assert_eq!(reach(&all, "sdb1"), network("iSCSI"));
        assert_eq!(reach(&all, "dm-0"), network("iSCSI"));
        assert_eq!(reach(&all, "dm-1"), PLAIN);
        assert_eq!(reach(&all, "dm-2"), unknown("virtio"));
        assert_eq!(reach(&all, "md0"), network("iSCSI"));
        assert_eq!(reach(&all, "dm-3").reach, Reach::Unknown);
    }

    #[test]
    fn devices_that_name_each_other_in_a_circle_end_all_the_same() {
        let all = [dm("dm-0", "a", &["dm-1"]), dm("dm-1", "b", &["dm-0"])];
        assert_eq!(reach(&all, "dm-0").reach, Reach::Unknown);
    }

    #[test]
    fn a_loop_device_is_where_the_filesystem_of_its_file_is() {
        let disk = on("sdb", "iscsi");
        let number = nix::sys::stat::makedev(disk.devno.major.into(), disk.devno.minor.into());
        let mut file = loop_over("loop0", "/a.img");
        let DeviceKind::Loop(Some(backing)) = &mut file.kind else { panic!() };
        backing.inode = Some((number, 7));
        let all = [disk, file, loop_over("loop1", "/nfs/b.img"), with_kind("loop2", DeviceKind::Loop(None))];
        assert_eq!(reach(&all, "loop0"), network("iSCSI"));
        assert_eq!(reach(&all, "loop1").reach, Reach::Unknown);
        assert_eq!(reach(&all, "loop2").reach, Reach::Local);
    }

    #[test]
    fn disks_of_other_machines_by_their_driver_are_named() {
        for (name, by) in [
            ("nbd3", "nbd"),
            ("rbd0", "Ceph RBD"),
            ("drbd1000", "DRBD"),
            ("rnbd0", "RNBD"),
            ("etherd/e1.0", "ATA over Ethernet"),
        ] {
            assert_eq!(reach(&[with_kind(name, DeviceKind::Network)], name), network(by));
        }
    }
}
