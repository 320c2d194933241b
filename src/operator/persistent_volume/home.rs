//! The node of a PersistentVolume, by its affinity.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node as KubeNode;

use crate::api::crd::PoolVolume;
use crate::api::{Node, node_selector};
use crate::device::NodeName;
use crate::operator::kube_volume::{HOSTNAME, PersistentVolume};
use crate::operator::node::kube_node;

/// Where a local volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    Node(NodeName),
    /// The affinity names a node, and none is there by that name or hostname.
    Gone(NodeName),
    /// It has no affinity, or selects several nodes: its path is not looked at anywhere.
    NotOne,
}

impl Home {
    /// The name of the node, whether it is there or not.
    pub fn name(&self) -> Option<&NodeName> {
        match self {
            Self::Node(name) | Self::Gone(name) => Some(name),
            Self::NotOne => None,
        }
    }
}

/// All nodes, and those of each hostname: there may be as many volumes as nodes.
#[derive(Debug, Default)]
pub struct NodeIndex {
    all: Vec<Node>,
    by_value: BTreeMap<String, Vec<usize>>,
}

impl NodeIndex {
    pub fn of(nodes: &[Arc<KubeNode>]) -> Self {
        let all: Vec<Node> = nodes.iter().map(|node| kube_node::selectable(node)).collect();
        let mut by_value: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, node) in all.iter().enumerate() {
            by_value.entry(node.name.to_string()).or_default().push(index);
            if let Some(hostname) = node.labels.get(HOSTNAME).filter(|hostname| node.name != **hostname) {
                by_value.entry(hostname.clone()).or_default().push(index);
            }
        }
        Self { all, by_value }
    }

    /// A volume of this driver is where its PoolVolume says.
    pub fn home_of(&self, persistent: &PersistentVolume, volume: Option<&PoolVolume>) -> Home {
        volume.map_or_else(|| self.home(persistent), |volume| Home::Node(volume.spec.node.clone()))
    }

    pub fn home(&self, volume: &PersistentVolume) -> Home {
        let Some(affinity) = &volume.affinity else { return Home::NotOne };
        let Some(selector) = affinity.selector() else { return Home::NotOne };
        let named = affinity.hostnames();
        let candidates: Vec<&Node> = match &named {
            Some(values) => values
                .iter()
                .flat_map(|value| self.by_value.get(*value))
                .flatten()
                .map(|index| &self.all[*index])
                .collect(),
            None => self.all.iter().collect(),
        };
        let mut selected = candidates.into_iter().filter(|node| node_selector::may_select(&selector, node));
        match (selected.next(), named) {
            (Some(node), _) => match selected.all(|other| other.name == node.name) {
                true => Home::Node(node.name.clone()),
                false => Home::NotOne,
            },
            (None, named) => only(&named.unwrap_or_default()).map_or(Home::NotOne, |value| Home::Gone(value.into())),
        }
    }
}

/// The one value, however often it is there.
fn only<'a>(values: &[&'a String]) -> Option<&'a str> {
    let first = values.first()?;
    values.iter().all(|value| value == first).then_some(first.as_str())
}
