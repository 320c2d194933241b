//! A StatefulSet of three with a lost volume, on a real API server, and a test that plays everybody else: the
//! StatefulSet controller, kubelet, the scheduler, and the controller that protects claims.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    Binding, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use localpool::api::crd::{DevicePool, PoolVolume};
use localpool::volume::{DRIVER_NAME, VolumeId};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::agent::{PLAYED, Stage, unique};
use crate::server::Cluster;

const CLASS: &str = "reacting";
/// Long enough ago for each interval.
const LONG_AGO: &str = "2026-01-01T00:00:00Z";
/// The pod whose volume is lost, and its claim.
pub const POD: &str = "db-1";
pub const CLAIM: &str = "data-db-1";

/// The objects of one test.
pub struct Scene {
    pub stage: Stage,
    /// For the reactor.
    pub once: Client,
    pub namespace: String,
    pub nodes: Vec<String>,
    /// The PersistentVolumes of the set, by ordinal.
    pub volumes: Vec<String>,
    pub lost: VolumeId,
}

pub fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

impl Scene {
    /// The volume of the second pod is lost.
    pub async fn new(cluster: &Cluster) -> Self {
        let scene = Self::empty(cluster).await;
        let Self { namespace, .. } = &scene;
        let templates = json!([{"metadata": {"name": "data"}, "spec": {}}]);
        let labels = json!({"app": "db"});
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": namespace},
            "spec": {
                "replicas": 3, "serviceName": "db", "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "db", "image": "none"}]}},
                "volumeClaimTemplates": [{"metadata": templates[0]["metadata"], "spec": claim_spec(Value::Null)}],
            },
        });
        scene.sets().create(&PostParams::default(), &object(set)).await.expect("a new set");
        for (ordinal, volume) in scene.volumes.iter().enumerate() {
            let (pod, node) = (format!("db-{ordinal}"), &scene.nodes[ordinal]);
            let id = if ordinal == 1 { scene.lost } else { VolumeId::of_name(volume) };
            let csi = json!({"csi": {"driver": DRIVER_NAME, "volumeHandle": id.to_string()}});
            scene.volume(volume, node, csi, Some(&format!("data-{pod}"))).await;
            scene.pod(&pod, scene.owner().await, Some(node)).await;
        }
        scene.mark(&scene.volumes[1], "DiskMissing").await;
        scene.pool_volume().await;
        scene
    }

    /// A namespace and three nodes, without a set.
    pub async fn empty(cluster: &Cluster) -> Self {
        let stage = Stage::new(&cluster.client).await;
        let once = cluster.server.client_without_repetition().await;
        let (nodes, volumes): (Vec<_>, Vec<_>) = (0..3).map(|_| (unique("node"), unique("pvc"))).unzip();
        let scene =
            Self { lost: VolumeId::of_name(&volumes[1]), namespace: unique("space"), stage, once, nodes, volumes };
        for node in &scene.nodes {
            scene.stage.node(node).await;
            scene.stage.pool(node, 8).await;
            scene.is_ready(node).await;
        }
        let chosen = json!({"localpool.dev/reaction": "StatefulSet"});
        let namespace = json!({"metadata": {"name": scene.namespace, "labels": chosen}});
        let namespaces: Api<Namespace> = Api::all(scene.client());
        namespaces.create(&PostParams::default(), &object(namespace)).await.expect("a new one");
        let accounts: Api<ServiceAccount> = Api::namespaced(scene.client(), &scene.namespace);
        let account = object(json!({"metadata": {"name": "default"}}));
        accounts.create(&PostParams::default(), &account).await.expect("a new one");
        let classes: Api<StorageClass> = Api::all(scene.client());
        let class = json!({
            "metadata": {"name": CLASS, "labels": chosen}, "provisioner": DRIVER_NAME,
            "volumeBindingMode": "WaitForFirstConsumer",
        });
        match classes.create(&PostParams::default(), &object(class)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => panic!("a class: {error}"),
        }
        scene
    }

    pub fn client(&self) -> Client {
        self.stage.client.clone()
    }

    pub fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client(), &self.namespace)
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client(), &self.namespace)
    }

    pub fn sets(&self) -> Api<StatefulSet> {
        Api::namespaced(self.client(), &self.namespace)
    }

    pub fn persistent(&self) -> Api<PersistentVolume> {
        Api::all(self.client())
    }

    /// The reclaim policy of the lost volume, its record, and what it has of the last one.
    pub async fn state(&self) -> (String, Option<Value>, Option<Value>) {
        let volume = self.persistent().get(&self.volumes[1]).await.expect("nobody deletes it");
        let annotation =
            |name: &str| volume.annotations().get(name).map(|text| serde_json::from_str(text).expect("JSON"));
        let records = ["localpool.dev/reaction", "localpool.dev/reacted"].map(annotation);
        let [record, reacted] = records;
        let policy = volume.spec.expect("a spec").persistent_volume_reclaim_policy.expect("a policy");
        (policy, record, reacted)
    }

    /// The UID of the claim of the pod, and whether it is being deleted.
    pub async fn claim(&self) -> Option<(String, bool)> {
        let claim = self.claims().get_opt(CLAIM).await.expect("an answer")?;
        Some((claim.uid().expect("one"), claim.metadata.deletion_timestamp.is_some()))
    }

    /// Status and reason of the condition Reaction.
    pub async fn condition(&self) -> Option<(String, String)> {
        let volume = self.stage.objects.get(&self.lost.to_string()).await.expect("it is there");
        let mut conditions = volume.status?.conditions.into_iter();
        let found = conditions.find(|condition| condition.type_ == "Reaction")?;
        Some((found.status, found.reason))
    }

    pub async fn is_ready(&self, node: &str) {
        let nodes: Api<Node> = Api::all(self.client());
        let condition = json!({"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": LONG_AGO, "lastHeartbeatTime": LONG_AGO});
        let status = json!({"status": {"conditions": [condition]}});
        nodes.patch_status(node, &PatchParams::default(), &Patch::Merge(&status)).await.expect("it is there");
        let labels = json!({"metadata": {"labels": {"kubernetes.io/hostname": node}}});
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(&labels)).await.expect("it is there");
        let is_known = |node: &Node| node.labels().contains_key("kubernetes.io/hostname");
        self.stage.known(|stores| stores.nodes.get(node).is_some_and(|node| is_known(&node))).await;
    }

    /// A PersistentVolume, and the claim that has it.
    pub async fn volume(&self, name: &str, node: &str, source: Value, claim: Option<&str>) {
        let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
        let mut spec = json!({
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Delete", "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        });
        spec.as_object_mut().expect("an object").extend(source.as_object().expect("an object").clone());
        if let Some(claim) = claim {
            let made = self.make_claim(claim, Some(name)).await;
            spec["claimRef"] = json!({"namespace": self.namespace, "name": claim, "uid": made.uid()});
        }
        let volume = object(json!({"metadata": {"name": name}, "spec": spec}));
        self.persistent().create(&PostParams::default(), &volume).await.expect("a new one");
        self.phase(name, if claim.is_some() { "Bound" } else { "Available" }).await;
    }

    /// What Kubernetes' controller says of a PersistentVolume.
    pub async fn phase(&self, name: &str, phase: &str) {
        let status = json!({"status": {"phase": phase}});
        self.persistent().patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.expect("there");
    }

    /// As the monitor marks it, long ago.
    pub async fn mark(&self, name: &str, mark: &str) {
        let marks = json!({mark: "yes", "FirstMarkTime": LONG_AGO, "localpool.dev/unusable-since": LONG_AGO});
        self.annotate(name, marks).await;
    }

    /// What the agent of a node says of local PersistentVolumes.
    pub async fn paths(&self, node: &str, volumes: &[&str], reason: &str) {
        let mut found = Vec::new();
        for name in volumes {
            let uid = self.persistent().get(name).await.expect("there").uid();
            found.push(json!({"name": name, "uid": uid, "health": health(reason)}));
        }
        let pools: Api<DevicePool> = Api::all(self.client());
        let status = Patch::Merge(json!({"status": {"persistentVolumes": found}}));
        pools.patch_status(node, &PatchParams::default(), &status).await.expect("there");
    }

    /// Another process of the agent of the lost volume's node has begun, and has written this.
    pub async fn agent_again(&self, process: &str) {
        let pools: Api<DevicePool> = Api::all(self.client());
        let status = Patch::Merge(json!({"status": {"agent": process}}));
        pools.patch_status(&self.nodes[1], &PatchParams::default(), &status).await.expect("there");
    }

    /// It has found the loss of the volume, too.
    pub async fn confirm(&self, process: &str) {
        let mut found = health("DiskMissing");
        found[0]["confirmedBy"] = json!(process);
        let status = Patch::Merge(json!({"status": {"health": found}}));
        let name = self.lost.to_string();
        self.stage.objects.patch_status(&name, &PatchParams::default(), &status).await.expect("there");
    }

    pub async fn annotate(&self, name: &str, annotations: Value) {
        let change = json!({"metadata": {"annotations": annotations}});
        self.persistent().patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.expect("there");
    }

    async fn make_claim(&self, name: &str, volume: Option<&str>) -> PersistentVolumeClaim {
        let claim = json!({"metadata": {"name": name}, "spec": claim_spec(json!(volume))});
        let claim = self.claims().create(&PostParams::default(), &object(claim)).await.expect("a new claim");
        if volume.is_some() {
            self.bind(name).await;
        }
        claim
    }

    async fn bind(&self, claim: &str) {
        let status = json!({"status": {"phase": "Bound"}});
        self.claims().patch_status(claim, &PatchParams::default(), &Patch::Merge(&status)).await.expect("there");
    }

    pub async fn owner(&self) -> Value {
        let set = self.sets().get("db").await.expect("there");
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": set.uid(), "controller": true})
    }

    /// A pod with its claim; with a node it is ready.
    pub async fn pod(&self, name: &str, owner: Value, node: Option<&str>) {
        let owners = if owner.is_null() { json!([]) } else { json!([owner]) };
        let claim = json!({"claimName": format!("data-{name}")});
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "db"}, "ownerReferences": owners},
            "spec": {
                "nodeName": node, "automountServiceAccountToken": false,
                "containers": [{"name": "db", "image": "none"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": claim}],
            },
        });
        self.pods().create(&PostParams::default(), &object(pod)).await.expect("a new pod");
        if node.is_some() {
            self.runs(name).await;
        }
    }

    async fn runs(&self, pod: &str) {
        let ready = json!({"type": "Ready", "status": "True"});
        let status = json!({"status": {"phase": "Running", "conditions": [ready]}});
        self.pods().patch_status(pod, &PatchParams::default(), &Patch::Merge(&status)).await.expect("there");
    }

    async fn pool_volume(&self) {
        let spec = json!({"node": self.nodes[1], "volumeName": self.volumes[1], "required": 1, "volumeMode": "Block"});
        let volume: PoolVolume = object(json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume", "metadata": {"name": self.lost.to_string()},
            "spec": spec,
        }));
        self.stage.objects.create(&PostParams::default(), &volume).await.expect("a new one");
        let status = Patch::Merge(json!({"status": {"phase": "Ready", "size": 1, "health": health("DiskMissing")}}));
        let name = self.lost.to_string();
        self.stage.objects.patch_status(&name, &PatchParams::default(), &status).await.expect("there");
        self.stage.known(|stores| stores.volumes.get(&name).is_some_and(|volume| volume.status.is_some())).await;
    }

    /// One read of the pod and its claim by each of the others.
    pub async fn play(&self) {
        let (pod, claim) = (self.pods().get_opt(POD).await.expect("an answer"), self.claims().get_opt(CLAIM).await);
        let claim = claim.expect("an answer");
        let node = pod.as_ref().and_then(|pod| pod.spec.as_ref()?.node_name.clone());
        let is_deleted = pod.as_ref().is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
        let is_terminating = claim.as_ref().is_some_and(|claim| claim.metadata.deletion_timestamp.is_some());
        match (pod, &claim) {
            // Kubelet has stopped it.
            (Some(_), _) if is_deleted => {
                let now = DeleteParams::default().grace_period(0);
                let _ = self.pods().delete(POD, &now).await;
            }
            // The StatefulSet controller: a claim that is being deleted counts as there.
            (None, claim) => {
                if claim.is_none() {
                    self.make_claim(CLAIM, None).await;
                }
                self.pod(POD, self.owner().await, None).await;
            }
            // Only a pod with a node holds the claim.
            (Some(_), Some(_)) if is_terminating && node.is_none() => {
                let unprotected = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                let _ = self.claims().patch(CLAIM, &PatchParams::default(), &unprotected).await;
                self.phase(&self.volumes[1], "Released").await;
            }
            // Scheduler, provisioner and kubelet, on another node.
            (Some(_), Some(_)) if node.is_none() => {
                let bound = Patch::Merge(json!({"spec": {"volumeName": "elsewhere"}}));
                self.claims().patch(CLAIM, &PatchParams::default(), &bound).await.expect("there");
                self.bind(CLAIM).await;
                let target = json!({"apiVersion": "v1", "kind": "Node", "name": self.nodes[2]});
                let binding: Binding = object(json!({"metadata": {"name": POD}, "target": target}));
                let params = PostParams::default();
                let done = self.pods().create_subresource::<_, Value>("binding", POD, &params, &binding).await;
                done.expect("it has no node");
                self.runs(POD).await;
            }
            _ => {}
        }
    }

    /// All of the others, as long as it lives.
    pub fn others(self: &std::sync::Arc<Self>) -> Others {
        let scene = std::sync::Arc::clone(self);
        Others(tokio::spawn(async move {
            loop {
                scene.play().await;
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }))
    }
}

pub struct Others(JoinHandle<()>);

impl Drop for Others {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What an agent says of a volume.
fn health(reason: &str) -> Value {
    json!([{"reason": reason, "severity": "Inaccessible", "message": "it is lost", "confirmedBy": PLAYED}])
}

fn claim_spec(volume: Value) -> Value {
    json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "volumeName": volume,
        "resources": {"requests": {"storage": "1Gi"}},
    })
}
