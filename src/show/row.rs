//! One device as programs read it: what `localpool devices -o json` prints, and what an agent hands to discovery.
//!
//! Takes in a device with the pool's words, gives out a [`DeviceRow`]. Names stay; new ones may come, and a reader of
//! another version does without them.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::listed::{ListedDevice, refusal, verdict_and_reason};
use crate::device::attachment::{Attachments, Reach};
use crate::device::facts::{by_path, type_name, wwn};
use crate::device::label::Label;
use crate::device::{Device, Verdict};
use crate::host::KernelName;
use crate::host::raw::{Kind, Probe};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRow {
    pub path: String,
    pub disk_id: String,
    /// Whether the id outlives a reboot and another port.
    pub stable_id: bool,
    /// `Unclaimed`, `Ours`, `Theirs` or `Unknown`.
    pub verdict: String,
    pub reason: String,
    /// Why nobody may take it, in words that stay while it is so; absent where it is free to be claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Bytes.
    pub size: u64,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwid: Option<String>,
    /// The wwid as udev and lsblk write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    pub link: String,
    /// The link in /dev/disk/by-path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// Whether it is in this machine or comes over a network.
    pub attachment: Reach,
    /// What tells so: `iSCSI`, `Amazon EBS`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached_by: Option<String>,
    pub sector_size: u32,
    pub physical_sector_size: u32,
    pub rotational: bool,
    pub read_only: bool,
    pub removable: bool,
    /// Whether it takes discards.
    pub discard: bool,
    /// `host-managed` or `host-aware`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zoned: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fstype: Option<String>,
    /// Its partitions, and the devices that are built on it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<String>,
    /// The set that a pool disk belongs to, as `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// A disk without content: a loop device without a file, a drive without a medium.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub empty: bool,
    /// A partition that the pool has made on a disk of its own: a volume, room for one, or the label.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pool_partition: bool,
}

/// All devices of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceList {
    pub devices: Vec<DeviceRow>,
}

/// Rows of devices, in their order. `all` may be more than is asked for: what stands on others is where those are.
pub fn rows<'s>(devices: impl IntoIterator<Item = &'s ListedDevice>, all: &[&ListedDevice]) -> Vec<DeviceRow> {
    let attachments = Attachments::new(all.iter().map(|shown| &shown.device.raw));
    let of_pool = |shown: &&&ListedDevice| shown.device.verdict == Verdict::Ours && shown.device.label.is_some();
    let pool_disks: HashSet<&KernelName> = all.iter().filter(of_pool).map(|shown| &shown.device.raw.name).collect();
    devices.into_iter().map(|shown| row(shown, &attachments, &pool_disks)).collect()
}

