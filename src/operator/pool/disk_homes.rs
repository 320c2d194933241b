//! Which node has a disk, as all DevicePools say. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::crd::{DevicePool, DiskState, PoolVolume};
use crate::device::{DiskId, NodeName, may_be_hardware};

/// The nodes that have each disk now. A disk that is away is nobody's.
pub struct DiskHomes<'p>(BTreeMap<&'p DiskId, Vec<NodeName>>);

impl<'p> DiskHomes<'p> {
    pub fn of(pools: &'p [Arc<DevicePool>]) -> Self {
        let mut homes: BTreeMap<&DiskId, Vec<NodeName>> = BTreeMap::new();
        for pool in pools {
            let disks = pool.status.iter().flat_map(|status| &status.disks);
            for disk in disks.filter(|disk| disk.state != DiskState::Missing) {
                homes.entry(&disk.id).or_default().push(pool.node());
            }
        }
        Self(homes)
    }

    /// Another node than that of the volume which has its disk.
    pub fn elsewhere(&self, volume: &PoolVolume) -> Option<&NodeName> {
        let disk = volume.status.as_ref()?.disk.as_ref()?;
        // The name of hardware is one that another machine may give to another disk.
        let nodes = self.0.get(disk).filter(|_| !may_be_hardware(disk.as_str()))?;
        nodes.iter().find(|node| **node != volume.spec.node)
    }
}
