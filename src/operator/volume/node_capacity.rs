//! How much room nodes have, and which node gets a volume. Pure.
//!
//! Takes in the DevicePools, and subtracts what is promised and not on a disk yet. The result is a hint: the node's
//! agent decides.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::{
    crd::{DevicePool, PoolVolume, SetOffer},
    quantity,
};
use crate::device::{NodeName, SetName};
use crate::operator::bytes::unsigned;
use crate::operator::node::ready::Openness;
use crate::operator::pool::agent_life::silence;
use crate::operator::pool_volume::promised_on;
use crate::volume::{Capacity, Error, Nodes, Selector, VolumeRequest, WantedUsage};

/// At most this many nodes are named in an answer.
const NAMED: usize = 5;

/// The room of each node for `selector`; a node without room has zeros.
pub fn rooms<'a>(
    pools: impl IntoIterator<Item = &'a DevicePool>,
    volumes: impl IntoIterator<Item = &'a PoolVolume>,
    selector: &Selector,
    usage: Option<WantedUsage>,
) -> BTreeMap<NodeName, Capacity> {
    let mut promised: BTreeMap<&NodeName, Vec<&PoolVolume>> = BTreeMap::new();
    for volume in volumes {
        if let Some(node) = promised_on(volume) {
            promised.entry(node).or_default().push(volume);
        }
    }
    let room = |pool: &DevicePool| {
        let name = pool.node();
        let promised = promised.get(&name).map_or(&[][..], Vec::as_slice);
        let room = room(pool, promised, selector, usage);
        (name, room)
    };
    pools.into_iter().map(room).collect()
}

fn room(pool: &DevicePool, promised: &[&PoolVolume], selector: &Selector, usage: Option<WantedUsage>) -> Capacity {
    let is_open = !pool.spec.cordon && silence(pool).is_none();
    let Some(status) = pool.status.as_ref().filter(|_| is_open) else { return Capacity::default() };
    let offers: Vec<&SetOffer> = status.sets.iter().filter(|offer| selects(selector, offer)).collect();
    let given: Vec<Capacity> = offers.iter().map(|offer| given(offer, usage)).collect();
    let Capacity { available, largest, smallest } = total(&given);
    // A promise takes at least the size of the smallest volume: a whole disk, a slot.
    let takes = |volume: &&&PoolVolume| offers.iter().any(|offer| selects(&selector_of(volume), offer));
    let promised: u64 =
        promised.iter().filter(takes).map(|volume| unsigned::<u64>(volume.spec.required).max(smallest)).sum();
    let available = available.saturating_sub(promised);
    match largest.min(available) {
        largest if largest >= smallest && largest > 0 => Capacity { available, largest, smallest },
        _ => Capacity::default(),
    }
}

/// The room of a set for one mode, or for any mode if it is not known yet.
fn given(offer: &SetOffer, usage: Option<WantedUsage>) -> Capacity {
    let capacity = |figures: [i64; 3]| {
        let [available, largest, smallest] = figures.map(unsigned);
        Capacity { available, largest, smallest }
    };
    let mount = || capacity([offer.available, offer.largest, offer.smallest]);
    let block = || capacity([offer.block_available, offer.block_largest, offer.block_smallest]);
    match usage {
        Some(WantedUsage::Block) => block(),
        Some(WantedUsage::Mount(_)) => mount(),
        None => mount().or(block()),
    }
}

pub fn selects(selector: &Selector, offer: &SetOffer) -> bool {
    let class = selector.class.as_ref().is_none_or(|class| *class == offer.class);
    let set = selector.set.as_ref().is_none_or(|set| *set == offer.set_name());
    class && set
}

fn selector_of(volume: &PoolVolume) -> Selector {
    let parameter = |name: &str| volume.spec.parameters.get(name).cloned();
    Selector { class: parameter("class"), set: parameter("set").as_deref().map(SetName::parse) }
}

