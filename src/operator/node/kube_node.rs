//! What localpool reads of a Node. Pure but for the reads of one Node.
//!
//! Takes in a Node as the API server has it; gives out one without the rest (images, addresses, heartbeats), which is
//! most of its size.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};

use crate::api::Node as NamedNode;
use crate::operator::api_server::client::within;
use crate::operator::api_server::error::OperatorError;
use crate::operator::status::ready::{self, READY};

/// The node's name, UID, labels, taints, whether it is unschedulable, and whether it is ready.
pub fn needed(node: Node) -> Node {
    let ObjectMeta { name, uid, resource_version, labels, creation_timestamp, .. } = node.metadata;
    let spec = node.spec.unwrap_or_default();
    let ready = |condition: &NodeCondition| condition.type_ == READY;
    let conditions = node.status.and_then(|status| status.conditions).into_iter().flatten().filter(ready);
    let conditions = conditions.map(|condition| NodeCondition { last_heartbeat_time: None, ..condition }).collect();
    Node {
        metadata: ObjectMeta { name, uid, resource_version, labels, creation_timestamp, ..ObjectMeta::default() },
        spec: Some(NodeSpec { taints: spec.taints, unschedulable: spec.unschedulable, ..NodeSpec::default() }),
        status: Some(NodeStatus { conditions: Some(conditions), ..NodeStatus::default() }),
    }
}

/// A Node as it is now, from the API server; `None`: it does not exist.
pub async fn live(client: &Client, name: &str) -> Result<Option<Node>, OperatorError> {
    let nodes: Api<Node> = Api::all(client.clone());
    Ok(within(&format!("reading Node {name}"), nodes.get_opt(name)).await?.map(needed))
}

/// The same, where it only matters whether it exists.
pub async fn live_metadata(client: &Client, name: &str) -> Result<Option<PartialObjectMeta<Node>>, OperatorError> {
    let nodes: Api<Node> = Api::all(client.clone());
    within(&format!("reading Node {name}"), nodes.get_metadata_opt(name)).await
}

/// By what selectors select it.
pub fn selectable(node: &Node) -> NamedNode {
    NamedNode { name: node.name_any().into(), labels: node.labels().clone() }
}

/// Whether two states of a node are the same to whoever waits for changes: its version does not matter.
pub fn is_same(a: &Node, b: &Node) -> bool {
    (&a.metadata.uid, &a.metadata.labels, &a.spec, &a.status)
        == (&b.metadata.uid, &b.metadata.labels, &b.spec, &b.status)
}

/// What kubelet says of its readiness, or the node controller when kubelet is silent: `Unknown`. `None`: nobody said
/// anything yet.
pub fn ready(node: &Node) -> Option<&NodeCondition> {
    ready::ready(node.status.iter().flat_map(|status| status.conditions.iter().flatten()))
}

/// Since when the node is ready, or is not; `None`: nobody said.
pub fn ready_since(node: &Node) -> Option<Timestamp> {
    ready(node)?.last_transition_time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(status: &str, heartbeat: &str) -> Node {
        let since = "2026-01-01T00:00:00Z";
        let conditions = json!([
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Ready", "status": status, "lastTransitionTime": since, "lastHeartbeatTime": heartbeat},
        ]);
        let node = json!({
            "metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}, "annotations": {"x": "y"}, "resourceVersion": heartbeat},
            "spec": {"unschedulable": true, "podCIDR": "10.0.0.0/24"},
            "status": {"conditions": conditions, "images": [{"names": ["an image"], "sizeBytes": 1}]},
        });
        serde_json::from_value(node).expect("a Node")
    }

    #[test]
    fn a_heartbeat_is_no_change_and_readiness_and_labels_are() {
        let first = needed(node("True", "2026-01-01T00:00:10Z"));
        assert!(is_same(&first, &needed(node("True", "2026-01-01T00:00:20Z"))));
        assert!(!is_same(&first, &needed(node("Unknown", "2026-01-01T00:00:10Z"))));
        assert_eq!(first.spec.as_ref().and_then(|spec| spec.unschedulable), Some(true));
        assert!(first.status.as_ref().is_some_and(|status| status.images.is_none()));
        let mut other = first.clone();
        other.metadata.labels = None;
        assert!(!is_same(&first, &other));
    }

    #[test]
    fn since_when_a_node_is_ready_is_what_its_condition_says() {
        let since = ready_since(&node("Unknown", "2026-01-01T00:00:10Z"));
        assert_eq!(since, "2026-01-01T00:00:00Z".parse().ok());
        assert_eq!(ready_since(&Node::default()), None);
    }
}
