//! Which nodes can serve a request, by the modes that their sets allow: within one class, one node may only have disks
//! of a set for Block, and another node only disks of a set for Filesystem. Pure.
//!
//! The scheduler knows no modes, and asks for room without one. If it chose a node that cannot serve the claim, the
//! answer says so, and the scheduler chooses another one; if the controller chooses, it skips such nodes.

use std::collections::BTreeSet;

use super::node_capacity::selects;
use super::offered::{allowed, mode_names};
use crate::api::crd::{DevicePool, SetOffer};
use crate::claim::Rule;
use crate::device::NodeName;
use crate::volume::{Error, Nodes, Selector, VolumeRequest, WantedUsage};

/// At most this many nodes are named in an answer.
const NAMED: usize = 3;

/// The nodes that have disks of the sets of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// A set there allows the mode, whatever room it has.
    able: BTreeSet<NodeName>,
    /// No set there allows it.
    barred: BTreeSet<NodeName>,
}

/// The modes by the nodes' DevicePools. A node without a disk of such a set has no room, and is not in the result. A
/// set that is not among the rules may not have been read yet, and allows everything until then.
pub fn modes<'a>(
    selector: &Selector,
    usage: WantedUsage,
    rules: &[&Rule],
    pools: impl Iterator<Item = &'a DevicePool>,
) -> Modes {
    let mut modes = Modes::default();
    if rules.iter().all(|rule| allowed(rule, usage)) {
        return modes;
    }
    let allows = |offer: &&SetOffer| {
        let is_its = |rule: &&&Rule| rule.set.name == offer.set_name();
        rules.iter().find(is_its).is_none_or(|rule| allowed(rule, usage))
    };
    for pool in pools {
        let offers = pool.status.iter().flat_map(|status| &status.sets);
        let here: Vec<&SetOffer> = offers.filter(|offer| offer.devices > 0 && selects(selector, offer)).collect();
        if here.iter().any(allows) {
            modes.able.insert(pool.node());
        } else if !here.is_empty() {
            modes.barred.insert(pool.node());
        }
    }
    modes
}

impl Modes {
    pub fn bars(&self, node: &NodeName) -> bool {
        self.barred.contains(node)
    }

    /// A node that cannot serve the request, if no other node can.
    pub fn refused<'a>(&'a self, nodes: &'a Nodes) -> Option<&'a NodeName> {
        match nodes {
            Nodes::Preferred(named) | Nodes::AnyOf(named) => {
                named.first().filter(|_| named.iter().all(|node| self.bars(node)))
            }
            Nodes::Any => self.barred.first().filter(|_| self.able.is_empty()),
        }
    }

