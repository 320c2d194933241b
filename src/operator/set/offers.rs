//! What the nodes report of a set, or of the classes of a LocalVolume, and what the statuses of both say of it alike.
//! Pure.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::api::crd::{DevicePool, SetOffer, SetReason, Unmatched};
use crate::device::{NodeName, SetName};
use crate::operator::bytes::{signed, unsigned};
use crate::operator::status::condition::ConditionState;

/// At most this many devices that were not taken are named.
pub const LEFT: usize = 64;

/// What one node reports of one set.
pub type Offers<'a> = Vec<(NodeName, &'a SetOffer)>;

/// What the nodes report of the sets that are `own`, by node.
pub fn offers_of<'a>(pools: impl IntoIterator<Item = &'a DevicePool>, own: impl Fn(&SetName) -> bool) -> Offers<'a> {
    let mut offers = Vec::new();
    for pool in pools {
        let all = pool.status.as_ref().map_or(&[][..], |status| status.sets.as_slice());
        offers.extend(all.iter().filter(|offer| own(&offer.set_name())).map(|offer| (pool.node(), offer)));
    }
    offers
}

/// A figure of all nodes.
pub fn sum(offers: &Offers<'_>, of: fn(&SetOffer) -> i64) -> i64 {
    offers.iter().map(|(_, offer)| of(offer).max(0)).fold(0, i64::saturating_add)
}

/// The items of all nodes as there is room for them, and how many have no room.
pub fn listed<'a, T: 'a>(
    offers: &Offers<'a>,
    items: fn(&'a SetOffer) -> &'a [T],
    shown: impl Fn(&NodeName, &T) -> Value,
) -> (Vec<Value>, i64) {
    nearest(offers.iter().map(|(node, offer)| items(offer).iter().map(|item| shown(node, item)).collect()).collect())
}

/// The devices that no node takes, and how many more there are.
pub fn unmatched(offers: &Offers<'_>) -> (Vec<Value>, i64) {
    let shown = |node: &NodeName, one: &Unmatched| json!({"node": node, "device": one.device, "reason": one.reason});
    let (devices, cut) = listed(offers, |offer| &offer.unmatched, shown);
    (devices, sum(offers, |offer| offer.unmatched_omitted).saturating_add(cut))
}

/// Whether some node has claimed a device; if none has, the `problem` is why. `with_reports` adds to a message what the
/// nodes report.
pub fn claimed(
    offers: &Offers<'_>,
    problem: Option<(SetReason, String)>,
    with_reports: impl Fn(String) -> String,
) -> ConditionState<SetReason> {
    let devices = unsigned(sum(offers, |offer| offer.devices));
    let on: BTreeSet<&NodeName> = offers.iter().filter(|(_, offer)| offer.devices > 0).map(|(node, _)| node).collect();
    let claimed = || format!("{} on {}", count(devices, "device"), count(on.len(), "node"));
    match (devices > 0, problem) {
        (true, None) => (true, SetReason::DevicesClaimed, with_reports(claimed())),
        (true, Some((_, message))) => (true, SetReason::DevicesClaimed, format!("{}; {message}", claimed())),
        (false, Some((reason, message))) => (false, reason, message),
        (false, None) => (false, SetReason::NoDevices, with_reports("no device is claimed yet".to_owned())),
    }
}

/// Each node has a list that begins with the most important item. Returns as much of the beginning of each list as
/// there is room for, and the number of items without room. The items of one node stay together.
fn nearest(nodes: Vec<Vec<Value>>) -> (Vec<Value>, i64) {
    let of_node =
        |(node, list): (usize, Vec<Value>)| list.into_iter().enumerate().map(move |(at, one)| (at, node, one));
    let mut all: Vec<(usize, usize, Value)> = nodes.into_iter().enumerate().flat_map(of_node).collect();
    let omitted = signed(all.len().saturating_sub(LEFT));
    all.sort_by_key(|(at, node, _)| (*at, *node));
    all.truncate(LEFT);
    all.sort_by_key(|(at, node, _)| (*node, *at));
    (all.into_iter().map(|(_, _, one)| one).collect(), omitted)
}

pub fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
