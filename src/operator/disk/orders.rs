//! What persons order for disks in `spec.disks` of a DevicePool, and how far each order is.
//!
//! Takes in the object, what the pool has, and the answers of the agent; gives out what to do next, and
//! `status.orders`. An order is carried out once: one that the status calls Done or Refused is not tried
//! again until it changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::events::EventType;

use crate::agent::{AdminError, DiskTask};
use crate::api::crd::{DevicePool, DiskOrder, DiskOrderStatus, OrderState};
use crate::device::DiskId;
use crate::host::chain;
use crate::operator::event::{EventNote, clip};
use crate::pool::{DiskView, Standing};

/// How many volumes a message names.
const NAMED: usize = 8;

/// The orders of a node, and how far each is.
#[derive(Clone, Debug, Default)]
pub struct DiskOrders(Arc<Mutex<BTreeMap<DiskId, DiskOrderStatus>>>);

impl DiskOrders {
    /// Takes in the object. What its status says of an order holds, unless this process knows it itself. Gives whether
    /// anything changed.
    pub fn take_in(&self, pool: Option<&DevicePool>) -> bool {
        // One that is deleted and applied again orders nothing new.
        if pool.is_none() {
            return false;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reported = || pool.iter().flat_map(|pool| &pool.status).flat_map(|status| &status.orders);
        let ordered =
            pool.iter().flat_map(|pool| pool.spec.pool_disks()).filter_map(|(id, disk)| Some((id, disk.order?)));
        let next: BTreeMap<DiskId, DiskOrderStatus> = ordered
            .map(|(id, order)| {
                let is_it = |status: &&DiskOrderStatus| status.disk == *id && status.order == order;
                let before = known.get(id).filter(is_it).or_else(|| reported().find(is_it)).cloned();
                (id.clone(), before.unwrap_or_else(|| begun(id, order)))
            })
            .collect();
        let changed = *known != next;
        *known = next;
        changed
    }

    pub fn all(&self) -> Vec<DiskOrderStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Those to look at again. A drained disk may turn out not to be empty.
    pub fn open(&self) -> Vec<DiskOrderStatus> {
        let is_open = |order: &DiskOrderStatus| order.state == OrderState::Waiting || order.order == DiskOrder::Drain;
        self.all().into_iter().filter(is_open).collect()
    }

    /// What became of `order`, if it is still ordered. Gives whether that is news.
    pub fn set(&self, order: &DiskOrderStatus, (state, message): (OrderState, String)) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get_mut(&order.disk).filter(|known| known.order == order.order) {
            Some(known) if known.state != state || known.message != message => {
                if known.state != state {
                    known.since = now();
                }
                (known.state, known.message) = (state, message);
                true
            }
            Some(_) | None => false,
        }
    }
}

fn begun(disk: &DiskId, order: DiskOrder) -> DiskOrderStatus {
    let message = "not tried yet".to_owned();
    DiskOrderStatus { disk: disk.clone(), order, state: OrderState::Waiting, message, since: now() }
}

fn now() -> Option<Time> {
    Some(Time(Timestamp::now()))
}

/// What to do about an order now.
#[derive(Debug, PartialEq, Eq)]
pub enum OrderStep {
    Due(DiskTask),
    Waits(String),
    Done(String),
}

/// What the pool has of the array that a disk is a member of.
#[derive(Debug, PartialEq, Eq)]
pub enum ArrayAbove {
    /// The disk is no member, or nothing is on its array.
    None,
    /// It is not in the pool, and may hold data.
    Lacking,
    /// `on_it`: as of a disk.
    Here { id: DiskId, on_it: Vec<String> },
}

/// What an order waits for as long as the disk is a member of this array; `None`: for nothing.
fn waits_for(array: &ArrayAbove) -> Option<String> {
    match array {
        ArrayAbove::None => None,
        ArrayAbove::Lacking => Some(
            "it is a member of an array that does not run, and nobody knows what is on that: status.disks has the reason; if \
             another member is lost for good, order GiveUp for that"
                .to_owned(),
        ),
        ArrayAbove::Here { id, on_it } => {
            let volumes = match on_it.len() {
                0 => String::new(),
                count => format!(", which has volumes: {count} ({})", named(on_it)),
            };
            Some(format!(
                "it is a member of the array {id}{volumes}; order Drain and then Release for {id} instead: after that, Release of \
                 one member releases all of them"
            ))
        }
    }
}

