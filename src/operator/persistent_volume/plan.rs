//! Which PersistentVolumes are marked, and which marks go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;

use super::home::{Home, NodeIndex};
use super::judgement::{Judgement, PromisedSize, Reported, Watcher, judge};
use super::marks::{self, MarkChange};
use super::reserve::{Marking, Reservation, ReservePolicy};
use super::view::View;
use super::volume_plan::{VolumePlan, VolumePlanner};
use super::watch_list::{self, WatchList};
use crate::api::crd::{DevicePool, PoolVolume, WatchedVolume};
use crate::device::NodeName;
use crate::health::HealthReason;
use crate::operator::api_server::object_key::Uid;
use crate::operator::kube_volume::{Backing, PersistentVolume};
use crate::operator::node::kube_node;
use crate::operator::node::ready::{NodeReadiness, readiness};
use crate::operator::pool::agent_life::silence;
use crate::operator::status::steady::{Lasting, Steady};
use crate::volume::VolumeId;

/// The time, by the wall and by a clock that does not jump.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub wall: Timestamp,
    pub monotonic: SignedDuration,
}

/// What is to be written.
#[derive(Debug, Default)]
pub struct MarkPlan {
    pub changes: Vec<(Arc<PersistentVolume>, MarkChange)>,
    /// Those that nobody can bind from now on, and those that somebody can bind again.
    pub reservations: Vec<(Arc<PersistentVolume>, Reservation)>,
    /// What the agents of these nodes look at from now on.
    pub watch_lists: Vec<(Arc<DevicePool>, WatchList)>,
    /// How many local PersistentVolumes no agent looks at: the list of their node is full, it has no agent, or their
    /// affinity selects not one node.
    pub unwatched: i64,
    /// What is done about PoolVolumes.
    pub volumes: VolumePlan,
    /// How many local PersistentVolumes of other provisioners each reason holds for, and how many of this driver
    /// promise more than their volume has: their PoolVolumes do not say so.
    pub marked: BTreeMap<HealthReason, i64>,
    /// After this time there may be more, even if nothing changes.
    pub due: Option<SignedDuration>,
}

/// Plans, and remembers since when nodes and volumes are as they are.
#[derive(Debug)]
pub struct Planner {
    nodes: Steady<NodeName, NodeReadiness>,
    absent: Steady<VolumeId, ()>,
    /// Those whose PersistentVolume promises more than they have.
    above: Steady<VolumeId, ()>,
    volumes: VolumePlanner,
    reserve: ReservePolicy,
}

/// What one pass has seen, besides what it plans.
#[derive(Debug, Default)]
struct PassFacts {
    homes: BTreeSet<NodeName>,
    absent: BTreeSet<VolumeId>,
    above: BTreeSet<VolumeId>,
    /// What the agent of each node looks at.
    lists: BTreeMap<NodeName, Vec<WatchedVolume>>,
}

impl Planner {
    /// A node or a volume that changed counts after the grace, and a volume that no PersistentVolume names after ten
    /// times that.
    pub fn new(grace: SignedDuration, reserve: ReservePolicy) -> Self {
        let volumes = VolumePlanner::new(grace * 10);
        Self { nodes: Steady::new(grace), absent: Steady::new(grace), above: Steady::new(grace), volumes, reserve }
    }

    pub fn plan(&mut self, view: &View, now: Now) -> MarkPlan {
        let index = NodeIndex::of(&view.nodes);
        let by_name = view.nodes_by_name();
        let pools = view.pools_by_node();
        let (mut plan, mut facts) = (MarkPlan::default(), PassFacts::default());
        for persistent in &view.persistent {
            let Some(backing) = persistent.backing() else { continue };
            let is_path = matches!(backing, Backing::Path(_));
            let volume = match backing {
                Backing::Volume(id) => view.volumes.get(id).map(Arc::as_ref),
                Backing::Path(_) => None,
            };
            let found = index.home_of(persistent, volume);
            let pool = found.name().and_then(|home| pools.get(home).copied());
            // The volumes of a deleted Node are marked for that.
            plan.unwatched += i64::from(is_path && pool.is_none() && !matches!(found, Home::Gone(_)));
            let (Home::Node(home) | Home::Gone(home)) = found else { continue };
            let node = self.node(&home, by_name.get(&home).copied(), now);
            let (reported, watcher, promise) = match (backing, pool) {
                (Backing::Volume(id), _) => {
                    let (reported, promise) = self.of_volume(persistent, *id, volume, view, &mut facts, now);
                    (reported, Watcher::InReport, promise)
                }
                (Backing::Path(path), Some(pool)) => {
                    let entry = watch_list::entry(persistent, path, pool);
                    facts.lists.entry(home.clone()).or_default().push(entry);
                    (of_path(persistent, pool), watcher(pool), PromisedSize::Fits)
                }
                (Backing::Path(_), None) => (Reported::NotYet, Watcher::InReport, PromisedSize::Fits),
            };
            facts.homes.insert(home);
            let judgement = judge(node, reported, watcher, promise, &marks::present(persistent.annotations()));
            plan.take(persistent, backing, &judgement, now.wall);
            if promise == PromisedSize::Above(Lasting::Yes(())) {
                plan.count(&HealthReason::MisMatchedVolSize);
            }
            if is_path {
                judgement.reasons.iter().filter(|reason| reason.marks()).for_each(|reason| plan.count(reason));
            }
            let is_marked = judgement.reasons.iter().any(HealthReason::marks);
            let marking = if is_marked { Marking::Marked } else { Marking::Unmarked };
            let reservation = self.reserve.decide(persistent, marking);
            plan.reservations.extend(reservation.map(|reservation| (Arc::clone(persistent), reservation)));
        }
        let PassFacts { homes, absent, above, lists } = facts;
        plan.watch(&view.pools, lists);
        plan.volumes = self.volumes.plan(view, now.monotonic);
        plan.due = plan.due.into_iter().chain(plan.volumes.due).min();
        self.nodes.keep(|node| homes.contains(node));
        self.absent.keep(|id| absent.contains(id));
        self.above.keep(|id| above.contains(id));
        plan
    }