/// The room of one node or of all nodes.
pub fn total<'a>(rooms: impl IntoIterator<Item = &'a Capacity>) -> Capacity {
    let some = |a: u64, b: u64| if a == 0 { b } else { a.min(b) };
    rooms.into_iter().filter(|room| room.largest > 0).fold(Capacity::default(), |sum, room| Capacity {
        available: sum.available.saturating_add(room.available),
        largest: sum.largest.max(room.largest),
        smallest: some(sum.smallest, room.smallest),
    })
}

/// What is known of a node that may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeState {
    Missing,
    /// Its agent does not answer, as text.
    Silent(String),
    Answers(Openness),
}

/// The node to ask. `tried` have refused already.
pub fn choose(
    wanted: &VolumeRequest,
    rooms: &BTreeMap<NodeName, Capacity>,
    state: impl Fn(&NodeName) -> NodeState,
    tried: &[NodeName],
) -> Result<NodeName, Error> {
    let named = match &wanted.nodes {
        Nodes::Preferred(nodes) | Nodes::AnyOf(nodes) => nodes.as_slice(),
        Nodes::Any => &[],
    };
    // The scheduler's choice, or the only one: that node's agent decides, whatever its last report says.
    if let Some(first) = named.first().filter(|first| named.iter().all(|node| node == *first)) {
        return match state(first) {
            NodeState::Missing => Err(Error::Exhausted(format!("node {first} does not exist"))),
            NodeState::Silent(message) => Err(Error::Exhausted(message)),
            NodeState::Answers(_) if tried.contains(first) => {
                Err(Error::Exhausted(format!("node {first} was asked already")))
            }
            NodeState::Answers(_) => Ok(first.clone()),
        };
    }
    let allowed: BTreeSet<&NodeName> = named.iter().collect();
    let allows = |node: &NodeName| wanted.nodes == Nodes::Any || allowed.contains(node);
    let openness = |node: &NodeName| match state(node) {
        NodeState::Answers(openness) if allows(node) && !tried.contains(node) => openness,
        NodeState::Answers(_) | NodeState::Missing | NodeState::Silent(_) => Openness::Closed,
    };
    let open = |node: &NodeName| openness(node) > Openness::Closed;
    let large_enough = |room: &&Capacity| room.largest > 0 && room.largest >= wanted.required;
    let fits = |room: &&Capacity| large_enough(room) && wanted.limit.is_none_or(|limit| room.smallest <= limit);
    let fitting = |node: &NodeName| rooms.get(node).filter(|_| open(node)).filter(fits);
    let chosen = match &wanted.nodes {
        Nodes::Preferred(nodes) => {
            let of = |wanted| nodes.iter().find(|node| openness(node) == wanted && fitting(node).is_some());
            of(Openness::Open).or_else(|| of(Openness::Tainted)).cloned()
        }
        Nodes::AnyOf(_) | Nodes::Any => {
            let order = |(a, room_a): &(&NodeName, &Capacity), (b, room_b): &(&NodeName, &Capacity)| {
                let rank = |node: &NodeName, room: &Capacity| (openness(node), room.largest, room.available);
                rank(a, room_a).cmp(&rank(b, room_b)).then(b.cmp(a))
            };
            let all = rooms.keys().filter_map(|node| Some((node, fitting(node)?)));
            all.max_by(order).map(|(node, _)| node.clone())
        }
    };
    chosen.ok_or_else(|| {
        let large: Vec<_> = rooms.iter().filter(|(node, room)| open(node) && large_enough(room)).collect();
        match (large.first(), wanted.limit) {
            (Some((node, room)), Some(limit)) => Error::OutOfRange(format!(
                "the limit is {}, and the smallest volume that node {node} can give has {}",
                quantity::format(limit),
                quantity::format(room.smallest)
            )),
            _ => {
                let closed = rooms.keys().filter(|node| allows(node) && !tried.contains(node) && !open(node)).count();
                Error::Exhausted(nobody(wanted, rooms, &open, closed))
            }
        }
    })
}