    /// The answer in that case, in one sentence.
    pub fn refusal(&self, node: &NodeName, wanted: &VolumeRequest) -> Error {
        let (asked, only) = mode_names(wanted.usage);
        let selector = &wanted.selector;
        let named: Vec<&str> = self.able.iter().take(NAMED).map(NodeName::as_str).collect();
        let scheduler = "the scheduler does not know volume modes and has to choose another node; a nodeSelector of \
                         the pod, or a class for each mode, saves it the search";
        let others = match (named.is_empty(), self.able.len().saturating_sub(NAMED)) {
            (true, _) => "no node has a disk for that now".to_owned(),
            (false, 0) => format!("{} can serve it: {scheduler}", named.join(", ")),
            (false, more) => format!("{} and {more} more can serve it: {scheduler}", named.join(", ")),
        };
        Error::Exhausted(format!(
            "node {node}: the sets of {selector} that have disks there allow volumeMode {only} only, and a volume of \
             volumeMode {asked} is asked for; {others}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::super::offered::candidates;
    use super::super::sample::{pool, wanted};
    use super::*;
    use crate::api::crd::LocalVolumeSet;
    use crate::operator::set::parsed::Parsed;

    const MOUNT: WantedUsage = WantedUsage::Mount(None);

    /// Nodes by name, each with the sets of class `fast` that it reports, and the number of disks that each set has
    /// there.
    fn modes_of(sets: &[(&str, Value)], usage: WantedUsage, nodes: &[(&str, &[(&str, u32)])]) -> Modes {
        let set_of = |(name, mode): &(&str, Value)| {
            let metadata = json!({"name": name, "namespace": "d", "uid": name});
            let spec = json!({"storageClassName": "fast", "volumeMode": mode});
            let set = json!({"apiVersion": "v", "kind": "k", "metadata": metadata, "spec": spec});
            Arc::new(serde_json::from_value::<LocalVolumeSet>(set).expect("a set"))
        };
        let sets: Vec<_> = sets.iter().map(set_of).collect();
        let selector = wanted("x").selector;
        let candidates = candidates(&selector, &sets, Parsed::default().of_any_node(&sets));
        let rules: Vec<&Rule> = candidates.iter().flat_map(|candidate| candidate.rules(&selector)).collect();
        let pools = nodes.iter().map(|(node, offers)| {
            let mut pool = pool(node, [1, 1, 1]);
            let status = pool.status.as_mut().expect("set");
            let one = status.sets.remove(0);
            let offer = |(name, devices): &(&str, u32)| SetOffer {
                name: (*name).to_owned(),
                devices: (*devices).into(),
                ..one.clone()
            };
            status.sets = offers.iter().map(offer).collect();
            pool
        });
        let pools: Vec<_> = pools.collect();
        modes(&selector, usage, &rules, pools.iter())
    }

    fn mixed() -> [(&'static str, Value); 3] {
        [("block", json!("Block")), ("files", json!("Filesystem")), ("any", Value::Null)]
    }

    fn names(names: &[&str]) -> BTreeSet<NodeName> {
        names.iter().map(|name| NodeName::from(*name)).collect()
    }

    #[test]
    fn a_node_whose_disks_are_all_of_sets_of_another_mode_is_out_of_the_choice() {
        // Every node reports every set.
        let nodes: [(&str, &[(&str, u32)]); 5] = [
            ("blocks", &[("block", 1), ("files", 0), ("any", 0)]),
            ("files", &[("block", 0), ("files", 2), ("any", 0)]),
            ("both", &[("block", 1), ("files", 0), ("any", 1)]),
            ("none", &[("block", 0), ("files", 0), ("any", 0)]),
            ("unread", &[("block", 1), ("later", 1)]),
        ];
        let mount = modes_of(&mixed(), MOUNT, &nodes);
        assert_eq!(mount, Modes { able: names(&["both", "files", "unread"]), barred: names(&["blocks"]) });
        let block = modes_of(&mixed(), WantedUsage::Block, &nodes);
        assert_eq!(block, Modes { able: names(&["both", "blocks", "unread"]), barred: names(&["files"]) });
        assert_eq!(modes_of(&mixed()[2..], MOUNT, &nodes), Modes::default(), "each mode is served everywhere");
    }

    #[test]
    fn a_request_whose_nodes_are_all_barred_is_refused_and_where_one_is_not_that_one_is_left() {
        let modes = Modes { able: names(&["b"]), barred: names(&["a", "c"]) };
        let of = |names: &[&str]| names.iter().map(|name| NodeName::from(*name)).collect::<Vec<_>>();
        assert_eq!(modes.refused(&Nodes::Preferred(of(&["a"]))), Some(&"a".into()));
        assert_eq!(modes.refused(&Nodes::AnyOf(of(&["c", "a"]))), Some(&"c".into()));
        for (nodes, why) in [(&["a", "b"], "one is left"), (&["a", "x"], "the agent of x says what is wrong there")] {
            assert_eq!(modes.refused(&Nodes::AnyOf(of(nodes))), None, "{why}");
        }
        assert_eq!(modes.refused(&Nodes::Any), None);
        assert_eq!(Modes { able: names(&[]), ..modes }.refused(&Nodes::Any), Some(&"a".into()));
    }

    #[test]
    fn the_answer_is_one_sentence_with_the_modes_and_the_nodes_that_can_serve_it() {
        let refusal_of = |able: &[&str]| {
            let error = Modes { able: names(able), barred: names(&["blocks"]) }.refusal(&"blocks".into(), &wanted("x"));
            let Error::Exhausted(words) = error else { panic!("the scheduler is to choose again: {error:?}") };
            words
        };
        let words = refusal_of(&["b", "a"]);
        for part in
            ["node blocks: the sets of class fast that have disks there allow volumeMode Block only", "a, b can serve"]
        {
            assert!(words.contains(part), "{words}");
        }
        assert!(refusal_of(&["a", "b", "c", "d"]).contains("a, b, c and 1 more can serve"));
        assert!(refusal_of(&[]).contains("no node has a disk for that now"));
    }
}
