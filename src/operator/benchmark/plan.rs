//! What has to be written for all volumes: results into the ConfigMap of each namespace, requests into DevicePools, and the
//! status of each NodeDiskSetup. Pure but for the times of conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::ResourceExt as _;

use super::asked::{self, PodStart, Waiting};
use super::consent::{Consent, Consents};
use super::due::{Due, Unwritten};
use super::in_pod::{ExecRight, PodOf, PodsSeen, RunKey, WantedCommand};
use super::io_properties;
use super::result_map::ResultMap;
use super::setup_status::{SetupCounts, SetupFacts, status};
use crate::api::crd::{BenchmarkRequest, DevicePool, NodeDiskSetup, NodeDiskSetupStatus, PoolVolume};
use crate::api::{BenchmarkOptions, BenchmarkPlace};
use crate::device::{DiskId, NodeName, VolumeId};
use crate::operator::api_server::object_key::{ObjectName, Uid};
use crate::operator::disk_setup::own_set::{OwnSet, OwnSets};
use crate::operator::disk_setup::setups::{NodeSetup, Setups};
use crate::operator::kube_volume::{BindingPhase, PersistentVolume};
use crate::operator::node::kube_node;
use crate::operator::persistent_volume::view::View;
use crate::operator::status::second::to_second;

/// How many results with figures one ConfigMap holds. The API server takes 1 MiB, and notes on each key whose it is.
const FIGURES_AT_MOST: usize = 2500;
/// How soon to look again while a command is to run in a pod: nothing announces that its container runs.
const WHILE_IDLE: SignedDuration = SignedDuration::from_secs(5);
/// How soon to look again while an agent is to measure: nothing announces that one says nothing.
const WHILE_ASKED: SignedDuration = SignedDuration::from_secs(60);

/// What is known when a plan is made.
pub struct BenchmarkFacts<'a> {
    pub setups: &'a Setups,
    pub view: &'a View,
    pub consents: &'a Consents,
    pub maps: &'a [Arc<ConfigMap>],
    /// What is known of commands in pods.
    pub pods: &'a PodsSeen,
    /// The sets of NodeDiskSetups are some of these.
    pub sets: &'a OwnSets<'a>,
    /// The objects whose set could not be written, and why.
    pub unwritten: &'a BTreeMap<Uid<NodeDiskSetup>, String>,
    pub now: Timestamp,
}

/// What differs from what is there.
#[derive(Debug, Default)]
pub struct BenchmarkPlan {
    /// By namespace, with the object that is there.
    pub maps: Vec<(ObjectName<Namespace>, Option<Arc<ConfigMap>>, ResultMap)>,
    pub requests: Vec<(Arc<DevicePool>, Vec<BenchmarkRequest>)>,
    /// The commands that may begin in pods.
    pub starts: Vec<PodStart>,
    /// All that is asked, written or not.
    pub asked: BTreeSet<RunKey>,
    /// The sets that have to be made or changed, by place among the setups.
    pub sets: Vec<(usize, OwnSet)>,
    /// By place among the setups.
    pub statuses: Vec<(usize, NodeDiskSetupStatus)>,
    /// When to look again even if nothing changes.
    pub due: Option<SignedDuration>,
}

/// What the volumes of a cluster want, while they are gone through.
#[derive(Default)]
struct WantedResults<'a> {
    maps: BTreeMap<ObjectName<Namespace>, ResultMap>,
    /// Who waits for each disk.
    waiting: BTreeMap<NodeName, BTreeMap<DiskId, Waiting>>,
    counts: BTreeMap<usize, SetupCounts<'a>>,
    selected: BTreeMap<NodeName, NodeSetup<'a>>,
}

/// What all pools are asked.
#[derive(Default)]
struct AskedPools {
    requests: Vec<(Arc<DevicePool>, Vec<BenchmarkRequest>)>,
    starts: Vec<PodStart>,
    asked: BTreeSet<RunKey>,
}

/// One volume that is bound to a claim, or was.
struct ClaimedVolume<'a> {
    id: VolumeId,
    persistent: &'a PersistentVolume,
    uid: Uid<PersistentVolume>,
    namespace: ObjectName<Namespace>,
    volume: Option<&'a PoolVolume>,
    consent: Consent,
}

