//! The volumes that the reaction looks at, as far as watches know them: those that are lost where they are, and those
//! that have a record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;

use super::confirmed::{AgentProcess, confirmed, process};
use super::record::{self, ReactionRecord, UnreadableRecord};
use super::settings::{LABEL, LABEL_VALUE, PAUSE};
use crate::api::crd::{DevicePool, HealthEntry, PoolVolume};
use crate::device::{DiskId, NodeName};
use crate::health::{HealthReason, LossScope, Severity};
use crate::operator::api_server::object_key::{ObjectName, Uid};
use crate::operator::kube_volume::{Backing, BindingPhase, FIRST_MARK_TIME, PersistentVolume};
use crate::operator::node::ready::{NodeReadiness, readiness};
use crate::operator::persistent_volume::home::{Home, NodeIndex};
use crate::operator::persistent_volume::marks;
use crate::operator::persistent_volume::view::View;
use crate::operator::pool::agent_life::silence;
use crate::operator::pool::disk_homes::DiskHomes;

/// A person, or a machine, vouches that the node is off: nothing on it writes any more.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

#[derive(Clone, Debug)]
pub struct MarkedVolume {
    pub uid: Uid<PersistentVolume>,
    pub volume: Arc<PersistentVolume>,
    pub backing: Backing,
    /// The name of its node, which it may have left.
    pub node: NodeName,
    pub home: HomeState,
    /// The marks that say that it is lost.
    pub losses: BTreeSet<HealthReason>,
    /// Those of them that the agent that runs now has not found itself: nobody knows whether they still hold.
    pub unconfirmed: BTreeSet<HealthReason>,
    /// The process of that agent; `None`: its node is not ready, or it does not say.
    pub process: Option<AgentProcess>,
    /// Another node has its disk, or had it at its agent's last report: nothing of it need be lost.
    pub is_elsewhere: bool,
    /// Some mark says that it cannot be used, whether it is lost or not.
    pub is_unusable: bool,
    /// Since when the losses are as they are; `None`: not written yet.
    pub lost_since: Option<Timestamp>,
    /// By its own annotation; its claim, its StatefulSet and its Namespace may hold it back too.
    pub is_paused: bool,
    pub class: ClassFacts,
    pub record: Option<Result<ReactionRecord, UnreadableRecord>>,
    pub reacted: Option<ReactionRecord>,
}

/// The node of a volume now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeState {
    Ready,
    /// Ready, but its agent does not answer.
    Silent,
    NotReady,
    /// Not ready, and somebody vouches that nothing on it writes.
    Fenced,
    Gone,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassFacts {
    /// It has the label.
    pub is_chosen: bool,
    pub is_immediate: bool,
}

impl MarkedVolume {
    /// Whether anything may be done about it.
    pub fn waits(&self) -> bool {
        self.record.is_some() || (!self.losses.is_empty() && self.volume.phase.is_usable())
    }

    /// Whether somebody has found it lost who would know now.
    pub fn is_confirmed(&self) -> bool {
        let is_found = |reason: &HealthReason| !is_of_node(reason) && !self.unconfirmed.contains(reason);
        match self.home {
            HomeState::Ready | HomeState::Silent => self.losses.iter().any(is_found),
            HomeState::NotReady | HomeState::Fenced | HomeState::Gone => !self.losses.is_empty(),
        }
    }

    /// Whether its time as a lost one counts: somebody has found it lost who would know, and no other node has its
    /// disk.
    pub fn is_lost(&self) -> bool {
        self.is_confirmed() && !self.is_elsewhere
    }

    /// The reclaim policy.
    pub fn policy(&self) -> &str {
        self.volume.reclaim_policy.as_deref().unwrap_or_default()
    }

    pub fn is_bound(&self) -> bool {
        self.volume.phase == BindingPhase::Bound
    }
}

/// Whether the controller finds it itself, by the Node.
pub fn is_of_node(reason: &HealthReason) -> bool {
    reason.loss() == LossScope::All
}

