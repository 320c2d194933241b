//! The status of one NodeDiskSetup: whether it counts, where its disks are ready, and how its results do. Pure but for the
//! times of conditions.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use super::in_pod::{ExecRight, PodsSeen};
use crate::api::crd::{ACCEPTED, DevicePool, NodeDiskSetupStatus, SetupReason};
use crate::api::{BenchmarkPlace, DiskSetup, DisksUse};
use crate::device::{NodeName, SetName};
use crate::operator::api_server::object_key::ObjectName;
use crate::operator::bytes::signed;
use crate::operator::disk_setup::own_set::OwnSet;
use crate::operator::disk_setup::readiness::DisksReadiness;
use crate::operator::disk_setup::setups::{ReadSetup, Setups};
use crate::operator::event::clip;
use crate::operator::status::condition::{ConditionState, condition};

/// Type of the condition that says whether the disks of its nodes are set up. Only one that sets up disks has it.
const DISKS_READY: &str = "DisksReady";
/// Type of the condition that says whether commands run in pods. Only one with `runIn: Pod` has it.
const BENCHMARKS_IN_PODS: &str = "BenchmarksInPods";
/// How many nodes of older objects are named.
const MOST_NAMED: usize = 8;
/// The chart's value.
const VALUE: &str = "the chart's value controller.nodeDiskSetup.execNamespaces";

/// What was counted for one object.
#[derive(Default)]
pub(super) struct SetupCounts<'a> {
    /// The nodes that it is for, with what their agents report.
    pub nodes: Vec<(NodeName, Option<&'a DevicePool>)>,
    /// The nodes that it selects and an older one has, with its place among all.
    pub of_older: BTreeMap<NodeName, usize>,
    pub volumes: usize,
    pub waiting: usize,
    /// The namespaces of those that may be measured for, in whose pods nothing may be run.
    pub without_right: BTreeMap<ObjectName<Namespace>, ExecRight>,
}

/// What is known of one object.
pub(super) struct SetupFacts<'a> {
    pub setups: &'a Setups,
    pub setup: &'a ReadSetup,
    /// The name of its set.
    pub name: SetName,
    pub set: &'a OwnSet,
    pub counts: &'a SetupCounts<'a>,
    /// Why its set could not be written the last time.
    pub unwritten: Option<&'a str>,
    pub pods: &'a PodsSeen,
}

pub(super) fn status(facts: &SetupFacts<'_>) -> NodeDiskSetupStatus {
    let SetupFacts { setup: ReadSetup { object, reading, nodes: _ }, name, set, counts, unwritten, .. } = facts;
    let SetupCounts { nodes, volumes, waiting, .. } = counts;
    let before = object.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let generation = object.metadata.generation;
    let one = |kind, (holds, reason, message): ConditionState<SetupReason>| {
        condition(&before, kind, holds, reason.word(), clip(message), generation)
    };
    let readiness = match reading {
        Ok(_) if **set != OwnSet::Absent => Some(DisksReadiness::of(name, nodes.iter().cloned())),
        Ok(_) | Err(_) => None,
    };
    let disks_ready = readiness.as_ref().map(|readiness| match (set, unwritten) {
        (OwnSet::Refused(why), _) => (false, SetupReason::SetRefused, refused_message(why)),
        (OwnSet::Missing(_) | OwnSet::Differs(_), Some(why)) => {
            (false, SetupReason::SetRefused, unwritten_message(set, name, why))
        }
        (OwnSet::Absent | OwnSet::Kept | OwnSet::Missing(_) | OwnSet::Differs(_), _) => {
            let reason = readiness.reason();
            let message = match reason {
                // Why it has none, and not how none of them is.
                SetupReason::SelectsNoNode => accepted(facts).2,
                _ => readiness.message(),
            };
            (reason == SetupReason::DisksReady, reason, message)
        }
    });
    // What is there of that name is somebody else's.
    let ready = readiness.filter(|_| !matches!(set, OwnSet::Refused(_))).map_or(0, |readiness| readiness.ready);
    let accepted = one(ACCEPTED, accepted(facts));
    let disks_ready = disks_ready.map(|state| one(DISKS_READY, state));
    let in_pods = in_pods(facts).map(|state| one(BENCHMARKS_IN_PODS, state));
    let conditions: Vec<Condition> = [accepted].into_iter().chain(disks_ready).chain(in_pods).collect();
    let holds = |condition: &&Condition| condition.status == "True";
    let first = conditions.iter().find(|condition| !holds(condition)).or(conditions.first());
    NodeDiskSetupStatus {
        observed_generation: generation.unwrap_or_default(),
        nodes: signed(nodes.len()),
        ready: signed(ready),
        volumes: signed(*volumes),
        waiting: signed(*waiting),
        message: first.map(|condition| condition.message.clone()).unwrap_or_default(),
        conditions,
    }
}

