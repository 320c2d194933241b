//! The answer, for people and for programs.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use crate::api::quantity;
use crate::device::NodeName;
use crate::show::one_line;

/// How far the texts stand from the margin.
const MARGIN: usize = 8;
/// How many nodes of which the same is to be said are named.
const NAMED: usize = 8;

/// For people and programs. Field names stay; new ones may come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PvcAnswer {
    /// `namespace/name`.
    pub claim: String,
    /// What was looked at, from the claim on.
    pub steps: Vec<AnswerStep>,
    /// The nodes that have something to do with it, in the order of their names.
    pub nodes: Vec<NodeAnswer>,
    /// Nodes that no set selects, and that have no disk for it.
    #[serde(skip_serializing_if = "is_none")]
    pub other_nodes: usize,
    /// Why it has no volume, or that it has one.
    pub why: String,
    /// The one thing to do.
    pub next: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AnswerStep {
    /// `claim`, `class`, `sets`, `volume`, `pod` or `event`.
    pub about: &'static str,
    pub text: String,
}

/// What one node could do for a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAnswer {
    pub node: NodeName,
    /// The largest volume that it could give to this claim now, in bytes.
    pub largest: u64,
    /// What keeps it from giving the volume; none: it can.
    pub obstacles: Vec<String>,
}

impl AnswerStep {
    /// One line for each; what a line is about stands before the first of its lines.
    pub fn write_all(f: &mut Formatter<'_>, steps: &[Self]) -> fmt::Result {
        let mut before = "";
        for Self { about, text } in steps {
            let shown = if *about == before { "" } else { *about };
            writeln!(f, "{shown:<MARGIN$}{}", one_line(text))?;
            before = *about;
        }
        Ok(())
    }

    pub fn write_end(f: &mut Formatter<'_>, why: &str, next: &str) -> fmt::Result {
        writeln!(f, "{:<MARGIN$}{}", "why", one_line(why))?;
        writeln!(f, "{:<MARGIN$}{}", "next", one_line(next))
    }

    pub fn new(about: &'static str, text: String) -> Self {
        Self { about, text }
    }
}

/// The nodes of which the same is to be said, in one line: a cluster may have a thousand.
fn grouped(nodes: &[NodeAnswer]) -> Vec<(String, &NodeAnswer)> {
    let mut groups: Vec<Vec<&NodeAnswer>> = Vec::new();
    for node in nodes {
        let is_same = |group: &&mut Vec<&NodeAnswer>| {
            group.first().is_some_and(|one| (one.largest, &one.obstacles) == (node.largest, &node.obstacles))
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push(node),
            None => groups.push(vec![node]),
        }
    }
    let line = |group: &Vec<&NodeAnswer>| {
        let named = group.iter().take(NAMED).map(|one| one.node.as_str()).collect::<Vec<_>>().join(", ");
        let more = group.len().saturating_sub(NAMED);
        if more > 0 { format!("{named} and {more} more") } else { named }
    };
    groups.iter().filter_map(|group| Some((line(group), *group.first()?))).collect()
}

impl Display for PvcAnswer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { claim: _, steps, nodes, other_nodes, why, next } = self;
        AnswerStep::write_all(f, steps)?;
        let mut head = "nodes";
        for (names, node) in grouped(nodes) {
            let NodeAnswer { node: _, largest, obstacles } = node;
            let could = match (largest, obstacles.is_empty()) {
                (largest, true) => format!("can give up to {}", quantity::short(*largest)),
                (0, false) => "can give nothing".to_owned(),
                (largest, false) => format!("could give up to {}", quantity::short(*largest)),
            };
            let why = obstacles.iter().map(|one| format!("; {}", one_line(one))).collect::<String>();
            writeln!(f, "{head:<MARGIN$}{names} {could}{why}")?;
            head = "";
        }
        match other_nodes {
            0 => {}
            1 => writeln!(f, "{head:<MARGIN$}1 node is selected by no set of the class")?,
            many => writeln!(f, "{head:<MARGIN$}{many} nodes are selected by no set of the class")?,
        }
        AnswerStep::write_end(f, why, next)
    }
}