/// Why no node can give it. `closed` nodes are not asked.
fn nobody(
    wanted: &VolumeRequest,
    rooms: &BTreeMap<NodeName, Capacity>,
    open: &dyn Fn(&NodeName) -> bool,
    closed: usize,
) -> String {
    let closed = match closed {
        0 => String::new(),
        count => format!("; {count} nodes are not asked: not ready, cordoned, silent or deleted"),
    };
    let required = quantity::short(wanted.required);
    let mut open: Vec<_> = rooms.iter().filter(|(node, _)| open(node)).collect();
    open.sort_by(|(a, room_a), (b, room_b)| room_b.largest.cmp(&room_a.largest).then(a.cmp(b)));
    if open.is_empty() {
        return format!("no allowed node has a device pool for {}{closed}", wanted.selector);
    }
    let named: Vec<String> =
        open.iter().take(NAMED).map(|(node, room)| format!("{node} {}", quantity::short(room.largest))).collect();
    let more = open.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("no node can give {required} to {}; the largest free places: {}{more}", wanted.selector, named.join(", "))
        + &closed
}

#[cfg(test)]
mod tests {
    use super::super::sample::{GIB, in_phase, pool, status_condition, wanted};
    use super::*;
    use crate::api::crd::Phase;

    fn capacities(pools: &[DevicePool], volumes: &[PoolVolume]) -> BTreeMap<NodeName, Capacity> {
        rooms(pools, volumes, &wanted("x").selector, Some(WantedUsage::Mount(None)))
    }

    fn gib(available: u64, largest: u64, smallest: u64) -> Capacity {
        Capacity { available: available * GIB, largest: largest * GIB, smallest: smallest * GIB }
    }

    #[test]
    fn a_node_gives_what_its_pool_says_and_nothing_when_it_is_cordoned_or_silent() {
        let plain = pool("a", [10, 4, 1]);
        assert_eq!(capacities(std::slice::from_ref(&plain), &[])["a"], gib(10, 4, 1));
        let mut cordoned = plain.clone();
        cordoned.spec.cordon = true;
        let with_ready = |status: &str| {
            let mut pool = plain.clone();
            let conditions = vec![status_condition("Ready", status, "Reason", "")];
            pool.status.as_mut().expect("set").conditions = conditions;
            pool
        };
        let mut unwritten = plain.clone();
        unwritten.status = None;
        for nothing in [cordoned, with_ready("Unknown"), with_ready("False"), unwritten] {
            assert_eq!(capacities(&[nothing], &[])["a"], Capacity::default());
        }
        let mut unjudged = plain.clone();
        unjudged.status.as_mut().expect("set").conditions.clear();
        assert_eq!(capacities(&[unjudged], &[])["a"], gib(10, 4, 1), "its agent has just written it");
        let other = Selector { class: Some("slow".to_owned()), set: None };
        assert_eq!(rooms([&plain], [], &other, Some(WantedUsage::Block))["a"], Capacity::default());
        let set = |name: &str| Selector { class: Some("fast".to_owned()), set: Some(SetName::parse(name)) };
        assert_eq!(rooms([&plain], [], &set("d/s"), Some(WantedUsage::Mount(None)))["a"], gib(10, 4, 1));
        assert_eq!(rooms([&plain], [], &set("d/t"), Some(WantedUsage::Mount(None)))["a"], Capacity::default());
        assert_eq!(rooms([&plain], [], &set("d/s"), Some(WantedUsage::Block))["a"], Capacity::default());
    }

    #[test]
    fn without_a_mode_a_node_gives_what_its_sets_give_in_any_mode() {
        let asked = |block: [u64; 3], mount: [u64; 3]| {
            let mut pool = pool("a", mount);
            let offer = &mut pool.status.as_mut().expect("set").sets[0];
            let [available, largest, smallest] = block.map(|gib| i64::try_from(gib * GIB).expect("small"));
            (offer.block_available, offer.block_largest, offer.block_smallest) = (available, largest, smallest);
            rooms([&pool], [], &wanted("x").selector, None)["a"]
        };
        assert_eq!(asked([9, 4, 2], [0, 0, 0]), gib(9, 4, 2), "a set of volumeMode Block");
        assert_eq!(asked([0, 0, 0], [9, 4, 2]), gib(9, 4, 2), "a set of volumeMode Filesystem");
        assert_eq!(asked([5, 5, 1], [9, 4, 2]), gib(9, 5, 1), "a set of both, some of whose space is not clean yet");
        assert_eq!(asked([0, 0, 0], [0, 0, 0]), Capacity::default());
    }

