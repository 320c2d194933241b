//! What follows for PoolVolumes from the PersistentVolumes that name them, or do not: which claim has a volume, that
//! nobody has it, and whether the order of a person can be carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use super::view::View;
use super::{object, unclaimed};
use crate::api::crd::{PoolVolume, VolumeOrder};
use crate::device::NodeName;
use crate::operator::pool_volume::{NodeObject, is_unclaimed};
use crate::operator::steady::{Lasting, Steady};
use crate::operator::volume::handle;
use crate::operator::volume::order::{self, OrderFacts, OrderProgress};
use crate::volume::VolumeId;

/// How many orders one pass carries out: each reads all PersistentVolumes, and marks wait for the end of the pass.
const AT_ONCE: usize = 4;

/// What is done about a PoolVolume.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeChange {
    /// All of its conditions.
    Conditions(Vec<Condition>),
    /// The claim that has it, `namespace/name`.
    Claim(String),
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
        let named: BTreeMap<VolumeId, &PersistentVolume> =
            view.persistent.iter().filter_map(|volume| Some((object::own(volume)?, volume.as_ref()))).collect();
        let nodes: BTreeSet<NodeName> = view.nodes.iter().map(|node| node.name_any().into()).collect();
        let needs_one = |id: &VolumeId, volume: &PoolVolume| unclaimed::needs_claim(volume) && !named.contains_key(id);
        self.0.keep(|id| view.volumes.get(id).is_some_and(|volume| needs_one(id, volume)));
        let (mut plan, mut carried_out) = (VolumePlan::default(), 0);
        for (id, volume) in &view.volumes {
            let is_unclaimed = needs_one(id, volume)
                && match self.0.look(id, (), SignedDuration::ZERO, monotonic) {
                    Lasting::Yes(()) => true,
                    // What an earlier leader has written stays.
                    Lasting::In(wait) => {
                        plan.due = plan.due.into_iter().chain([wait]).min();
                        is_unclaimed(volume)
                    }
                };
            plan.unclaimed += i64::from(is_unclaimed);
            let name = named.get(id).map(|persistent| persistent.name_any());
            let facts = OrderFacts {
                persistent_volume: name.as_deref(),
                unclaimed: is_unclaimed,
                node: NodeObject::of(nodes.get(&volume.spec.node)),
                refused: order::is_refused(volume),
            };
            let mut changes = changes(volume, named.get(id).copied(), facts);
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

fn changes(volume: &PoolVolume, named_by: Option<&PersistentVolume>, facts: OrderFacts<'_>) -> Vec<VolumeChange> {
    let before = volume.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
    let progress = volume.spec.order.map(|order| (order, order::progress(volume, order, facts)));
    let claimed = unclaimed::conditions(volume, facts.unclaimed);
    let ordered = order::conditions(
        claimed.as_deref().unwrap_or(before),
        progress.as_ref().map(|(_, progress)| progress),
        volume.metadata.generation,
    );
    let conditions = ordered.or(claimed).map(VolumeChange::Conditions);
    let claim = named_by.and_then(handle::bound_to).filter(|claim| volume.claim() != Some(claim));
    let due = progress.filter(|(_, progress)| *progress == OrderProgress::Due);
    let carry_out = due.map(|(order, _)| VolumeChange::CarryOut(order));
    claim.map(VolumeChange::Claim).into_iter().chain(conditions).chain(carry_out).collect()
}
