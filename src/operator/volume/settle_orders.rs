//! Which orders `Settle` this process has begun, and which are over: each settles one conflict, and none that
//! comes later. The condition OrderDone says it as well, but the leader writes it later, and the watch may
//! show that later still.
//!
//! Takes in objects as they are seen, and what became of their orders; gives out whether an order is over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::api::crd::{PoolVolume, VolumeOrder};
use crate::device::DiskId;
use crate::operator::api_server::object_key::Uid;
use crate::volume::VolumeId;

/// The last order of each volume that was begun.
#[derive(Clone, Debug, Default)]
pub(super) struct SettleOrders(Arc<Mutex<BTreeMap<VolumeId, SettleOrder>>>);

#[derive(Debug)]
struct SettleOrder {
    uid: Option<Uid<PoolVolume>>,
    keep: DiskId,
    progress: SettleProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SettleProgress {
    /// It may be done in part, or be done after whoever asked for it stopped waiting.
    Begun,
    Over,
}

impl SettleOrder {
    /// Another disk to keep is another order, and so is the same disk in an object that was made again.
    fn is_of(&self, object: &PoolVolume) -> bool {
        let spec = &object.spec;
        Uid::of(object) == self.uid && spec.order == Some(VolumeOrder::Settle) && spec.keep.as_ref() == Some(&self.keep)
    }
}

impl SettleOrders {
    /// Takes in the object of a volume. An order that it does not have any more may be given again.
    pub fn take_in(&self, id: VolumeId, object: &PoolVolume) {
        let mut orders = self.orders();
        if orders.get(&id).is_some_and(|order| !order.is_of(object)) {
            orders.remove(&id);
        }
    }

    /// The order of this object is being carried out.
    pub fn begin(&self, id: VolumeId, object: &PoolVolume) {
        let (uid, progress) = (Uid::of(object), SettleProgress::Begun);
        if let Some(keep) = object.spec.keep.clone() {
            self.orders().insert(id, SettleOrder { uid, keep, progress });
        }
    }

    /// The volume is on one disk only. What was not begun is left to the leader: it may be an order for a disk
    /// that is not read yet.
    pub fn end(&self, id: VolumeId) {
        if let Some(order) = self.orders().get_mut(&id) {
            order.progress = SettleProgress::Over;
        }
    }

    /// Whether the order of this object has settled a conflict.
    pub fn is_over(&self, id: VolumeId, object: &PoolVolume) -> bool {
        let is_over = |order: &SettleOrder| order.progress == SettleProgress::Over && order.is_of(object);
        self.orders().get(&id).is_some_and(is_over)
    }

    fn orders(&self) -> MutexGuard<'_, BTreeMap<VolumeId, SettleOrder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::in_phase;
    use super::*;
    use crate::api::crd::Phase;

    const ID: VolumeId = VolumeId::from_u128(1);

    fn ordered(keep: &str) -> PoolVolume {
        let mut object = in_phase(Phase::Ready);
        (object.spec.order, object.spec.keep) = (Some(VolumeOrder::Settle), Some(DiskId::named(keep)));
        object
    }

    /// One that has settled a conflict of the volume, for the disk `gpt-x`.
    fn over() -> SettleOrders {
        let orders = SettleOrders::default();
        orders.begin(ID, &ordered("gpt-x"));
        orders.end(ID);
        assert!(orders.is_over(ID, &ordered("gpt-x")));
        orders
    }

    #[test]
    fn an_order_is_over_when_it_was_begun_and_the_conflict_is_gone_and_not_before() {
        let (orders, x) = (SettleOrders::default(), ordered("gpt-x"));
        orders.end(ID);
        assert!(!orders.is_over(ID, &x), "nobody has begun it");
        orders.begin(ID, &x);
        assert!(!orders.is_over(ID, &x), "what failed is tried again");
        orders.end(ID);
        orders.take_in(ID, &x);
        assert!(orders.is_over(ID, &x));
        assert!(!orders.is_over(VolumeId::from_u128(2), &x), "that is another volume");
    }

    #[test]
    fn another_disk_is_another_order_and_so_is_the_same_one_in_an_object_that_was_made_again() {
        let orders = over();
        let mut second = ordered("gpt-x");
        second.metadata.uid = Some("u2".to_owned());
        assert!(!orders.is_over(ID, &ordered("gpt-y")) && !orders.is_over(ID, &second));
        orders.begin(ID, &ordered("gpt-y"));
        assert!(!orders.is_over(ID, &ordered("gpt-x")) && !orders.is_over(ID, &ordered("gpt-y")));
    }

    #[test]
    fn an_order_that_was_removed_can_be_given_again() {
        let mut removed = ordered("gpt-x");
        (removed.spec.order, removed.spec.keep) = (None, None);
        let mut another = ordered("gpt-x");
        another.spec.order = Some(VolumeOrder::Adopt);
        for object in [removed, another, ordered("gpt-y")] {
            let orders = over();
            orders.take_in(ID, &object);
            assert!(!orders.is_over(ID, &ordered("gpt-x")), "{:?}", object.spec);
        }
    }
}
