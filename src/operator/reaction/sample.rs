//! A StatefulSet of three in a chosen namespace, one of whose disks is lost. For tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::live::{EvictionAnswer, LiveFacts, NamespaceFacts, PodFacts, PvcFacts, StatefulSetFacts};
use super::marked::{ClassFacts, HomeState, MarkedVolume};
use super::settings::{ReactionMode, ReactionSettings};
use super::tally::NodeTally;
use super::view::{ReactionPast, ReactionView};
use crate::health::HealthReason;
use crate::operator::kube_volume::{Backing, PersistentVolume};
use crate::operator::status::steady::Lasting;
use crate::volume::VolumeId;

pub fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().expect("a time")
}

pub fn minutes_ago(minutes: i64) -> Timestamp {
    now() - SignedDuration::from_mins(minutes)
}

pub fn settings() -> ReactionSettings {
    ReactionSettings {
        mode: ReactionMode::On,
        recover_after: SignedDuration::from_mins(5),
        at_once: 1,
        per_hour: 4,
        max_bad_nodes: 10,
    }
}

/// The volume `pv-SET-ORDINAL` of the claim `data-SET-ORDINAL`, lost with its disk ten minutes ago.
pub fn lost(stateful_set: &str, ordinal: i32) -> MarkedVolume {
    let (name, pvc) = (format!("pv-{stateful_set}-{ordinal}"), format!("data-{stateful_set}-{ordinal}"));
    let volume = json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {
            "claimRef": {"namespace": "db", "name": pvc, "uid": format!("claim-{stateful_set}-{ordinal}")},
            "persistentVolumeReclaimPolicy": "Delete",
        },
        "status": {"phase": "Bound"},
    });
    MarkedVolume {
        uid: name.as_str().into(),
        volume: Arc::new(serde_json::from_value(volume).expect("a PersistentVolume")),
        backing: Backing::Volume(VolumeId::of_name(&name)),
        node: "n".into(),
        home: HomeState::Ready,
        losses: BTreeSet::from([HealthReason::DiskMissing]),
        unconfirmed: BTreeSet::new(),
        process: Some("a".into()),
        is_elsewhere: false,
        is_unusable: true,
        lost_since: Some(minutes_ago(10)),
        is_paused: false,
        class: ClassFacts { is_chosen: true, is_immediate: false },
        record: None,
        reacted: None,
    }
}

impl MarkedVolume {
    /// With another field of the PersistentVolume.
    pub fn with(mut self, change: impl FnOnce(&mut PersistentVolume)) -> Self {
        change(Arc::make_mut(&mut self.volume));
        self
    }
}

pub fn pod(stateful_set: &str, ordinal: i32) -> PodFacts {
    PodFacts {
        name: format!("{stateful_set}-{ordinal}").into(),
        uid: format!("pod-{stateful_set}-{ordinal}").into(),
        resource_version: "7".to_owned(),
        stateful_set: Some(format!("set-{stateful_set}").into()),
        node: Some("n".into()),
        is_ready: true,
        ..PodFacts::default()
    }
}

/// What is read of it: the pod that uses the claim is not ready, the two others are.
pub fn live(volume: &MarkedVolume) -> LiveFacts {
    let uid = volume.uid.to_string();
    let name = uid.strip_prefix("pv-").expect("a sample");
    let (stateful_set, ordinal) = name.split_once('-').expect("a sample");
    let ordinal: i32 = ordinal.parse().expect("a sample");
    let using = PodFacts { uses_pvc: true, is_ready: false, ..pod(stateful_set, ordinal) };
    let others = (0..3).filter(|other| *other != ordinal).map(|other| pod(stateful_set, other));
    LiveFacts {
        volume: Some(Arc::clone(&volume.volume)),
        namespace: NamespaceFacts { is_chosen: true, is_paused: false },
        node: Some("node-n".into()),
        pvc: Some(PvcFacts {
            uid: format!("claim-{name}").into(),
            resource_version: "3".to_owned(),
            volume: Some(uid.as_str().into()),
            is_bound: true,
            ..PvcFacts::default()
        }),
        stateful_set: Some(StatefulSetFacts {
            name: stateful_set.into(),
            uid: format!("set-{stateful_set}").into(),
            replicas: 3,
            templates: vec!["log".to_owned(), "data".to_owned()],
            ..StatefulSetFacts::default()
        }),
        pods: [using].into_iter().chain(others).collect(),
        eviction: Some(EvictionAnswer::Allowed),
        home: Some(volume.home),
        ready_since: Some(minutes_ago(60)),
        losses: volume.losses.clone(),
    }
}

/// All of them looked at, in a cluster of twenty nodes that is calm.
pub fn view(volumes: Vec<MarkedVolume>) -> ReactionView {
    ReactionView {
        now: now(),
        settings: settings(),
        nodes: NodeTally { bad: 1, all: 20 },
        past: ReactionPast {
            seen: volumes.iter().map(|volume| (volume.uid.clone(), Lasting::Yes(()))).collect(),
            calm: Lasting::Yes(()),
            clock: Lasting::Yes(()),
            unwatched: SignedDuration::ZERO,
            lately: volumes.iter().filter(|volume| volume.reacted.is_some()).count(),
            ended: Vec::new(),
            refused: BTreeSet::new(),
        },
        live: volumes.iter().map(|volume| (volume.uid.clone(), live(volume))).collect::<BTreeMap<_, _>>(),
        volumes,
    }
}
