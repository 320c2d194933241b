//! All that the page can show, of objects. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::node_card::NodeCard;
use super::set_row::SetRow;
use super::volume_table::PageVolume;
use crate::api::crd::{CLAIM_UID_ANNOTATION, DevicePool, Intent, PoolVolume};
use crate::api::quantity;
use crate::device::{DiskId, NodeName};
use crate::operator::overview::node_summary::{ClusterCase, NodeSummary, ReplicaStatus};
use crate::operator::overview::problems::ClusterProblem;
use crate::operator::overview::status::status_with;
use crate::operator::overview::volumes::{ClusterVolume, PodsOfPvc};

/// All that the page can show.
pub struct PageView {
    pub replica: String,
    pub is_synced: bool,
    /// Nobody answers for the API server: it is that of before.
    pub is_old: bool,
    /// The worst first, as all that follows.
    pub nodes: Vec<NodeCard>,
    pub problems: Vec<ClusterProblem>,
    pub sets: Vec<SetRow>,
    pub volumes: Vec<PageVolume>,
    /// Whether it is known which pods use them.
    pub has_pods: bool,
}

impl PageView {
    /// `pods` is `None` if they are not known.
    pub fn of(case: &ClusterCase, pods: Option<&PodsOfPvc>, replica: &str, is_synced: bool) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let this = ReplicaStatus {
            pod: replica.to_owned(),
            namespace: String::new(),
            ready: true,
            leader: false,
            version: Some(version.to_owned()),
        };
        let status = status_with(case, vec![this], version);
        let pools: BTreeMap<NodeName, &DevicePool> = case.pools.iter().map(|pool| (pool.node(), &**pool)).collect();
        let card = |summary: NodeSummary| {
            let pool = pools.get(&summary.node).copied();
            NodeCard::of(summary, pool)
        };
        let mut nodes: Vec<NodeCard> = status.nodes.into_iter().map(card).collect();
        nodes.sort_by_cached_key(NodeCard::order);
        let paths = paths(&case.pools);
        let row = |volume: ClusterVolume| {
            let disk = volume.disk.as_ref().and_then(|disk| paths.get(&(volume.node.clone(), disk.clone())));
            let disk = disk.map(|path| path.rsplit('/').next().unwrap_or(path).to_owned());
            PageVolume::of(volume, disk)
        };
        let nobody = PodsOfPvc::new();
        let users = |volume: &PoolVolume| pods?.get(bound_claim(volume)?);
        let volumes = case.volumes.iter().map(|volume| {
            let pods = users(volume).into_iter().flatten().cloned().collect();
            row(ClusterVolume { pods, ..ClusterVolume::of(volume, None, &nobody) })
        });
        let mut volumes: Vec<PageVolume> = volumes.collect();
        volumes.sort_by_cached_key(PageVolume::order);
        let of_pools = || case.pools.iter().map(|pool| &**pool);
        let mut sets: Vec<SetRow> = case.sets.iter().map(|set| SetRow::of_set(set, of_pools())).collect();
        sets.extend(case.local_volumes.iter().map(|set| SetRow::of_local_volume(set, of_pools())));
        sets.sort_by_cached_key(SetRow::order);
        let (replica, problems, has_pods) = (replica.to_owned(), status.problems, pods.is_some());
        Self { replica, is_synced, is_old: false, nodes, problems, sets, volumes, has_pods }
    }

    /// The number of disks, and what is free on all.
    pub fn totals(&self) -> (usize, String) {
        let free = self.nodes.iter().map(|card| card.summary.free).fold(0, u64::saturating_add);
        (self.nodes.iter().map(|card| card.disks.len()).sum(), quantity::short(free))
    }
}

/// The claim that is bound to it. One that had it last may be another one of its name by now, with another volume and pods that use
/// that one.
fn bound_claim(volume: &PoolVolume) -> Option<&str> {
    let is_bound = volume.spec.intent == Intent::Keep && volume.annotation(CLAIM_UID_ANNOTATION).is_some();
    volume.claim().filter(|_| is_bound)
}

/// Where each disk of a node is now.
fn paths(pools: &[Arc<DevicePool>]) -> BTreeMap<(NodeName, DiskId), &str> {
    let disks = pools.iter().flat_map(|pool| {
        let (node, all) = (pool.node(), pool.status.iter().flat_map(|status| &status.disks));
        all.map(move |disk| ((node.clone(), disk.id.clone()), disk.path.as_str()))
    });
    disks.collect()
}
