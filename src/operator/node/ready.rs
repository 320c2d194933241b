//! Whether a node is there, and whether pods can run on it. Pure.

use k8s_openapi::api::core::v1::Node;

use crate::operator::node::kube_node::ready;
use crate::operator::status::ready::says_ready;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeReadiness {
    /// Also while nobody has said anything yet.
    Ready,
    /// kubelet says that it cannot run pods, or the node controller that kubelet does not answer.
    NotReady,
    /// Its object does not exist.
    Gone,
}

pub fn readiness(node: Option<&Node>) -> NodeReadiness {
    match node.map(ready) {
        None => NodeReadiness::Gone,
        Some(Some(condition)) if !says_ready(condition) => NodeReadiness::NotReady,
        Some(_) => NodeReadiness::Ready,
    }
}

/// Whether a volume that no pod waits for may be made on a node: nobody knows which pod comes, and what it tolerates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Openness {
    /// Not ready, or cordoned (`kubectl cordon`).
    Closed,
    /// Only for pods that tolerate its taints.
    Tainted,
    Open,
}

pub fn openness(node: &Node) -> Openness {
    let spec = node.spec.as_ref();
    let cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    match readiness(Some(node)) {
        NodeReadiness::NotReady => Openness::Closed,
        NodeReadiness::Ready | NodeReadiness::Gone if cordoned => Openness::Closed,
        NodeReadiness::Ready | NodeReadiness::Gone if taints.iter().any(|taint| taint.effect != "PreferNoSchedule") => {
            Openness::Tainted
        }
        NodeReadiness::Ready | NodeReadiness::Gone => Openness::Open,
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
            readiness(Some(&serde_json::from_value(node).expect("a Node")))
        };
        let ready =
            |status: &str| json!([{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": status}]);
        assert_eq!(said(ready("True")), NodeReadiness::Ready);
        assert_eq!(said(ready("False")), NodeReadiness::NotReady);
        assert_eq!(said(ready("Unknown")), NodeReadiness::NotReady);
        assert_eq!(said(json!([])), NodeReadiness::Ready, "nobody has said anything yet");
        assert_eq!(readiness(None), NodeReadiness::Gone);
    }

    #[test]
    fn a_node_is_closed_where_no_pod_can_start_and_tainted_where_only_some_can() {
        let of = |ready: &str, spec| {
            let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
            let node = json!({"metadata": {"name": "n"}, "spec": spec, "status": status});
            openness(&serde_json::from_value(node).expect("a Node"))
        };
        let taint = |effect: &str| json!({"taints": [{"key": "gpu", "effect": effect}]});
        assert_eq!(of("True", json!({})), Openness::Open);
        assert_eq!(of("True", taint("PreferNoSchedule")), Openness::Open);
        assert_eq!(of("True", taint("NoSchedule")), Openness::Tainted);
        assert_eq!(of("True", taint("NoExecute")), Openness::Tainted);
        assert_eq!(of("True", json!({"unschedulable": true})), Openness::Closed);
        assert_eq!(of("Unknown", json!({})), Openness::Closed);
    }
}
