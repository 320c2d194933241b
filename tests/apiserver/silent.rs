//! Agents whose pods are not ready: what their DevicePools say, and who writes what.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use localpool::api::crd::{DevicePool, PoolVolume};
use localpool::operator::controller::{DeletedNodePolicy, Stores};
use localpool::volume::{Error, Nodes, Selector, Volumes as _};
use serde_json::{Value, json};

use crate::agent::{Stage, on, unique};
use crate::cluster;
use crate::leader::{Work, about, at_rest, events, lead_with, namespace, until};
use crate::nodes::{make, offering, offers};
use crate::sim::SimNode;

/// The label of the agents' pods.
pub const AGENT_LABEL: &str = "silent-test";

/// The pod of a node's agent, as the DaemonSet makes it and kubelet reports it.
pub struct AgentPod {
    api: Api<Pod>,
    name: String,
}

impl AgentPod {
    pub async fn of(client: &Client, space: &str, node: &str) -> Self {
        Self::labelled(client, space, node, json!({"app": AGENT_LABEL})).await
    }

    pub async fn labelled(client: &Client, space: &str, node: &str, labels: Value) -> Self {
        let (api, name) = (Api::namespaced(client.clone(), space), unique("agent"));
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), space);
        // The first pod needs it.
        let _ = accounts.create(&PostParams::default(), &serde_json::from_value(account).expect("ours")).await;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": space, "labels": labels},
            "spec": {"nodeName": node, "automountServiceAccountToken": false,
                     "containers": [{"name": "localpool", "image": "localpool"}]},
        });
        api.create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod")).await.expect("a new pod");
        Self { api, name }
    }

    pub async fn is_ready(&self, ready: &str, since: Timestamp) {
        let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since.to_string()});
        let status = json!({"status": {"conditions": [condition]}});
        let params = PatchParams::default();
        self.api.patch_status(&self.name, &params, &Patch::Strategic(&status)).await.expect("it is there");
    }

    async fn gone(&self) {
        self.api.delete(&self.name, &DeleteParams::default().grace_period(0)).await.expect("it was there");
    }
}

pub fn lead_after(stage: &Stage, space: &str, seconds: i64) -> Work {
    lead_with(stage, DeletedNodePolicy::Keep, space, &format!("app={AGENT_LABEL}"), |leader| {
        leader.silent_after(SignedDuration::from_secs(seconds))
    })
}

async fn pool(stage: &Stage, node: &str) -> DevicePool {
    Api::<DevicePool>::all(stage.client.clone()).get(node).await.expect("it is there")
}

fn told(pool: &DevicePool, kind: &str) -> Option<Condition> {
    pool.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == kind).cloned()
}

/// Waits until Ready is so, and returns since when.
async fn ready_is(stage: &Stage, node: &str, status: &str, reason: &str) -> Timestamp {
    until(&format!("Ready is {status} {reason}"), async || {
        let ready = told(&pool(stage, node).await, "Ready")?;
        (ready.status == status && ready.reason == reason).then_some(ready.last_transition_time.0)
    })
    .await
}

/// The reason of the condition Healthy, and all reasons of the list.
fn healths(volume: &PoolVolume) -> Vec<String> {
    let Some(status) = &volume.status else { return Vec::new() };
    let healthy = status.conditions.iter().filter(|condition| condition.type_ == "Healthy");
    let healthy = healthy.map(|condition| condition.reason.clone());
    healthy.chain(status.health.iter().map(|entry| entry.reason.clone())).collect()
}

async fn node_is_ready(stage: &Stage, node: &str, ready: &str) {
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
    let nodes: Api<Node> = Api::all(stage.client.clone());
    nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(&status)).await.expect("it is there");
}

/// For how many seconds an agent may be silent: far longer than a restart that the test plays, on a busy machine.
const GRACE: i64 = 6;