fn accepted(facts: &SetupFacts<'_>) -> ConditionState<SetupReason> {
    let SetupFacts { setup: ReadSetup { reading, .. }, name, set, counts, unwritten, .. } = facts;
    let setup = match reading {
        Ok(setup) => setup,
        Err(invalid) => {
            let kept = match set {
                OwnSet::Absent => String::new(),
                _ => format!("; LocalVolumeSet {name} stays as it is until this is corrected"),
            };
            return (false, SetupReason::Invalid, format!("{invalid}{kept}"));
        }
    };
    let older = of_older(facts);
    if counts.nodes.is_empty() {
        let message = match older.is_empty() {
            true => "no disk is set up: spec.placement selects no node".to_owned(),
            false => format!("no disk is set up: older NodeDiskSetups have all of its nodes{older}"),
        };
        return (true, SetupReason::SelectsNoNode, message);
    }
    let disks = match (set, unwritten) {
        (OwnSet::Missing(_) | OwnSet::Differs(_), Some(why)) => unwritten_message(set, name, why),
        (_, _) => disks_message(setup, set, name),
    };
    let message = format!("{disks}; {}{older}{}", benchmark_message(setup), of_invalid(facts));
    (true, if older.is_empty() { SetupReason::Valid } else { SetupReason::SharesNodes }, message)
}

/// Whether its command runs where it is meant to; `None`: it has none.
fn in_pods(facts: &SetupFacts<'_>) -> Option<ConditionState<SetupReason>> {
    let SetupFacts { setup: ReadSetup { reading, .. }, counts, pods, .. } = facts;
    let place = &reading.as_ref().ok()?.benchmark.as_ref()?.place;
    if *place == BenchmarkPlace::Node {
        return None;
    }
    if pods.allowed.is_empty() {
        let message = format!("disks are measured on their nodes, as with runIn: Node: {VALUE} has no namespace");
        return Some((false, SetupReason::NoExecRight, message));
    }
    let without = |right: ExecRight| {
        let spaces = counts.without_right.iter().filter(|(_, of)| **of == right).map(|(space, _)| space.as_str());
        named(&spaces.collect::<Vec<_>>())
    };
    let [unlisted, refused] = [without(ExecRight::NotListed), without(ExecRight::Refused)];
    let unlisted = unlisted.map(|spaces| format!("{VALUE} does not have {spaces}"));
    let refused = refused.map(|spaces| format!("the API server does not let the controller run anything in {spaces}"));
    let why: Vec<String> = unlisted.into_iter().chain(refused).collect();
    if !why.is_empty() {
        let message = format!("disks are measured on their nodes, as with runIn: Node: {}", why.join("; "));
        return Some((false, SetupReason::NoExecRight, message));
    }
    let is_own = |node: &NodeName| counts.nodes.iter().any(|(own, _)| own == node);
    let waits = pods.waits.iter().filter(|((node, ..), _)| is_own(node));
    let waits = waits.map(|((node, disk, _), why)| format!("disk {disk} of node {node} is idle: {why}"));
    let waits: Vec<String> = waits.take(MOST_NAMED).collect();
    if !waits.is_empty() {
        return Some((false, SetupReason::NoContainer, waits.join("; ")));
    }
    let allowed: Vec<&str> = pods.allowed.iter().map(ObjectName::as_str).collect();
    let message = format!("the command runs in pods of {}", named(&allowed).unwrap_or_default());
    Some((true, SetupReason::RunsInPods, message))
}

/// Some namespaces; `None`: there is none.
fn named(spaces: &[&str]) -> Option<String> {
    let more = spaces.len().checked_sub(MOST_NAMED).filter(|more| *more > 0);
    let more = more.map_or_else(String::new, |more| format!(" and {more} more"));
    let first = spaces.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
    (!spaces.is_empty())
        .then(|| format!("{} {first}{more}", if spaces.len() == 1 { "namespace" } else { "namespaces" }))
}

