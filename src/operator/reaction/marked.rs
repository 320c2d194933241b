//! The volumes that the reaction looks at, as far as watches know them: those that are lost where they are, and those
//! that have a record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;

use super::record::{self, ReactionRecord};
use super::settings::{LABEL, LABEL_VALUE, PAUSE};
use crate::api::crd::DevicePool;
use crate::device::NodeName;
use crate::health::HealthReason;
use crate::operator::node_ready::{NodeReadiness, readiness};
use crate::operator::persistent_volume::home::{Home, NodeIndex};
use crate::operator::persistent_volume::marks;
use crate::operator::persistent_volume::object::{Backing, backing};
use crate::operator::persistent_volume::view::View;
use crate::operator::pool::agent_life::silence;

/// A person, or a machine, vouches that the node is off: nothing on it writes any more.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

#[derive(Clone, Debug)]
pub struct MarkedVolume {
    pub uid: String,
    pub volume: Arc<PersistentVolume>,
    pub backing: Backing,
    /// The name of its node, which it may have left.
    pub node: NodeName,
    pub home: HomeState,
    /// The marks that say that it is lost.
    pub losses: BTreeSet<HealthReason>,
    /// Since when they are as they are; `None`: not written yet.
    pub lost_since: Option<Timestamp>,
    /// It, its StorageClass and so on may say more.
    pub is_paused: bool,
    pub class: ClassFacts,
    pub record: Option<Result<ReactionRecord, String>>,
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
    pub fn phase(&self) -> &str {
        self.volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
    }

    pub fn is_bound(&self) -> bool {
        self.phase() == "Bound"
    }
}

/// All of them, in the order of the view.
pub fn marked_volumes(view: &View, classes: &[Arc<StorageClass>], now: Timestamp) -> Vec<MarkedVolume> {
    let index = NodeIndex::of(&view.nodes);
    let nodes: BTreeMap<NodeName, &Node> =
        view.nodes.iter().map(|node| (node.name_any().into(), node.as_ref())).collect();
    let pools: BTreeMap<NodeName, &DevicePool> = view.pools.iter().map(|pool| (pool.node(), pool.as_ref())).collect();
    let classes: BTreeMap<String, ClassFacts> =
        classes.iter().map(|class| (class.name_any(), class_facts(class))).collect();
    let mut all = Vec::new();
    for volume in &view.persistent {
        let Some((backing, losses)) = backing(volume).map(|backing| {
            let losses = marks::present(volume.annotations()).into_iter().filter(|reason| backing.is_lost_by(reason));
            (backing.clone(), losses.collect::<BTreeSet<HealthReason>>())
        }) else {
            continue;
        };
        let record = record::under_way(volume).map(|read| read.map_err(|why| why.to_string()));
        let reacted = record::reacted(volume);
        if losses.is_empty() && record.is_none() && reacted.is_none() {
            continue;
        }
        let own = match &backing {
            Backing::Volume(id) => view.volumes.get(id),
            Backing::Path(_) => None,
        };
        let (Home::Node(node) | Home::Gone(node)) = index.home_of(volume, own.map(Arc::as_ref)) else { continue };
        let class = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
        all.push(MarkedVolume {
            uid: volume.uid().unwrap_or_default(),
            volume: Arc::clone(volume),
            home: home_state(nodes.get(&node).copied(), pools.get(&node).copied()),
            node,
            lost_since: lost_since(volume, now),
            is_paused: volume.annotations().contains_key(PAUSE),
            class: class.and_then(|class| classes.get(class)).copied().unwrap_or_default(),
            backing,
            losses,
            record,
            reacted,
        });
    }
    all
}

/// The later of the first mark, which a person can set forward, and of this loss.
fn lost_since(volume: &PersistentVolume, now: Timestamp) -> Option<Timestamp> {
    let time = |key| marks::time(volume.annotations(), key, now);
    Some(time(marks::FIRST_MARK_TIME)?.max(time(marks::UNUSABLE_SINCE)?))
}

fn class_facts(class: &StorageClass) -> ClassFacts {
    ClassFacts {
        is_chosen: class.labels().get(LABEL).is_some_and(|value| value == LABEL_VALUE),
        is_immediate: class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer"),
    }
}

/// Of a node without a DevicePool nobody says that its agent answers.
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
