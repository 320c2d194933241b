//! The light of a disk's slot, as sysfs has it: `locate` of a SES enclosure's slot, the LED `…:enclosure:locate` of
//! PCIe (NPEM, Linux 6.12), or the attention indicator of a PCIe hotplug slot.
//!
//! Takes in a scanned disk, gives out a [`SlotLight`], and writes to that one file. Only an NVMe disk is looked for by
//! its PCI function: above a SATA or SCSI disk is its controller, which may have many disks.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::directory::Directory;
use super::disk::Uevent;
use crate::host::error::HostError;
use crate::host::raw::{DeviceKind, RawDisk};
use crate::host::slot_light::{Lit, SlotLight};

/// How the link from a SCSI disk to its slot in an enclosure begins.
const ENCLOSURE: &str = "enclosure_device:";
/// How the LED of a PCI function ends.
const NPEM: &str = ":enclosure:locate";

/// A file, and what it takes.
struct Switch {
    path: PathBuf,
    on: &'static str,
    off: &'static str,
}

impl Switch {
    fn of(path: PathBuf) -> Self {
        Self { path, on: "1", off: "0" }
    }

    /// Below Intel's VMD the file takes both indicators of the slot at once, as IBPI has them: 7 is locate, 15 is none.
    fn of_slot(path: PathBuf, function: &str) -> Self {
        match is_below_vmd(function) {
            true => Self { path, on: "7", off: "15" },
            false => Self::of(path),
        }
    }

    fn lit(&self) -> Lit {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        // A plain one may also blink, which is another number; the others have patterns that are not for locating.
        let is_on = match self.off {
            "0" => !["", "0"].contains(&text.trim()),
            _ => text.trim() == self.on,
        };
        if is_on { Lit::On } else { Lit::Off }
    }

    fn shown(&self) -> SlotLight {
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        SlotLight { path, lit: self.lit() }
    }
}

/// `sys` is /sys. `None` as well if the disk has gone, or another one has its name.
pub(super) fn find(sys: &Path, disk: &RawDisk) -> Option<SlotLight> {
    switch(sys, disk).map(|switch| switch.shown())
}

/// Turns it on or off, and says how it is then.
pub(super) fn set(sys: &Path, disk: &RawDisk, lit: Lit) -> Result<SlotLight, HostError> {
    let gone = || HostError::Changed { path: disk.path.clone(), why: "its slot has no light any more".to_owned() };
    let switch = switch(sys, disk).ok_or_else(gone)?;
    let word = if lit == Lit::On { switch.on } else { switch.off };
    let failed = |source| HostError::Io { what: "write to", object: switch.path.display().to_string(), source };
    let mut file = OpenOptions::new().write(true).truncate(true).open(&switch.path).map_err(failed)?;
    // One write is one command to the enclosure.
    file.write_all(word.as_bytes()).map_err(failed)?;
    Ok(switch.shown())
}

fn switch(sys: &Path, disk: &RawDisk) -> Option<Switch> {
    let block = sys.join("block");
    let file = |name: &str| name.replace('/', "!");
    let place = match &disk.kind {
        DeviceKind::Partition(partition) => block.join(file(&partition.disk)).join(file(&disk.name)),
        _ => block.join(file(&disk.name)),
    };
    let node = Directory::open(&place).ok();
    let is_it = |node: &Directory| {
        let uevent = Uevent::read(node);
        uevent.devno == Some(disk.devno) && uevent.diskseq(node) == disk.diskseq
    };
    let names: Vec<String> = match &disk.kind {
        _ if !node.as_ref().is_some_and(is_it) => return None,
        DeviceKind::Partition(partition) => vec![partition.disk.to_string()],
        // All its paths lead to one disk.
        DeviceKind::Dm(dm) if dm.uuid.starts_with("mpath-") => disk.slaves.iter().map(ToString::to_string).collect(),
        DeviceKind::Disk => vec![disk.name.to_string()],
        _ => Vec::new(),
    };
    names.iter().find_map(|name| {
        let device = block.join(name.replace('/', "!")).join("device");
        let functions = functions(&device, name);
        let of_pci = || functions.iter().find_map(|function| led(sys, function).or_else(|| slot(sys, function)));
        enclosure(&device).or_else(of_pci)
    })
}

fn enclosure(device: &Path) -> Option<Switch> {
    let slots = entries(device).into_iter().filter(|name| name.starts_with(ENCLOSURE));
    slots.map(|slot| device.join(slot).join("locate")).find(|locate| locate.exists()).map(Switch::of)
}

