//! Every block device of a Linux machine, from its /sys, /proc, /dev, /run and /mnt. Opens no device but
//! a bound loop device, to ask which file it has.
//!
//! Takes in the five roots, so that a machine may be a folder; gives out [`RawDisk`]s. A device that
//! goes away meanwhile is left out; one that cannot be read says so in `unreadable`.

mod disk;
mod identity;
mod kind;
mod node;
mod offered;

use std::path::{Path, PathBuf};

use disk::Reader;
use identity::NumaNodes;
use node::Node;

use super::links::DevTree;
use super::natural_order::natural;
use super::udev::UdevDatabase;
use super::{HostError, RawDisk, in_use};

/// Where a machine's filesystems are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    pub sys: PathBuf,
    pub proc: PathBuf,
    pub dev: PathBuf,
    pub run: PathBuf,
    /// Where other provisioners keep their links.
    pub mnt: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into(), dev: "/dev".into(), run: "/run".into(), mnt: "/mnt".into() }
    }
}

impl Roots {
    /// A machine that is kept in a folder.
    pub fn under(folder: &Path) -> Self {
        let [sys, proc, dev, run, mnt] = ["sys", "proc", "dev", "run", "mnt"].map(|name| folder.join(name));
        Self { sys, proc, dev, run, mnt }
    }
}

/// All block devices: each disk, then its partitions by number.
pub fn scan(roots: &Roots) -> Result<Vec<RawDisk>, HostError> {
    let folder = roots.sys.join("block");
    let failed = |source| HostError::Io {
        what: "cannot list the block devices in",
        object: folder.display().to_string(),
        source,
    };
    let block = Node::open(&folder).map_err(failed)?;
    let mut entries = block.entries(".").map_err(failed)?;
    entries.sort_by(|a, b| natural(a, b));

    let mut reader = Reader { block, dev: &roots.dev, numa: NumaNodes::default() };
    let mut disks: Vec<RawDisk> = entries.iter().flat_map(|entry| reader.disk(entry)).collect();
    let udev = UdevDatabase::read(&roots.run, &mut disks);
    let tree = DevTree::read(&roots.dev, &disks)?;
    tree.name_links(&mut disks, &udev);
    in_use::mark(roots, &tree, &mut disks)?;
    offered::mark(&roots.mnt, &tree, &mut disks);
    Ok(disks)
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
