//! A node's LocalVolumeDiscoveryResult, from the rows of its devices. Pure.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::api::crd::{
    DeviceFacts, DeviceState, DeviceStatus, DiscoveredDevice, DiscoveryResultStatus, MechanicalProperty,
};
use crate::show::row::DeviceRow;

/// The label of the proposal, and that of the operator as it is today.
const LABELS: [&str; 2] = ["local.storage.openshift.io/discovery-node", "discovery-result-node"];
/// A label's value has at most so many bytes.
const LABEL: usize = 63;
/// Our namespace of node names.
const NODES: Uuid = Uuid::from_u128(0x6c6f6361_6c70_4f6f_8c6c_d15c0be71e50);
/// What etcd takes in one request is 1.5 MiB; the rest is for names and the record of who owns which field.
const ROOM: usize = 1 << 20;
/// A text that firmware or a path brought has at most so many characters.
const LONGEST: usize = 1024;
/// At most so many children of a device are named.
const CHILDREN: usize = 128;

/// The hash of a node's name: the same for ever, and fit for an object's name whatever the node is called.
fn hashed(node: &str) -> String {
    Uuid::new_v5(&NODES, node.as_bytes()).simple().to_string()
}

pub fn name(node: &str) -> String {
    format!("discovery-result-{}", hashed(node))
}

/// By which others find the result of a node. A node whose name is too long for a label is there by its hash.
pub fn labels(node: &str) -> BTreeMap<String, String> {
    let value = if node.len() <= LABEL { node.to_owned() } else { hashed(node) };
    LABELS.map(|label| (label.to_owned(), value.clone())).into()
}

/// The status, without the time of the change.
pub fn status(rows: &[DeviceRow]) -> DiscoveryResultStatus {
    let all: Vec<DiscoveredDevice> = rows.iter().filter(|row| is_listed(row)).map(device).collect();
    let available = all.iter().filter(|device| device.status.state == DeviceState::Available).count();
    let device_count = count(all.len());
    let devices = fit(all, ROOM);
    DiscoveryResultStatus {
        discovered_time_stamp: String::new(),
        omitted_count: device_count - count(devices.len()),
        discovered_devices: devices,
        device_count,
        available_count: count(available),
    }
}

/// Whether two statuses say the same, whenever they were written.
pub fn same(a: &DiscoveryResultStatus, b: &DiscoveryResultStatus) -> bool {
    let timeless = |status: &DiscoveryResultStatus| DiscoveryResultStatus {
        discovered_time_stamp: String::new(),
        ..status.clone()
    };
    timeless(a) == timeless(b)
}

/// Drives without a medium are no devices yet. What is on a pool disk is told by DevicePool and PoolVolumes, and comes
/// and goes with each volume.
fn is_listed(row: &DeviceRow) -> bool {
    !row.empty && !row.pool_partition
}

fn device(row: &DeviceRow) -> DiscoveredDevice {
    let DeviceRow {
        path,
        disk_id,
        stable_id: _,
        verdict,
        reason: _,
        refusal,
        size,
        kind,
        vendor,
        model,
        serial,
        wwid: _,
        wwn,
        link,
        by_path,
        transport,
        attachment,
        attached_by,
        sector_size,
        physical_sector_size,
        rotational,
        read_only: _,
        removable: _,
        discard,
        zoned,
        numa_node,
        fstype,
        children,
        set: _,
        empty: _,
        pool_partition: _,
    } = row;
    let state = match (verdict.as_str(), refusal) {
        ("Unclaimed", None) => DeviceState::Available,
        ("Unclaimed" | "Ours" | "Theirs", _) => DeviceState::NotAvailable,
        _ => DeviceState::Unknown,
    };
    let text = |text: &Option<String>| text.as_deref().map(clean).unwrap_or_default();
    let ours = verdict == "Ours";
    DiscoveredDevice {
        device_id: if link == path { String::new() } else { clean(link) },
        path: clean(path),
        model: text(model),
        kind: clean(kind),
        vendor: text(vendor),
        serial: text(serial),
        size: i64::try_from(*size).unwrap_or(i64::MAX),
        property: if *rotational { MechanicalProperty::Rotational } else { MechanicalProperty::NonRotational },
        fstype: text(fstype),
        status: DeviceStatus { state, reason: refusal.as_deref().map(clean) },
        more: DeviceFacts {
            disk_id: clean(disk_id),
            attachment: attachment.to_string(),
            attached_by: attached_by.as_deref().map(clean),
            wwn: wwn.as_deref().map(clean),
            tran: transport.as_deref().map(clean),
            by_path: by_path.as_deref().map(clean),
            logical_sector_size: Some(i64::from(*sector_size)),
            physical_sector_size: Some(i64::from(*physical_sector_size)),
            numa_node: *numa_node,
            zoned: zoned.as_deref().map(clean),
            discard: Some(*discard),
            // The partitions of a pool disk are its volumes.
            children: if ours {
                Vec::new()
            } else {
                children.iter().take(CHILDREN).map(|child| clean(child)).collect()
            },
        },
    }
}

