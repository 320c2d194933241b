//! Nodes of the cluster without a machine: their agents run in this process, on fake disks, and a stand-in for kubelet
//! says that their pods run. Scheduler, controllers and provisioner are the real ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use localpool::host::{Geometry, fake::FakeHost};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::check::Space;
use crate::cluster::{Cluster, DRIVER, TOPOLOGY, name};
use crate::pods::{With as _, is_ready};
use crate::sim::SimNode;

/// The label of these nodes, and the taint that keeps all other pods away.
pub const SIMULATED: &str = "test.localpool.dev/simulated";
const HEARTBEAT: Duration = Duration::from_secs(5);

pub struct SimulatedNodes {
    pub nodes: Vec<SimNode>,
    kubelet: JoinHandle<()>,
    troubles: Troubles,
}

/// What is wrong with a kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nobody hears of it.
    Away,
    /// No pod ends.
    Hangs,
}

type Troubles = Arc<Mutex<BTreeMap<String, Trouble>>>;

impl SimulatedNodes {
    /// Each with one disk of this size.
    pub async fn new(space: &Space, names: &[String], size: u64) -> Self {
        let mut nodes = Vec::new();
        for node in names {
            // From a run that was killed.
            remove(space, node).await;
            let host = FakeHost::default();
            host.add_disk("sda", &format!("SERIAL-{node}"), Geometry { size, sector: 512, offloads_zeroes: true });
            let labels =
                json!({"kubernetes.io/hostname": node, "kubernetes.io/os": "linux", SIMULATED: "yes", TOPOLOGY: node});
            nodes.push(SimNode::of(&space.client, node, labels, host).await);
            let taint = json!([{"key": SIMULATED, "effect": "NoSchedule"}]);
            space.patch("Node", None, node, &json!({"spec": {"taints": taint}})).await;
            let driver = json!({"name": DRIVER, "nodeID": node, "topologyKeys": [TOPOLOGY]});
            let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node}, "spec": {"drivers": [driver]}});
            space.create(&object).await;
        }
        let (cluster, all, troubles) = ((**space).clone(), names.to_vec(), Troubles::default());
        let now = Arc::clone(&troubles);
        let kubelet = tokio::spawn(async move {
            loop {
                let troubles = now.lock().expect("no bug").clone();
                be_kubelet(&cluster, &all, &troubles).await;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
        Self { nodes, kubelet, troubles }
    }

    pub fn begins(&self, node: &str, trouble: Trouble) {
        self.troubles.lock().expect("no bug").insert(node.to_owned(), trouble);
    }

    pub fn ends(&self, node: &str) {
        self.troubles.lock().expect("no bug").remove(node);
    }

    pub fn all_end(&self) {
        self.troubles.lock().expect("no bug").clear();
    }

    /// Removes them from the cluster. Their pods and volumes are gone.
    pub async fn remove(mut self, space: &Space) {
        self.kubelet.abort();
        let each = self.nodes.iter_mut().map(async |node| {
            node.kill().await;
            remove(space, &node.name).await;
        });
        futures::future::join_all(each).await;
    }
}

async fn remove(space: &Space, node: &str) {
    for kind in ["CSINode", "Node", "DevicePool"] {
        space.delete(kind, None, node).await;
        space.until_gone(kind, None, node).await;
    }
}

/// What a kubelet would have reported by now. What fails is reported the next time.
async fn be_kubelet(cluster: &Cluster, nodes: &[String], troubles: &BTreeMap<String, Trouble>) {
    for node in nodes {
        heartbeat(cluster, node, troubles.get(node) == Some(&Trouble::Away)).await;
    }
    let Ok(pods) = cluster.api("Pod", None).list(&ListParams::default()).await else { return };
    let pods: Vec<Value> = pods.items.iter().map(|pod| serde_json::to_value(pod).expect("JSON")).collect();
    for pod in &pods {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if nodes.iter().any(|one| one == node) {
            tell_of_pod(cluster, pod, troubles.get(node).copied()).await;
        }
    }
}

async fn tell_of_pod(cluster: &Cluster, pod: &Value, trouble: Option<Trouble>) {
    let api = cluster.api("Pod", pod["metadata"]["namespace"].as_str());
    let is_away = trouble == Some(Trouble::Away);
    if pod["metadata"]["deletionTimestamp"].is_string() {
        if trouble.is_none() {
            let _ = api.delete(name(pod), &DeleteParams::default().grace_period(0)).await;
        }
    } else if is_ready(pod) == is_away {
        let (now, status) = (Timestamp::now(), if is_away { "False" } else { "True" });
        let is = |kind: &str| json!({"type": kind, "status": status, "lastTransitionTime": now});
        let conditions: Vec<Value> =
            ["PodScheduled", "Initialized", "ContainersReady", "Ready"].into_iter().map(is).collect();
        let status = json!({"status": {"phase": "Running", "conditions": conditions}});
        let _ = api.patch_status(name(pod), &PatchParams::default(), &Patch::Merge(status)).await;
    }
}

/// Of a node that is away, what the node controller would have written after its own while; of its pods, too.
async fn heartbeat(cluster: &Cluster, node: &str, is_away: bool) {
    let (api, now) = (cluster.api("Node", None), Timestamp::now());
    let Ok(Some(found)) = api.get_opt(node).await else { return };
    let found = serde_json::to_value(found).expect("JSON");
    let conditions = found["status"]["conditions"].as_array();
    let before = conditions.into_iter().flatten().find(|one| one["type"] == "Ready").cloned().unwrap_or_default();
    let heard: Option<Timestamp> = before["lastHeartbeatTime"].as_str().and_then(|time| time.parse().ok());
    let status = if is_away { "Unknown" } else { "True" };
    let is_new = before["status"] != status;
    if !is_new && (is_away || heard.is_some_and(|heard| now.duration_since(heard).unsigned_abs() < HEARTBEAT)) {
        return;
    }
    let since = match (&before, is_new) {
        (Value::Null, _) => found["metadata"]["creationTimestamp"].clone(),
        (_, true) => json!(now),
        (before, false) => before["lastTransitionTime"].clone(),
    };
    let ready = json!({"type": "Ready", "status": status, "reason": "Simulated", "message": "simulated",
        "lastHeartbeatTime": now, "lastTransitionTime": since});
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "20"});
    let status = json!({"status": {"conditions": [ready], "capacity": room, "allocatable": room}});
    let _ = api.patch_status(node, &PatchParams::default(), &Patch::Merge(status)).await;
}

/// A set of the disks of simulated nodes, and of no others. Its class is that of the set `fake`.
pub fn set_of_simulated_disks(space: &Space) -> Value {
    let expression = json!({"key": SIMULATED, "operator": "Exists"});
    space
        .set("fake", "-")
        .with("/spec/deviceInclusionSpec", json!({"deviceTypes": ["disk"], "minSize": "0"}))
        .with("/spec/tolerations", json!([{"key": SIMULATED, "operator": "Exists"}]))
        .with("/spec/nodeSelector", json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]}))
}
