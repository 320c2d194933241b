use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::device::{
    Believed, Device, DiskId, Reason, Verdict,
    sample::{device, disk, holds, label, loop_over, partition, unclaimed},
};
use crate::host::RawDisk;
use crate::show::table::width;
use crate::show::{
    listed::{refusal, verdict_and_reason},
    sample,
};

fn plain(device: Device) -> ListedDevice {
    ListedDevice { device, note: None }
}

/// One device of each verdict, in no order.
fn machine() -> Vec<ListedDevice> {
    let mounted = Reason::Mounted { device: "nvme0n1p2".into(), target: "/".into() };
    let root = RawDisk {
        model: Some("Samsung SSD 980 PRO 1TB".into()),
        vendor: Some("Samsung".into()),
        serial: Some("S5GXNX0T".into()),
        wwid: Some("eui.002538b".into()),
        transport: Some("nvme".into()),
        size: 1_000_204_886_016,
        ..disk("nvme0n1")
    };
    let pool_label = label("c", "n");
    let id = DiskId::labelled(pool_label.disk);
    let pool = Device { label: Some(pool_label.into()), id: id.clone(), ..device(disk("sdb"), Verdict::Ours) };
    let foreign = Verdict::Foreign { cluster: "west".into(), node: "worker-3".into() };
    let foreign = Device { label: Some(label("west", "worker-3").into()), id, ..device(disk("sdc"), foreign) };
    let slow = RawDisk { rotational: true, model: Some("ST2000LM".into()), ..disk("sda10") };
    vec![
        plain(device(loop_over("loop0", "/a.img"), Verdict::Unknown("could not be read: EIO".into()))),
        ListedDevice { device: pool, note: Some("in pool, 3.2 GiB free".into()) },
        plain(foreign),
        plain(device(slow, Verdict::Unclaimed)),
        plain(unclaimed("sda2")),
        plain(device(root, Verdict::Theirs(mounted))),
        plain(device(partition("sdb", 1, None), Verdict::Ours)),
    ]
}

#[test]
fn a_stranger_can_read_the_table() {
    let expected = "\
DEVICE             SIZE  TYPE  MODEL                    VERDICT    WHY
/dev/loop0    100.0 GiB  loop  -                        Unknown    could not be read: EIO
/dev/nvme0n1  931.5 GiB  disk  Samsung SSD 980 PRO 1TB  Theirs     nvme0n1p2 is mounted at /
/dev/sda2     100.0 GiB  disk  -                        Unclaimed  blank and not in use
/dev/sda10    100.0 GiB  disk  ST2000LM                 Unclaimed  blank and not in use
/dev/sdb      100.0 GiB  disk  -                        Ours       in pool, 3.2 GiB free
/dev/sdc      100.0 GiB  disk  -                        Theirs     in the pool of node worker-3, cluster west; \
`localpool disk adopt gpt-00000000-0000-0000-0000-000000000007` takes it over
";
    assert_eq!(render(&machine(), Format::Table).unwrap(), expected);
}

#[test]
fn the_wide_table_adds_what_tells_disks_apart() {
    let text = render(&machine(), Format::Wide).unwrap();
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect();
    let heads =
        "DEVICE SIZE TYPE MODEL SERIAL TRANSPORT ATTACHED SECTOR PHYSICAL ROTATIONAL DISCARD ZONED NUMA VERDICT ID WWN LINK BY-PATH CHILDREN WHY"
            .split(' ')
            .collect::<Vec<_>>();
    assert_eq!(lines[0], heads);
    let nvme = [
        "S5GXNX0T",
        "nvme",
        "Local",
        "512",
        "4096",
        "no",
        "yes",
        "-",
        "-",
        "Theirs",
        "wwid-eui.002538b",
        "eui.002538b",
    ];
    assert_eq!(lines[2][4..16], nvme);
    assert_eq!(lines[4][9], "yes");
}

/// Tables, names and their order are a promise: what people and programs wrote against them keeps working.
#[test]
fn every_format_says_what_it_has_always_said() {
    for format in [Format::Table, Format::Wide, Format::Json, Format::Yaml] {
        let text = render(&sample::machine(), format).unwrap();
        holds(&format!("show/golden/devices.{}", format.name()), &text);
    }
}

