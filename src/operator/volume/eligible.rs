//! Which node is asked for a volume ([`NodeChoice`]); and which sets, LocalVolumes and nodes can serve a request at all,
//! however much room they have, which is pure.
//!
//! If no set can, the claim gets one clear answer: no other node could serve it. Which nodes can depends on the modes
//! that their sets allow: within one class, one node may only have disks of a set for Block, and another node only
//! disks of a set for Filesystem. The scheduler knows no modes, and asks for room without one. If it chose a node that
//! cannot serve the claim, the answer says so, and the scheduler chooses another one; if the controller chooses, it
//! skips such nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt as _;
use tokio::time::Instant;

use super::node_capacity::{self, NodeState, selects};
use super::refused_modes::RefusedModes;
use crate::api::crd::{DevicePool, SetOffer};
use crate::claim::Rule;
use crate::device::{NodeName, SetName, label::VolumeUsage};
use crate::operator::node::ready::openness;
use crate::operator::pool::agent_life;
use crate::operator::set::parsed::{ParsedRules, SetObject};
use crate::operator::stores::Stores;
use crate::volume::{Capacity, Error, Nodes, Selector, VolumeRequest, WantedUsage};

/// At most this many nodes are named in an answer.
const NAMED: usize = 3;

/// An object that a request may mean.
pub struct Candidate {
    /// Its kind and name, for people.
    what: String,
    reading: ParsedRules,
}

impl Candidate {
    /// Its valid rules that a request means.
    pub fn rules<'a>(&'a self, selector: &Selector) -> impl Iterator<Item = &'a Rule> {
        let valid = self.reading.as_ref().as_ref().into_iter().flatten();
        valid.filter(move |rule| selector.selects(rule))
    }
}

/// The objects of a kind that a request means, by their names and classes.
pub fn candidates<K: SetObject>(selector: &Selector, objects: &[Arc<K>], readings: Vec<ParsedRules>) -> Vec<Candidate> {
    let meant = |object: &K| {
        let name = SetName::new(object.namespace().unwrap_or_default(), object.name_any());
        let class = selector.class.as_ref().is_none_or(|class| object.classes().contains(&class.as_str()));
        let set = selector.set.as_ref().is_none_or(|set| *set == name);
        (class && set).then(|| format!("{} {name}", K::kind(&())))
    };
    let candidate = |(object, reading): (&Arc<K>, ParsedRules)| Some(Candidate { what: meant(object)?, reading });
    objects.iter().zip(readings).filter_map(candidate).collect()
}

/// The valid rules that a request means, or why there are none.
pub fn rules<'a>(selector: &Selector, candidates: &'a [Candidate]) -> Result<Vec<&'a Rule>, Error> {
    let rules: Vec<&Rule> = candidates.iter().flat_map(|candidate| candidate.rules(selector)).collect();
    if !rules.is_empty() {
        return Ok(rules);
    }
    let invalid = |candidate: &'a Candidate| Some((&candidate.what, candidate.reading.as_ref().as_ref().err()?));
    Err(Error::Precondition(match candidates.iter().find_map(invalid) {
        Some((what, problems)) => format!("{what}, which should give disks to {selector}, is not valid: {problems}"),
        None => format!(
            "no LocalVolumeSet and no LocalVolume gives disks to {selector}: create one, or correct the parameters of \
             the StorageClass"
        ),
    }))
}

/// Whether one of the rules allows this use.
pub fn allows(selector: &Selector, rules: &[&Rule], usage: WantedUsage) -> Result<(), Error> {
    if rules.iter().any(|rule| allowed(rule, usage)) {
        return Ok(());
    }
    Err(Error::Invalid(format!("the sets of {selector} {}", contradiction(rules, usage))))
}

/// Whether the set allows this use of a volume.
fn allowed(rule: &Rule, usage: WantedUsage) -> bool {
    rule.allows(match usage {
        WantedUsage::Block => VolumeUsage::Block,
        WantedUsage::Mount(kind) => VolumeUsage::Mount(kind.unwrap_or(rule.fs)),
    })
}

/// What is asked for, and what sets that do not allow it have instead. Goes on after them.
fn contradiction(rules: &[&Rule], usage: WantedUsage) -> String {
    let has_folders = rules.iter().any(|rule| rule.layout.is_directory() && !allowed(rule, usage));
    let (asked, only) = match usage {
        WantedUsage::Block => ("Block", "Filesystem"),
        WantedUsage::Mount(Some(kind)) if has_folders => {
            return format!(
                "have the layout Directory, whose volumes are folders of xfs, and {} is asked for: leave \
                 csi.storage.k8s.io/fstype out of the StorageClass, or make it xfs",
                kind.name()
            );
        }
        WantedUsage::Mount(_) => ("Filesystem", "Block"),
    };
    let why = if has_folders { " (with the layout Directory volumes are folders, which are no devices)" } else { "" };
    format!("allow volumeMode {only} only{why}, and a volume of volumeMode {asked} is asked for")
}

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

    /// The answer in that case, in one sentence. `rules` are those of the request.
    pub fn refusal(&self, node: &NodeName, wanted: &VolumeRequest, rules: &[&Rule]) -> Error {
        let why = contradiction(rules, wanted.usage);
        let selector = &wanted.selector;
        let named: Vec<&str> = self.able.iter().take(NAMED).map(NodeName::as_str).collect();
        let scheduler = "the scheduler does not know volume modes and has to choose another node; a nodeSelector of \
                         the pod, or a class for each mode, saves it the search";
        let others = match (named.is_empty(), self.able.len().saturating_sub(NAMED)) {
            (true, _) => "no node has a disk for that now".to_owned(),
            (false, 0) => format!("{} can serve it: {scheduler}", named.join(", ")),
            (false, more) => format!("{} and {more} more can serve it: {scheduler}", named.join(", ")),
        };
        Error::Exhausted(format!("node {node}: the sets of {selector} that have disks there {why}; {others}"))
    }
}

