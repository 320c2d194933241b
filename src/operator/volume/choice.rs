//! Which node is asked for a volume, or why none can serve it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt as _;
use tokio::time::Instant;

use super::controller::ClusterVolumes;
use super::modes::Modes;
use super::offered::Candidate;
use super::{modes, node_capacity, offered};
use crate::claim::Rule;
use crate::operator::controller::caches::Caches;
use crate::volume::{Capacity, Error, Nodes, Selector, VolumeRequest, WantedUsage};

impl ClusterVolumes {
    pub(super) fn choose(&self, wanted: &VolumeRequest, tried: &[String]) -> Result<String, Error> {
        let candidates = self.offered(&wanted.selector, Some(wanted.usage))?;
        let modes = self.modes(wanted, &candidates);
        if let Some(node) = modes.refused(&wanted.nodes) {
            // Only if the scheduler may have chosen the node.
            if wanted.nodes != Nodes::Any {
                self.in_vain.note(&wanted.selector, node, wanted.usage, Instant::now());
            }
            return Err(modes.refusal(node, wanted));
        }
        let named = match &wanted.nodes {
            Nodes::Preferred(nodes) | Nodes::AnyOf(nodes) => Some(nodes.as_slice()),
            Nodes::Any => None,
        };
        let mut rooms = self.rooms(named, &wanted.selector, Some(wanted.usage));
        rooms.retain(|node, _| !modes.bars(node));
        node_capacity::choose(wanted, &rooms, |node| self.node_exists(node), tried)
    }

    /// The room of the named nodes, or of all.
    pub(super) fn rooms(
        &self,
        named: Option<&[String]>,
        selector: &Selector,
        usage: Option<WantedUsage>,
    ) -> BTreeMap<String, Capacity> {
        let (pools, promised) = match named {
            None => (self.caches.pools.all(), self.caches.volumes.all_groups()),
            Some(named) => {
                let named: BTreeSet<&String> = named.iter().collect();
                let pools = named.iter().filter_map(|node| self.caches.pools.get(node)).collect();
                (pools, named.iter().flat_map(|node| self.caches.volumes.group(node)).collect())
            }
        };
        node_capacity::rooms(borrowed(&pools), borrowed(&promised), selector, usage)
    }

    pub(super) fn modes(&self, wanted: &VolumeRequest, candidates: &[Candidate]) -> Modes {
        let rules: Vec<&Rule> = candidates.iter().flat_map(|candidate| candidate.rules(&wanted.selector)).collect();
        let mut pools = self.caches.pools.all();
        pools.retain(|pool| self.node_exists(&pool.name_any()));
        modes::modes(&wanted.selector, wanted.usage, &rules, borrowed(&pools))
    }

    /// The sets and LocalVolumes that the request means, or why none can serve it on any node.
    pub(super) fn offered(&self, selector: &Selector, usage: Option<WantedUsage>) -> Result<Vec<Candidate>, Error> {
        // A request that names neither class nor set is served by any.
        if *selector == Selector::default() {
            return Ok(Vec::new());
        }
        let Caches { sets, local_volumes, read_sets, read_volumes, .. } = &self.caches;
        let (all_sets, all_volumes) = (sets.all(), local_volumes.all());
        let mut candidates = offered::candidates(selector, &all_sets, read_sets.of_any_node(&all_sets));
        candidates.extend(offered::candidates(selector, &all_volumes, read_volumes.of_any_node(&all_volumes)));
        match offered::rules(selector, &candidates) {
            Ok(rules) => usage.map_or(Ok(()), |usage| offered::allows(selector, &rules, usage))?,
            // It may be a LocalVolume that is not read yet.
            Err(_) if candidates.is_empty() && !local_volumes.is_synced() => {}
            Err(error) => return Err(error),
        }
        Ok(candidates)
    }
}

fn borrowed<K>(objects: &[Arc<K>]) -> impl Iterator<Item = &K> {
    objects.iter().map(Arc::as_ref)
}
