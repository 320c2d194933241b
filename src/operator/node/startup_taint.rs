//! The taint that keeps pods from a new node until its agent is ready. Pure.
//!
//! Whoever makes nodes registers them with it (`kubelet --register-with-taints`). Without it the scheduler may put a pod
//! on a node that has no driver yet, and the pod waits for its volumes while another node could run it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};

use super::agent_pod::{AgentPod, PodReady};

/// Its key; any effect and value.
pub const STARTUP_TAINT: &str = "localpool.dev/agent-not-ready";

/// The taints that stay on a node whose agent is ready; `None`: there is nothing to remove yet. `agents`: the pods of the
/// node's agent. One that is older than the Node object was the agent of another machine of that name.
pub fn taints_without(node: &Node, agents: &[Arc<AgentPod>]) -> Option<Vec<Taint>> {
    let taints = node.spec.as_ref()?.taints.as_deref()?;
    if taints.iter().all(|taint| taint.key != STARTUP_TAINT) {
        return None;
    }
    let made = node.metadata.creation_timestamp.as_ref()?;
    let serves = |agent: &Arc<AgentPod>| {
        matches!(agent.ready(), Some(PodReady::Since(_))) && agent.metadata.creation_timestamp.as_ref() >= Some(made)
    };
    let stays = |taint: &&Taint| taint.key != STARTUP_TAINT;
    agents.iter().any(serves).then(|| taints.iter().filter(stays).cloned().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(taints: &[(&str, &str)]) -> Node {
        let taint = |(key, effect): &(&str, &str)| json!({"key": key, "effect": effect});
        let taints: Vec<_> = taints.iter().map(taint).collect();
        let node = json!({
            "metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:10Z"}, "spec": {"taints": taints},
        });
        serde_json::from_value(node).expect("a Node")
    }

    fn agent(second: u8, ready: &str) -> Arc<AgentPod> {
        let created = format!("2026-01-01T00:00:{second:02}Z");
        let pod = json!({
            "metadata": {"name": "p", "creationTimestamp": created}, "spec": {"nodeName": "n"},
            "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": created}]},
        });
        Arc::new(serde_json::from_value(pod).expect("a Pod"))
    }

    fn keys(taints: Option<Vec<Taint>>) -> Option<Vec<String>> {
        taints.map(|taints| taints.into_iter().map(|taint| taint.key).collect())
    }

    #[test]
    fn the_taint_goes_with_every_effect_when_the_agent_is_ready_and_all_others_stay() {
        let tainted = node(&[
            ("a", "NoSchedule"),
            (STARTUP_TAINT, "NoSchedule"),
            (STARTUP_TAINT, "NoExecute"),
            ("b", "NoExecute"),
        ]);
        assert_eq!(keys(taints_without(&tainted, &[agent(10, "True")])), Some(vec!["a".to_owned(), "b".to_owned()]));
        let only = node(&[(STARTUP_TAINT, "NoSchedule")]);
        assert_eq!(keys(taints_without(&only, &[agent(11, "False"), agent(12, "True")])), Some(vec![]));
    }

    #[test]
    fn nothing_is_removed_before_the_agent_of_this_machine_is_ready_or_where_there_is_no_such_taint() {
        let tainted = node(&[(STARTUP_TAINT, "NoSchedule")]);
        assert_eq!(taints_without(&tainted, &[]), None);
        assert_eq!(taints_without(&tainted, &[agent(11, "False")]), None);
        assert_eq!(taints_without(&tainted, &[agent(11, "Unknown")]), None);
        // A node of the same name was deleted, and its pod is still there.
        assert_eq!(taints_without(&tainted, &[agent(9, "True")]), None);
        assert_eq!(taints_without(&node(&[("a", "NoSchedule")]), &[agent(11, "True")]), None);
        assert_eq!(taints_without(&Node::default(), &[agent(11, "True")]), None);
    }
}
