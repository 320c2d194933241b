//! Which filesystem or device is at a path: one word that stays the same under another kernel name and after a boot,
//! and is another one for what replaces it.
//!
//! Takes in what sysfs and udev's database say; gives out `KIND-NAME`. Opens no device. Two words of different kinds
//! cannot be compared: what one source says, another may not know.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use crate::host::port::Mount;
use crate::host::raw::DevNo;
use crate::host::roots::Roots;
use crate::host::udev;

/// The UUID of a filesystem that is mounted. `None`: it is of no device, or nobody says.
pub fn of_filesystem(roots: &Roots, mount: &Mount) -> Option<String> {
    // btrfs makes its numbers up; it names one of its devices.
    let device = if mount.device.major == 0 { number(&mount.source)? } else { mount.device };
    udev::property(&roots.run, device, "ID_FS_UUID").map(|uuid| word("fs", &uuid.to_lowercase()))
}

fn number(source: &str) -> Option<DevNo> {
    let found = source.starts_with("/dev/").then(|| fs::metadata(source).ok()).flatten()?;
    found.file_type().is_block_device().then(|| DevNo::of(found.rdev()))
}

/// A device: a partition by its own GUID, a mapped one by the name that its maker gave it, a disk by its WWN or serial.
/// `None`: it has no name that stays, as a loop device, whose file has another path in each container.
pub fn of_device(roots: &Roots, device: DevNo) -> Option<String> {
    let folder = roots.sys.join("dev/block").join(device.to_string());
    let udev = |key| udev::property(&roots.run, device, key);
    let first = |names: [&str; 2]| names.iter().find_map(|name| read(&folder.join(name)));
    if folder.join("partition").exists() {
        let of_kernel = read(&folder.join("uevent"))
            .and_then(|text| text.lines().find_map(|line| line.strip_prefix("PARTUUID=")).map(str::to_owned));
        return of_kernel.or_else(|| udev("ID_PART_ENTRY_UUID")).map(|uuid| word("part", &uuid.to_lowercase()));
    }
    if let Some(uuid) = read(&folder.join("dm/uuid")) {
        return of_mapped(&uuid);
    }
    read(&folder.join("md/uuid"))
        .map(|uuid| word("md", &uuid))
        .or_else(|| of_wwid(&first(["wwid", "device/wwid"])?))
        .or_else(|| first(["serial", "device/serial"]).map(|serial| word("serial", &serial)))
        .or_else(|| {
            // Each of udev's programs makes another serial of the same disk.
            let kind = udev("ID_BUS").map_or_else(|| "udev".to_owned(), |bus| format!("udev.{bus}"));
            udev("ID_SERIAL").map(|serial| word(&kind, &serial))
        })
}

/// What a program of device-mapper has made, as `LVM-…`. With dm-crypt the UUID ends with the name of the mapping,
/// which whoever opens it chooses each time; before that, only LUKS has what the disk itself says.
fn of_mapped(uuid: &str) -> Option<String> {
    let Some(crypt) = uuid.strip_prefix("CRYPT-") else {
        let (maker, name) = uuid.split_once('-').unwrap_or(("", uuid));
        return Some(word(&format!("dm.{maker}"), name));
    };
    let is_uuid = |part: &&str| part.len() == 32 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    // The version of LUKS is no part of it: a header is converted in place.
    let parts = crypt.strip_prefix("LUKS")?.split('-');
    parts.skip(1).find(is_uuid).map(|uuid| word("luks", &uuid.to_lowercase()))
}

/// A disk may have a number by several standards. Which one the kernel takes may change with its version, or with the
/// firmware of the disk; so may the length of the number.
fn of_wwid(wwid: &str) -> Option<String> {
    let (standard, number) = wwid.split_once('.')?;
    match standard {
        "naa" | "eui" => Some(word(&format!("{standard}{}", number.len() * 4), number)),
        "uuid" | "nvme" | "t10" => Some(word(standard, number)),
        _ => None,
    }
}

