//! A node's LocalVolumeDiscoveryResult, from the rows of its devices. Pure.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::api::crd::{DeviceState, DeviceStatus, DiscoveredDevice, DiscoveryResultStatus};
use crate::device::{
    FactKind, FactValue, NodeName,
    fact_table::{CHILDREN, EMPTY, POOL_PARTITION, REFUSAL, VERDICT, in_results},
};
use crate::operator::bytes::signed;
use crate::show::DeviceRow;

/// The label of the proposal, and the label that the operator uses today.
const LABELS: [&str; 2] = ["local.storage.openshift.io/discovery-node", "discovery-result-node"];
/// The most bytes of a label's value.
const LABEL: usize = 63;
/// The UUID namespace of node names.
const NODES: Uuid = Uuid::from_u128(0x6c6f6361_6c70_4f6f_8c6c_d15c0be71e50);
/// etcd accepts 1.5 MiB in one request; the rest is for names and the record of who owns which field.
const ROOM: usize = 1 << 20;
/// The most characters of a text that firmware or a path brought.
const LONGEST: usize = 1024;
/// At most this many texts of one list, such as the children of a device.
const MOST_NAMED: usize = 128;

/// The hash of a node's name: it never changes, and is valid in an object's name whatever the node is called.
fn hashed(node: &NodeName) -> String {
    Uuid::new_v5(&NODES, node.as_bytes()).simple().to_string()
}

pub fn name(node: &NodeName) -> String {
    format!("discovery-result-{}", hashed(node))
}

/// The label by which others find the result of a node. It has the hash of a node's name that is too long for a label.
pub fn labels(node: &NodeName) -> BTreeMap<String, String> {
    let value = if node.len() <= LABEL { node.to_string() } else { hashed(node) };
    LABELS.map(|label| (label.to_owned(), value.clone())).into()
}

/// The status, without the time of the change.
pub fn status(rows: &[DeviceRow]) -> DiscoveryResultStatus {
    let all: Vec<DiscoveredDevice> = rows.iter().filter(|row| is_listed(row)).map(device).collect();
    let available = all.iter().filter(|device| device.status.state == DeviceState::Available).count();
    let device_count = signed(all.len());
    let devices = fit(all, ROOM);
    DiscoveryResultStatus {
        discovered_time_stamp: String::new(),
        omitted_count: device_count - signed(devices.len()),
        discovered_devices: devices,
        device_count,
        available_count: signed(available),
    }
}

/// Whether two statuses are equal, whenever they were written.
pub fn same(a: &DiscoveryResultStatus, b: &DiscoveryResultStatus) -> bool {
    let timeless = |status: &DiscoveryResultStatus| DiscoveryResultStatus {
        discovered_time_stamp: String::new(),
        ..status.clone()
    };
    timeless(a) == timeless(b)
}

/// Drives without a medium are no devices yet. DevicePool and PoolVolumes report what is on a pool disk, and that
/// changes with each volume.
fn is_listed(row: &DeviceRow) -> bool {
    !row.facts.holds(EMPTY) && !row.facts.holds(POOL_PARTITION)
}

fn device(DeviceRow { facts }: &DeviceRow) -> DiscoveredDevice {
    let (verdict, refusal) = (facts.text(VERDICT), facts.text(REFUSAL));
    let state = match (verdict, refusal) {
        (Some("Unclaimed"), None) => DeviceState::Available,
        (Some("Unclaimed" | "Ours" | "Theirs"), _) => DeviceState::NotAvailable,
        _ => DeviceState::Unknown,
    };
    // The partitions of a pool disk are its volumes.
    let is_shown = |name: &str| name != CHILDREN || verdict != Some("Ours");
    let shown = in_results().map(|(fact, _)| fact).filter(|fact| is_shown(fact.name));
    let shown = shown.filter_map(|fact| Some((fact.name, accepted(fact.kind(), fact.among(facts)?)?)));
    DiscoveredDevice::new(shown.collect(), DeviceStatus { state, reason: refusal.map(clean) })
}

/// A value as the schema of the result accepts it; `None` for one that the schema does not know, such as a word of a
/// later agent. The API server would refuse the whole result because of it.
fn accepted(kind: FactKind, value: FactValue) -> Option<FactValue> {
    Some(match (kind, value) {
        (FactKind::Word(choices), FactValue::Text(word)) if !choices.contains(&&*word) => return None,
        (FactKind::Int32, FactValue::Integer(number)) if i32::try_from(number).is_err() => return None,
        (_, FactValue::Bytes(bytes)) => FactValue::Bytes(bytes.min(i64::MAX.unsigned_abs())),
        (_, FactValue::Text(text)) => FactValue::Text(clean(&text)),
        (_, FactValue::Texts(texts)) => {
            FactValue::Texts(texts.iter().take(MOST_NAMED).map(|text| clean(text)).collect())
        }
        (_, value) => value,
    })
}

/// A text that cannot harm a terminal or an object, whatever firmware and file names contain.
fn clean(text: &str) -> String {
    text.chars().take(LONGEST).map(|c| if c.is_control() { '_' } else { c }).collect()
}

/// As many devices as fit into an object: first our own fields are dropped, then devices that are not Available.
fn fit(mut devices: Vec<DiscoveredDevice>, room: usize) -> Vec<DiscoveredDevice> {
    let bytes = |device: &DiscoveredDevice| serde_json::to_string(device).map_or(usize::MAX, |text| text.len() + 1);
    let total = |devices: &[DiscoveredDevice]| devices.iter().map(bytes).fold(0_usize, usize::saturating_add);
    if total(&devices) <= room {
        return devices;
    }
    devices = devices.into_iter().map(DiscoveredDevice::without_ours).collect();
    let mut remaining = room;
    let mut keep = vec![false; devices.len()];
    for wanted in [true, false] {
        for (keep, device) in keep.iter_mut().zip(&devices) {
            if (device.status.state == DeviceState::Available) == wanted && bytes(device) <= remaining {
                remaining -= bytes(device);
                *keep = true;
            }
        }
    }
    devices.into_iter().zip(keep).filter_map(|(device, keep)| keep.then_some(device)).collect()
}

#[cfg(test)]
mod tests;