/// All of them, in the order of the view.
pub fn marked_volumes(view: &View, classes: &[Arc<StorageClass>], now: Timestamp) -> Vec<MarkedVolume> {
    let index = NodeIndex::of(&view.nodes);
    let nodes = view.nodes_by_name();
    let pools = view.pools_by_node();
    let disks = DiskHomes::as_last_said(&view.pools);
    let classes: BTreeMap<ObjectName<StorageClass>, ClassFacts> =
        classes.iter().map(|class| (ObjectName::of(&**class), class_facts(class))).collect();
    let mut all = Vec::new();
    for volume in &view.persistent {
        let Some(backing) = volume.backing() else { continue };
        let own = match backing {
            Backing::Volume(id) => view.volumes.get(id),
            Backing::Path(_) => None,
        };
        let present = marks::present(volume.annotations());
        let is_unusable = present.iter().any(|reason| reason.severity() >= Severity::Inaccessible);
        let losses = losses(backing, &present, own.map(Arc::as_ref));
        let record = record::under_way(volume);
        let reacted = record::reacted(volume);
        if losses.is_empty() && !is_unusable && record.is_none() && reacted.is_none() {
            continue;
        }
        let is_elsewhere = own.is_some_and(|own| disks.is_with_another(own));
        let (Home::Node(node) | Home::Gone(node)) = index.home_of(volume, own.map(Arc::as_ref)) else { continue };
        let pool = pools.get(&node).copied();
        let home = home_state(nodes.get(&node).copied(), pool);
        all.push(MarkedVolume {
            uid: Uid::of(&**volume).unwrap_or_default(),
            unconfirmed: unconfirmed(volume, backing, &losses, own.map(Arc::as_ref), pool),
            process: process(pool).filter(|_| home == HomeState::Ready),
            volume: Arc::clone(volume),
            home,
            node,
            lost_since: lost_since(volume, now),
            is_paused: volume.annotations().contains_key(PAUSE),
            class: volume.class.as_ref().and_then(|class| classes.get(class)).copied().unwrap_or_default(),
            backing: backing.clone(),
            losses,
            is_elsewhere,
            is_unusable,
            record,
            reacted,
        });
    }
    all
}

/// Of a named filesystem localpool sees the path, and not the disk: what is not at its path any more may be in use by
/// pods that notice nothing. So only its node can be lost.
fn losses(backing: &Backing, present: &BTreeSet<HealthReason>, own: Option<&PoolVolume>) -> BTreeSet<HealthReason> {
    let disk = own.and_then(|own| own.status.as_ref()?.disk.as_ref());
    let is_named = disk.is_some_and(DiskId::is_filesystem);
    let mut losses = backing.losses(present);
    losses.retain(|reason| !is_named || is_of_node(reason));
    losses
}

fn unconfirmed(
    volume: &PersistentVolume,
    backing: &Backing,
    losses: &BTreeSet<HealthReason>,
    own: Option<&PoolVolume>,
    pool: Option<&DevicePool>,
) -> BTreeSet<HealthReason> {
    let (uid, status) = (Uid::of(volume), pool.and_then(|pool| pool.status.as_ref()));
    let entries: &[HealthEntry] = match (backing, own) {
        (Backing::Volume(_), Some(own)) => own.status.as_ref().map_or(&[], |status| &status.health),
        (Backing::Volume(_), None) => &[],
        (Backing::Path(_), _) => {
            let mut found = status.into_iter().flat_map(|status| &status.persistent_volumes);
            found.find(|found| uid.as_ref().is_some_and(|uid| *uid == *found.uid)).map_or(&[], |found| &found.health)
        }
    };
    let found = confirmed(entries, process(pool).as_ref());
    // That there is no PoolVolume is what the controller sees itself.
    let is_absent = |reason: &HealthReason| {
        *reason == HealthReason::VolumeMissing && own.is_none() && matches!(backing, Backing::Volume(_))
    };
    let is_open = |reason: &&HealthReason| !is_of_node(reason) && !is_absent(reason) && !found.contains(*reason);
    losses.iter().filter(is_open).cloned().collect()
}

/// The later of the first mark, which a person can set forward, and of this loss.
fn lost_since(volume: &PersistentVolume, now: Timestamp) -> Option<Timestamp> {
    let time = |key| marks::time(volume.annotations(), key, now);
    Some(time(FIRST_MARK_TIME)?.max(time(marks::UNUSABLE_SINCE)?))
}

fn class_facts(class: &StorageClass) -> ClassFacts {
    ClassFacts {
        is_chosen: class.labels().get(LABEL).is_some_and(|value| value == LABEL_VALUE),
        is_immediate: class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer"),
    }
}

