//! The taint that keeps pods from a new node until its agent is ready.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use localpool::operator::controller::{DeletedNodePolicy, StartupTaint};
use serde_json::{Value, json};

use crate::agent::{Stage, unique};
use crate::cluster;
use crate::leader::{lead_with, namespace, until};
use crate::silent::{AGENT_LABEL, AgentPod};

const TAINT: &str = "localpool.dev/agent-not-ready";

async fn tainted(client: &Client, name: &str) {
    let taints = json!([{"key": "other", "effect": "NoSchedule"}, {"key": TAINT, "effect": "NoExecute"}]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": taints}});
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(node).expect("a Node")).await.expect("a new node");
}

async fn taints(client: &Client, name: &str) -> Vec<String> {
    let node = Api::<Node>::all(client.clone()).get(name).await.expect("it is there");
    let keys = node.spec.and_then(|spec| spec.taints).into_iter().flatten().map(|taint| taint.key);
    // The API server gives some of its own to a new node.
    keys.filter(|key| !key.starts_with("node.kubernetes.io/")).collect()
}

async fn until_removed(client: &Client, name: &str) {
    until(&format!("the taint of {name} is removed"), async || (taints(client, name).await == ["other"]).then_some(()))
        .await;
}

#[tokio::test]
async fn a_new_node_loses_the_taint_when_its_agent_is_ready_and_keeps_what_others_gave_it() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let client = &cluster.client;
    let space = namespace(client).await;
    // The leader looks at nodes by name, so whoever sees the last one changed knows that it has looked at the others.
    let [before, ready] = ["a", "b"].map(|letter| unique(&format!("taint-{letter}")));
    for node in [&before, &ready] {
        tainted(client, node).await;
    }
    let late = AgentPod::of(client, &space, &before).await;
    late.is_ready("False", jiff::Timestamp::now()).await;
    AgentPod::of(client, &space, &ready).await.is_ready("True", jiff::Timestamp::now()).await;
    let label = format!("app={AGENT_LABEL}");
    let _leads = lead_with(&stage, DeletedNodePolicy::Keep, &space, &label, |leader| {
        leader.with_startup_taint(StartupTaint::Removed)
    });
    until_removed(client, &ready).await;
    assert_eq!(taints(client, &before).await, ["other", TAINT]);
    late.is_ready("True", jiff::Timestamp::now()).await;
    until_removed(client, &before).await;

    // Somebody gives it again, while others change the node: it is removed again.
    let again: Value =
        json!({"spec": {"taints": [{"key": "other", "effect": "NoSchedule"}, {"key": TAINT, "effect": "NoSchedule"}]}});
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch(&ready, &PatchParams::default(), &Patch::Merge(&again)).await.expect("it is there");
    let other = json!({"metadata": {"labels": {"changed": "yes"}}});
    nodes.patch(&ready, &PatchParams::default(), &Patch::Merge(&other)).await.expect("it is there");
    until_removed(client, &ready).await;
    assert_eq!(nodes.get(&ready).await.expect("it is there").metadata.labels.expect("one")["changed"], "yes");
}
