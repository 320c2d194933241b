//! What follows for PoolVolumes from the PersistentVolumes that name them, or do not: which claim has a volume, that
//! nobody has it, and whether the order of a person can be carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use super::unclaimed::{self, Naming};
use super::view::View;
use crate::api::crd::{
    CLAIM_ANNOTATION, CLAIM_UID_ANNOTATION, Intent, PERSISTENT_VOLUME_ANNOTATION, Phase, PoolVolume, VolumeOrder,
};
use crate::device::NodeName;
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::pool_volume::{NodeObject, is_unclaimed, phase};
use crate::operator::status::steady::{Lasting, Steady};
use crate::operator::volume::order::{self, OrderFacts, OrderProgress};
use crate::volume::VolumeId;

/// How many orders one pass carries out: each reads all PersistentVolumes, and marks wait for the end of the pass.
const AT_ONCE: usize = 4;

/// What is done about a PoolVolume.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeChange {
    /// All of its conditions.
    Conditions(Vec<Condition>),
    /// What PersistentVolumes say of it, as annotations. `None`: one goes.
    Annotations(BTreeMap<&'static str, Option<String>>),
    CarryOut(VolumeOrder),
}

/// All changes, and what is counted.
#[derive(Debug, Default)]
pub struct VolumePlan {
    pub changes: Vec<(Arc<PoolVolume>, VolumeChange)>,
    /// How many volumes no PersistentVolume has named for a while.
    pub unclaimed: i64,
    /// After this time there may be more.
    pub due: Option<SignedDuration>,
}

/// Remembers since when volumes are unclaimed.
#[derive(Debug)]
pub struct VolumePlanner(Steady<VolumeId, ()>);

impl VolumePlanner {
    pub fn new(grace: SignedDuration) -> Self {
        Self(Steady::new(grace))
    }

    pub fn plan(&mut self, view: &View, monotonic: SignedDuration) -> VolumePlan {
        let mut named: BTreeMap<VolumeId, Vec<&PersistentVolume>> = BTreeMap::new();
        for (id, persistent) in view.persistent.iter().filter_map(|volume| Some((volume.own()?, volume))) {
            named.entry(id).or_default().push(persistent);
        }
        let nodes: BTreeSet<NodeName> = view.nodes.iter().map(|node| node.name_any().into()).collect();
        let needs_one = |id: &VolumeId, volume: &PoolVolume| unclaimed::needs_claim(volume) && !named.contains_key(id);
        self.0.keep(|id| view.volumes.get(id).is_some_and(|volume| needs_one(id, volume)));
        let (mut plan, mut carried_out) = (VolumePlan::default(), 0);
        for (id, volume) in &view.volumes {
            let is_unclaimed = needs_one(id, volume)
                && match self.0.observe(id, (), SignedDuration::ZERO, monotonic) {
                    Lasting::Yes(()) => true,
                    // What an earlier leader has written stays.
                    Lasting::In(wait) => {
                        plan.due = plan.due.into_iter().chain([wait]).min();
                        is_unclaimed(volume)
                    }
                };
            plan.unclaimed += i64::from(is_unclaimed);
            let named = named.get(id).map_or(&[][..], Vec::as_slice);
            let name = named.last().map(|persistent| persistent.name_any());
            let facts = OrderFacts {
                persistent_volume: name.as_deref(),
                unclaimed: is_unclaimed,
                node: NodeObject::of(nodes.get(&volume.spec.node)),
                refused: order::is_refused(volume),
            };
            let mut changes = changes(volume, *id, named, facts);
            carried_out += changes.iter().filter(|change| matches!(change, VolumeChange::CarryOut(_))).count();
            if carried_out > AT_ONCE {
                changes.retain(|change| !matches!(change, VolumeChange::CarryOut(_)));
                plan.due = plan.due.into_iter().chain([SignedDuration::from_secs(1)]).min();
            }
            plan.changes.extend(changes.into_iter().map(|change| (Arc::clone(volume), change)));
        }
        plan
    }
}

fn changes(
    volume: &PoolVolume,
    id: VolumeId,
    named_by: &[&PersistentVolume],
    facts: OrderFacts<'_>,
) -> Vec<VolumeChange> {
    let before = volume.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
    let progress = volume.spec.order.map(|order| (order, order::progress(volume, order, facts)));
    let naming = if facts.unclaimed { Naming::Unclaimed } else { Naming::Named };
    let claimed = unclaimed::conditions(volume, naming);
    let ordered = order::conditions(
        claimed.as_deref().unwrap_or(before),
        progress.as_ref().map(|(_, progress)| progress),
        volume.metadata.generation,
    );
    let conditions = ordered.or(claimed).map(VolumeChange::Conditions);
    let annotations = annotations(volume, id, named_by);
    let annotations = (!annotations.is_empty()).then_some(VolumeChange::Annotations(annotations));
    let due = progress.filter(|(_, progress)| *progress == OrderProgress::Due);
    let carry_out = due.map(|(order, _)| VolumeChange::CarryOut(order));
    annotations.into_iter().chain(conditions).chain(carry_out).collect()
}

/// Those that differ.
fn annotations(
    volume: &PoolVolume,
    id: VolumeId,
    named_by: &[&PersistentVolume],
) -> BTreeMap<&'static str, Option<String>> {
    let bound = named_by.last().and_then(|persistent| Some((persistent.bound_to()?, *persistent)));
    let uid = bound.as_ref().and_then(|(_, persistent)| persistent.pvc.as_ref()?.uid.clone());
    // The claim that had it last stays known.
    let claim = bound.map(|(claim, _)| claim).or_else(|| volume.claim().map(str::to_owned));
    let mut wanted = BTreeMap::from([(CLAIM_ANNOTATION, claim)]);
    // What is being erased has no more Events of its claim.
    if uid.is_some() || (volume.spec.intent == Intent::Keep && volume.metadata.deletion_timestamp.is_none()) {
        wanted.insert(CLAIM_UID_ANNOTATION, uid.map(|uid| uid.to_string()));
    }
    if phase(volume) == Phase::Found {
        let naming = named_by.iter().find(|persistent| persistent.names(id, &volume.spec.node));
        wanted.insert(PERSISTENT_VOLUME_ANNOTATION, naming.map(|persistent| persistent.name_any()));
    }
    wanted.retain(|key, value| volume.annotation(key) != value.as_deref());
    wanted
}