/// `view` is what the pool has of the disk, `on_it` names the volumes on it and those that it was chosen for.
pub fn step(order: DiskOrder, view: Option<&DiskView>, on_it: &[String], array: &ArrayAbove) -> OrderStep {
    let waits = waits_for(array);
    let emptied = |then: OrderStep| match view {
        Some(DiskView { standing: Standing::NotReady(why), .. }) => {
            OrderStep::Waits(format!("it is not known what is on the disk, as it cannot be used: {why}"))
        }
        Some(DiskView { standing: Standing::Missing, .. }) => {
            OrderStep::Waits("the disk is missing; GiveUp is the order for a disk that does not come back".to_owned())
        }
        Some(_) if waits.is_some() => OrderStep::Waits(waits.unwrap_or_default()),
        Some(view) if view.volumes > 0 || !on_it.is_empty() => {
            OrderStep::Waits(has_volumes(view.volumes.max(on_it.len()), on_it))
        }
        Some(view) if view.erasing > 0 => OrderStep::Waits("what was deleted on it is being erased".to_owned()),
        Some(_) | None => then,
    };
    match order {
        DiskOrder::Drain if view.is_none() => OrderStep::Waits("no disk of this node's pool has this id".to_owned()),
        DiskOrder::Drain => {
            let message = "no volume is on it, and it takes no new ones while this is ordered; next, order Release: it makes the \
                         disk blank, and then it can be removed";
            emptied(OrderStep::Done(message.to_owned()))
        }
        DiskOrder::Release => emptied(OrderStep::Due(DiskTask::Release)),
        DiskOrder::GiveUp => OrderStep::Due(DiskTask::GiveUp),
        DiskOrder::Adopt => OrderStep::Due(DiskTask::Adopt),
    }
}

/// Whether the object has the order: what a watch has shown may be over.
pub fn is_ordered(order: &DiskOrderStatus, pool: &DevicePool) -> bool {
    pool.spec.disks.get(&order.disk).is_some_and(|choice| choice.order == Some(order.order))
}

/// An order that is due while the API server does not say whether it stands.
pub fn unconfirmed(why: &str) -> (OrderState, String) {
    (OrderState::Waiting, format!("it is carried out when the API server says that it still stands: {why}"))
}

fn named(on_it: &[String]) -> String {
    let named = on_it.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match on_it.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn has_volumes(count: usize, on_it: &[String]) -> String {
    let named = named(on_it);
    format!(
        "volumes on it: {count} ({named}); copy what you need, then delete the claims and their pods: `localpool disk drain` \
         in the controller's pod prints the lines"
    )
}

/// What the agent's answer makes of an order.
pub fn after(answer: Result<Vec<String>, AdminError>) -> (OrderState, String) {
    match answer {
        Ok(lines) => (OrderState::Done, clip(lines.join("; "))),
        Err(error) if is_final(&error) => {
            let again = "to try again, remove the order, wait until it is not in status.orders, and order it again";
            (OrderState::Refused, format!("{}; {again}", chain(&error)))
        }
        Err(error) => (OrderState::Waiting, chain(&error)),
    }
}

/// Whether the order as it is makes no sense for the disk as it is. It must not lie in wait until it does: a disk that
/// is here would be given up when somebody pulls it for a moment.
fn is_final(error: &AdminError) -> bool {
    match error {
        AdminError::Here { .. }
        | AdminError::NotInPool { .. }
        | AdminError::NotAdoptable { .. }
        | AdminError::ArrayHolds { .. } => true,
        AdminError::NoSuchDisk(_)
        | AdminError::Several { .. }
        | AdminError::Missing(_)
        | AdminError::NotYet { .. }
        | AdminError::VolumesNotRead { .. }
        | AdminError::NotLocatable { .. }
        | AdminError::NoLight { .. }
        | AdminError::Light(_)
        | AdminError::Scan(_)
        | AdminError::Open(_)
        | AdminError::Array(_)
        | AdminError::Disk(_)
        | AdminError::Pool(_) => false,
    }
}

/// What is new in the orders.
pub fn events(before: &[DiskOrderStatus], now: &[DiskOrderStatus]) -> Vec<(DiskId, EventNote)> {
    let ended = now.iter().filter(|order| order.state != OrderState::Waiting && !before.contains(order));
    ended
        .map(|DiskOrderStatus { disk, order, state, message, since: _ }| {
            let (type_, reason) = match state {
                OrderState::Refused => (EventType::Warning, "DiskOrderRefused"),
                OrderState::Done | OrderState::Waiting => (EventType::Normal, "DiskOrderDone"),
            };
            let note = format!("{order:?} of disk {disk}: {message}");
            (disk.clone(), EventNote { type_, reason: reason.to_owned(), note })
        })
        .collect()
}

#[cfg(test)]
mod tests;
