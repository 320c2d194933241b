//! DevicePools whose Node was deleted: they are deleted a while later, when that node has no PoolVolume any more. Pure.
//!
//! A DevicePool stays if a person wrote something into its spec: the node may come back under its name.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;

use crate::api::crd::{DevicePool, DevicePoolSpec};
use crate::device::NodeName;
use crate::operator::steady::{Lasting, Steady};

/// Since when each pool is without a Node and volumes.
#[derive(Debug)]
pub struct UnusedPools(Steady<NodeName, ()>);

impl UnusedPools {
    /// They are due after that time.
    pub fn new(age: SignedDuration) -> Self {
        Self(Steady::new(age))
    }

    /// The pools to delete at the monotonic time `now`, and how long until the next one is due. `used` tells by name
    /// whether the Node or a PoolVolume of it exists.
    pub fn due(
        &mut self,
        mut pools: Vec<Arc<DevicePool>>,
        used: impl Fn(&NodeName) -> bool,
        now: SignedDuration,
    ) -> (Vec<Arc<DevicePool>>, Option<SignedDuration>) {
        pools.retain(|pool| {
            // The controller writes the PersistentVolumes.
            let by_person = DevicePoolSpec { persistent_volumes: Vec::new(), ..pool.spec.clone() };
            by_person == DevicePoolSpec::default() && !used(&pool.node())
        });
        let unused: BTreeSet<NodeName> = pools.iter().map(|pool| pool.node()).collect();
        self.0.keep(|name| unused.contains(name));
        let mut next = None;
        pools.retain(|pool| match self.0.look(&pool.node(), (), SignedDuration::ZERO, now) {
            Lasting::Yes(()) => true,
            Lasting::In(wait) => {
                next = next.into_iter().chain([wait]).min();
                false
            }
        });
        (pools, next)
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

    fn minutes(minutes: i64) -> SignedDuration {
        SignedDuration::from_mins(minutes)
    }

    #[test]
    fn the_pool_of_a_deleted_node_without_volumes_goes_after_a_while_and_no_other() {
        let mut unused = UnusedPools::new(AGE);
        let disks = [(DiskId::named("gpt-1"), DiskChoice { cordon: Some(false), order: None })].into();
        let spec = DevicePoolSpec { disks, ..DevicePoolSpec::default() };
        let with_disk = Arc::new(DevicePool::new("disk", spec));
        let pools = || vec![pool("gone", false), pool("cordoned", true), pool("used", false), with_disk.clone()];
        let mut look = |now: i64| {
            let (due, next) = unused.due(pools(), |name| name == "used", minutes(now));
            (names(&due), next)
        };
        assert_eq!(look(0), (vec![], Some(minutes(10))));
        assert_eq!(look(9), (vec![], Some(minutes(1))), "a look in between begins nothing anew");
        assert_eq!(look(10), (vec!["gone".into()], None));
    }

    #[test]
    fn a_node_that_is_back_for_a_moment_begins_the_time_anew() {
        let mut unused = UnusedPools::new(AGE);
        let mut look = |used: bool, now: i64| unused.due(vec![pool("n", false)], |_| used, minutes(now));
        assert_eq!(look(false, 0).1, Some(minutes(10)));
        assert_eq!(look(true, 5).1, None);
        assert_eq!(look(false, 6), (vec![], Some(minutes(10))));
    }
}
