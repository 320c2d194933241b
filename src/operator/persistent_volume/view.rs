//! What the monitor knows of the cluster, at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolume};

use crate::api::crd::{DevicePool, PoolVolume};
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
