//! The devices that a LocalVolume names by their paths.
//!
//! Takes in paths as they were written and devices as the kernel shows them; gives out which device is named, by
//! what sort of name, and which paths lead nowhere. Pure. A path decides claiming only: once claimed, a disk is
//! known by its id, whatever name it has by then.

use std::path::{Path, PathBuf};

use crate::host::RawDisk;

/// What one class of a LocalVolume names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPaths {
    /// A device's node, or one of its links below /dev/disk and /dev/mapper; letter by letter.
    pub paths: Vec<PathBuf>,
    /// What is on a named disk may be destroyed (`forceWipeDevicesAndDestroyAllData`).
    pub wipe: bool,
}

impl NamedPaths {
    pub fn names(&self, raw: &RawDisk) -> bool {
        self.paths.iter().any(|path| leads_to(path, raw))
    }

    /// Whether nothing but the kernel's name leads to it, which may be another disk's after a reboot.
    pub fn names_by_number_only(&self, raw: &RawDisk) -> bool {
        let mut leading = self.paths.iter().filter(|path| leads_to(path, raw)).peekable();
        leading.peek().is_some() && leading.all(|path| *path == raw.path)
    }

    /// The paths that lead to none of these devices, in the order in which they were written.
    pub fn missing<'d>(&self, devices: impl Iterator<Item = &'d RawDisk> + Clone) -> Vec<String> {
        let is_there = |path: &Path| devices.clone().any(|raw| raw.size > 0 && leads_to(path, raw));
        let away = self.paths.iter().filter(|path| !is_there(path));
        away.map(|path| path.display().to_string()).collect()
    }
}

fn leads_to(path: &Path, raw: &RawDisk) -> bool {
    raw.path == path || raw.links.iter().any(|link| link == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::sample::{disk, dm, partition};

    fn named(paths: &[&str]) -> NamedPaths {
        NamedPaths { paths: paths.iter().map(PathBuf::from).collect(), wipe: false }
    }

    fn linked(name: &str, links: &[&str]) -> RawDisk {
        RawDisk { links: links.iter().map(PathBuf::from).collect(), ..disk(name) }
    }

    #[test]
    fn a_device_is_named_by_its_node_or_a_link_letter_by_letter() {
        let sdb = linked("sdb", &["/dev/disk/by-id/wwn-0x5000", "/dev/mapper/mpatha"]);
        for path in ["/dev/sdb", "/dev//sdb", "/dev/disk/by-id/wwn-0x5000", "/dev/mapper/mpatha"] {
            assert!(named(&["/dev/sdz", path]).names(&sdb), "{path}");
        }
        for path in ["/dev/sd?", "/dev/sdb1", "sdb", "/dev/disk/by-id/WWN-0x5000", "/dev/disk/by-id/wwn-*"] {
            assert!(!named(&[path]).names(&sdb), "{path}");
        }
        assert!(named(&["/dev/sda1"]).names(&partition("sda", 1, None)));
        assert!(named(&["/dev/dm-0"]).names(&dm("dm-0", "LVM-abc", &[])));
        assert!(!named(&[]).names(&sdb));
    }

    #[test]
    fn a_name_of_the_kernels_is_told_from_a_link() {
        let sdb = linked("sdb", &["/dev/disk/by-id/wwn-0x5000"]);
        assert!(named(&["/dev/sdb"]).names_by_number_only(&sdb));
        assert!(!named(&["/dev/sdb", "/dev/disk/by-id/wwn-0x5000"]).names_by_number_only(&sdb));
        assert!(!named(&["/dev/sda"]).names_by_number_only(&sdb), "it is not named at all");
    }

    #[test]
    fn paths_that_lead_nowhere_are_missing_and_so_is_a_loop_device_without_a_file() {
        let devices = [linked("sdb", &["/dev/disk/by-id/x"]), RawDisk { size: 0, ..disk("loop7") }];
        let missing = named(&["/dev/sdc", "/dev/sdb", "/dev/loop7", "/dev/disk/by-id/x"]).missing(devices.iter());
        assert_eq!(missing, ["/dev/sdc", "/dev/loop7"]);
    }
}