    /// What is known of a volume of this driver, and whether its PersistentVolume promises more than it has.
    fn of_volume<'v>(
        &mut self,
        persistent: &PersistentVolume,
        id: VolumeId,
        volume: Option<&'v PoolVolume>,
        view: &View,
        facts: &mut PassFacts,
        now: Now,
    ) -> (Reported<'v>, PromisedSize) {
        match volume {
            Some(volume) if is_above(persistent, volume) => {
                facts.above.insert(id);
                let lasting = self.above.observe(&id, (), SignedDuration::ZERO, now.monotonic);
                (of_status(volume), PromisedSize::Above(lasting))
            }
            Some(volume) => (of_status(volume), PromisedSize::Fits),
            None if is_in_use(persistent) && !view.unread.contains(&id) => {
                facts.absent.insert(id);
                let lasting = self.absent.observe(&id, (), SignedDuration::ZERO, now.monotonic);
                (Reported::Absent(lasting), PromisedSize::Fits)
            }
            None => (Reported::NotYet, PromisedSize::Fits),
        }
    }

    fn node(&mut self, name: &NodeName, node: Option<&Node>, now: Now) -> Lasting<NodeReadiness> {
        let since = node.and_then(kube_node::ready_since);
        let already = since.map_or(SignedDuration::ZERO, |since| now.wall.duration_since(since));
        self.nodes.observe(name, readiness(node), already, now.monotonic)
    }
}

impl MarkPlan {
    fn count(&mut self, reason: &HealthReason) {
        *self.marked.entry(reason.clone()).or_default() += 1;
    }

    fn watch(&mut self, pools: &[Arc<DevicePool>], mut lists: BTreeMap<NodeName, Vec<WatchedVolume>>) {
        for pool in pools {
            let list = WatchList::of(lists.remove(&pool.node()).unwrap_or_default());
            self.unwatched += list.omitted;
            if WatchList::in_spec(pool) != list {
                self.watch_lists.push((Arc::clone(pool), list));
            }
        }
    }

    fn take(&mut self, volume: &Arc<PersistentVolume>, backing: &Backing, judgement: &Judgement, wall: Timestamp) {
        self.due = self.due.into_iter().chain(judgement.due).min();
        // The time of a loss begins when no other node has the disk any more, which may be on its way.
        let losses = |all: &BTreeSet<HealthReason>| match all.contains(&HealthReason::DiskElsewhere) {
            true => BTreeSet::new(),
            false => backing.losses(all),
        };
        if let Some(change) = marks::change(volume.annotations(), &judgement.reasons, losses, wall) {
            self.changes.push((Arc::clone(volume), change));
        }
    }
}

fn of_status(volume: &PoolVolume) -> Reported<'_> {
    volume.status.as_ref().map_or(Reported::NotYet, |status| Reported::Entries(&status.health))
}

/// Whether a PersistentVolume of this driver promises more than its volume has, as one that a person made by hand may.
fn is_above(persistent: &PersistentVolume, volume: &PoolVolume) -> bool {
    let size = volume.status.as_ref().and_then(|status| status.size);
    size.is_some_and(|size| persistent.capacity > size)
}

/// What the agent found at the path of a PersistentVolume.
fn of_path<'a>(volume: &PersistentVolume, pool: &'a DevicePool) -> Reported<'a> {
    let mut found = pool.status.iter().flat_map(|status| &status.persistent_volumes);
    let uid = Uid::of(volume);
    let found = found.find(|found| uid.as_ref().is_some_and(|uid| *uid == *found.uid));
    found.map_or(Reported::NotYet, |found| Reported::Entries(&found.health))
}

/// The controller says in the DevicePool that the agent is silent. What is wrong with the node is known here.
fn watcher(pool: &DevicePool) -> Watcher {
    let is_silent = silence(pool).is_some_and(|ready| ready.reason == HealthReason::AgentSilent.word());
    if is_silent { Watcher::Silent } else { Watcher::Answers }
}

/// Nobody deletes it: what is deleted goes from the disk before its PersistentVolume goes.
fn is_in_use(volume: &PersistentVolume) -> bool {
    volume.metadata.deletion_timestamp.is_none() && !volume.phase.is_released()
}

#[cfg(test)]
mod tests;