/// Goes on after the rest: which of its nodes are whose.
fn of_older(facts: &SetupFacts<'_>) -> String {
    let of_older = &facts.counts.of_older;
    if of_older.is_empty() {
        return String::new();
    }
    let name = |place: &usize| facts.setups.all().get(*place).map(|older| older.object.name_any()).unwrap_or_default();
    let named = of_older.iter().take(MOST_NAMED).map(|(node, place)| format!("{node} of {}", name(place)));
    let mut named: Vec<String> = named.collect();
    named.extend(of_older.len().checked_sub(MOST_NAMED + 1).map(|more| format!("and {} more", more + 1)));
    format!(
        "; {} nodes that it selects, with all of their disks, are those of older ones: {}",
        of_older.len(),
        named.join(", ")
    )
}

/// Goes on after the rest: the older ones that keep their nodes from it, though they have a slip.
fn of_invalid(facts: &SetupFacts<'_>) -> String {
    let is_other = |one: &&ReadSetup| one.object.metadata.uid != facts.setup.object.metadata.uid;
    let invalid = facts.setups.all().iter().take_while(is_other).filter(|one| one.reading.is_err());
    let names: Vec<String> = invalid.map(|one| one.object.name_any()).collect();
    let more =
        names.len().checked_sub(MOST_NAMED + 1).map_or_else(String::new, |more| format!(" and {} more", more + 1));
    let named = names.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.is_empty() {
        true => String::new(),
        false => format!("; it takes no disk of the nodes of older ones that are not valid: {named}{more}"),
    }
}

fn disks_message(setup: &DiskSetup, set: &OwnSet, name: &SetName) -> String {
    match (setup.disks, set) {
        (_, OwnSet::Refused(why)) => refused_message(why),
        (DisksUse::SetUp, _) => format!("LocalVolumeSet {name} sets up the disks"),
        (DisksUse::AsTheyAre, OwnSet::Absent) => "no disks are set up: diskSetupDisabled is true".to_owned(),
        (DisksUse::AsTheyAre, _) => {
            format!("LocalVolumeSet {name} keeps the disks that it has and takes no more: diskSetupDisabled is true")
        }
    }
}

/// Of a set that the API server did not take.
fn unwritten_message(set: &OwnSet, name: &SetName, why: &str) -> String {
    match set {
        OwnSet::Differs(_) => format!("LocalVolumeSet {name} stays as it was: {why}"),
        OwnSet::Absent | OwnSet::Kept | OwnSet::Missing(_) | OwnSet::Refused(_) => refused_message(why),
    }
}

fn refused_message(why: &str) -> String {
    format!("no disk is set up: {why}")
}

