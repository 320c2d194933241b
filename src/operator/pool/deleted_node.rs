//! DevicePools whose Node was deleted: they are deleted a while later, when that node has no PoolVolume any more. Pure.
//!
//! A DevicePool stays if a person wrote something into its spec: the node may come back under its name.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::api::crd::{DevicePool, DevicePoolSpec};
use crate::device::NodeName;

/// When each pool was first seen without a Node and volumes.
#[derive(Debug, Default)]
pub struct UnusedPools(BTreeMap<NodeName, Timestamp>);

impl UnusedPools {
    /// The pools to delete now, and when the next one is due. `used` tells by name whether the Node or a PoolVolume of
    /// it exists.
    pub fn due(
        &mut self,
        pools: Vec<Arc<DevicePool>>,
        used: impl Fn(&NodeName) -> bool,
        age: SignedDuration,
        now: Timestamp,
    ) -> (Vec<Arc<DevicePool>>, Option<Timestamp>) {
        let mut unused = BTreeMap::new();
        let (mut due, mut next) = (Vec::new(), None);
        for pool in pools {
            let name = pool.node();
            // The controller writes the PersistentVolumes.
            let by_person = DevicePoolSpec { persistent_volumes: Vec::new(), ..pool.spec.clone() };
            if by_person != DevicePoolSpec::default() || used(&name) {
                continue;
            }
            let since = self.0.get(&name).copied().unwrap_or(now);
            match since.checked_add(age) {
                Ok(at) if at > now => next = Some(next.map_or(at, |next: Timestamp| next.min(at))),
                Ok(_) => due.push(pool),
                Err(_) => {}
            }
            unused.insert(name, since);
        }
        self.0 = unused;
        (due, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::crd::DiskChoice;
    use crate::device::DiskId;

    const AGE: SignedDuration = SignedDuration::from_mins(10);

    fn pool(name: &str, cordon: bool) -> Arc<DevicePool> {
        Arc::new(DevicePool::new(name, DevicePoolSpec { cordon, ..DevicePoolSpec::default() }))
    }

    fn names(pools: &[Arc<DevicePool>]) -> Vec<NodeName> {
        pools.iter().map(|pool| pool.node()).collect()
    }

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    #[test]
    fn the_pool_of_a_deleted_node_without_volumes_goes_after_a_while_and_no_other() {
        let mut unused = UnusedPools::default();
        let disks = [(DiskId::named("gpt-1"), DiskChoice { cordon: Some(false), order: None })].into();
        let spec = DevicePoolSpec { disks, ..DevicePoolSpec::default() };
        let with_disk = Arc::new(DevicePool::new("disk", spec));
        let pools = || vec![pool("gone", false), pool("cordoned", true), pool("used", false), with_disk.clone()];
        let mut look = |minutes: i64| {
            let (due, next) = unused.due(pools(), |name| name == "used", AGE, at(minutes));
            (names(&due), next)
        };
        assert_eq!(look(0), (vec![], Some(at(10))));
        assert_eq!(look(9), (vec![], Some(at(10))), "a look in between begins nothing anew");
        assert_eq!(look(10), (vec!["gone".into()], None));
    }

    #[test]
    fn a_node_that_is_back_for_a_moment_begins_the_time_anew() {
        let mut unused = UnusedPools::default();
        let mut look = |used: bool, minutes: i64| unused.due(vec![pool("n", false)], |_| used, AGE, at(minutes));
        assert_eq!(look(false, 0).1, Some(at(10)));
        assert_eq!(look(true, 5).1, None);
        assert_eq!(look(false, 6), (vec![], Some(at(16))));
    }
}