    #[test]
    fn what_is_promised_is_not_offered_again_until_it_is_on_a_disk() {
        let promise = |phase, node: &str| {
            let mut volume = in_phase(phase);
            volume.spec.node = node.into();
            volume
        };
        let pools = [pool("a", [3, 3, 1])];
        for (volumes, remaining) in [
            (vec![promise(Phase::Pending, "a")], gib(2, 2, 1)),
            (vec![promise(Phase::Accepted, "a"), promise(Phase::Pending, "a")], gib(1, 1, 1)),
            (vec![promise(Phase::Pending, "a"); 9], Capacity::default()),
            (
                vec![promise(Phase::Ready, "a"), promise(Phase::Rejected, "a"), promise(Phase::Pending, "b")],
                gib(3, 3, 1),
            ),
        ] {
            assert_eq!(capacities(&pools, &volumes)["a"], remaining);
        }
        let mut other = promise(Phase::Pending, "a");
        other.spec.parameters = BTreeMap::from([("class".to_owned(), "slow".to_owned())]);
        assert_eq!(capacities(&pools, &[other])["a"], gib(3, 3, 1), "another class takes nothing of this one");
        let disks = [pool("a", [200, 100, 100])];
        assert_eq!(capacities(&disks, &[promise(Phase::Pending, "a")])["a"], gib(100, 100, 100), "a whole disk goes");
        assert_eq!(capacities(&disks, &vec![promise(Phase::Pending, "a"); 2])["a"], Capacity::default());
    }

    #[test]
    fn all_nodes_together_sum_up_and_the_largest_place_is_one_nodes() {
        let all = capacities(&[pool("a", [10, 4, 2]), pool("b", [5, 5, 1]), pool("c", [0, 0, 0])], &[]);
        assert_eq!(total(all.values()), gib(15, 5, 1));
        assert_eq!(total([]), Capacity::default());
    }

    fn pick(nodes: Nodes, pools: &[DevicePool], tried: &[&str]) -> Result<NodeName, Error> {
        let mut wanted = wanted("x");
        wanted.required = 3 * GIB;
        wanted.nodes = nodes;
        choose(&wanted, &capacities(pools, &[]), state, &names(tried))
    }

    /// What the first letters of a name say.
    fn state(node: &NodeName) -> NodeState {
        match node.as_str().split('-').next() {
            Some("gone") => NodeState::Missing,
            Some("silent") => NodeState::Silent(format!("node {node} does not answer")),
            Some("closed") => NodeState::Answers(Openness::Closed),
            Some("tainted") => NodeState::Answers(Openness::Tainted),
            _ => NodeState::Answers(Openness::Open),
        }
    }

    fn names(names: &[&str]) -> Vec<NodeName> {
        names.iter().map(|name| NodeName::from(*name)).collect()
    }

    #[test]
    fn the_only_node_is_asked_whatever_it_said_last() {
        assert_eq!(pick(Nodes::Preferred(names(&["x"])), &[], &[]).expect("x"), "x");
        assert_eq!(pick(Nodes::AnyOf(names(&["x", "x"])), &[pool("x", [0, 0, 0])], &[]).expect("x"), "x");
        assert!(matches!(pick(Nodes::AnyOf(names(&["x"])), &[], &["x"]), Err(Error::Exhausted(_))));
        let gone = pick(Nodes::Preferred(names(&["gone"])), &[], &[]).expect_err("no such node");
        assert!(gone.to_string().contains("does not exist"), "{gone}");
    }