/// Which node is asked for a volume, or why none can serve it: by what the controller knows of the cluster now.
pub struct NodeChoice<'s> {
    pub stores: &'s Stores,
    pub refused_modes: &'s RefusedModes,
}

impl NodeChoice<'_> {
    pub fn choose(&self, wanted: &VolumeRequest, tried: &[NodeName]) -> Result<NodeName, Error> {
        let candidates = self.offered(&wanted.selector, Some(wanted.usage))?;
        let rules: Vec<&Rule> = candidates.iter().flat_map(|candidate| candidate.rules(&wanted.selector)).collect();
        let modes = self.modes(wanted, &rules);
        if let Some(node) = modes.refused(&wanted.nodes) {
            // Only if the scheduler may have chosen the node.
            if wanted.nodes != Nodes::Any {
                self.refused_modes.note(&wanted.selector, node, wanted.usage, Instant::now());
            }
            return Err(modes.refusal(node, wanted, &rules));
        }
        let named = match &wanted.nodes {
            Nodes::Preferred(nodes) | Nodes::AnyOf(nodes) => Some(nodes.as_slice()),
            Nodes::Any => None,
        };
        let mut rooms = self.rooms(named, &wanted.selector, Some(wanted.usage));
        rooms.retain(|node, _| !modes.bars(node));
        node_capacity::choose(wanted, &rooms, |node| self.state(node), tried)
    }

    /// The room of the named nodes, or of all.
    pub fn rooms(
        &self,
        named: Option<&[NodeName]>,
        selector: &Selector,
        usage: Option<WantedUsage>,
    ) -> BTreeMap<NodeName, Capacity> {
        let (pools, promised) = match named {
            None => (self.stores.pools.all(), self.stores.volumes.all_groups()),
            Some(named) => {
                let named: BTreeSet<&NodeName> = named.iter().collect();
                let pools = named.iter().filter_map(|node| self.stores.pools.get(node)).collect();
                (pools, named.iter().flat_map(|node| self.stores.volumes.group(node)).collect())
            }
        };
        node_capacity::rooms(borrowed(&pools), borrowed(&promised), selector, usage)
    }

    fn modes(&self, wanted: &VolumeRequest, rules: &[&Rule]) -> Modes {
        let mut pools = self.stores.pools.all();
        pools.retain(|pool| self.stores.nodes.get(&pool.node()).is_some());
        modes(&wanted.selector, wanted.usage, rules, borrowed(&pools))
    }

    /// The sets and LocalVolumes that the request means, or why none can serve it on any node.
    pub fn offered(&self, selector: &Selector, usage: Option<WantedUsage>) -> Result<Vec<Candidate>, Error> {
        // A request that names neither class nor set is served by any.
        if *selector == Selector::default() {
            return Ok(Vec::new());
        }
        let Stores { sets, local_volumes, read_sets, read_volumes, .. } = &self.stores;
        let (all_sets, all_volumes) = (sets.all(), local_volumes.all());
        let mut candidates = self::candidates(selector, &all_sets, read_sets.of_any_node(&all_sets));
        candidates.extend(self::candidates(selector, &all_volumes, read_volumes.of_any_node(&all_volumes)));
        match rules(selector, &candidates) {
            Ok(rules) => usage.map_or(Ok(()), |usage| allows(selector, &rules, usage))?,
            // It may be a LocalVolume that is not read yet.
            Err(_) if candidates.is_empty() && !local_volumes.is_synced() => {}
            Err(error) => return Err(error),
        }
        Ok(candidates)
    }

    /// What is known of a node, for a new volume.
    fn state(&self, node: &NodeName) -> NodeState {
        match (self.stores.nodes.get(node), self.silence(node)) {
            (None, _) => NodeState::Missing,
            (Some(_), Some(message)) => NodeState::Silent(message),
            (Some(object), None) => NodeState::Answers(openness(&object)),
        }
    }

    /// That a node's agent does not answer, as text.
    pub fn silence(&self, node: &NodeName) -> Option<String> {
        let pool = self.stores.pools.get(node)?;
        let ready = agent_life::silence(&pool)?;
        Some(format!("node {node}, since {}: {}", ready.last_transition_time.0, ready.message))
    }
}