impl BenchmarkPlan {
    pub fn of(facts: &BenchmarkFacts<'_>) -> Self {
        let by_namespace: BTreeMap<ObjectName<Namespace>, &Arc<ConfigMap>> =
            facts.maps.iter().map(|map| (map.namespace().unwrap_or_default().into(), map)).collect();
        let found: BTreeMap<&ObjectName<Namespace>, ResultMap> =
            by_namespace.iter().map(|(namespace, map)| (namespace, ResultMap::of(map))).collect();
        let mut wanted = WantedResults::default();
        let (nodes, pools) = (facts.view.nodes_by_name(), facts.view.pools_by_node());
        wanted.select(facts, &pools);
        for claimed in facts.view.persistent.iter().filter_map(|persistent| claimed(persistent, facts)) {
            wanted.add(&claimed, found.get(&claimed.namespace), (&nodes, &pools), facts);
        }
        let AskedPools { requests, starts, asked } = wanted.asked(facts);
        let due = match (starts.is_empty(), asked.is_empty()) {
            (false, _) => Some(WHILE_IDLE),
            (true, false) => Some(WHILE_ASKED),
            (true, true) => None,
        };
        let all = 0..facts.setups.all().len();
        let states: Vec<OwnSet> = all.map(|place| facts.sets.state(facts.setups, place)).collect();
        let statuses = wanted.statuses(facts, &states);
        let is_written = |state: &OwnSet| matches!(state, OwnSet::Missing(_) | OwnSet::Differs(_));
        let sets = states.into_iter().enumerate().filter(|(_, state)| is_written(state)).collect();
        // One whose volumes are all gone has no key left.
        for namespace in found.keys() {
            wanted.maps.entry((*namespace).clone()).or_default();
        }
        let differing = wanted.maps.into_iter().filter(|(namespace, map)| match found.get(namespace) {
            Some(found) => !map.is_in(found),
            None => *map != ResultMap::default(),
        });
        let maps = differing.map(|(namespace, map)| {
            let seen = by_namespace.get(&namespace).map(|map| Arc::clone(map));
            (namespace, seen, map)
        });
        Self { maps: maps.collect(), requests, starts, asked, sets, statuses, due }
    }
}

/// `None`: not of this driver, or never bound.
fn claimed<'a>(persistent: &'a PersistentVolume, facts: &BenchmarkFacts<'a>) -> Option<ClaimedVolume<'a>> {
    let id = persistent.own()?;
    let (uid, namespace) = (Uid::of(persistent)?, persistent.pvc.as_ref()?.namespace.clone()?);
    let volume = facts.view.volumes.get(&id).map(Arc::as_ref);
    let consent = facts.consents.of_claim(persistent.pvc.as_ref());
    Some(ClaimedVolume { id, persistent, uid, namespace, volume, consent })
}

impl<'a> WantedResults<'a> {
    /// Which setup is for which node.
    fn select(&mut self, facts: &BenchmarkFacts<'a>, pools: &BTreeMap<NodeName, &'a DevicePool>) {
        for node in &facts.view.nodes {
            let named = kube_node::selectable(node);
            let mut selecting = facts.setups.selecting(&named);
            let Some(found) = selecting.next() else { continue };
            for younger in selecting {
                self.counts.entry(younger.place).or_default().of_older.insert(named.name.clone(), found.place);
            }
            let pool = pools.get(&named.name).copied();
            self.counts.entry(found.place).or_default().nodes.push((named.name.clone(), pool));
            self.selected.insert(named.name, found);
        }
    }

    fn add(
        &mut self,
        claimed: &ClaimedVolume<'_>,
        found: Option<&ResultMap>,
        (nodes, pools): (&BTreeMap<NodeName, &Node>, &BTreeMap<NodeName, &DevicePool>),
        facts: &BenchmarkFacts<'_>,
    ) {
        let now = facts.now;
        let ClaimedVolume { id, persistent, uid, namespace, volume, consent } = claimed;
        let written = found.and_then(|found| found.written.get(uid)).copied();
        let is_bound = persistent.phase == BindingPhase::Bound;
        let setup = volume.filter(|_| is_bound).and_then(|volume| self.selected.get(&volume.spec.node)).copied();
        if let Some(setup) = setup {
            let counts = self.counts.entry(setup.place).or_default();
            counts.volumes += 1;
            let right = facts.pods.right(namespace);
            if *consent == Consent::Given && right != ExecRight::Given {
                counts.without_right.insert(namespace.clone(), right);
            }
        }
        // What is there stays, whoever wrote it, and whatever it was written for. What nobody has noted is not ours.
        if let Some(value) = found.and_then(|found| found.values.get(uid)) {
            if let Some(written) = written {
                self.keep(namespace, uid, value.clone(), written);
            }
            return;
        }
        // Nobody has written that: by it, no benchmark would ever be a later one.
        let written = written.filter(|written| *written <= now);
        if let Some(written) = written {
            self.maps.entry(namespace.clone()).or_default().written.insert(uid.clone(), written);
        }
        let (Some(setup), Some(volume)) = (setup, volume) else { return };
        let node = &volume.spec.node;
        let Some(labels) = nodes.get(node).map(|node| node.labels()) else { return };
        let pool = pools.get(node).copied();
        let consent = *consent;
        match (Unwritten { persistent, volume, consent, setup, labels, pool, deleted: written, now }).due() {
            Due::Value { figures, of } => {
                let options = setup.setup.benchmark.as_ref();
                let text = figures.zip(options).and_then(|(figures, options)| {
                    io_properties::document(&options.mount_point, figures).filter(|_| self.has_room(namespace))
                });
                self.keep(namespace, uid, text.unwrap_or_default(), of);
            }
            Due::Benchmark(disk) => {
                self.counts.entry(setup.place).or_default().waiting += 1;
                self.add_pod(claimed, (node, &disk), setup, facts.pods);
                let waiting = self.waiting.entry(node.clone()).or_default().entry(disk).or_default();
                waiting.volumes.insert(*id);
            }
            Due::Later => self.counts.entry(setup.place).or_default().waiting += 1,
        }
    }

