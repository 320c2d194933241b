//! Which node has a disk, as all DevicePools say. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::agent_life::silence;
use crate::api::crd::{DevicePool, DiskState, PoolVolume};
use crate::device::{DiskId, NodeName, may_be_hardware};

/// The nodes that have each disk now. A disk that is away is nobody's, and what a silent agent said last is no news:
/// its node may be dead, and its disk in another one.
pub struct DiskHomes<'p>(BTreeMap<&'p DiskId, Vec<NodeName>>);

impl<'p> DiskHomes<'p> {
    pub fn of(pools: &'p [Arc<DevicePool>]) -> Self {
        Self::in_pools(pools.iter().filter(|pool| silence(pool).is_none()))
    }

    /// The same with what silent agents said last: whoever deletes something has to believe that a disk may be there.
    pub fn as_last_said(pools: &'p [Arc<DevicePool>]) -> Self {
        Self::in_pools(pools)
    }

    fn in_pools(pools: impl IntoIterator<Item = &'p Arc<DevicePool>>) -> Self {
        let mut homes: BTreeMap<&DiskId, Vec<NodeName>> = BTreeMap::new();
        for pool in pools {
            let disks = pool.status.iter().flat_map(|status| &status.disks);
            for disk in disks.filter(|disk| disk.state != DiskState::Missing) {
                homes.entry(&disk.id).or_default().push(pool.node());
            }
        }
        Self(homes)
    }

    /// Another node which has the disk of the volume, while its own has not.
    pub fn elsewhere(&self, volume: &PoolVolume) -> Option<&NodeName> {
        let nodes = self.nodes(volume)?;
        if nodes.contains(&volume.spec.node) {
            return None;
        }
        nodes.first()
    }

    /// Whether a node other than its own has the disk of the volume, whatever its own has.
    pub fn is_with_another(&self, volume: &PoolVolume) -> bool {
        self.nodes(volume).is_some_and(|nodes| nodes.iter().any(|node| *node != volume.spec.node))
    }

    fn nodes(&self, volume: &PoolVolume) -> Option<&[NodeName]> {
        let disk = volume.status.as_ref()?.disk.as_ref()?;
        // The name of hardware is one that another machine may give to another disk.
        self.0.get(disk).filter(|_| !may_be_hardware(disk.as_str())).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::crd::Phase;
    use crate::operator::volume::sample::{in_phase, pool, status_condition};

    const DISK: &str = "gpt-1";

    /// A node that has the disk, as its DevicePool says.
    fn with_disk(node: &str, state: DiskState, ready: &str) -> Arc<DevicePool> {
        let mut pool = pool(node, [0; 3]);
        let status = pool.status.as_mut().expect("set");
        let disk = json!({
            "id": DISK, "path": "/dev/sda", "layout": "Carved", "set": "d/s", "size": 1, "free": 1, "volumes": 1, "state": state,
        });
        status.disks = vec![serde_json::from_value(disk).expect("a disk")];
        status.conditions = vec![status_condition("Ready", ready, "", "")];
        Arc::new(pool)
    }

    fn volume(node: &str) -> PoolVolume {
        let mut volume = in_phase(Phase::Ready);
        volume.spec.node = node.into();
        volume.status.as_mut().expect("set").disk = Some(DiskId::named(DISK));
        volume
    }

    fn elsewhere(pools: &[Arc<DevicePool>], node: &str) -> Option<String> {
        DiskHomes::of(pools).elsewhere(&volume(node)).map(ToString::to_string)
    }

    #[test]
    fn a_disk_is_elsewhere_only_if_a_living_node_has_it_and_that_of_the_volume_has_not() {
        use DiskState::{Missing, Ready};
        let b = with_disk("b", Ready, "True");
        let dead = [with_disk("a", Ready, "Unknown"), Arc::clone(&b)];
        assert_eq!(elsewhere(&dead, "b"), None, "what a dead node said last is no conflict");
        assert_eq!(elsewhere(&dead, "a"), Some("b".to_owned()));
        let moved = [with_disk("a", Missing, "True"), Arc::clone(&b)];
        assert_eq!(elsewhere(&moved, "a"), Some("b".to_owned()));
        let both = [with_disk("a", Ready, "True"), b];
        assert_eq!([elsewhere(&both, "a"), elsewhere(&both, "b")], [None, None], "each node has it");
        let silent = [with_disk("a", Ready, "Unknown"), with_disk("b", Missing, "True")];
        assert_eq!(elsewhere(&silent, "b"), None, "nobody knows where it is");
    }

    #[test]
    fn a_disk_may_be_with_another_node_that_had_it_before_it_was_silent() {
        let of = |pools: &[Arc<DevicePool>]| DiskHomes::as_last_said(pools).is_with_another(&volume("a"));
        let [gone, here] = [DiskState::Missing, DiskState::Ready].map(|state| with_disk("a", state, "True"));
        let [silent, last] = [DiskState::Ready, DiskState::Missing].map(|state| with_disk("b", state, "Unknown"));
        assert!(of(&[gone.clone(), silent.clone()]));
        assert!(of(&[silent]), "its own node has no pool any more");
        assert!(!of(&[gone.clone(), last]), "it has left that one as well");
        assert!(!of(&[gone]) && !of(&[here]));
    }
}
