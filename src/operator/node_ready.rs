//! Whether pods can run on a node. Pure.

use k8s_openapi::api::core::v1::{Node, NodeCondition};

/// What kubelet says of its node, or the node controller in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeReadiness {
    Ready,
    /// kubelet says that it cannot run pods, or the node controller that kubelet does not answer.
    NotReady,
    /// Nobody has said anything yet.
    NotSaid,
}

pub fn readiness(node: &Node) -> NodeReadiness {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    match conditions.iter().find(|condition| condition.type_ == "Ready") {
        Some(NodeCondition { status, .. }) if status == "True" => NodeReadiness::Ready,
        Some(_) => NodeReadiness::NotReady,
        None => NodeReadiness::NotSaid,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_ready_if_its_kubelet_says_so_and_not_if_kubelet_is_silent() {
        let said = |conditions| {
            let node = json!({"metadata": {"name": "n"}, "status": {"conditions": conditions}});
            readiness(&serde_json::from_value(node).expect("a Node"))
        };
        let ready =
            |status: &str| json!([{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": status}]);
        assert_eq!(said(ready("True")), NodeReadiness::Ready);
        assert_eq!(said(ready("False")), NodeReadiness::NotReady);
        assert_eq!(said(ready("Unknown")), NodeReadiness::NotReady);
        assert_eq!(said(json!([])), NodeReadiness::NotSaid);
    }
}