/// A text that disturbs no terminal and no object, whatever firmware and file names bring.
fn clean(text: &str) -> String {
    text.chars().take(LONGEST).map(|c| if c.is_control() { '_' } else { c }).collect()
}

/// As many devices as an object has room for: first without what is ours, then without those that are not Available.
fn fit(mut devices: Vec<DiscoveredDevice>, room: usize) -> Vec<DiscoveredDevice> {
    let bytes = |device: &DiscoveredDevice| serde_json::to_string(device).map_or(usize::MAX, |text| text.len() + 1);
    let total = |devices: &[DiscoveredDevice]| devices.iter().map(bytes).fold(0_usize, usize::saturating_add);
    if total(&devices) <= room {
        return devices;
    }
    for device in &mut devices {
        let disk_id = std::mem::take(&mut device.more.disk_id);
        device.more = DeviceFacts { disk_id, ..DeviceFacts::default() };
    }
    let mut left = room;
    let mut keep = vec![false; devices.len()];
    for wanted in [true, false] {
        for (keep, device) in keep.iter_mut().zip(&devices) {
            if (device.status.state == DeviceState::Available) == wanted && bytes(device) <= left {
                left -= bytes(device);
                *keep = true;
            }
        }
    }
    devices.into_iter().zip(keep).filter_map(|(device, keep)| keep.then_some(device)).collect()
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::device::attachment::Reach;
    use crate::device::sample::holds;
    use crate::show::devices::{Format, render};
    use crate::show::row::DeviceList;
    use crate::show::sample::machine;

    fn row(path: &str, verdict: &str, refusal: Option<&str>) -> DeviceRow {
        DeviceRow {
            path: path.to_owned(),
            link: path.to_owned(),
            disk_id: format!("wwid-{path}"),
            verdict: verdict.to_owned(),
            refusal: refusal.map(str::to_owned),
            size: 5 << 40,
            kind: "disk".to_owned(),
            attachment: Reach::Local,
            ..DeviceRow::default()
        }
    }

    /// From the inventory as an agent sends it, through a status, to the bytes of one device.
    #[test]
    fn a_result_says_what_it_has_always_said() {
        let text = render(&machine(), Format::Json).expect("written");
        let list: DeviceList = serde_json::from_str(&text).expect("read");
        let said = serde_json::to_value(status(&list.devices)).expect("written");
        holds("operator/discovery/golden/result.json", &(serde_json::to_string_pretty(&said).expect("written") + "\n"));
    }

    #[test]
    fn a_verdict_becomes_the_operators_state_and_its_reason_stands_beside_it() {
        for (verdict, refusal, state) in [
            ("Unclaimed", None, DeviceState::Available),
            ("Unclaimed", Some("not ready: a copy"), DeviceState::NotAvailable),
            ("Ours", Some("in pool"), DeviceState::NotAvailable),
            ("Theirs", Some("sda1 is mounted at /"), DeviceState::NotAvailable),
            ("Unknown", Some("size cannot be read"), DeviceState::Unknown),
            ("of a later version", Some("?"), DeviceState::Unknown),
        ] {
            let status = status(&[row("/dev/sda", verdict, refusal)]);
            let found = &status.discovered_devices[0].status;
            assert_eq!((found.state, found.reason.as_deref()), (state, refusal), "{verdict}");
            assert_eq!((status.device_count, status.available_count), (1, i64::from(state == DeviceState::Available)));
        }
    }

    #[test]
    fn the_operators_fields_are_filled_and_ours_stand_beside_them() {
        let row = DeviceRow {
            link: "/dev/disk/by-id/wwn-0x5000".to_owned(),
            model: Some("SAMSUNG MZ7LN512".to_owned()),
            vendor: Some("ATA".to_owned()),
            serial: Some("S1".to_owned()),
            wwn: Some("0x5000".to_owned()),
            by_path: Some("/dev/disk/by-path/pci-0000:00:1f.2-ata-1".to_owned()),
            transport: Some("sata".to_owned()),
            attached_by: Some("SATA".to_owned()),
            zoned: Some("host-aware".to_owned()),
            rotational: true,
            fstype: Some("ext4".to_owned()),
            sector_size: 512,
            physical_sector_size: 4096,
            numa_node: Some(0),
            children: vec!["/dev/sda1".to_owned()],
            ..row("/dev/sda", "Theirs", Some("holds ext4"))
        };
        let device = serde_json::to_value(&status(&[row]).discovered_devices[0]).expect("written");
        let expected = serde_json::json!({
            "deviceID": "/dev/disk/by-id/wwn-0x5000", "path": "/dev/sda", "model": "SAMSUNG MZ7LN512", "type": "disk",
            "vendor": "ATA", "serial": "S1", "size": 5_497_558_138_880_i64, "property": "Rotational", "fstype": "ext4",
            "status": {"state": "NotAvailable", "reason": "holds ext4"},
            "diskId": "wwid-/dev/sda", "attachment": "Local", "attachedBy": "SATA", "wwn": "0x5000", "tran": "sata",
            "byPath": "/dev/disk/by-path/pci-0000:00:1f.2-ata-1", "zoned": "host-aware", "logicalSectorSize": 512,
            "physicalSectorSize": 4096, "numaNode": 0, "discard": false, "children": ["/dev/sda1"],
        });
        assert_eq!(device, expected);
    }

    #[test]
    fn drives_without_a_medium_and_the_volumes_of_a_pool_disk_are_not_listed() {
        let empty = DeviceRow { empty: true, ..row("/dev/sr0", "Theirs", Some("no medium")) };
        let volume = DeviceRow { pool_partition: true, ..row("/dev/sdb2", "Ours", Some("a partition of a pool disk")) };
        let theirs = DeviceRow { kind: "part".to_owned(), ..row("/dev/sda1", "Theirs", Some("holds ext4")) };
        let pool = DeviceRow { children: vec!["/dev/sdb2".to_owned()], ..row("/dev/sdb", "Ours", Some("in pool")) };
        let status = status(&[empty, volume, theirs, pool]);
        let paths: Vec<&str> = status.discovered_devices.iter().map(|device| device.path.as_str()).collect();
        assert_eq!(paths, ["/dev/sda1", "/dev/sdb"]);
        assert!(status.discovered_devices[1].more.children.is_empty());
    }

    #[test]
    fn the_name_is_the_same_for_ever_and_valid_whatever_the_node_is_called() {
        assert_eq!(name("worker-0"), name("worker-0"));
        assert_ne!(name("worker-0"), name("worker-1"));
        assert_eq!(name("worker-0"), "discovery-result-7d9fa37323525cad91c4218e4df57e81");
        let long = "n".repeat(253);
        assert!(name(&long).len() <= 63);
        assert_eq!(labels("worker-0").into_values().collect::<Vec<_>>(), ["worker-0", "worker-0"]);
        assert!(labels(&long).values().all(|value| value.len() <= LABEL));
    }

    #[test]
    fn thousands_of_disks_fit_and_the_available_ones_are_kept() {
        let long = |n: usize| DeviceRow {
            model: Some("M".repeat(40)),
            children: (0..20).map(|child| format!("/dev/disk{n}p{child}")).collect(),
            ..row(
                &format!("/dev/disk{n}"),
                if n % 10 == 9 { "Unclaimed" } else { "Theirs" },
                (n % 10 != 9).then_some("used"),
            )
        };
        let rows: Vec<DeviceRow> = (0..8000).map(long).collect();
        let status = status(&rows);
        let text = serde_json::to_string(&status).expect("written");
        assert!(text.len() < ROOM + 1000, "{}", text.len());
        assert_eq!((status.device_count, status.available_count), (8000, 800));
        let kept = status.discovered_devices.iter().filter(|device| device.status.state == DeviceState::Available);
        assert_eq!(kept.count(), 800);
        assert_eq!(status.omitted_count, 8000 - count(status.discovered_devices.len()));
        assert!(status.omitted_count > 0);
        let few = super::status(&rows[..200]);
        assert!(few.omitted_count == 0 && few.discovered_devices.iter().all(|device| !device.more.children.is_empty()));
    }

    proptest! {
        #[test]
        fn no_text_of_firmware_or_file_names_brings_a_control_character_or_a_megabyte(model in any::<String>(), path in ".{0,3000}") {
            let row = DeviceRow { model: Some(model), refusal: Some(format!("mounted at {path}")), ..row("/dev/sda", "Theirs", None) };
            let status = status(&[row]);
            let device = &status.discovered_devices[0];
            for text in [&device.model, device.status.reason.as_ref().expect("a reason")] {
                prop_assert!(!text.chars().any(char::is_control) && text.chars().count() <= LONGEST);
            }
        }

        #[test]
        fn the_same_rows_are_no_change(paths in proptest::collection::vec("[a-z]{1,5}", 0..5)) {
            let rows: Vec<DeviceRow> = paths.iter().map(|path| row(path, "Theirs", Some("x"))).collect();
            let mut written = status(&rows);
            written.discovered_time_stamp = "2020-03-09T08:37:19Z".to_owned();
            prop_assert!(same(&written, &status(&rows)));
        }
    }
}
