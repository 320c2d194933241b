//! Puts the answer together.

use std::collections::BTreeMap;

use kube::ResourceExt as _;

use super::answer::{AnswerStep, NodeAnswer, PvcAnswer};
use super::bound::{self, Bound};
use super::case::PvcCase;
use super::obstacle::{NodeCase, obstacles, silent};
use super::refusal::Unserved;
use super::remedy::{self, NextStep, next_step};
use super::wanted::{self, PvcWanted};
use crate::api::crd::{Phase, PoolVolume};
use crate::device::NodeName;
use crate::operator::pool_volume::phase;
use crate::operator::volume::node_capacity::rooms;

/// The whole answer.
pub fn explain(case: &PvcCase) -> PvcAnswer {
    let mut answer = Answering { case, steps: vec![AnswerStep::new("claim", wanted::claim_text(case))] };
    if case.pvc.metadata.deletion_timestamp.is_some() {
        let next = match &case.pods[..] {
            [] => "nothing: Kubernetes deletes it when nothing uses it any more".to_owned(),
            _ => format!("stop the pods that use it: {}", case.pod_names()),
        };
        return answer.end("it is being deleted".to_owned(), next);
    }
    if let Some(persistent) = wanted::named_volume(case) {
        let Bound { steps, why, next } = bound::explain(case, persistent);
        answer.steps.extend(steps);
        return answer.end(why, next);
    }
    match PvcWanted::of(case) {
        Ok(wanted) => pending(answer, &wanted),
        Err(Unserved { step: at, why, next }) => {
            answer.steps.extend(at);
            answer.steps.extend(event_step(case));
            answer.end(why, next)
        }
    }
}

fn event_step(case: &PvcCase) -> Option<AnswerStep> {
    case.event.as_ref().map(|event| AnswerStep::new("event", event.text.clone()))
}

/// A claim that waits for a volume of this driver.
fn pending(mut answer: Answering<'_>, wanted: &PvcWanted<'_>) -> PvcAnswer {
    let case = answer.case;
    answer.steps.push(AnswerStep::new("class", wanted.class_text(case)));
    answer.steps.push(AnswerStep::new("sets", wanted.sets_text()));
    let own = own_volume(case);
    answer.steps.extend(own.map(|own| AnswerStep::new("volume", own_text(own))));
    answer.steps.push(AnswerStep::new("pod", case.pods_text()));
    answer.steps.extend(event_step(case));
    let (nodes, others) = node_cases(case, wanted);
    let found: Vec<_> = nodes
        .iter()
        .map(|node| {
            let open = node.pool.map(|pool| rooms([pool], &case.volumes, &wanted.selector, Some(wanted.usage)));
            let largest = open.and_then(|rooms| rooms.values().next().map(|room| room.largest)).unwrap_or(0);
            (node, largest, obstacles(case, wanted, node))
        })
        .collect();
    let NextStep { why, next } = match own.filter(|own| matches!(phase(own), Phase::Pending | Phase::Accepted)) {
        Some(own) => under_way(own, case),
        None => next_step(case, wanted, &found, others),
    };
    let nodes = found.into_iter().map(|(node, largest, obstacles)| NodeAnswer {
        node: node.name.clone(),
        largest,
        obstacles: obstacles.iter().map(ToString::to_string).collect(),
    });
    let nodes = nodes.collect();
    PvcAnswer { nodes, other_nodes: others, ..answer.end(why, next) }
}

struct Answering<'c> {
    case: &'c PvcCase,
    steps: Vec<AnswerStep>,
}

impl Answering<'_> {
    fn end(self, why: String, next: String) -> PvcAnswer {
        let Self { case, steps } = self;
        PvcAnswer { claim: case.name.to_string(), steps, nodes: Vec::new(), other_nodes: 0, why, next }
    }
}

/// The nodes that may have something to do with it, and how many others there are.
fn node_cases<'c>(case: &'c PvcCase, wanted: &PvcWanted<'_>) -> (Vec<NodeCase<'c>>, usize) {
    let mut all: BTreeMap<NodeName, NodeCase<'c>> = BTreeMap::new();
    for node in &case.nodes {
        let name: NodeName = node.name_any().into();
        all.insert(name.clone(), NodeCase { name, node: Some(node), pool: None, selected: wanted.selects(case, node) });
    }
    for pool in &case.pools {
        let gone = || NodeCase { name: pool.node(), node: None, pool: None, selected: false };
        all.entry(pool.node()).or_insert_with(gone).pool = Some(pool);
    }
    let concerned = |node: &NodeCase<'_>| node.selected || node.offers(wanted).iter().any(|offer| offer.devices > 0);
    let (some, others): (Vec<_>, Vec<_>) = all.into_values().partition(concerned);
    (some, others.len())
}

/// The volume that the provisioner has asked for already: it is named after the claim.
fn own_volume(case: &PvcCase) -> Option<&PoolVolume> {
    let name = format!("pvc-{}", case.pvc.uid()?);
    case.volumes.iter().find(|volume| volume.spec.volume_name == name)
}

fn own_text(volume: &PoolVolume) -> String {
    let status = volume.status.as_ref();
    let message = status.and_then(|status| status.message.as_deref());
    let reason = status.and_then(|status| status.reason.as_ref()).map(|reason| format!(", {reason}"));
    let what = format!("PoolVolume {} on node {}: {:?}", volume.name_any(), volume.spec.node, phase(volume));
    let what = what + &reason.unwrap_or_default();
    message.map_or_else(|| what.clone(), |message| format!("{what}: {message}"))
}

/// An agent has it in hand.
fn under_way(volume: &PoolVolume, case: &PvcCase) -> NextStep {
    let node = &volume.spec.node;
    let silent = case.pools.iter().find(|pool| pool.node() == *node).and_then(silent);
    let next = match silent {
        Some(silent) => remedy::of(case, node, &silent),
        None => "nothing: it is ready in a moment; if it is not, ask again".to_owned(),
    };
    let why = match phase(volume) {
        Phase::Accepted => format!("the agent of node {node} is making it"),
        _ => format!("the agent of node {node} is asked for it, and has not answered yet"),
    };
    NextStep { why, next }
}

#[cfg(test)]
mod tests;
