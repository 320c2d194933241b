use proptest::prelude::*;

use serde_json::{Value, json};

use super::*;
use crate::api::crd::discovery_result_crd;
use crate::device::sample::holds;
use crate::show::{
    DeviceList,
    devices::{Format, render},
    sample::machine,
};

/// A device as an agent sends it, with more facts.
fn with(path: &str, verdict: &str, refusal: Option<&str>, more: Value) -> DeviceRow {
    let mut written = json!({
        "path": path, "link": path, "diskId": format!("wwid-{path}"), "verdict": verdict, "refusal": refusal,
        "size": 5_u64 << 40, "type": "disk", "attachment": "Local", "sectorSize": 512, "physicalSectorSize": 4096,
        "discard": false,
    });
    let Value::Object(more) = more else { panic!("no object: {more}") };
    written.as_object_mut().expect("an object").extend(more);
    serde_json::from_value(written).expect("a row")
}

fn row(path: &str, verdict: &str, refusal: Option<&str>) -> DeviceRow {
    with(path, verdict, refusal, json!({}))
}

/// From the inventory as an agent sends it, through a status, to the bytes of one device.
#[test]
fn a_result_says_what_it_has_always_said() {
    let text = render(&machine(), Format::Json).expect("written");
    let list: DeviceList = serde_json::from_str(&text).expect("read");
    let written = serde_json::to_value(status(&list.devices)).expect("written");
    holds("operator/discovery/golden/result.json", &(serde_json::to_string_pretty(&written).expect("written") + "\n"));
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
    let more = json!({
        "link": "/dev/disk/by-id/wwn-0x5000", "model": "SAMSUNG MZ7LN512", "vendor": "ATA", "serial": "S1",
        "wwn": "0x5000",
        "byPath": "/dev/disk/by-path/pci-0000:00:1f.2-ata-1", "transport": "sata", "attachedBy": "SATA",
        "zoned": "host-aware", "rotational": true, "fstype": "ext4", "numaNode": 0, "children": ["/dev/sda1"],
    });
    let row = with("/dev/sda", "Theirs", Some("holds ext4"), more);
    let device = serde_json::to_value(&status(&[row]).discovered_devices[0]).expect("written");
    let expected = json!({
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
    let empty = with("/dev/sr0", "Theirs", Some("no medium"), json!({"empty": true}));
    let volume = with("/dev/sdb2", "Ours", Some("a partition of a pool disk"), json!({"poolPartition": true}));
    let theirs = with("/dev/sda1", "Theirs", Some("holds ext4"), json!({"type": "part"}));
    let pool = with("/dev/sdb", "Ours", Some("in pool"), json!({"children": ["/dev/sdb2"]}));
    let status = status(&[empty, volume, theirs, pool]);
    let paths: Vec<_> = status.discovered_devices.iter().map(|device| device.facts().text("path")).collect();
    assert_eq!(paths, [Some("/dev/sda1"), Some("/dev/sdb")]);
    assert_eq!(status.discovered_devices[1].facts().get("children"), None);
}

/// What a validating API server would refuse: type, enum, format and required.
fn refused(schema: &Value, value: &Value, path: &str) -> Vec<String> {
    let is_of_type = match schema["type"].as_str().expect("a type") {
        "string" => value.is_string(),
        "integer" => value.is_i64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        _ => value.is_object(),
    };
    let is_in_range = schema["format"] != "int32" || value.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
    let is_known = schema["enum"].as_array().is_none_or(|choices| choices.contains(value));
    let required = schema["required"].as_array().into_iter().flatten();
    let missing = required.filter(|name| value.get(name.as_str().expect("a name")).is_none());
    let mut wrong: Vec<String> = missing.map(|name| format!("{path} has no {name}")).collect();
    if !(is_of_type && is_in_range && is_known) {
        wrong.push(format!("{path} is {value}"));
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        wrong.extend(value.get(name).into_iter().flat_map(|value| refused(schema, value, &format!("{path}.{name}"))));
    }
    let items = value.as_array().into_iter().flatten();
    wrong.extend(items.flat_map(|item| refused(&schema["items"], item, &format!("{path}[]"))));
    wrong
}

#[test]
fn what_the_schema_does_not_know_is_left_out_and_the_rest_is_told() {
    let later = json!({
        "attachment": "InOrbit", "verdict": "Borrowed", "numaNode": 1_i64 << 40, "size": u64::MAX, "model": "M",
        "type": "later", "new": {"of": ["a", "later", "version"]}, "wwn": null, "zoned": "", "sectorSize": i64::MAX,
    });
    let written =
        status(&[with("/dev/sda", "Theirs", None, later), with("/dev/sdb", "Unclaimed", None, json!({"size": null}))]);
    let crd = serde_json::to_value(discovery_result_crd()).expect("written");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    let written = serde_json::to_value(written).expect("written");
    assert_eq!(refused(schema, &written, ""), Vec::<String>::new());
    let device = &written["discoveredDevices"][0];
    for omitted in ["attachment", "numaNode", "wwn", "zoned", "new"] {
        assert_eq!(device.get(omitted), None, "{omitted}");
    }
    assert_eq!((&device["model"], &device["type"], &device["size"]), (&json!("M"), &json!("later"), &json!(i64::MAX)));
    assert_eq!(written["discoveredDevices"][1]["size"], 0, "the operator's fields are always there");
    let wrong = json!({"discoveredDevices": [{"path": 1, "type": "disk", "property": "X", "numaNode": 1_i64 << 40}]});
    assert_eq!(refused(schema, &wrong, "").len(), 4, "the schema is not empty");
}

/// The API server answers with the keys in its own order.
#[test]
fn a_result_that_was_read_back_is_the_one_that_was_written() {
    let text = render(&machine(), Format::Json).expect("written");
    let list: DeviceList = serde_json::from_str(&text).expect("read");
    let written = status(&list.devices);
    let text = serde_json::to_string(&written).expect("written");
    let Value::Object(object) = serde_json::from_str(&text).expect("JSON") else { panic!("no object") };
    let devices = object["discoveredDevices"].as_array().expect("a list");
    let turned = devices.iter().map(|device| {
        let fields = device.as_object().expect("an object").iter().rev();
        let fields = fields.map(|(name, value)| format!("{}:{value}", json!(name))).collect::<Vec<_>>().join(",");
        serde_json::from_str::<DiscoveredDevice>(&format!("{{{fields}}}")).expect("read")
    });
    let read = DiscoveryResultStatus { discovered_devices: turned.collect(), ..written.clone() };
    assert!(same(&read, &written) && same(&serde_json::from_str(&text).expect("read"), &written));
}

#[test]
fn the_name_is_the_same_for_ever_and_valid_whatever_the_node_is_called() {
    let [worker_0, worker_1, long] = ["worker-0", "worker-1", &"n".repeat(253)].map(NodeName::from);
    assert_eq!(name(&worker_0), name(&worker_0));
    assert_ne!(name(&worker_0), name(&worker_1));
    assert_eq!(name(&worker_0), "discovery-result-7d9fa37323525cad91c4218e4df57e81");
    assert!(name(&long).len() <= 63);
    assert_eq!(labels(&worker_0).into_values().collect::<Vec<_>>(), ["worker-0", "worker-0"]);
    assert!(labels(&long).values().all(|value| value.len() <= LABEL));
}

#[test]
fn thousands_of_disks_fit_and_the_available_ones_are_kept() {
    let long = |n: usize| {
        let children: Vec<String> = (0..20).map(|child| format!("/dev/disk{n}p{child}")).collect();
        let (verdict, refusal) = if n % 10 == 9 { ("Unclaimed", None) } else { ("Theirs", Some("used")) };
        with(&format!("/dev/disk{n}"), verdict, refusal, json!({"model": "M".repeat(40), "children": children}))
    };
    let rows: Vec<DeviceRow> = (0..8000).map(long).collect();
    let status = status(&rows);
    let text = serde_json::to_string(&status).expect("written");
    assert!(text.len() < ROOM + 1000, "{}", text.len());
    assert_eq!((status.device_count, status.available_count), (8000, 800));
    let kept = status.discovered_devices.iter().filter(|device| device.status.state == DeviceState::Available);
    assert_eq!(kept.count(), 800);
    assert_eq!(status.omitted_count, 8000 - signed(status.discovered_devices.len()));
    assert!(status.omitted_count > 0);
    let few = super::status(&rows[..200]);
    let has_all = |device: &DiscoveredDevice| device.facts().get("children").is_some();
    assert!(few.omitted_count == 0 && few.discovered_devices.iter().all(has_all));
    assert!(status.discovered_devices.iter().all(|device| device.facts().text("diskId").is_some() && !has_all(device)));
}

proptest! {
    #[test]
    fn no_text_of_firmware_or_file_names_brings_a_control_character_or_a_megabyte(model in any::<String>(), path in ".{0,3000}") {
        let refusal = format!("mounted at {path}");
        let row = with("/dev/sda", "Theirs", Some(&refusal), json!({"model": model}));
        let status = status(&[row]);
        let device = &status.discovered_devices[0];
        for text in [device.facts().text("model").expect("a model"), device.status.reason.as_deref().expect("a reason")] {
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