fn benchmark_message(setup: &DiskSetup) -> &'static str {
    match setup.benchmark {
        None => "volumes get an empty value: diskBenchmarkDisabled is true",
        Some(_) => "the speed of the disks of volumes is written for their pods",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::super::sample;
    use super::*;
    use crate::api::crd::NodeDiskSetup;

    /// The status of an object with this spec, for a node whose agent says nothing.
    fn status_of(spec: Value, set: &OwnSet) -> NodeDiskSetupStatus {
        status_with(spec, set, &SetupCounts { nodes: vec![("n".into(), None)], ..SetupCounts::default() })
    }

    fn status_with(spec: Value, set: &OwnSet, counts: &SetupCounts<'_>) -> NodeDiskSetupStatus {
        status_after(spec, set, counts, None)
    }

    fn status_after(
        spec: Value,
        set: &OwnSet,
        counts: &SetupCounts<'_>,
        unwritten: Option<&str>,
    ) -> NodeDiskSetupStatus {
        let setups = Setups::of(vec![Arc::new(sample::setup("a", "2026-01-01T00:00:00Z", spec))]);
        let name = SetName::new("localpool", "node-disk-setup-a");
        let pods = &PodsSeen::default();
        status(&SetupFacts { setups: &setups, setup: &setups.all()[0], name, set, counts, unwritten, pods })
    }

    #[test]
    fn what_is_shown_of_an_object_is_what_does_not_hold_and_never_that_all_is_well() {
        let on = json!({"diskSetupDisabled": false});
        let unready = status_of(on.clone(), &OwnSet::Kept);
        assert_eq!((unready.nodes, unready.ready), (1, 0));
        assert!(unready.message.starts_with("the disks of 0 of 1 nodes are ready: n: no agent"), "{}", unready.message);
        let refused = status_of(on, &OwnSet::Refused("somebody has its name".to_owned()));
        assert_eq!(refused.message, "no disk is set up: somebody has its name");
        assert!(!refused.conditions[0].message.contains("sets up"), "{}", refused.conditions[0].message);
        let invalid = status_of(json!({"localDiskPath": "/mnt"}), &OwnSet::Kept);
        assert!(invalid.message.starts_with("spec.localDiskPath: unknown field"), "{}", invalid.message);
        let counts = SetupCounts { of_older: [("n".into(), 0)].into(), ..SetupCounts::default() };
        let none = status_with(json!({"diskSetupDisabled": false}), &OwnSet::Kept, &counts);
        assert!(
            none.message.ends_with(
                "of its nodes; 1 nodes that it selects, with all of their disks, are those of older ones: n of a"
            ),
            "{}",
            none.message
        );
        let nobody = status_with(json!({"diskSetupDisabled": false}), &OwnSet::Kept, &SetupCounts::default());
        assert_eq!(nobody.message, "no disk is set up: spec.placement selects no node");
        let off = status_of(json!({}), &OwnSet::Absent);
        assert!(
            off.message.starts_with("no disks are set up: diskSetupDisabled is true; the speed"),
            "{}",
            off.message
        );
    }

    #[test]
    fn a_younger_one_says_which_older_ones_keep_their_nodes_from_it_though_they_are_not_valid() {
        let one = |name: &str, created, more| Arc::new(sample::setup(name, created, more));
        let slip = one("old", "2026-01-01T00:00:00Z", json!({"slip": 1}));
        let after = one("z", "2026-01-03T00:00:00Z", json!({"slip": 1}));
        let on = one("young", "2026-01-02T00:00:00Z", json!({"diskSetupDisabled": false}));
        let counts = SetupCounts { nodes: vec![("n".into(), None)], ..SetupCounts::default() };
        let said = |all: Vec<Arc<NodeDiskSetup>>| {
            let setups = Setups::of(all);
            let setup = setups.all().iter().find(|one| one.object.name_any() == "young").expect("it is there");
            let (name, set, pods) = (SetName::new("localpool", "s"), &OwnSet::Kept, &PodsSeen::default());
            let facts = SetupFacts { setups: &setups, setup, name, set, counts: &counts, unwritten: None, pods };
            status(&facts).conditions[0].message.clone()
        };
        let told = said(vec![Arc::clone(&slip), Arc::clone(&on), Arc::clone(&after)]);
        assert!(told.ends_with("; it takes no disk of the nodes of older ones that are not valid: old"), "{told}");
        let alone = said(vec![on, after]);
        assert!(!alone.contains("not valid"), "{alone}");
    }

    #[test]
    fn a_set_that_could_not_be_written_is_told_with_the_reason_and_nothing_says_that_it_is_there() {
        let counts = SetupCounts { nodes: vec![("n".into(), None)], ..SetupCounts::default() };
        let missing = OwnSet::Missing(Box::new(
            serde_json::from_value(json!({
                "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
                "metadata": {"name": "node-disk-setup-a"}, "spec": {},
            }))
            .expect("a set"),
        ));
        let why = "making LocalVolumeSet localpool/node-disk-setup-a: it is forbidden";
        let on = || json!({"diskSetupDisabled": false});
        let told = status_after(on(), &missing, &counts, Some(why));
        assert_eq!(told.message, format!("no disk is set up: {why}"));
        let [accepted, ready] = &told.conditions[..] else { panic!("{:?}", told.conditions) };
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "SetRefused"));
        assert!(!accepted.message.contains("sets up the disks"), "{}", accepted.message);
        // One that is there goes on as it was.
        let differs = OwnSet::Differs(match missing {
            OwnSet::Missing(set) => set,
            _ => unreachable!("it is missing"),
        });
        let kept = status_after(on(), &differs, &counts, Some("changing it: it is forbidden")).message;
        assert_eq!(kept, "LocalVolumeSet localpool/node-disk-setup-a stays as it was: changing it: it is forbidden");
    }

    #[test]
    fn disks_of_a_set_of_somebody_else_that_has_its_name_are_not_counted_as_set_up() {
        let more =
            json!({"set": "localpool/node-disk-setup-a", "layout": "Directory", "hostPath": "/mnt/raid-disks/a"});
        let pool = sample::pool("n", Value::Null, vec![sample::disk("gpt-1", more)], json!([]));
        let counts = SetupCounts { nodes: vec![("n".into(), Some(&pool))], ..SetupCounts::default() };
        let on = json!({"diskSetupDisabled": false});
        assert_eq!(status_with(on.clone(), &OwnSet::Kept, &counts).ready, 1);
        assert_eq!(status_with(on, &OwnSet::Refused("somebody has its name".to_owned()), &counts).ready, 0);
    }
}