/// The PCI functions of an NVMe disk: of its controller, or of all controllers of its subsystem.
fn functions(device: &Path, name: &str) -> Vec<String> {
    if !name.starts_with("nvme") {
        return Vec::new();
    }
    let address = |of: PathBuf| fs::read_to_string(of.join("address")).ok().map(|text| text.trim().to_owned());
    let controllers = entries(device).into_iter().filter(|name| name.starts_with("nvme"));
    let all = [address(device.to_owned())].into_iter().chain(controllers.map(|name| address(device.join(name))));
    // A controller over a network has an address of another form.
    all.flatten().filter(|address| is_function(address)).collect()
}

/// The light of the drive itself, or of the port that it is plugged into.
fn led(sys: &Path, function: &str) -> Option<Switch> {
    let place = fs::read_link(sys.join("bus/pci/devices").join(function)).ok();
    let port = place.as_deref().and_then(Path::parent).and_then(Path::file_name).and_then(|name| name.to_str());
    let all = [Some(function), port.filter(|port| is_function(port))].into_iter().flatten();
    let files = all.map(|function| sys.join("class/leds").join(format!("{function}{NPEM}")).join("brightness"));
    files.into_iter().find(|file| file.exists()).map(Switch::of)
}

/// The attention indicator of the slot.
fn slot(sys: &Path, function: &str) -> Option<Switch> {
    let (device, _) = function.rsplit_once('.')?;
    let slots = sys.join("bus/pci/slots");
    let is_its = |slot: &PathBuf| fs::read_to_string(slot.join("address")).is_ok_and(|text| text.trim() == device);
    let slot = entries(&slots).into_iter().map(|name| slots.join(name)).find(is_its)?;
    Some(slot.join("attention")).filter(|file| file.exists()).map(|file| Switch::of_slot(file, function))
}

/// Such as `0000:03:00.0`.
fn is_function(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let is_hex = |part: &&str| part.chars().all(|c| c.is_ascii_hexdigit());
    matches!(&parts[..], [domain, bus, device, function]
        if domain.len() >= 4 && bus.len() == 2 && device.len() == 2 && function.len() == 1 && parts.iter().all(is_hex))
}

/// Its domains begin where those of the firmware end.
fn is_below_vmd(function: &str) -> bool {
    function.split(':').next().is_some_and(|domain| domain.len() > 4)
}

