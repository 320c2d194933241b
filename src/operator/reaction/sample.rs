//! A StatefulSet of three in a chosen namespace, one of whose disks is lost. For tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;

use super::live::{ClaimFacts, EvictionAnswer, LiveFacts, NamespaceFacts, PodFacts, SetFacts};
use super::marked::{ClassFacts, HomeState, MarkedVolume};
use super::settings::{ReactionMode, ReactionSettings};
use super::tally::NodeTally;
use super::view::{ReactionPast, ReactionView};
use crate::health::HealthReason;
use crate::operator::persistent_volume::object::Backing;
use crate::operator::steady::Lasting;
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
pub fn lost(set: &str, ordinal: i32) -> MarkedVolume {
    let (name, claim) = (format!("pv-{set}-{ordinal}"), format!("data-{set}-{ordinal}"));
    let volume = json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {
            "claimRef": {"namespace": "db", "name": claim, "uid": format!("claim-{set}-{ordinal}")},
            "persistentVolumeReclaimPolicy": "Delete",
        },
        "status": {"phase": "Bound"},
    });
    MarkedVolume {
        uid: name.clone(),
        volume: Arc::new(serde_json::from_value(volume).expect("a PersistentVolume")),
        backing: Backing::Volume(VolumeId::of_name(&name)),
        node: "n".into(),
        home: HomeState::Ready,
        losses: BTreeSet::from([HealthReason::DiskMissing]),
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

pub fn pod(set: &str, ordinal: i32) -> PodFacts {
    PodFacts {
        name: format!("{set}-{ordinal}"),
        uid: format!("pod-{set}-{ordinal}"),
        resource_version: "7".to_owned(),
        set: Some(format!("set-{set}")),
        node: Some("n".to_owned()),
        is_ready: true,
        ..PodFacts::default()
    }
}

/// What is read of it: the pod that uses the claim is not ready, the two others are.
pub fn live(volume: &MarkedVolume) -> LiveFacts {
    let name = volume.uid.strip_prefix("pv-").expect("a sample");
    let (set, ordinal) = name.split_once('-').expect("a sample");
    let ordinal: i32 = ordinal.parse().expect("a sample");
    let using = PodFacts { uses_claim: true, is_ready: false, ..pod(set, ordinal) };
    let others = (0..3).filter(|other| *other != ordinal).map(|other| pod(set, other));
    LiveFacts {
        volume: Some(Arc::clone(&volume.volume)),
        namespace: NamespaceFacts { is_chosen: true, is_paused: false },
        node: Some("node-n".to_owned()),
        claim: Some(ClaimFacts {
            uid: format!("claim-{name}"),
            resource_version: "3".to_owned(),
            volume: Some(volume.uid.clone()),
            is_bound: true,
            ..ClaimFacts::default()
        }),
        set: Some(SetFacts {
            name: set.to_owned(),
            uid: format!("set-{set}"),
            replicas: 3,
            templates: vec!["log".to_owned(), "data".to_owned()],
            ..SetFacts::default()
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
            lately: volumes.iter().filter(|volume| volume.reacted.is_some()).count(),
            ended: Vec::new(),
            refused: BTreeSet::new(),
        },
        live: volumes.iter().map(|volume| (volume.uid.clone(), live(volume))).collect::<BTreeMap<_, _>>(),
        volumes,
    }
}
