//! A disk of the guest: its image on the host, how it is attached, and what it says of itself; as QEMU wants to read it.

use std::fs::OpenOptions;
use std::path::Path;

use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bus {
    Nvme,
    /// NVMe with zones that must be written in order.
    Zoned,
    Scsi,
    Virtio,
    Sata,
    Usb,
    /// A SCSI CD-ROM drive.
    Cdrom,
}

impl Bus {
    /// Takes a PCI port of its own.
    pub fn has_port(self) -> bool {
        matches!(self, Self::Nvme | Self::Zoned | Self::Virtio)
    }
}

#[derive(Clone, Debug)]
pub struct Disk {
    /// Names device, image and serial, where nothing else is said.
    pub name: String,
    pub bus: Bus,
    pub image: String,
    pub serial: String,
    /// Of the image, in MiB; an empty drive has none.
    pub mib: u64,
    pub sector: u32,
    /// 1: no turning parts.
    pub rotation: u16,
    pub wwn: Option<u64>,
    pub read_only: bool,
    pub removable: bool,
}

pub const MIB: u64 = 1 << 20;
/// Where the one device of a PCI port is. If nothing is said, QEMU puts a second one beside it, which no guest sees.
const FIRST: &str = "0x0";

impl Disk {
    pub fn new(name: &str, bus: Bus) -> Self {
        assert!(name.len() <= 20, "{name} is too long for a serial of virtio");
        Self {
            name: name.to_owned(),
            bus,
            image: name.to_owned(),
            serial: name.to_owned(),
            mib: 160,
            sector: 512,
            rotation: 1,
            wwn: None,
            read_only: false,
            removable: false,
        }
    }

    pub fn mib(self, mib: u64) -> Self {
        Self { mib, ..self }
    }

    pub fn sector(self, sector: u32) -> Self {
        Self { sector, ..self }
    }

    pub fn turning(self) -> Self {
        Self { rotation: 7200, ..self }
    }

    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    pub fn removable(self) -> Self {
        Self { removable: true, ..self }
    }

    /// A path to another disk.
    pub fn path_to(self, other: &str, wwn: u64) -> Self {
        Self { image: other.to_owned(), serial: other.to_owned(), wwn: Some(wwn), ..self }
    }

    pub fn make_image(&self, folder: &Path) {
        if self.mib > 0 {
            let image = folder.join(&self.image);
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(image).unwrap();
            file.set_len(self.mib * MIB).unwrap();
        }
    }

    pub fn blockdev(&self, folder: &Path) -> Option<Value> {
        (self.mib > 0).then(|| {
            json!({
                "driver": "raw", "node-name": self.name, "read-only": self.read_only,
                "discard": "unmap", "detect-zeroes": if self.read_only { "off" } else { "unmap" },
                // What QEMU wrote is in the host's cache, which outlives it: a kill still is a power cut of the guest.
                "cache": {"direct": false, "no-flush": true},
                "file": {"driver": "file", "filename": folder.join(&self.image), "locking": "off"},
            })
        })
    }

    /// The devices that make up the disk, in the order in which they are added. `port` is its PCI or SATA port.
    pub fn devices(&self, port: &str) -> Vec<Value> {
        let Self { name, bus, serial, sector, rotation, wwn, removable, .. } = self;
        let sectors = json!({"logical_block_size": sector, "physical_block_size": sector});
        let with = |device: Value| {
            let mut device = device;
            let members = device.as_object_mut().unwrap();
            members.insert("id".into(), json!(name));
            if self.mib > 0 {
                members.insert("drive".into(), json!(name));
            }
            device
        };
        let sized = |device: Value| {
            let mut device = with(device);
            device.as_object_mut().unwrap().extend(sectors.as_object().unwrap().clone());
            device
        };
        match bus {
            Bus::Nvme => vec![sized(json!({"driver": "nvme", "serial": serial, "bus": port, "addr": FIRST}))],
            Bus::Zoned => {
                let controller = format!("{name}-ctl");
                vec![
                    json!({"driver": "nvme", "id": controller, "serial": serial, "bus": port, "addr": FIRST}),
                    sized(json!({"driver": "nvme-ns", "bus": controller, "zoned": true, "zoned.zone_size": 16 * MIB})),
                ]
            }
            Bus::Scsi => {
                let mut device = sized(json!({
                    "driver": "scsi-hd", "bus": "scsi.0", "serial": serial, "rotation_rate": rotation,
                    "removable": removable, "share-rw": true,
                }));
                if let Some(wwn) = wwn {
                    device["wwn"] = json!(wwn);
                }
                vec![device]
            }
            Bus::Cdrom => vec![with(json!({"driver": "scsi-cd", "bus": "scsi.0", "serial": serial}))],
            Bus::Virtio => {
                vec![sized(json!({"driver": "virtio-blk-pci", "bus": port, "addr": FIRST, "serial": serial}))]
            }
            Bus::Sata => {
                vec![sized(json!({"driver": "ide-hd", "bus": port, "serial": serial, "rotation_rate": rotation}))]
            }
            Bus::Usb => {
                vec![with(json!({"driver": "usb-storage", "bus": "usb.0", "serial": serial, "removable": removable}))]
            }
        }
    }
}
