//! Disks that other provisioners' PersistentVolumes promise: nobody else may have them, though they look blank until
//! the first pod comes.
//!
//! Takes in what was promised and a device among all others; gives out the reason not to take it. Pure.

use std::path::PathBuf;

use super::no_answer::NoAnswer;
use crate::device::{PvName, Reason};
use crate::host::{DevNo, DeviceKind, ForeignLink, RawDisk};

/// A PersistentVolume of somebody else that names a path on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    pub volume: PvName,
    /// Who made it, where it says so.
    pub provisioner: Option<String>,
    pub path: PathBuf,
    /// The block device at the path, where there is one.
    pub device: Option<DevNo>,
}

/// Asks for all promises that hold on this node. It may take a while.
pub type AskPromises = Box<dyn FnMut() -> Result<Vec<Promise>, NoAnswer> + Send>;

/// The promise that a device, its disk or one of its partitions was given in.
pub fn promised(promises: &[Promise], raw: &RawDisk, all: &[&RawDisk]) -> Option<Reason> {
    let related = |other: &RawDisk| {
        let disk_of = |one: &RawDisk, disk: &str| matches!(&one.kind, DeviceKind::Partition(part) if part.disk == disk);
        other.name == raw.name || disk_of(other, &raw.name) || disk_of(raw, &other.name)
    };
    let mut family = all.iter().filter(|other| related(other));
    family
        .find_map(|raw| promises.iter().find(|promise| promise.is_of(raw)))
        .map(|promise| Reason::Promised { volume: promise.volume.clone(), provisioner: promise.provisioner.clone() })
}

impl Promise {
    fn is_of(&self, raw: &RawDisk) -> bool {
        let Self { volume: _, provisioner: _, path, device } = self;
        let offered = matches!(&raw.offered, ForeignLink::By(link) if link == path);
        *device == Some(raw.devno) || *path == raw.path || raw.links.contains(path) || offered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::sample::{disk, partition};

    fn promise(path: &str, device: Option<DevNo>) -> Promise {
        let provisioner = Some("local-volume-provisioner-n".to_owned());
        Promise { volume: "local-pv-1".into(), provisioner, path: path.into(), device }
    }

    fn why(promise: Promise, name: &str, all: &[RawDisk]) -> Option<String> {
        let all: Vec<&RawDisk> = all.iter().collect();
        let raw = all.iter().find(|raw| raw.name == name).expect("one of them");
        promised(&[promise], raw, &all).map(|reason| reason.to_string())
    }

    #[test]
    fn a_disk_is_promised_by_its_node_a_link_or_whatever_leads_to_it() {
        let link = "/dev/disk/by-id/nvme-x";
        let sda = RawDisk { links: vec![link.into()], ..disk("sda") };
        let devno = Some(sda.devno);
        let all = [sda, disk("sdb")];
        let message = "the PersistentVolume local-pv-1 of provisioner local-volume-provisioner-n promises it";
        for promise in
            [promise("/dev/sda", None), promise(link, None), promise("/mnt/local-storage/fast/nvme-x", devno)]
        {
            assert_eq!(why(promise.clone(), "sda", &all).as_deref(), Some(message));
            assert_eq!(why(promise, "sdb", &all), None);
        }
        assert_eq!(why(promise("/srv/data", None), "sda", &all), None);
        let by_hand = Promise { provisioner: None, ..promise("/dev/sda", None) };
        assert_eq!(why(by_hand, "sda", &all).as_deref(), Some("the PersistentVolume local-pv-1 promises it"));
    }

    #[test]
    fn a_partition_that_is_promised_keeps_its_whole_disk_and_a_disk_its_partitions() {
        let all = [
            RawDisk { partitions: vec!["sda1".into()], ..disk("sda") },
            partition("sda", 1, None),
            partition("sda", 2, None),
        ];
        assert!(why(promise("/dev/sda1", None), "sda", &all).is_some());
        assert!(why(promise("/dev/sda", None), "sda1", &all).is_some());
        assert_eq!(why(promise("/dev/sda1", None), "sda2", &all), None);
    }
}
