//! One device for programs: what `localpool devices -o json` prints, and what an agent sends to discovery.
//!
//! Takes in a device with the pool's note, gives out a [`DeviceRow`]. Names stay; new ones may come, and a reader of
//! another version ignores them.

use std::collections::HashSet;

use serde::de::Error as _;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::listed::{ListedDevice, refusal, verdict_and_reason};
use crate::device::{
    Attachments, Device, Facts, Observed, ShownVerdict, Verdict,
    fact_table::{facts, in_json},
};
use crate::host::{DeviceKind, KernelName};

/// The facts of a device that are in JSON, in the order of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRow {
    pub facts: Facts,
}

impl Serialize for DeviceRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for fact in in_json() {
            if let Some(value) = self.facts.get(fact.name) {
                map.serialize_entry(fact.name, value)?;
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for DeviceRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Map::<String, Value>::deserialize(deserializer)?;
        let facts = Facts::read(fields, in_json().map(|fact| (fact.name, fact))).map_err(D::Error::custom)?;
        Ok(Self { facts })
    }
}

/// All devices of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceList {
    pub devices: Vec<DeviceRow>,
}

/// Rows of devices, in their order. `all` may have more devices than those: a device that is built on others has their
/// attachment.
pub fn rows<'s>(devices: impl IntoIterator<Item = &'s ListedDevice>, all: &[&ListedDevice]) -> Vec<DeviceRow> {
    let attachments = Attachments::new(all.iter().map(|shown| &shown.device.raw));
    let of_pool = |shown: &&&ListedDevice| shown.device.verdict == Verdict::Ours && shown.device.label.is_some();
    let pool_disks: HashSet<&KernelName> = all.iter().filter(of_pool).map(|shown| &shown.device.raw.name).collect();
    devices.into_iter().map(|shown| row(shown, &attachments, &pool_disks)).collect()
}

fn row<'s>(shown: &'s ListedDevice, attachments: &Attachments<'s>, pool_disks: &HashSet<&KernelName>) -> DeviceRow {
    let Device { raw, label, verdict: whose, .. } = &shown.device;
    let pool_partition = match &raw.kind {
        DeviceKind::Partition(partition) => pool_disks.contains(&partition.disk),
        _ => false,
    };
    let bare = *whose == Verdict::Ours && label.is_none() && !pool_partition;
    let refusal = if bare { Some("in pool as a bare device".to_owned()) } else { refusal(shown) };
    let (verdict, reason) = verdict_and_reason(shown);
    let shown_verdict = ShownVerdict { verdict, reason, refusal, pool_partition };
    let observed =
        Observed { device: &shown.device, attachment: attachments.of(raw), shown_verdict: Some(&shown_verdict) };
    let all = facts(&observed);
    let listed = in_json().filter_map(|fact| Some((fact.name, fact.among(&all)?)));
    DeviceRow { facts: listed.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{
        FactValue,
        fact_table::{POOL_PARTITION, REFUSAL},
        sample::{device, disk, label, partition},
    };
    use crate::host::RawDisk;

    #[test]
    fn a_reader_does_without_names_that_it_does_not_know_or_does_not_get() {
        let old: DeviceRow = serde_json::from_str(r#"{"path": "/dev/sda", "size": 5, "later": [1]}"#).expect("read");
        let known = Facts::from_iter([("path", FactValue::Text("/dev/sda".into())), ("size", FactValue::Bytes(5))]);
        assert_eq!(old.facts, known);
    }

    #[test]
    fn a_bare_partition_of_the_pool_is_told_from_the_partitions_of_a_pool_disk() {
        let shown = |raw, label| ListedDevice { device: Device { label, ..device(raw, Verdict::Ours) }, note: None };
        let pool = shown(disk("sda"), Some(label("c", "n").into()));
        let all = [pool, shown(partition("sda", 2, None), None), shown(partition("sdb", 1, None), None)];
        let all: Vec<&ListedDevice> = all.iter().collect();
        let shown: Vec<_> = rows(all.clone(), &all).into_iter().map(|row| row.facts).collect();
        let shown = shown.iter().map(|facts| (facts.holds(POOL_PARTITION), facts.text(REFUSAL))).collect::<Vec<_>>();
        let bare = (false, Some("in pool as a bare device"));
        assert_eq!(shown, [(false, Some("in pool")), (true, Some("a partition of a pool disk")), bare]);
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
        let facts = &made[0].facts;
        assert_eq!(facts.text("byPath"), Some("/dev/disk/by-path/pci-0000:00:17.0-ata-1"));
        assert_eq!(facts.get("children"), Some(&FactValue::Texts(vec!["/dev/sda1".into(), "/dev/dm-0".into()])));
        assert_eq!((facts.text("fstype"), facts.get("numaNode")), (Some("ext4"), Some(&FactValue::Integer(1))));
        let text = serde_json::to_string(&DeviceList { devices: made.clone() }).expect("written");
        assert_eq!(serde_json::from_str::<DeviceList>(&text).expect("read").devices, made);
    }
}
