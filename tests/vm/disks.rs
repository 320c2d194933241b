//! A disk of the guest: its image on the host, how it is attached, and what it says about itself; as QEMU reads it.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::Command;

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
    /// Whether it takes a PCI port of its own.
    pub fn has_port(self) -> bool {
        matches!(self, Self::Nvme | Self::Zoned | Self::Virtio)
    }
}

#[derive(Clone, Debug)]
pub struct Disk {
    /// The name of device, image and serial, unless another one is given.
    pub name: String,
    pub bus: Bus,
    pub image: String,
    pub serial: String,
    /// The size of the image in MiB; an empty drive has no image.
    pub mib: u64,
    pub sector: u32,
    /// 1: not rotating.
    pub rotation: u16,
    /// Only for SCSI and SATA: Linux does not believe the one that a namespace of QEMU's NVMe has.
    pub wwn: Option<u64>,
    /// Only for SCSI and SATA, if it is not QEMU's own.
    pub model: Option<String>,
    pub read_only: bool,
    pub removable: bool,
    /// Its image has ext4 before the guest sees it.
    pub used: bool,
}

pub const MIB: u64 = 1 << 20;
/// Where the only device of a PCI port is. If this is not set, QEMU puts a second one beside it, which no guest sees.
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
            model: None,
            read_only: false,
            removable: false,
            used: false,
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

    pub fn used(self) -> Self {
        Self { used: true, ..self }
    }

    pub fn serial(self, serial: &str) -> Self {
        Self { serial: serial.to_owned(), ..self }
    }

    pub fn wwn(self, wwn: u64) -> Self {
        Self { wwn: Some(wwn), ..self }
    }

    pub fn model(self, model: &str) -> Self {
        Self { model: Some(model.to_owned()), ..self }
    }

    /// A path to another disk.
    pub fn path_to(self, other: &str, wwn: u64) -> Self {
        Self { image: other.to_owned(), serial: other.to_owned(), wwn: Some(wwn), ..self }
    }

    pub fn make_image(&self, folder: &Path) {
        if self.mib > 0 {
            let image = folder.join(&self.image);
            let is_new = !image.exists();
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&image).unwrap();
            file.set_len(self.mib * MIB).unwrap();
            if self.used && is_new {
                let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).status().unwrap();
                assert!(made.success(), "{image:?}");
            }
        }
    }

    pub fn blockdev(&self, folder: &Path) -> Option<Value> {
        (self.mib > 0).then(|| {
            json!({
                "driver": "raw", "node-name": self.name, "read-only": self.read_only,
                "discard": "unmap", "detect-zeroes": if self.read_only { "off" } else { "unmap" },
                // What QEMU wrote is in the host's cache, which outlives QEMU: a kill is still a power cut for the
                // guest.
                "cache": {"direct": false, "no-flush": true},
                "file": {"driver": "file", "filename": folder.join(&self.image), "locking": "off"},
            })
        })
    }

    /// The devices that make up the disk, in the order in which they are added. `port` is its PCI or SATA port.
    pub fn devices(&self, port: &str) -> Vec<Value> {
        let Self { name, bus, serial, sector, rotation, wwn, model, removable, .. } = self;
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
        // The disk says this about itself only if it was told to.
        let told = |device: Value, said: [(&str, Option<Value>); 2]| {
            let mut device = sized(device);
            let said = said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
            device.as_object_mut().unwrap().extend(said);
            device
        };
        let (wwn, model) = (wwn.map(Value::from), model.clone().map(Value::from));
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
                let device = json!({
                    "driver": "scsi-hd", "bus": "scsi.0", "serial": serial, "rotation_rate": rotation,
                    "removable": removable, "share-rw": true,
                });
                vec![told(device, [("wwn", wwn), ("product", model)])]
            }
            Bus::Cdrom => vec![with(json!({"driver": "scsi-cd", "bus": "scsi.0", "serial": serial}))],
            Bus::Virtio => {
                vec![sized(json!({"driver": "virtio-blk-pci", "bus": port, "addr": FIRST, "serial": serial}))]
            }
            Bus::Sata => {
                let device = json!({"driver": "ide-hd", "bus": port, "serial": serial, "rotation_rate": rotation});
                vec![told(device, [("wwn", wwn), ("model", model)])]
            }
            Bus::Usb => {
                vec![with(json!({"driver": "usb-storage", "bus": "usb.0", "serial": serial, "removable": removable}))]
            }
        }
    }
}