/// Nobody says of a node without a DevicePool that its agent answers.
pub fn home_state(node: Option<&Node>, pool: Option<&DevicePool>) -> HomeState {
    let is_fenced = |node: &Node| {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
    };
    match (readiness(node), node) {
        (NodeReadiness::Gone, _) | (_, None) => HomeState::Gone,
        (NodeReadiness::NotReady, Some(node)) if is_fenced(node) => HomeState::Fenced,
        (NodeReadiness::NotReady, _) => HomeState::NotReady,
        (NodeReadiness::Ready, _) if pool.is_none_or(|pool| silence(pool).is_some()) => HomeState::Silent,
        (NodeReadiness::Ready, _) => HomeState::Ready,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::super::tally::NodeTally;
    use super::*;
    use crate::api::crd::Phase;
    use crate::device::VolumeId;
    use crate::operator::reaction::sample::{minutes_ago, now};
    use crate::operator::volume::sample::in_phase;

    fn node(name: &str, ready: &str, taint: Option<&str>) -> Arc<Node> {
        let taints = taint.map(|key| json!([{"key": key, "value": "nodeshutdown", "effect": "NoExecute"}]));
        let value = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        Arc::new(serde_json::from_value(value).expect("a Node"))
    }

    fn pool(name: &str, ready: &str) -> Arc<DevicePool> {
        let ready = json!({"type": "Ready", "status": ready, "reason": "x", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let value = json!({"apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": name},
            "spec": {}, "status": {"conditions": [ready]}});
        Arc::new(serde_json::from_value(value).expect("a DevicePool"))
    }

    /// A local PersistentVolume of the class `chosen`, on this node.
    fn path(name: &str, node: &str, phase: &str, annotations: Value) -> Arc<PersistentVolume> {
        let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        let value = json!({
            "metadata": {"name": name, "uid": name, "annotations": annotations},
            "spec": {
                "local": {"path": "/x"},
                "storageClassName": "chosen",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
            },
            "status": {"phase": phase},
        });
        Arc::new(serde_json::from_value(value).expect("a PersistentVolume"))
    }

    fn gone_since(minutes: i64) -> Value {
        let since = minutes_ago(minutes).to_string();
        json!({"NodeGone": "yes", "FirstMarkTime": since, "localpool.dev/unusable-since": since})
    }

    fn class(name: &str, label: Value, mode: &str) -> Arc<StorageClass> {
        let value = json!({"metadata": {"name": name, "labels": label}, "provisioner": "x", "volumeBindingMode": mode});
        Arc::new(serde_json::from_value(value).expect("a StorageClass"))
    }

    #[test]
    fn of_a_named_filesystem_only_the_node_is_lost() {
        let present = [HealthReason::DiskMissing, HealthReason::DiskNotReady, HealthReason::NodeGone].into();
        let of = |disk: DiskId| {
            let mut own = in_phase(Phase::Ready);
            own.status.as_mut().expect("set").disk = Some(disk);
            losses(&Backing::Volume(VolumeId::from_u128(1)), &present, Some(&own))
        };
        assert_eq!(of(DiskId::named("gpt-1")), present);
        assert_eq!(of(DiskId::of_filesystem(Uuid::nil())), [HealthReason::NodeGone].into());
    }

    #[test]
    fn a_node_is_what_its_object_its_taint_and_its_agent_say() {
        let state =
            |node: Option<Arc<Node>>, pool: Option<Arc<DevicePool>>| home_state(node.as_deref(), pool.as_deref());
        let ready = || Some(node("n", "True", None));
        assert_eq!(state(None, Some(pool("n", "True"))), HomeState::Gone);
        assert_eq!(state(ready(), Some(pool("n", "True"))), HomeState::Ready);
        assert_eq!(state(ready(), Some(pool("n", "Unknown"))), HomeState::Silent);
        assert_eq!(state(ready(), None), HomeState::Silent, "nobody says that its agent answers");
        assert_eq!(state(Some(node("n", "Unknown", None)), Some(pool("n", "True"))), HomeState::NotReady);
        assert_eq!(state(Some(node("n", "Unknown", Some("gpu"))), None), HomeState::NotReady);
        assert_eq!(state(Some(node("n", "Unknown", Some(OUT_OF_SERVICE))), None), HomeState::Fenced);
        assert_eq!(state(Some(node("n", "True", Some(OUT_OF_SERVICE))), Some(pool("n", "True"))), HomeState::Ready);
    }

    #[test]
    fn only_what_is_lost_or_has_a_record_is_looked_at() {
        let since = |key: &str| json!({key: "yes", "FirstMarkTime": "2026-01-01T11:00:00Z"});
        let view = View {
            persistent: vec![
                path("well", "n", "Bound", json!({})),
                path("small", "n", "Bound", since("MisMatchedVolSize")),
                path("lost", "n", "Bound", since("HostPathNotExist")),
                path("shut", "n", "Bound", since("FilesystemShutDown")),
                path("begun", "n", "Bound", json!({record::RECORD: "?", PAUSE: ""})),
                path("ended", "n", "Bound", json!({record::REACTED: "{}"})),
            ],
            nodes: vec![node("n", "True", None)],
            pools: vec![pool("n", "True")],
            ..View::default()
        };
        let classes = [class("chosen", json!({LABEL: LABEL_VALUE}), "Immediate")];
        let marked = marked_volumes(&view, &classes, now());
        let names: Vec<_> = marked.iter().map(|volume| volume.uid.clone()).collect();
        assert_eq!(names, ["lost", "shut", "begun"], "what ended and cannot be read says nothing");
        assert_eq!(marked[0].lost_since, None, "the monitor has not written it yet");
        assert!(marked[1].is_unusable && marked[1].losses.is_empty(), "its pod is no copy to count on");
        assert!(marked[2].record.as_ref().is_some_and(Result::is_err) && marked[2].is_paused);
        assert_eq!(marked[0].class, ClassFacts { is_chosen: true, is_immediate: true });
        let other = [class("chosen", json!({LABEL: "Deployment"}), "WaitForFirstConsumer")];
        assert_eq!(marked_volumes(&view, &other, now())[0].class, ClassFacts::default());
    }

    #[test]
    fn bad_are_nodes_that_are_not_ready_or_silent_and_those_with_a_lost_volume_of_a_claim() {
        let since = |minutes| gone_since(minutes);
        let view = |persistent: Vec<Arc<PersistentVolume>>| View {
            persistent,
            nodes: vec![node("a", "True", None), node("b", "Unknown", None), node("c", "True", None)],
            pools: vec![pool("a", "True"), pool("b", "True"), pool("c", "Unknown")],
            ..View::default()
        };
        let tally = |persistent| {
            let view = view(persistent);
            let tally = NodeTally::of(&view, &marked_volumes(&view, &[], now()), now());
            (tally.bad, tally.all)
        };
        assert_eq!(tally(vec![]), (2, 3));
        let lost = json!({"HostPathNotExist": "yes"});
        assert_eq!(tally(vec![path("v", "a", "Bound", lost.clone())]), (3, 3));
        assert_eq!(tally(vec![path("v", "a", "Released", lost)]), (2, 3), "it was dealt with");
        assert_eq!(tally(vec![path("v", "gone", "Bound", since(59))]), (3, 4));
        assert_eq!(tally(vec![path("v", "gone", "Bound", since(61))]), (2, 4), "whoever deletes a Node means it");
    }

    #[test]
    fn one_bad_node_is_never_many_and_a_tenth_of_them_is_not() {
        let are_many = |bad, all| NodeTally { bad, all }.are_many(10);
        assert!(!are_many(1, 1) && !are_many(1, 3) && are_many(2, 3));
        assert!(!are_many(10, 100) && are_many(11, 100));
        assert!(NodeTally { bad: 2, all: 100 }.are_many(0));
    }

    #[test]
    fn the_interval_begins_with_the_later_one_of_the_first_mark_and_this_loss() {
        let since = |first: i64, lost: i64| {
            let [first, lost] = [first, lost].map(|minutes| minutes_ago(minutes).to_string());
            let marks =
                json!({"HostPathNotExist": "yes", "FirstMarkTime": first, "localpool.dev/unusable-since": lost});
            let view = View { persistent: vec![path("v", "x", "Bound", marks)], ..View::default() };
            marked_volumes(&view, &[], now())[0].lost_since
        };
        assert_eq!(since(60, 4), Some(minutes_ago(4)), "the first mark was about something else");
        assert_eq!(since(4, 60), Some(minutes_ago(4)), "a person has set the first mark forward");
    }

    #[test]
    fn a_volume_of_a_deleted_node_keeps_its_name() {
        let view = View { persistent: vec![path("v", "x", "Bound", gone_since(5))], ..View::default() };
        let marked = marked_volumes(&view, &[], now());
        assert_eq!((marked[0].node.clone(), marked[0].home), (NodeName::from("x"), HomeState::Gone));
        assert_eq!(marked[0].lost_since, Some(minutes_ago(5)));
    }
}
