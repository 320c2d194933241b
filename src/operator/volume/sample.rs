//! Objects for tests: what a person could have seen in `kubectl get`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::crd::{
    DevicePool, DevicePoolSpec, DevicePoolStatus, Phase, PoolVolume, PoolVolumeStatus, SetOffer, VolumeReason,
};
use crate::device::label::{SetRef, VolumeRecord, VolumeUsage};
use crate::device::{DiskId, SetName};
use crate::operator::bytes::signed;
use crate::operator::pool_volume;
use crate::pool::{Standing, VolumeView};
use crate::volume::VolumeId;
use crate::volume::{Nodes, Selector, VolumeRequest, WantedUsage};

pub const GIB: u64 = 1 << 30;

/// 1 GiB with a filesystem of class `fast` on node `n`.
pub fn wanted(name: &str) -> VolumeRequest {
    VolumeRequest {
        name: name.to_owned(),
        required: GIB,
        limit: None,
        usage: WantedUsage::Mount(None),
        parameters: BTreeMap::from([("class".to_owned(), "fast".to_owned())]),
        selector: Selector { class: Some("fast".to_owned()), set: None },
        nodes: Nodes::Preferred(vec!["n".into()]),
        timeout: Duration::from_secs(10),
    }
}

/// The object of that request on node `n`, in the given phase.
pub fn in_phase(phase: Phase) -> PoolVolume {
    let mut object = pool_volume::object(&wanted("pvc-1"), &"n".into());
    object.metadata.uid = Some("u1".to_owned());
    object.metadata.resource_version = Some("10".to_owned());
    object.status = Some(PoolVolumeStatus { phase, ..PoolVolumeStatus::default() });
    if matches!(phase, Phase::Ready | Phase::Found | Phase::Deleting) {
        ready(&mut object, GIB);
        object.status.as_mut().expect("set").phase = phase;
    }
    object
}

pub fn ready(object: &mut PoolVolume, size: u64) {
    object.status = Some(PoolVolumeStatus {
        phase: Phase::Ready,
        size: Some(signed(size)),
        fs_type: Some("ext4".to_owned()),
        ..PoolVolumeStatus::default()
    });
}

pub fn rejected(object: &PoolVolume, reason: &str) -> PoolVolume {
    let mut object = object.clone();
    object.status = Some(PoolVolumeStatus {
        phase: Phase::Rejected,
        reason: Some(VolumeReason::from(reason.to_owned())),
        message: Some(format!("because of {reason}")),
        ..PoolVolumeStatus::default()
    });
    object
}

pub fn being_deleted(mut object: PoolVolume) -> PoolVolume {
    object.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    object
}

pub fn status_condition(kind: &str, status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }
}

/// A Ready node whose set `d/s` offers class `fast`: in GiB, the total, the largest and the smallest.
pub fn pool(node: &str, [available, largest, smallest]: [u64; 3]) -> DevicePool {
    let gib = |count: u64| signed(count * GIB);
    let offer = SetOffer {
        namespace: "d".to_owned(),
        name: "s".to_owned(),
        class: "fast".to_owned(),
        devices: 1,
        available: gib(available),
        largest: gib(largest),
        smallest: gib(smallest),
        ..SetOffer::default()
    };
    let mut pool = DevicePool::new(node, DevicePoolSpec::default());
    pool.status = Some(DevicePoolStatus {
        sets: vec![offer],
        conditions: vec![status_condition("Ready", "True", "Up", "")],
        ..DevicePoolStatus::default()
    });
    pool
}

/// The description of a volume that a claim has.
pub fn record() -> VolumeRecord {
    VolumeRecord {
        name: "v".to_owned(),
        required: 1,
        limit: None,
        parameters: BTreeMap::new(),
        usage: VolumeUsage::Block,
        fs_size: 0,
        found: false,
    }
}

/// The volume pvc-1 on a disk, without its description.
pub fn view() -> VolumeView {
    VolumeView {
        id: VolumeId::of_name("pvc-1"),
        record: None,
        size: 5 << 20,
        formatted: false,
        growable_to: 5 << 20,
        set: SetRef::new(SetName::new("d", "s"), "u"),
        disk: DiskId::named("gpt-1"),
        standing: Standing::Ready,
        given_up: false,
        conflict: None,
        node: PathBuf::new(),
        directory: None,
    }
}
