//! What a set or a LocalVolume asks of the whole cluster. Pure.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::class::{Class, ClassName};
use super::offers::{Offers, count};
use super::parsed::{ParsedRules, SetObject, selected};
use crate::api::Invalid;
use crate::api::crd::SetReason;
use crate::device::SetName;
use crate::operator::event::EventNote;
use crate::operator::status::condition::ConditionState;

/// What an object that was read asks of the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Summary {
    Valid {
        classes: Vec<ClassName>,
        /// How many paths of devices it names.
        paths: usize,
        /// How many nodes it selects, out of how many.
        selected: usize,
        nodes: usize,
        /// A dry run, or a managementState that prevents new claims.
        claims_nothing: bool,
    },
    Invalid(Invalid),
}

impl Summary {
    pub fn of(object: &impl SetObject, reading: &ParsedRules, nodes: &[impl AsRef<KubeNode>]) -> Self {
        let rules = match reading.as_ref() {
            Ok(rules) => rules,
            Err(problems) => return Self::Invalid(problems.clone()),
        };
        // A LocalVolume that asks for nothing selects every node.
        let selected = if rules.is_empty() { nodes.len() } else { selected(object.spec(), nodes) };
        Self::Valid {
            classes: rules.iter().map(|rule| rule.class.as_str().into()).collect(),
            paths: rules.iter().flat_map(|rule| &rule.named).map(|named| named.paths.len()).sum(),
            selected,
            nodes: nodes.len(),
            claims_nothing: rules.iter().any(|rule| rule.dry_run),
        }
    }

    /// The classes that it needs: nothing is made for an object that claims nothing.
    pub fn classes(&self) -> impl Iterator<Item = &ClassName> {
        let classes = match self {
            Self::Valid { classes, claims_nothing: false, .. } => classes.as_slice(),
            Self::Valid { .. } | Self::Invalid(_) => &[],
        };
        classes.iter().filter(|name| !name.as_str().is_empty())
    }

    /// Whether the spec is valid.
    pub fn valid(&self) -> ConditionState<SetReason> {
        match self {
            Self::Valid { .. } => (true, SetReason::Valid, "the spec is valid".to_owned()),
            Self::Invalid(problems) => (false, SetReason::Invalid, problems.to_string()),
        }
    }

    /// Why no node can claim anything for it: a reason and a sentence.
    pub fn problem(&self) -> Option<(SetReason, String)> {
        match self {
            Self::Invalid(problems) => {
                Some((SetReason::Invalid, format!("nothing new is claimed: {}", problems.first())))
            }
            Self::Valid { selected: 0, nodes, .. } if *nodes > 0 => {
                Some((SetReason::NoNodeSelected, format!("nodeSelector selects none of {}", count(*nodes, "node"))))
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
        made: &BTreeMap<ClassName, Class>,
        offers: &Offers<'_>,
    ) -> (Self::Status, Vec<EventNote>);
}