    #[test]
    fn the_only_node_is_not_asked_if_its_agent_is_silent_and_asked_whatever_pods_it_takes() {
        let refused =
            pick(Nodes::Preferred(names(&["silent"])), &[pool("silent", [9, 9, 1])], &[]).expect_err("silent");
        assert!(matches!(&refused, Error::Exhausted(message) if message == "node silent does not answer"), "{refused}");
        for node in ["closed", "tainted"] {
            assert_eq!(pick(Nodes::Preferred(names(&[node])), &[], &[]).expect("its pod is there"), node);
        }
    }

    #[test]
    fn where_no_pod_has_chosen_a_node_pods_must_be_able_to_start_there_and_taints_come_last() {
        let pools = ["closed-a", "silent-a", "tainted-a", "open-a"].map(|node| pool(node, [9, 9, 1]));
        let open = pool("open-a", [4, 4, 1]);
        let with_open = || [&pools[..3], std::slice::from_ref(&open)].concat();
        let all = || names(&["closed-a", "silent-a", "tainted-a", "open-a"]);
        for nodes in [Nodes::Any, Nodes::AnyOf(all()), Nodes::Preferred(all())] {
            assert_eq!(pick(nodes.clone(), &with_open(), &[]).expect("it is open"), "open-a", "{nodes:?}");
            assert_eq!(pick(nodes.clone(), &pools[..3], &[]).expect("it fits"), "tainted-a", "{nodes:?}");
            let none = pick(nodes, &pools[..2], &[]).expect_err("no pod can start there");
            assert!(none.to_string().contains("2 nodes are not asked"), "{none}");
        }
    }

    #[test]
    fn preferred_nodes_are_taken_in_their_order_and_others_by_the_largest_place() {
        let pools = [pool("a", [9, 2, 1]), pool("b", [4, 4, 1]), pool("c", [8, 8, 1]), pool("gone", [99, 99, 1])];
        let preferred = || Nodes::Preferred(names(&["a", "gone", "b", "c"]));
        assert_eq!(pick(preferred(), &pools, &[]).expect("b fits first"), "b");
        assert_eq!(pick(preferred(), &pools, &["b"]).expect("c fits next"), "c");
        assert_eq!(pick(Nodes::Any, &pools, &[]).expect("c has most"), "c");
        assert_eq!(pick(Nodes::AnyOf(names(&["a", "b"])), &pools, &[]).expect("b"), "b");
        let twins = [pool("b", [4, 4, 1]), pool("a", [4, 4, 1])];
        assert_eq!(pick(Nodes::Any, &twins, &[]).expect("by name"), "a");
    }

    #[test]
    fn where_nobody_fits_the_largest_places_are_named() {
        let pools = [pool("a", [9, 2, 1]), pool("b", [1, 1, 1])];
        let Err(Error::Exhausted(text)) = pick(Nodes::Any, &pools, &[]) else { panic!("it does not fit") };
        assert!(text.contains("3Gi") && text.contains("class fast") && text.contains("a 2Gi, b 1Gi"), "{text}");
        let Err(Error::Exhausted(text)) = pick(Nodes::AnyOf(names(&["y", "z"])), &pools, &[]) else { panic!() };
        assert!(text.contains("no allowed node"), "{text}");
        let many: Vec<_> = (0..9).map(|n| pool(&format!("n{n}"), [1, 1, 1])).collect();
        let Err(Error::Exhausted(text)) = pick(Nodes::Any, &many, &[]) else { panic!() };
        assert!(text.ends_with("and 4 more"), "{text}");
    }

    #[test]
    fn a_limit_below_every_place_is_out_of_range() {
        let mut asked = wanted("x");
        asked.nodes = Nodes::Any;
        asked.limit = Some(2 * GIB);
        let rooms = capacities(&[pool("a", [100, 100, 100])], &[]);
        let Err(Error::OutOfRange(message)) = choose(&asked, &rooms, state, &[]) else { panic!("too large") };
        assert!(message.contains("100Gi") && message.contains("2Gi"), "{message}");
    }
}
