//! What `localpool devices` says about each disk itself is what QEMU was told to make it.

use serde_json::{Value, json};

use crate::bench::{Bench, all_disks};
use crate::disks::{Bus, Disk, MIB};
use crate::report::Report;

pub fn check(bench: &mut Bench, report: &mut Report) {
    let name = "serial, wwn, model, bus, sectors, size and rotation of each disk are those that QEMU was given";
    report.check(name, || {
        let devices = bench.devices();
        let mut differences = Vec::new();
        // Most facts about a drive are those of the disc in it.
        for disk in all_disks(&bench.cases).iter().filter(|disk| disk.bus != Bus::Cdrom) {
            let mut rows = devices.iter().filter(|device| device["serial"] == disk.serial).peekable();
            if rows.peek().is_none() {
                differences.push(format!("no device has the serial {}", disk.serial));
            }
            for row in rows {
                let given = given(disk);
                let wrong = given.as_object().unwrap().iter().filter(|(fact, value)| row[fact.as_str()] != **value);
                differences.extend(wrong.map(|(fact, value)| {
                    format!("{}: {fact} of {} is {}, and was given as {value}", disk.name, row["path"], row[fact])
                }));
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    });
}

/// A disk as its row must show it; null is what must not be there.
fn given(disk: &Disk) -> Value {
    let Disk { bus, serial, mib, sector, rotation, wwn, model, read_only, removable, .. } = disk;
    let naa = wwn.map(|wwn| format!("0x{wwn:016x}"));
    let model = |own: &str| Some(model.clone().unwrap_or_else(|| own.to_owned()));
    let has_turning_parts = *rotation != 1;
    // virtio and USB cannot say whether they rotate, and the kernel then says that they do.
    let (transport, vendor, model, wwn, rotational) = match bus {
        Bus::Nvme | Bus::Zoned => {
            let model = "QEMU NVMe Ctrl";
            // Linux makes it up from this, as it does not believe the names of QEMU's namespaces.
            let wwn = format!("nvme.1b36-{}-{}-00000001", hex(serial), hex(model));
            ("nvme", None, Some(model.to_owned()), Some(wwn), false)
        }
        Bus::Scsi => ("virtio", Some("QEMU"), model("QEMU HARDDISK"), naa, has_turning_parts),
        Bus::Sata => ("sata", Some("ATA"), model("QEMU HARDDISK"), naa, has_turning_parts),
        Bus::Usb => ("usb", Some("QEMU"), model("QEMU HARDDISK"), None, true),
        Bus::Virtio => ("virtio", Some("0x1af4"), None, None, true),
        Bus::Cdrom => unreachable!("is not looked at"),
    };
    let mut given = json!({
        "type": "disk", "transport": transport, "vendor": vendor, "model": model, "serial": serial, "wwn": wwn,
        "rotational": rotational, "sectorSize": sector, "physicalSectorSize": sector, "size": mib * MIB,
        "readOnly": read_only, "removable": removable,
    });
    if *bus == Bus::Zoned {
        given["zoned"] = json!("host-managed");
    }
    given
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}
