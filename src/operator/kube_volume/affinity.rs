//! The nodes that a PersistentVolume can be used on, as its affinity names them. Pure.

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use serde_json::Value;

use crate::device::NodeName;
use crate::volume::TOPOLOGY_KEY;

/// The label by which most provisioners name a node. Its value may differ from the node's name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The labels by which a PersistentVolume usually names a node.
pub const NODE_LABELS: [&str; 2] = [HOSTNAME, TOPOLOGY_KEY];
/// The field that names it.
const NAME: &str = "metadata.name";

/// `spec.nodeAffinity.required`.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeAffinity(NodeSelector);

impl NodeAffinity {
    pub fn new(required: NodeSelector) -> Self {
        Self(required)
    }

    /// As `node_selector` takes it; `None`: it cannot be understood.
    pub fn selector(&self) -> Option<Value> {
        serde_json::to_value(&self.0).ok()
    }

    /// Whether a term names this node, and no other, by this driver's topology.
    pub fn names(&self, node: &NodeName) -> bool {
        self.in_topology().any(|values| matches!(values, [value] if node == value))
    }

    /// The node that it names first by this driver's topology; `None`: none, or several at once.
    pub fn node(&self) -> Option<NodeName> {
        match self.in_topology().next()? {
            [node] => Some(node.as_str().into()),
            _ => None,
        }
    }

    /// The values of each requirement of this driver's topology.
    fn in_topology(&self) -> impl Iterator<Item = &[String]> {
        let all = self.0.node_selector_terms.iter().flat_map(|term| term.match_expressions.iter().flatten());
        let ours = all.filter(|wanted| wanted.key == TOPOLOGY_KEY && is_in(wanted));
        ours.map(|wanted| wanted.values.as_deref().unwrap_or_default())
    }

    /// The hostnames, or names, of which a node needs one; `None`: it may be selected without.
    pub fn hostnames(&self) -> Option<Vec<&String>> {
        let all: Option<Vec<Vec<_>>> = self.0.node_selector_terms.iter().map(hostnames).collect();
        all.map(|all| all.concat())
    }

    /// The labels of which a node needs one, with their values, where the affinity says nothing else; `None`: it does.
    pub fn labels(&self) -> Option<Vec<(&'static str, String)>> {
        let all: Option<Vec<Vec<_>>> = self.0.node_selector_terms.iter().map(labels).collect();
        all.map(|all| all.concat()).filter(|all| !all.is_empty())
    }
}

fn is_in(wanted: &NodeSelectorRequirement) -> bool {
    wanted.operator == "In"
}

fn hostnames(term: &NodeSelectorTerm) -> Option<Vec<&String>> {
    let labels = term.match_expressions.iter().flatten();
    let labels = labels.filter(|wanted| NODE_LABELS.contains(&wanted.key.as_str()));
    let fields = term.match_fields.iter().flatten().filter(|wanted| wanted.key == NAME);
    let wanted = labels.chain(fields).find(|wanted| is_in(wanted))?;
    Some(wanted.values.iter().flatten().collect())
}

fn labels(term: &NodeSelectorTerm) -> Option<Vec<(&'static str, String)>> {
    let NodeSelectorTerm { match_expressions, match_fields } = term;
    let [wanted] = match_expressions.as_deref()? else { return None };
    let key = NODE_LABELS.into_iter().find(|key| *key == wanted.key)?;
    let values = wanted.values.as_deref().filter(|values| !values.is_empty())?;
    let is_plain = is_in(wanted) && match_fields.as_ref().is_none_or(Vec::is_empty);
    is_plain.then(|| values.iter().map(|value| (key, value.clone())).collect())
}
