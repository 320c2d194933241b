//! What the monitor and the reaction know of the cluster, at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;

use crate::api::crd::{DevicePool, PoolVolume};
use crate::device::NodeName;
use crate::operator::api_server::store::Store;
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::stores::Stores;
use crate::volume::VolumeId;

/// What the controller knows of the cluster.
#[derive(Debug, Default)]
pub struct View {
    pub persistent: Vec<Arc<PersistentVolume>>,
    pub volumes: BTreeMap<VolumeId, Arc<PoolVolume>>,
    /// PoolVolumes that exist and cannot be read.
    pub unread: BTreeSet<VolumeId>,
    pub nodes: Vec<Arc<Node>>,
    pub pools: Vec<Arc<DevicePool>>,
}

impl View {
    pub fn nodes_by_name(&self) -> BTreeMap<NodeName, &Node> {
        self.nodes.iter().map(|node| (node.name_any().into(), node.as_ref())).collect()
    }

    pub fn pools_by_node(&self) -> BTreeMap<NodeName, &DevicePool> {
        self.pools.iter().map(|pool| (pool.node(), pool.as_ref())).collect()
    }

    pub fn of(stores: &Stores, persistent: &Store<PersistentVolume>) -> Self {
        let id = |name: &str| name.parse::<VolumeId>().ok();
        let volumes = stores.volumes.all().into_iter();
        let volumes: BTreeMap<_, _> = volumes.filter_map(|volume| Some((id(&volume.name_any())?, volume))).collect();
        let persistent = persistent.all();
        let absent = persistent.iter().filter_map(|volume| volume.own().filter(|id| !volumes.contains_key(id)));
        let unread = absent.filter(|id| stores.volumes.unread(&id.to_string()).is_some()).collect();
        Self { persistent, volumes, unread, nodes: stores.nodes.all(), pools: stores.pools.all() }
    }
}