    fn keep(
        &mut self,
        namespace: &ObjectName<Namespace>,
        uid: &Uid<PersistentVolume>,
        value: String,
        written: Timestamp,
    ) {
        let map = self.maps.entry(namespace.clone()).or_default();
        map.values.insert(uid.clone(), value);
        map.written.insert(uid.clone(), to_second(written));
    }

    /// The pod of a volume that waits, if the command may run in it.
    fn add_pod(
        &mut self,
        claimed: &ClaimedVolume<'_>,
        disk: (&NodeName, &DiskId),
        setup: NodeSetup<'_>,
        pods: &PodsSeen,
    ) {
        let Some(BenchmarkOptions { mount_point, place: BenchmarkPlace::Pod(command), .. }) = &setup.setup.benchmark
        else {
            return;
        };
        let namespace = claimed.namespace.clone();
        if pods.right(&namespace) != ExecRight::Given {
            return;
        }
        let waiting = self.waiting.entry(disk.0.clone()).or_default().entry(disk.1.clone()).or_default();
        let claim = claimed.persistent.pvc.as_ref().and_then(|pvc| pvc.name.clone());
        let wanted = waiting.command.get_or_insert_with(|| WantedCommand {
            command: command.clone(),
            mount_point: mount_point.clone(),
            pods: Vec::new(),
        });
        wanted.pods.extend(claim.map(|claim| PodOf { namespace, claim }));
    }

    fn has_room(&self, namespace: &ObjectName<Namespace>) -> bool {
        let values = self.maps.get(namespace).map(|map| map.values.values());
        values.into_iter().flatten().filter(|value| !value.is_empty()).count() < FIGURES_AT_MOST
    }

    /// What each pool is asked, if that is not what its object says, and what may begin if it is.
    fn asked(&self, facts: &BenchmarkFacts<'_>) -> AskedPools {
        let mut all = AskedPools::default();
        let nobody = BTreeMap::new();
        for pool in &facts.view.pools {
            let waiting = self.waiting.get(&pool.node()).unwrap_or(&nobody);
            let requests = asked::requests(pool, waiting, facts.pods, facts.now);
            let key = |request: &BenchmarkRequest| (pool.node(), request.disk.clone(), request.requested.0);
            all.asked.extend(requests.iter().map(key));
            match requests == pool.spec.benchmarks {
                true => all.starts.extend(asked::start(pool, waiting, facts.pods)),
                false => all.requests.push((Arc::clone(pool), requests)),
            }
        }
        all
    }

    fn statuses(&self, facts: &BenchmarkFacts<'_>, states: &[OwnSet]) -> Vec<(usize, NodeDiskSetupStatus)> {
        let none = SetupCounts::default();
        let differs = |(place, set): (usize, &OwnSet)| {
            let setup = facts.setups.all().get(place)?;
            let counts = self.counts.get(&place).unwrap_or(&none);
            let status = status(&SetupFacts {
                setups: facts.setups,
                setup,
                name: facts.sets.name(&setup.object),
                set,
                counts,
                unwritten: Uid::of(&*setup.object).and_then(|uid| facts.unwritten.get(&uid)).map(String::as_str),
                pods: facts.pods,
            });
            (setup.object.status.as_ref() != Some(&status)).then_some((place, status))
        };
        states.iter().enumerate().filter_map(differs).collect()
    }
}

#[cfg(test)]
mod tests;
