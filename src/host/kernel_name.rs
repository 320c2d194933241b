//! What the kernel calls a block device: `sda`, `nvme0n1p1`, `dm-0`.
//!
//! A name says where a device is now, not which one it is: the kernel gives it to another device after a reboot or a
//! new plug. What has to last is a disk's id (`device/disk_id.rs`).

use serde::{Deserialize, Serialize};

use super::text_types::{name_type, text_type};

/// The name of a block device in `/sys/class/block`. It is never empty, and is written as its text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KernelName(String);

text_type!(KernelName);
name_type!(KernelName);

impl KernelName {
    /// From an entry in sysfs, which has a `!` for each `/` of the name: `cciss!c0d0`.
    pub fn of_sysfs(entry: &str) -> Self {
        Self(entry.replace('!', "/"))
    }

    /// Whether this is `disk` or a partition of it: the kernel puts the number behind the disk's name, and a `p`
    /// between two digits (`sda1`, `nvme0n1p1`).
    pub fn is_or_is_on(&self, disk: &KernelName) -> bool {
        let Some(rest) = self.0.strip_prefix(&disk.0) else { return false };
        let number = if disk.0.ends_with(|c: char| c.is_ascii_digit()) { rest.strip_prefix('p') } else { Some(rest) };
        rest.is_empty() || number.is_some_and(is_number)
    }

    /// Whether this is a namespace of an NVMe controller: `nvme0n1` of `nvme0`. One that several controllers lead to
    /// has the name of the first.
    pub fn is_namespace_of(&self, controller: &KernelName) -> bool {
        let number = self.0.strip_prefix(&controller.0).and_then(|rest| rest.strip_prefix('n'));
        controller.starts_with("nvme") && number.is_some_and(is_number)
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_told_from_another_disk_by_its_name() {
        for (name, disk, on) in [
            ("sda", "sda", true),
            ("sda1", "sda", true),
            ("sdaa", "sda", false),
            ("sdaa1", "sda", false),
            ("nvme0n1p2", "nvme0n1", true),
            ("nvme0n12", "nvme0n1", false),
            ("nvme0n1p", "nvme0n1", false),
            ("sdb1", "sda", false),
        ] {
            let (name, disk) = (KernelName::from(name), KernelName::from(disk));
            assert_eq!(name.is_or_is_on(&disk), on, "{name} on {disk}");
        }
    }

    #[test]
    fn a_namespace_is_told_from_those_of_other_controllers_by_its_name() {
        for (name, of) in [
            ("nvme0n1", true),
            ("nvme0n12", true),
            ("nvme0", false),
            ("nvme0n", false),
            ("nvme0n1p1", false),
            ("nvme0c0n1", false),
            ("nvme01n1", false),
            ("nvme01", false),
            ("nvme1n1", false),
            ("sda", false),
        ] {
            assert_eq!(KernelName::from(name).is_namespace_of(&"nvme0".into()), of, "{name}");
        }
        assert!(!KernelName::from("vdn1").is_namespace_of(&"vd".into()));
    }

    #[test]
    fn the_slash_of_a_name_is_an_exclamation_mark_in_sysfs() {
        assert_eq!(KernelName::of_sysfs("cciss!c0d0p1"), "cciss/c0d0p1");
    }
}