#[test]
fn programs_get_the_names_that_were_promised() {
    let value: Value = serde_json::from_str(&render(&machine(), Format::Json).unwrap()).unwrap();
    let devices = value["devices"].as_array().unwrap();
    let pool = &devices[4];
    assert_eq!(pool["path"], "/dev/sdb");
    assert_eq!(pool["diskId"], "gpt-00000000-0000-0000-0000-000000000007");
    assert_eq!(pool["verdict"], "Ours");
    assert_eq!(pool["reason"], "in pool, 3.2 GiB free");
    assert_eq!(pool["size"], 100u64 << 30);
    assert_eq!((&pool["type"], &pool["set"]), (&Value::from("disk"), &Value::from("default/pool")));
    let verdicts: Vec<_> = devices.iter().map(|device| device["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["Unknown", "Theirs", "Unclaimed", "Unclaimed", "Ours", "Ours", "Theirs"]);
    assert!(devices.iter().all(|device| device["reason"].as_str().is_some_and(|reason| !reason.is_empty())));
}

#[test]
fn a_refusal_is_told_without_what_changes_with_each_volume_and_a_free_disk_has_none() {
    let value: Value = serde_json::from_str(&render(&machine(), Format::Json).unwrap()).unwrap();
    let refusals: Vec<_> =
        value["devices"].as_array().unwrap().iter().map(|device| device["refusal"].as_str()).collect();
    assert_eq!(
        refusals[..6],
        [
            Some("could not be read: EIO"),
            Some("nvme0n1p2 is mounted at /"),
            None,
            None,
            Some("in pool"),
            Some("a partition of a pool disk")
        ]
    );
    let copy = Device { believed: Believed::No("a copy".into()), ..unclaimed("sdx") };
    assert_eq!(refusal(&plain(copy)).as_deref(), Some("blank and not in use; not ready: a copy"));
}

#[test]
fn yaml_and_json_say_the_same() {
    let json: Value = serde_json::from_str(&render(&machine(), Format::Json).unwrap()).unwrap();
    let yaml: Value = serde_saphyr::from_str(&render(&machine(), Format::Yaml).unwrap()).unwrap();
    assert_eq!(yaml, json);
}

#[test]
fn a_copy_of_a_pool_disk_says_that_it_is_not_ready() {
    let mut shown = machine().swap_remove(1);
    shown.device.believed = Believed::No("has the same identity as /dev/sdz".into());
    let (verdict, reason) = verdict_and_reason(&shown);
    assert_eq!(verdict, "Ours");
    assert_eq!(reason, "in pool, 3.2 GiB free; not ready: has the same identity as /dev/sdz");
}

#[test]
fn an_empty_machine_is_a_sentence_and_an_empty_list() {
    assert_eq!(render(&[], Format::Table).unwrap(), "no block devices were found\n");
    let value: Value = serde_json::from_str(&render(&[], Format::Json).unwrap()).unwrap();
    assert_eq!(value, serde_json::json!({"devices": []}));
}

#[test]
fn names_with_wide_and_hostile_characters_leave_the_columns_straight() {
    let names = ["固态硬盘", "e\u{301}t", "a\nb\tc\u{1b}[31m", "right\u{202e}left", ""];
    let shown: Vec<_> = names
        .into_iter()
        .enumerate()
        .map(|(n, model)| {
            plain(device(RawDisk { model: Some(model.into()), ..disk(&format!("sd{n}")) }, Verdict::Unclaimed))
        })
        .collect();
    let text = render(&shown, Format::Table).unwrap();
    assert_eq!(text.lines().count(), 6);
    let at = |line: &str| line.find("Unclaimed").or_else(|| line.find("VERDICT")).map(|byte| width(&line[..byte]));
    let columns: Vec<_> = text.lines().map(at).collect();
    assert!(columns.iter().all(|column| *column == columns[0]), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    assert_eq!(width("固态"), 4);
}

proptest! {
    #[test]
    fn no_model_breaks_a_line_leaves_trailing_blanks_or_loses_itself_in_yaml(model in any::<String>()) {
        let shown = [plain(device(RawDisk { model: Some(model.clone()), ..disk("sda") }, Verdict::Unclaimed))];
        for format in [Format::Table, Format::Wide] {
            let text = render(&shown, format).unwrap();
            prop_assert_eq!(text.lines().count(), 2);
            prop_assert!(text.lines().all(|line| line.trim_end() == line));
        }
        let json: Value = serde_json::from_str(&render(&shown, Format::Json).unwrap()).unwrap();
        prop_assert_eq!(json["devices"][0]["model"].as_str(), Some(model.as_str()));
        let yaml: Result<Value, _> = serde_saphyr::from_str(&render(&shown, Format::Yaml).unwrap());
        prop_assert_eq!(yaml.unwrap(), json);
    }

    #[test]
    fn the_order_of_names_does_not_depend_on_the_order_of_the_devices(mut names in prop::collection::vec("(sd|vd)[a-c]{1,2}[0-9]{0,2}", 1..8), turn in 0usize..8) {
        names.sort();
        names.dedup();
        let order = |names: &[String]| {
            let shown: Vec<_> = names.iter().map(|name| plain(unclaimed(name))).collect();
            render(&shown, Format::Json).unwrap()
        };
        let first = order(&names);
        let turn = turn % names.len();
        names.rotate_left(turn);
        prop_assert_eq!(order(&names), first);
    }
}

#[test]
fn names_stand_in_the_order_in_which_the_kernel_counts() {
    let names = [
        "dm-2",
        "dm-10",
        "nvme0n1",
        "nvme0n1p2",
        "nvme0n1p10",
        "nvme0n2",
        "nvme1n1",
        "sda",
        "sda1",
        "sdb",
        "sdz",
        "sdaa",
        "sdaa1",
        "vda",
    ];
    let shown: Vec<_> = names.iter().rev().map(|name| plain(unclaimed(name))).collect();
    let value: Value = serde_json::from_str(&render(&shown, Format::Json).unwrap()).unwrap();
    let paths = value["devices"].as_array().unwrap().iter().map(|device| device["path"].as_str().unwrap());
    assert_eq!(paths.collect::<Vec<_>>(), names.map(|name| format!("/dev/{name}")));
}

#[test]
fn loop_devices_without_a_file_are_counted_for_people_and_listed_for_programs() {
    let idle = |name: &str| {
        let unbound = RawDisk { size: 0, kind: DeviceKind::Loop(None), ..disk(name) };
        plain(device(unbound, Verdict::Theirs(Reason::NoMedium)))
    };
    let mut shown = vec![plain(unclaimed("sda")), idle("loop0")];
    let text = render(&shown, Format::Table).unwrap();
    assert_eq!(text.lines().skip(2).collect::<Vec<_>>(), ["(and 1 loop device without a file)"]);
    shown.push(idle("loop1"));
    assert!(render(&shown, Format::Wide).unwrap().ends_with("(and 2 loop devices without a file)\n"));
    let value: Value = serde_json::from_str(&render(&shown, Format::Json).unwrap()).unwrap();
    assert_eq!(value["devices"].as_array().unwrap().len(), 3);
}
