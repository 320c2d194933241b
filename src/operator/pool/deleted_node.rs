//! DevicePools whose Node was deleted: they are deleted a while later, when that node has no PoolVolume any more. Pure.
//!
//! A DevicePool stays if a person wrote something into its spec that still means something: the node may come back
//! under its name, with disks that it had.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;

use crate::api::crd::{DevicePool, DevicePoolSpec, DiskChoice, DiskOrder, DiskState, OrderState};
use crate::device::{DiskId, NodeName};
use crate::operator::status::steady::{Lasting, Steady};

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
            // The controller writes the others.
            let DevicePoolSpec {
                cordon,
                disks,
                persistent_volumes: _,
                persistent_volumes_omitted: _,
                answer: _,
                benchmarks: _,
            } = &pool.spec;
            let is_wanted = *cordon || disks.iter().any(|(id, choice)| is_wanted(pool, id, choice));
            !is_wanted && !used(&pool.node())
        });
        let unused: BTreeSet<NodeName> = pools.iter().map(|pool| pool.node()).collect();
        self.0.keep(|name| unused.contains(name));
        let mut next = None;
        pools.retain(|pool| match self.0.observe(&pool.node(), (), SignedDuration::ZERO, now) {
            Lasting::Yes(()) => true,
            Lasting::In(wait) => {
                next = next.into_iter().chain([wait]).min();
                false
            }
        });
        (pools, next)
    }
}

/// Whether what is chosen for a disk means something if the node comes back: an order that is not carried out, or a
/// cordon of a disk that the node had last; or a filesystem that is named.
fn is_wanted(pool: &DevicePool, id: &DiskId, choice: &DiskChoice) -> bool {
    let status = pool.status.as_ref();
    let is_ended = |order: DiskOrder| {
        let mut orders = status.iter().flat_map(|status| &status.orders);
        orders.any(|one| one.disk == *id && one.order == order && one.state != OrderState::Waiting)
    };
    let had_it = || {
        let mut disks = status.iter().flat_map(|status| &status.disks);
        disks.any(|disk| disk.id == *id && disk.state != DiskState::Missing)
    };
    let DiskChoice { path, allow_scheduling: _, tags: _, quota: _, cordon, reserved, order } = choice;
    // A filesystem that a person has named may have volumes when the node comes back.
    path.is_some()
        || order.is_some_and(|order| !is_ended(order))
        || (cordon.is_some() || reserved.is_some() || order.is_some_and(DiskOrder::closes)) && had_it()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
        let with_disk = with_choice("disk", &json!({"cordon": false}), "Ready", &json!(null));
        let pools = || vec![pool("gone", false), pool("cordoned", true), pool("used", false), with_disk.clone()];
        let mut observe = |now: i64| {
            let (due, next) = unused.due(pools(), |name| name == "used", minutes(now));
            (names(&due), next)
        };
        assert_eq!(observe(0), (vec![], Some(minutes(10))));
        assert_eq!(observe(9), (vec![], Some(minutes(1))), "a pass in between begins nothing again");
        assert_eq!(observe(10), (vec!["gone".into()], None));
    }

    /// A pool whose agent wrote last that it has a disk in this state, and how far the order for it is.
    fn with_choice(name: &str, choice: &Value, state: &str, order: &Value) -> Arc<DevicePool> {
        let disk = json!({
            "id": "gpt-1", "path": "/dev/sda", "layout": "Carved", "set": "d/s", "size": 1, "free": 1, "volumes": 0,
            "state": state,
        });
        let disks = if state == "Gone" { vec![] } else { vec![disk] };
        let orders: Vec<Value> = order.is_object().then(|| order.clone()).into_iter().collect();
        let pool = json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": name},
            "spec": {"disks": {"gpt-1": choice}}, "status": {"disks": disks, "orders": orders},
        });
        Arc::new(serde_json::from_value(pool).expect("a DevicePool"))
    }

    #[test]
    fn an_order_that_ended_and_a_choice_for_a_disk_that_was_gone_already_keep_no_pool_and_others_do() {
        let ordered =
            |order: &str, state: &str| json!({"disk": "gpt-1", "order": order, "state": state, "message": ""});
        let nothing = json!(null);
        let pools = [
            with_choice("empty", &json!({}), "Ready", &nothing),
            with_choice("released", &json!({"order": "Release"}), "Gone", &ordered("Release", "Done")),
            with_choice("given-up", &json!({"order": "GiveUp"}), "Gone", &ordered("GiveUp", "Done")),
            with_choice("adopted", &json!({"order": "Adopt"}), "Ready", &ordered("Adopt", "Done")),
            with_choice("cordoned-missing", &json!({"cordon": true}), "Missing", &nothing),
            with_choice("cordoned", &json!({"cordon": true}), "Ready", &nothing),
            with_choice("drained", &json!({"order": "Drain"}), "Ready", &ordered("Drain", "Done")),
            with_choice("waits", &json!({"order": "Adopt"}), "Gone", &ordered("Adopt", "Waiting")),
            with_choice("not-seen", &json!({"order": "GiveUp"}), "Missing", &nothing),
            with_choice("another", &json!({"order": "Release"}), "Gone", &ordered("Drain", "Done")),
        ];
        let (due, _) = UnusedPools::new(SignedDuration::ZERO).due(pools.to_vec(), |_| false, SignedDuration::ZERO);
        assert_eq!(names(&due), ["empty", "released", "given-up", "adopted", "cordoned-missing"].map(NodeName::from));
    }

    #[test]
    fn a_node_that_is_back_for_a_moment_begins_the_time_again() {
        let mut unused = UnusedPools::new(AGE);
        let mut observe = |used: bool, now: i64| unused.due(vec![pool("n", false)], |_| used, minutes(now));
        assert_eq!(observe(false, 0).1, Some(minutes(10)));
        assert_eq!(observe(true, 5).1, None);
        assert_eq!(observe(false, 6), (vec![], Some(minutes(10))));
    }
}