fn read(path: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&fs::read(path).ok()?).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Without blanks, and not longer than a name.
fn word(kind: &str, name: &str) -> String {
    let plain = |c: char| if c.is_whitespace() || c.is_control() { '_' } else { c };
    let name: String = name.trim().chars().map(plain).take(200).collect();
    format!("{kind}-{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these files, by their path.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let roots = Roots::under(folder.path());
        (folder, roots)
    }

    fn device(files: &[(&str, &str)]) -> Option<String> {
        let (_folder, roots) = machine(files);
        of_device(&roots, DevNo { major: 8, minor: 1 })
    }

    #[test]
    fn a_device_has_the_name_that_its_maker_gave_it_whatever_the_kernel_calls_it() {
        let partition = ("sys/dev/block/8:1/partition", "1\n");
        let uevent = ("sys/dev/block/8:1/uevent", "DEVNAME=sda1\nPARTUUID=6D1F0C1E-01\n");
        let udev = ("run/udev/data/b8:1", "E:ID_PART_ENTRY_UUID=6d1f0c1e-01\nE:ID_SERIAL=a disk\n");
        assert_eq!(device(&[partition, uevent]).as_deref(), Some("part-6d1f0c1e-01"));
        assert_eq!(device(&[partition, udev]).as_deref(), Some("part-6d1f0c1e-01"), "an older kernel");
        assert_eq!(device(&[partition]), None, "its disk has other partitions");
        let wwid = ("sys/dev/block/8:1/device/wwid", "naa.5000c500a1b2c3d4\n");
        let serial = ("sys/dev/block/8:1/serial", "S1\n");
        assert_eq!(device(&[wwid, serial, udev]).as_deref(), Some("naa64-5000c500a1b2c3d4"));
        assert_eq!(device(&[serial, udev]).as_deref(), Some("serial-S1"));
        assert_eq!(device(&[udev]).as_deref(), Some("udev-a_disk"));
        let usb = ("run/udev/data/b8:1", "E:ID_BUS=usb\nE:ID_SERIAL=a disk\n");
        assert_eq!(device(&[usb]).as_deref(), Some("udev.usb-a_disk"));
        assert_eq!(device(&[("sys/dev/block/8:1/size", "8\n")]), None);
        assert_eq!(device(&[("sys/dev/block/8:1/loop/backing_file", "/i\n")]), None, "each container has other paths");
    }

    #[test]
    fn a_number_of_a_disk_can_be_compared_only_with_one_of_the_same_standard_and_length() {
        let kind = |wwid: &str| {
            let word = device(&[("sys/dev/block/8:1/wwid", wwid)])?;
            word.split_once('-').map(|(kind, _)| kind.to_owned())
        };
        let all = [
            ("naa.5000c500a1b2c3d4", "naa64"),
            ("naa.60000000000000000e00000000010001", "naa128"),
            ("eui.0025385b71b00001", "eui64"),
            ("eui.36344830526000010025385800000001", "eui128"),
            ("uuid.a0e1b2c3-0000-4000-8000-000000000001", "uuid"),
            ("nvme.8086-5331-4d31-00000001", "nvme"),
            ("t10.ATA     a disk     S1", "t10"),
        ];
        for (wwid, expected) in all {
            assert_eq!(kind(wwid).as_deref(), Some(expected), "{wwid}");
        }
        for wwid in ["", "0", "iqn.2001-04.com.example:disk"] {
            assert_eq!(kind(wwid), None, "{wwid}");
        }
    }

    #[test]
    fn a_mapped_device_keeps_its_word_when_its_mapping_has_another_name() {
        let mapped = |uuid: &str| device(&[("sys/dev/block/8:1/dm/uuid", uuid), ("sys/dev/block/8:1/serial", "S1")]);
        assert_eq!(mapped("LVM-x9Y").as_deref(), Some("dm.LVM-x9Y"));
        assert_eq!(mapped("mpath-3600a-1").as_deref(), Some("dm.mpath-3600a-1"));
        assert_eq!(mapped("x").as_deref(), Some("dm.-x"));
        let luks = Some("luks-2fc51a6b0d784d0c9d0c0a1b2c3d4e5f");
        for form in ["LUKS1", "LUKS2", "LUKS2-OPAL"] {
            for name in ["data", "luks-2fc51a6b", "a-b-c"] {
                let uuid = format!("CRYPT-{form}-2fc51a6b0d784d0c9d0c0a1b2c3d4e5f-{name}");
                assert_eq!(mapped(&uuid).as_deref(), luks, "{uuid}");
            }
        }
        let others =
            ["PLAIN-data", "VERITY-2fc51a6b0d784d0c9d0c0a1b2c3d4e5f-data", "INTEGRITY-data", "TEMP-1", "LUKS2-x"];
        for other in others {
            assert_eq!(mapped(&format!("CRYPT-{other}")), None, "{other}");
        }
    }

    #[test]
    fn a_filesystem_has_its_uuid_and_one_of_a_server_has_none() {
        let (_folder, roots) = machine(&[("run/udev/data/b8:1", "E:ID_FS_UUID=ABCD-1234\n")]);
        let of = |major, source: &str| {
            let mount = Mount {
                device: DevNo { major, minor: 1 },
                root: "/".into(),
                target: "/mnt".into(),
                fs_type: "x".to_owned(),
                source: source.to_owned(),
                options: Vec::new(),
            };
            of_filesystem(&roots, &mount)
        };
        assert_eq!(of(8, "/dev/sda1").as_deref(), Some("fs-abcd-1234"));
        assert_eq!(of(9, "/dev/md1"), None, "udev does not know it");
        assert_eq!(of(0, "server:/x"), None);
    }
}
