//! What a set or a LocalVolume asks of the whole cluster. Pure.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::class::Class;
use super::offers::{Offers, count};
use super::parsed::{ParsedRules, SetObject, selected};
use crate::api::Invalid;
use crate::device::SetName;
use crate::operator::condition::ConditionState;
use crate::operator::event::EventNote;

/// What an object that was read asks of the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Summary {
    Valid {
        classes: Vec<String>,
        /// How many paths of devices it names.
        paths: usize,
        /// How many nodes it selects, out of how many.
        selected: usize,
        nodes: usize,
        /// A dry run, or a managementState that prevents new claims.
        is_held: bool,
    },
    Invalid(Invalid),
}

impl Summary {
    pub fn of(object: &impl SetObject, reading: &ParsedRules, nodes: &[impl AsRef<KubeNode>]) -> Self {
        let rules = match reading.as_ref() {
            Ok(rules) => rules,
            Err(problems) => return Self::Invalid(problems.clone()),
        };
        let selector = object.spec().get("nodeSelector").filter(|_| !rules.is_empty());
        Self::Valid {
            classes: rules.iter().map(|rule| rule.class.clone()).collect(),
            paths: rules.iter().flat_map(|rule| &rule.named).map(|named| named.paths.len()).sum(),
            selected: selected(selector, nodes),
            nodes: nodes.len(),
            is_held: rules.iter().any(|rule| rule.dry_run),
        }
    }

    /// The classes that it needs: nothing is made for an object that claims nothing.
    pub fn classes(&self) -> impl Iterator<Item = &String> {
        let classes = match self {
            Self::Valid { classes, is_held: false, .. } => classes.as_slice(),
            Self::Valid { .. } | Self::Invalid(_) => &[],
        };
        classes.iter().filter(|name| !name.is_empty())
    }

    /// Whether the spec is valid.
    pub fn valid(&self) -> ConditionState {
        match self {
            Self::Valid { .. } => (true, "Valid", "the spec is valid".to_owned()),
            Self::Invalid(problems) => (false, "Invalid", problems.to_string()),
        }
    }

    /// Why no node can claim anything for it: a reason and a sentence.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Invalid(problems) => Some(("Invalid", format!("nothing new is claimed: {}", problems.first()))),
            Self::Valid { selected: 0, nodes, .. } if *nodes > 0 => {
                Some(("NoNodeSelected", format!("nodeSelector selects none of {}", count(*nodes, "node"))))
            }
            Self::Valid { .. } => None,
        }
    }
}

/// A kind of object whose status says what became of it.
pub trait SetStatus: SetObject + Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned {
    type Status: PartialEq + Serialize;

    /// The name of the work on it, in metrics and logs.
    const WORK: &'static str;

    fn status(&self) -> Option<&Self::Status>;

    /// Whether a node's offer under this name is one of this object.
    fn is_own(&self, offer: &SetName) -> bool;

    /// The status, and what is new in it. `made` has the state of each class.
    fn decide(
        &self,
        summary: &Summary,
        made: &BTreeMap<String, Class>,
        offers: &Offers<'_>,
    ) -> (Self::Status, Vec<EventNote>);
}