fn borrowed<K>(objects: &[Arc<K>]) -> impl Iterator<Item = &K> {
    objects.iter().map(Arc::as_ref)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::sample::{pool, wanted};
    use super::*;
    use crate::api::crd::LocalVolumeSet;
    use crate::host::FsKind;
    use crate::operator::set::parsed::Parsed;

    const MOUNT: WantedUsage = WantedUsage::Mount(None);

    fn set_of(name: &str, spec: Value) -> Arc<LocalVolumeSet> {
        let metadata = json!({"name": name, "namespace": "d", "uid": name});
        let set = json!({"apiVersion": "v", "kind": "k", "metadata": metadata, "spec": spec});
        Arc::new(serde_json::from_value(set).expect("a set"))
    }

    fn asked(class: Option<&str>, set: Option<&str>, usage: WantedUsage) -> Result<(), Error> {
        let sets = [
            set_of("block", json!({"storageClassName": "raw", "volumeMode": "Block"})),
            set_of("files", json!({"storageClassName": "files", "volumeMode": "Filesystem"})),
            set_of("any", json!({"storageClassName": "any"})),
            set_of("typo", json!({"storageClassName": "typo", "dryrun": true})),
        ];
        let selector = Selector { class: class.map(str::to_owned), set: set.map(SetName::parse) };
        let candidates = candidates(&selector, &sets, Parsed::default().of_any_node(&sets));
        allows(&selector, &rules(&selector, &candidates)?, usage)
    }

    #[test]
    fn a_request_that_a_set_can_serve_is_not_spoken_of() {
        for (class, set, usage) in [
            (Some("raw"), None, WantedUsage::Block),
            (Some("files"), None, MOUNT),
            (Some("any"), None, WantedUsage::Block),
            (Some("any"), Some("d/any"), MOUNT),
            (None, Some("d/files"), MOUNT),
        ] {
            assert!(asked(class, set, usage).is_ok(), "{class:?} {set:?}");
        }
    }

    #[test]
    fn a_mode_that_no_set_of_the_class_allows_is_an_invalid_request_that_names_the_mode() {
        for (class, usage, only) in [("raw", MOUNT, "Block only"), ("files", WantedUsage::Block, "Filesystem only")] {
            let refused = asked(Some(class), None, usage);
            let names_both = |message: &str| message.contains(only) && message.contains(&format!("class {class}"));
            assert!(matches!(&refused, Err(Error::Invalid(message)) if names_both(message)), "{refused:?}");
        }
    }

    #[test]
    fn volumes_that_are_folders_are_no_devices_and_have_the_filesystem_of_their_disk() {
        let sets = [set_of("many", json!({"storageClassName": "many", "layout": "Directory"}))];
        let selector = Selector { class: Some("many".to_owned()), set: None };
        let candidates = candidates(&selector, &sets, Parsed::default().of_any_node(&sets));
        let rules = rules(&selector, &candidates).expect("a valid set");
        for usage in [MOUNT, WantedUsage::Mount(Some(FsKind::Xfs))] {
            allows(&selector, &rules, usage).expect("a folder");
        }
        for (usage, text) in [
            (WantedUsage::Block, "folders, which are no devices), and a volume of volumeMode Block is asked for"),
            (WantedUsage::Mount(Some(FsKind::Ext4)), "folders of xfs, and ext4 is asked for: leave csi.storage"),
        ] {
            let refused = allows(&selector, &rules, usage);
            assert!(matches!(&refused, Err(Error::Invalid(message)) if message.contains(text)), "{refused:?}");
        }
    }

    #[test]
    fn a_set_that_is_missing_or_invalid_is_told_by_its_name_and_no_other_node_is_tried() {
        for (class, set, text) in [
            (Some("none"), None, "no LocalVolumeSet and no LocalVolume gives disks to class none"),
            (Some("raw"), Some("d/files"), "class raw by set d/files"),
            (None, Some("d/none"), "set d/none"),
            (
                Some("typo"),
                None,
                "LocalVolumeSet d/typo, which should give disks to class typo, is not valid: spec.dryrun",
            ),
        ] {
            let refused = asked(class, set, MOUNT);
            assert!(matches!(&refused, Err(Error::Precondition(message)) if message.contains(text)), "{refused:?}");
        }
    }

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
            let modes = Modes { able: names(able), barred: names(&["blocks"]) };
            let error = modes.refusal(&"blocks".into(), &wanted("x"), &[]);
            let Error::Exhausted(message) = error else { panic!("the scheduler is to choose again: {error:?}") };
            message
        };
        let message = refusal_of(&["b", "a"]);
        for part in
            ["node blocks: the sets of class fast that have disks there allow volumeMode Block only", "a, b can serve"]
        {
            assert!(message.contains(part), "{message}");
        }
        assert!(refusal_of(&["a", "b", "c", "d"]).contains("a, b, c and 1 more can serve"));
        assert!(refusal_of(&[]).contains("no node has a disk for that now"));
    }
}