fn row<'s>(shown: &'s ListedDevice, attachments: &Attachments<'s>, pool_disks: &HashSet<&KernelName>) -> DeviceRow {
    let (verdict, reason) = verdict_and_reason(shown);
    let pool_partition = match &shown.device.raw.kind {
        Kind::Partition(partition) => pool_disks.contains(&partition.disk),
        _ => false,
    };
    let bare = shown.device.verdict == Verdict::Ours && shown.device.label.is_none() && !pool_partition;
    let Device { raw, id, link, label, probe, verdict: _, unread: _, believed: _ } = &shown.device;
    let seen = match probe {
        Probe::Looked(contents) => contents.signatures.first().map(|signature| signature.kind.clone()),
        Probe::NotLooked | Probe::Failed(_) => None,
    };
    let attachment = attachments.of(raw);
    DeviceRow {
        path: raw.path.display().to_string(),
        disk_id: id.to_string(),
        stable_id: !id.is_path(),
        verdict: verdict.to_owned(),
        reason,
        refusal: if bare { Some("in pool as a bare device".to_owned()) } else { refusal(shown) },
        size: raw.size,
        kind: type_name(raw).to_owned(),
        vendor: raw.vendor.clone(),
        model: raw.model.clone(),
        serial: raw.serial.clone(),
        wwid: raw.wwid.clone(),
        wwn: raw.wwid.as_deref().and_then(wwn),
        link: link.display().to_string(),
        by_path: by_path(raw),
        transport: raw.transport.clone(),
        attachment: attachment.reach,
        attached_by: attachment.by.map(str::to_owned),
        sector_size: raw.logical_sector,
        physical_sector_size: raw.physical_sector,
        rotational: raw.rotational,
        read_only: raw.read_only,
        removable: raw.removable,
        discard: raw.discards,
        zoned: raw.zoned.clone(),
        numa_node: raw.numa_node,
        fstype: seen.or_else(|| raw.fs_type.clone()),
        children: raw.partitions.iter().chain(&raw.holders).map(|name| format!("/dev/{name}")).collect(),
        set: label.as_deref().map(|Label { set, .. }| set.to_string()),
        empty: raw.size == 0 && raw.unreadable.is_none() && !matches!(raw.kind, Kind::Dm(_) | Kind::Md(_)),
        pool_partition,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::sample::{device, disk, label, partition};
    use crate::host::RawDisk;

    #[test]
    fn a_reader_does_without_names_that_it_does_not_know_or_does_not_get() {
        let old: DeviceRow = serde_json::from_str(r#"{"path": "/dev/sda", "size": 5, "later": [1]}"#).expect("read");
        assert_eq!((old.path.as_str(), old.size, old.attachment), ("/dev/sda", 5, Reach::Unknown));
    }

    #[test]
    fn a_world_wide_name_is_written_as_lsblk_writes_it() {
        assert_eq!(wwn("naa.5000c500a1b2c3d4").as_deref(), Some("0x5000c500a1b2c3d4"));
        assert_eq!(wwn("eui.0025385791b2a3c4").as_deref(), Some("eui.0025385791b2a3c4"));
        assert_eq!(wwn("t10.ATA     Samsung"), None);
    }

    #[test]
    fn a_bare_partition_of_the_pool_is_told_from_the_partitions_of_a_pool_disk() {
        let shown = |raw, label| ListedDevice { device: Device { label, ..device(raw, Verdict::Ours) }, note: None };
        let pool = shown(disk("sda"), Some(label("c", "n").into()));
        let all = [pool, shown(partition("sda", 2, None), None), shown(partition("sdb", 1, None), None)];
        let all: Vec<&ListedDevice> = all.iter().collect();
        let said: Vec<_> = rows(all.clone(), &all).into_iter().map(|row| (row.pool_partition, row.refusal)).collect();
        let words = |words: &str| Some(words.to_owned());
        let bare = (false, words("in pool as a bare device"));
        assert_eq!(said, [(false, words("in pool")), (true, words("a partition of a pool disk")), bare]);
    }

    #[test]
    fn a_row_survives_its_journey_as_json() {
        let raw = RawDisk {
            links: vec!["/dev/disk/by-id/wwn-0x5".into(), "/dev/disk/by-path/pci-0000:00:17.0-ata-1".into()],
            partitions: vec!["sda1".into()],
            holders: vec!["dm-0".into()],
            zoned: Some("host-aware".into()),
            numa_node: Some(1),
            fs_type: Some("ext4".into()),
            ..disk("sda")
        };
        let shown = ListedDevice { device: device(raw, Verdict::Unclaimed), note: None };
        let made = rows([&shown], &[&shown]);
        assert_eq!(made[0].by_path.as_deref(), Some("/dev/disk/by-path/pci-0000:00:17.0-ata-1"));
        assert_eq!(made[0].children, ["/dev/sda1", "/dev/dm-0"]);
        assert_eq!((made[0].fstype.as_deref(), made[0].numa_node), (Some("ext4"), Some(1)));
        let text = serde_json::to_string(&DeviceList { devices: made.clone() }).expect("written");
        assert_eq!(serde_json::from_str::<DeviceList>(&text).expect("read").devices, made);
    }
}
