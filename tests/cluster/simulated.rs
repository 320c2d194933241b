//! Nodes of the cluster without a machine: their agents run in this process, on fake disks, and a stand-in for kubelet
//! says that their pods run. Scheduler, controllers and provisioner are the real ones.

use std::time::Duration;

use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use localpool::host::{Geometry, fake::FakeHost};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::check::Space;
use crate::cluster::{Cluster, DRIVER, TOPOLOGY, name};
use crate::sim::SimNode;

/// The label of these nodes, and the taint that keeps all other pods away.
pub const SIMULATED: &str = "test.localpool.dev/simulated";
const HEARTBEAT: Duration = Duration::from_secs(5);

pub struct SimulatedNodes {
    pub nodes: Vec<SimNode>,
    kubelet: JoinHandle<()>,
}

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
        let (cluster, all) = ((**space).clone(), names.to_vec());
        let kubelet = tokio::spawn(async move {
            loop {
                be_kubelet(&cluster, &all).await;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
        Self { nodes, kubelet }
    }

    pub fn node(&self, name: &str) -> &SimNode {
        self.nodes.iter().find(|node| node.name == name).expect("a simulated node")
    }

    /// Removes them from the cluster. Their pods and volumes are gone.
    pub async fn remove(mut self, space: &Space) {
        self.kubelet.abort();
        for node in &mut self.nodes {
            node.kill().await;
            remove(space, &node.name).await;
        }
    }
}

async fn remove(space: &Space, node: &str) {
    for kind in ["CSINode", "Node", "DevicePool"] {
        space.delete(kind, None, node).await;
        space.until_gone(kind, None, node).await;
    }
}

/// What a kubelet would have told by now. What fails is told the next time.
async fn be_kubelet(cluster: &Cluster, nodes: &[String]) {
    let now = Timestamp::now();
    for node in nodes {
        let api = cluster.api("Node", None);
        let Ok(Some(found)) = api.get_opt(node).await else { continue };
        let found = serde_json::to_value(found).expect("JSON");
        let heard: Option<Timestamp> =
            found["status"]["conditions"][0]["lastHeartbeatTime"].as_str().and_then(|time| time.parse().ok());
        if heard.is_some_and(|heard| now.duration_since(heard).unsigned_abs() < HEARTBEAT) {
            continue;
        }
        let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated",
            "lastHeartbeatTime": now, "lastTransitionTime": found["metadata"]["creationTimestamp"]});
        let room = json!({"cpu": "4", "memory": "8Gi", "pods": "20"});
        let status = json!({"status": {"conditions": [ready], "capacity": room, "allocatable": room}});
        let _ = api.patch_status(node, &PatchParams::default(), &Patch::Merge(status)).await;
    }
    let Ok(pods) = cluster.api("Pod", None).list(&ListParams::default()).await else { return };
    let pods: Vec<Value> = pods.items.iter().map(|pod| serde_json::to_value(pod).expect("JSON")).collect();
    for pod in pods.iter().filter(|pod| nodes.iter().any(|node| pod["spec"]["nodeName"] == node.as_str())) {
        let api = cluster.api("Pod", pod["metadata"]["namespace"].as_str());
        if pod["metadata"]["deletionTimestamp"].is_string() {
            let _ = api.delete(name(pod), &DeleteParams::default().grace_period(0)).await;
        } else if pod["status"]["phase"] != "Running" {
            let is = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
            let conditions: Vec<Value> =
                ["PodScheduled", "Initialized", "ContainersReady", "Ready"].into_iter().map(is).collect();
            let status = json!({"status": {"phase": "Running", "conditions": conditions}});
            let _ = api.patch_status(name(pod), &PatchParams::default(), &Patch::Merge(status)).await;
        }
    }
}