async fn a_while(seconds: i64) {
    tokio::time::sleep(Duration::from_secs(seconds.unsigned_abs())).await;
}

fn now() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).expect("a time")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_agent_is_said_once_with_since_when_and_the_agent_and_the_leader_leave_each_others_conditions() {
    let cluster = cluster!(alone);
    let (stage, label, mut sim) = offering(&cluster.client, 512).await;
    let node = sim.name.clone();
    let space = namespace(&cluster.client).await;
    let pod = AgentPod::of(&cluster.client, &space, &node).await;
    let began = now();
    pod.is_ready("True", began).await;
    let work = lead_after(&stage, &space, GRACE);
    assert_eq!(ready_is(&stage, &node, "True", "AgentReady").await, began);
    assert!(told(&pool(&stage, &node).await, "Claiming").is_some(), "the agent's condition stays");
    let id = make(&stage, &label, &unique("pvc"), on(&node), 100).await.expect("there is room").id;
    stage.see(id, "healthy", |object| healths(object) == ["Healthy"]).await;

    // A restart that is shorter than the grace is not reported.
    pod.is_ready("False", now()).await;
    a_while(1).await;
    pod.is_ready("True", now()).await;
    a_while(GRACE + 1).await;
    assert_eq!(ready_is(&stage, &node, "True", "AgentReady").await, began);

    let silent = now();
    pod.is_ready("False", silent).await;
    assert_eq!(ready_is(&stage, &node, "Unknown", "AgentSilent").await, silent);
    until("an Event", async || {
        let all = events(&stage.client, "default", &about(&node)).await;
        all.iter().any(|event| event == "AgentSilent x1").then_some(())
    })
    .await;
    stage.see(id, "on a silent node", |object| healths(object) == ["AgentSilent", "AgentSilent"]).await;
    // kubelet is dead and the agent is not: it writes what it sees, and neither of the two writes for the other.
    sim.host.unplug("fake0").expect("it was there");
    sim.pool().nudge();
    let seen = until("the agent reports its disk", async || {
        let pool = pool(&stage, &node).await;
        (pool.status.as_ref()?.missing_disks == 1).then_some(pool)
    })
    .await;
    assert_eq!(told(&seen, "Ready").map(|ready| ready.status).as_deref(), Some("Unknown"));
    let both = ["DiskMissing", "DiskMissing", "AgentSilent"];
    stage.see(id, "on a missing disk of a silent node", |object| healths(object) == both).await;
    let written = async || {
        let volume = stage.objects.get(&id.to_string()).await.expect("it is there");
        (pool(&stage, &node).await.resource_version(), volume.resource_version())
    };
    let before = at_rest("they write over each other", written, async || a_while(2).await).await;

    // Another leader takes over, and a pod that is not ready takes the place of the first one: nothing is new.
    drop(work);
    pod.gone().await;
    let pod = AgentPod::of(&cluster.client, &space, &node).await;
    let _work = lead_after(&stage, &space, GRACE);
    a_while(GRACE + 2).await;
    assert_eq!(written().await, before, "the next leader wrote");
    node_is_ready(&stage, &node, "False").await;
    assert_eq!(ready_is(&stage, &node, "Unknown", "NodeNotReady").await, silent);
    let both = ["DiskMissing", "DiskMissing", "NodeNotReady"];
    stage.see(id, "on a node that is not ready", |object| healths(object) == both).await;
    node_is_ready(&stage, &node, "True").await;
    let back = now();
    pod.is_ready("True", back).await;
    assert_eq!(ready_is(&stage, &node, "True", "AgentReady").await, back);
    stage.see(id, "on a missing disk", |object| healths(object) == ["DiskMissing", "DiskMissing"]).await;
    until("another Event", async || {
        let mut all = events(&stage.client, "default", &about(&node)).await;
        // Those of its disks are the agent's.
        all.retain(|event| event.starts_with("Agent"));
        (all == ["AgentBack x1", "AgentSilent x1"]).then_some(())
    })
    .await;

    // The pod is gone: no time of it is known.
    pod.gone().await;
    ready_is(&stage, &node, "Unknown", "AgentSilent").await;
    sim.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_has_no_room_and_a_volume_that_no_pod_has_placed_goes_where_pods_can_start() {
    let cluster = cluster!(alone);
    let (stage, label, mut silent) = offering(&cluster.client, 512).await;
    let mut other = SimNode::start(&stage, &unique("sim"), &label, 256).await;
    offers(&stage, &other.name, 200).await;
    let space = namespace(&cluster.client).await;
    let long_ago = now() - SignedDuration::from_hours(1);
    let (pod, of_other) = (AgentPod::of(&cluster.client, &space, &silent.name).await, &other.name);
    pod.is_ready("False", long_ago).await;
    AgentPod::of(&cluster.client, &space, of_other).await.is_ready("True", long_ago).await;
    let _work = lead_after(&stage, &space, 60);
    let unknown = |caches: &Stores| {
        let ready = caches.pools.get(&silent.name).and_then(|pool| told(&pool, "Ready"));
        ready.is_some_and(|ready| ready.status == "Unknown")
    };
    stage.known(unknown).await;
    let room = async |node: &SimNode| {
        let selector = Selector { class: Some(label.clone()), set: None };
        let capacity = stage.volumes.capacity(selector, None, Some(node.name.as_str().into())).await;
        capacity.expect("an answer").largest
    };
    assert_eq!((room(&silent).await, room(&other).await > 0), (0, true));
    let refused = make(&stage, &label, &unique("pvc"), on(&silent.name), 1).await.expect_err("it is silent");
    let since = long_ago.to_string();
    assert!(matches!(&refused, Error::Exhausted(message) if message.contains(&since)), "{refused:?}");
    let anywhere = || Nodes::AnyOf([&silent, &other].map(|node| node.name.as_str().into()).to_vec());
    let made = make(&stage, &label, &unique("pvc"), anywhere(), 1).await.expect("the other has room");
    assert_eq!(made.node, other.name);

    // `kubectl cordon`, or a kubelet that is not ready: no pod can start there that has not been placed there already.
    let refuses = async |why: &str| {
        until(why, async || {
            let refused = make(&stage, &label, &unique("pvc"), anywhere(), 1).await.err()?;
            matches!(&refused, Error::Exhausted(message) if message.contains("2 nodes are not asked")).then_some(())
        })
        .await;
        make(&stage, &label, &unique("pvc"), on(&other.name), 1).await.expect("its pod is there");
    };
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let change = async |node: &SimNode, spec: Value| {
        let spec = Patch::Merge(json!({"spec": spec}));
        nodes.patch(&node.name, &PatchParams::default(), &spec).await.expect("it is there");
    };
    let goes_to = async |node: &SimNode| {
        until("it goes where pods can start", async || {
            let made = make(&stage, &label, &unique("pvc"), anywhere(), 1).await.ok()?;
            (made.node == node.name).then_some(())
        })
        .await;
    };
    change(&other, json!({"unschedulable": true})).await;
    refuses("it is cordoned").await;
    change(&other, json!({"unschedulable": null})).await;
    goes_to(&other).await;
    node_is_ready(&stage, &other.name, "Unknown").await;
    refuses("it is not ready").await;
    node_is_ready(&stage, &other.name, "True").await;
    goes_to(&other).await;

    // Not every pod tolerates a taint: another node comes first, and this one before none.
    pod.is_ready("True", now()).await;
    goes_to(&silent).await;
    let taint = json!({"key": "dedicated", "effect": "NoSchedule"});
    change(&silent, json!({"taints": [taint]})).await;
    goes_to(&other).await;
    change(&other, json!({"unschedulable": true})).await;
    goes_to(&silent).await;
    silent.kill().await;
    other.kill().await;
}