/// Sorted names; none where there is no such directory.
fn entries(folder: &Path) -> Vec<String> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = found.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::raw::{DevNo, Dm, Partition};

    const DEVNO: DevNo = DevNo { major: 8, minor: 0 };

    fn write(sys: &Path, file: &str, text: &str) {
        let path = sys.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(sys: &Path, file: &str) -> String {
        fs::read_to_string(sys.join(file)).unwrap()
    }

    fn disk(name: &str, kind: DeviceKind) -> RawDisk {
        RawDisk::named(name.into(), format!("/dev/{name}").into(), DEVNO, kind)
    }

    fn machine(disks: &[&str]) -> tempfile::TempDir {
        let machine = tempfile::tempdir().unwrap();
        for name in disks {
            write(machine.path(), &format!("block/{name}/uevent"), "MAJOR=8\nMINOR=0\n");
            fs::create_dir_all(machine.path().join(format!("block/{name}/device"))).unwrap();
        }
        machine
    }

    #[test]
    fn a_slot_of_an_enclosure_is_lit_and_nothing_else_is_written() {
        let machine = machine(&["sda", "sdb", "dm-0"]);
        let sys = machine.path();
        let sda = disk("sda", DeviceKind::Disk);
        assert_eq!(find(sys, &sda), None);
        for (slot, text) in [("Slot 01", "0\n"), ("Slot 02", "0\n")] {
            write(sys, &format!("class/enclosure/6:0:0:0/{slot}/locate"), text);
            write(sys, &format!("class/enclosure/6:0:0:0/{slot}/fault"), "0\n");
        }
        symlink(sys.join("class/enclosure/6:0:0:0/Slot 02"), sys.join("block/sda/device/enclosure_device:Slot 02"))
            .unwrap();
        let file = "class/enclosure/6:0:0:0/Slot 02/locate";
        let path = fs::canonicalize(sys).unwrap().join(file);
        assert_eq!(find(sys, &sda), Some(SlotLight { path: path.clone(), lit: Lit::Off }));
        assert_eq!(set(sys, &sda, Lit::On).unwrap(), SlotLight { path: path.clone(), lit: Lit::On });
        let all = ["Slot 01/locate", "Slot 01/fault", "Slot 02/fault"];
        assert_eq!(read(sys, file), "1");
        for other in all {
            assert_eq!(read(sys, &format!("class/enclosure/6:0:0:0/{other}")), "0\n", "{other}");
        }
        let mpath = Dm { name: "mpatha".to_owned(), uuid: "mpath-1".to_owned(), suspended: false };
        let through =
            RawDisk { slaves: vec!["sdb".into(), "sda".into()], ..disk("dm-0", DeviceKind::Dm(mpath.clone())) };
        assert_eq!(set(sys, &through, Lit::Off).unwrap().lit, Lit::Off);
        let lvm = Dm { uuid: "LVM-1".to_owned(), ..mpath };
        assert_eq!(find(sys, &RawDisk { kind: DeviceKind::Dm(lvm), ..through }), None, "it may be on several disks");
        let partition = Partition { disk: "sda".into(), number: 1, start: 0, part_uuid: None, part_label: None };
        let partition = disk("sda1", DeviceKind::Partition(partition));
        write(sys, "block/sda/sda1/uevent", "MAJOR=8\nMINOR=1\n");
        assert_eq!(find(sys, &partition), None, "it is of another disk");
        write(sys, "block/sda/sda1/uevent", "MAJOR=8\nMINOR=0\n");
        assert!(find(sys, &partition).is_some());
        let other = RawDisk { devno: DevNo { major: 8, minor: 16 }, ..sda };
        assert_eq!(find(sys, &other), None, "another disk has its name");
        assert!(matches!(set(sys, &other, Lit::On), Err(HostError::Changed { .. })));
        assert_eq!(read(sys, file), "0");
    }

    #[test]
    fn an_nvme_disk_is_lit_by_its_led_or_its_slot_and_below_vmd_by_ibpi() {
        for (function, device, on, off) in
            [("0000:03:00.0", "0000:03:00", "1", "0"), ("10000:01:00.0", "10000:01:00", "7", "15")]
        {
            let machine = machine(&["nvme0n1", "sda"]);
            let sys = machine.path();
            let nvme = disk("nvme0n1", DeviceKind::Disk);
            write(sys, "block/nvme0n1/device/address", &format!("{function}\n"));
            write(sys, "bus/pci/slots/7/address", "0000:04:00\n");
            write(sys, "bus/pci/slots/7/attention", "0\n");
            write(sys, "bus/pci/slots/8/address", &format!("{device}\n"));
            assert_eq!(find(sys, &nvme), None, "a slot without an indicator");
            write(sys, "bus/pci/slots/8/attention", &format!("{off}\n"));
            assert_eq!(find(sys, &nvme).map(|light| light.lit), Some(Lit::Off));
            assert_eq!(set(sys, &nvme, Lit::On).unwrap().lit, Lit::On);
            assert_eq!(read(sys, "bus/pci/slots/8/attention"), on);
            assert_eq!(set(sys, &nvme, Lit::Off).unwrap().lit, Lit::Off);
            assert_eq!(read(sys, "bus/pci/slots/8/attention"), off);
            assert_eq!(read(sys, "bus/pci/slots/7/attention"), "0\n");
            // Its controller is in that slot, and so are its other disks.
            write(sys, "block/sda/device/address", &format!("{function}\n"));
            assert_eq!(find(sys, &disk("sda", DeviceKind::Disk)), None);

            fs::create_dir_all(sys.join("bus/pci/devices")).unwrap();
            let place = format!("../../../devices/pci0000:00/0000:00:1d.0/{function}");
            symlink(place, sys.join("bus/pci/devices").join(function)).unwrap();
            write(sys, "class/leds/0000:00:1d.0:enclosure:locate/brightness", "0\n");
            let light = set(sys, &nvme, Lit::On).unwrap();
            assert!(light.path.ends_with("0000:00:1d.0:enclosure:locate/brightness") && light.lit == Lit::On);
            assert_eq!(read(sys, "bus/pci/slots/8/attention"), off, "one light is enough");
        }
    }

    #[test]
    fn a_disk_of_several_controllers_is_found_by_any_and_one_over_a_network_has_no_slot() {
        let machine = machine(&["nvme1n1"]);
        let sys = machine.path();
        write(sys, "block/nvme1n1/device/nvme0/address", "traddr=10.0.0.1,trsvcid=4420\n");
        write(sys, "block/nvme1n1/device/nvme1/address", "0000:05:00.0\n");
        write(sys, "bus/pci/slots/1/address", "0000:05:00\n");
        write(sys, "bus/pci/slots/1/attention", "2\n");
        let light = find(sys, &disk("nvme1n1", DeviceKind::Disk)).unwrap();
        assert_eq!(light.lit, Lit::On, "it blinks");
        for text in ["traddr=10.0.0.1", "0000:05:00", "0000:05:0g.0", "", "..", "0000:05:00.0/../x"] {
            assert!(!is_function(text), "{text}");
        }
    }
}
