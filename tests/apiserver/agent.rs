//! The agent of a node, played by a test: it sees what an agent would see, and writes what an agent would write.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt as _};
use localpool::api::crd::{
    DevicePool, FINALIZER, LocalVolumeSet, NEW_ANNOTATION, PERSISTENT_VOLUME_ANNOTATION, PoolVolume,
};
use localpool::host::Geometry;
use localpool::host::fake::FakeHost;
use localpool::operator::controller::{Answerer, ClusterVolumes, Metrics, Stores};
use localpool::volume::{Nodes, Selector, VolumeId, VolumeRequest, Volumes as _, WantedUsage};
use localpool_testing::{GIB, MIB};
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::sim::SimNode;

/// How long anything that a test waits for may take, on a machine that does other work.
pub const TIMEOUT: Duration = Duration::from_secs(120);
/// The process of an agent that a test plays, as its objects name it.
pub const PLAYED: &str = "2026-01-01T00:00:00Z";
/// How often a test looks again.
pub const AGAIN: Duration = Duration::from_millis(100);

/// The controller's port, and the objects that it reads and writes.
pub struct Stage {
    pub client: Client,
    pub caches: Stores,
    pub volumes: ClusterVolumes,
    pub objects: Api<PoolVolume>,
    watches: JoinSet<()>,
}

/// Names that no other test has.
pub fn unique(stem: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{stem}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Stage {
    /// With the controller's answers to what agents ask.
    pub async fn new(client: &Client) -> Self {
        let mut stage = Self::without_answers(client).await;
        stage.answer();
        stage
    }

    /// Answers what agents ask, from now on.
    pub fn answer(&mut self) {
        let metrics = Metrics::new(&Registry::new()).expect("fresh names");
        self.watches.spawn(Answerer::new(self.client.clone(), self.caches.clone(), metrics).run());
    }

    /// The leader is away.
    pub async fn without_answers(client: &Client) -> Self {
        let caches = Stores::default();
        let mut watches = JoinSet::new();
        caches.watch(client, &mut watches);
        let mut changes = caches.changes();
        let synced = async {
            while !caches.are_synced() {
                changes.next().await;
            }
        };
        tokio::time::timeout(TIMEOUT, synced).await.expect("all kinds are read");
        let volumes = caches.volumes(client.clone());
        Self { client: client.clone(), caches, volumes, objects: Api::all(client.clone()), watches }
    }

    /// A node that exists, and that the controller knows of.
    pub async fn node(&self, name: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let api: Api<Node> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &serde_json::from_value(node).expect("a node")).await.expect("a new node");
        self.set().await;
        self.known(|caches| caches.nodes.get(name).is_some() && caches.sets.get("default/played").is_some()).await;
    }

    /// The set of class `fast`. It selects no node with an agent of its own.
    async fn set(&self) {
        let nowhere = json!({"matchExpressions": [{"key": "played", "operator": "Exists"}]});
        let set = json!({
            "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
            "metadata": {"name": "played", "namespace": "default"},
            "spec": {"storageClassName": "fast", "nodeSelector": {"nodeSelectorTerms": [nowhere]}},
        });
        let api: Api<LocalVolumeSet> = Api::namespaced(self.client.clone(), "default");
        match api.create(&PostParams::default(), &serde_json::from_value(set).expect("a set")).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => panic!("a set: {error}"),
        }
    }

    pub async fn delete_node(&self, name: &str) {
        let api: Api<Node> = Api::all(self.client.clone());
        api.delete(name, &DeleteParams::default()).await.expect("it is there");
        self.known(|caches| caches.nodes.get(name).is_none()).await;
    }

    /// Waits until the controller's watches have shown something.
    pub async fn known(&self, holds: impl Fn(&Stores) -> bool) {
        let mut changes = self.caches.changes();
        let waited = async {
            while !holds(&self.caches) {
                changes.next().await;
            }
        };
        tokio::time::timeout(TIMEOUT, waited).await.expect("the watch shows it");
    }

    /// A DevicePool that offers this much for class `fast`.
    pub async fn pool(&self, node: &str, gib: u64) {
        let api: Api<DevicePool> = Api::all(self.client.clone());
        let pool = json!({
            "apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": node}, "spec": {},
        });
        let _ = api.create(&PostParams::default(), &serde_json::from_value(pool).expect("a pool")).await;
        let bytes = gib * GIB;
        let status = json!({"status": {
            "agent": PLAYED,
            "sets": [{
                "namespace": "d", "name": "s", "class": "fast", "devices": 1, "partitions": 0,
                "available": bytes, "largest": bytes, "smallest": 1 << 20,
                "blockAvailable": bytes, "blockLargest": bytes, "blockSmallest": 1 << 20,
            }],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": "",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }});
        api.patch_status(node, &PatchParams::default(), &Patch::Merge(&status)).await.expect("it is there");
        self.known(|caches| {
            let offered = |pool: &DevicePool| pool.status.as_ref()?.sets.first().map(|set| set.available);
            caches.pools.get(node).and_then(|pool| offered(&pool)) == i64::try_from(bytes).ok()
        })
        .await;
    }

    /// Waits until the object meets the condition.
    pub async fn see(&self, id: VolumeId, what: &str, holds: impl Fn(&PoolVolume) -> bool) -> PoolVolume {
        let holds = |object: Option<&PoolVolume>| object.is_some_and(&holds);
        let name = id.to_string();
        let waited = async {
            loop {
                match await_condition(self.objects.clone(), &name, &holds).await {
                    Ok(seen) => break seen,
                    // A watch may end early; those of the driver begin again, too.
                    Err(error) => eprintln!("watching {name}: {error}"),
                }
                tokio::time::sleep(AGAIN).await;
            }
        };
        let seen = tokio::time::timeout(TIMEOUT, waited).await;
        seen.unwrap_or_else(|_| panic!("the object never was {what}")).expect("an object")
    }

    /// Waits until an agent would see it for the first time.
    pub async fn asked(&self, id: VolumeId) -> PoolVolume {
        self.see(id, "asked for", |object| object.status.is_none()).await
    }

    pub async fn is_gone(&self, id: VolumeId) -> bool {
        self.objects.get_opt(&id.to_string()).await.expect("an answer").is_none()
    }

    /// Writes a status over the one that was seen; `None` if somebody else wrote first.
    pub async fn say(&self, seen: &PoolVolume, status: Value) -> Option<PoolVolume> {
        let change = json!({"metadata": {"resourceVersion": seen.resource_version()}, "status": status});
        let params = PatchParams::default();
        match self.objects.patch_status(&seen.name_any(), &params, &Patch::Merge(&change)).await {
            Ok(said) => Some(said),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => None,
            Err(error) => panic!("a status: {error}"),
        }
    }

    /// A volume that is Ready on a node of its own: the node, what it is called, and its id.
    pub async fn ready(&self) -> (String, String, VolumeId) {
        let (node, name) = (unique("n"), unique("pvc"));
        self.node(&node).await;
        let id = VolumeId::of_name(&name);
        let agent = async {
            let asked = self.asked(id).await;
            self.make(&asked, 1).await;
        };
        let (made, ()) = tokio::join!(self.volumes.create(wanted(&name, on(&node))), agent);
        made.expect("made");
        (node, name, id)
    }

    /// Accepts and makes the volume.
    pub async fn make(&self, seen: &PoolVolume, gib: u64) -> PoolVolume {
        let accepted = self.say(seen, json!({"phase": "Accepted"})).await.expect("nobody else was first");
        let ready = json!({"phase": "Ready", "size": gib * GIB, "capacity": format!("{gib}Gi"), "fsType": "ext4"});
        self.say(&accepted, ready).await.expect("nobody else was first")
    }

    /// Removes the finalizer, as after an erasure.
    pub async fn let_go(&self, seen: &PoolVolume) {
        let others: Vec<&String> = seen.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let change = json!({"metadata": {"finalizers": others}});
        let params = PatchParams::default();
        self.objects.patch(&seen.name_any(), &params, &Patch::Merge(&change)).await.expect("it is there");
    }

    /// Deletes the object of a volume while no agent runs that would write it again.
    pub async fn lose(&self, object: &PoolVolume) {
        let name = object.name_any();
        self.let_go(object).await;
        self.objects.delete(&name, &DeleteParams::default()).await.expect("it is there");
        self.known(|caches| caches.volumes.get(&name).is_none()).await;
    }

    /// Creates it again as from a backup of yesterday: without its status.
    pub async fn restore(&self, object: &PoolVolume) {
        let mut restored = PoolVolume::new(&object.name_any(), object.spec.clone());
        restored.finalizers_mut().extend(object.finalizers().iter().cloned());
        *restored.annotations_mut() = object.annotations().clone();
        let yesterday = Timestamp::now() - SignedDuration::from_hours(24);
        restored.annotations_mut().insert(NEW_ANNOTATION.to_owned(), yesterday.to_string());
        self.objects.create(&PostParams::default(), &restored).await.expect("restored");
    }

    pub async fn persistent(&self, name: &str, id: VolumeId, node: &str) {
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                "csi": {"driver": "csi.localpool.dev", "volumeHandle": id.to_string()},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "topology.localpool.dev/node", "operator": "In", "values": [node]},
                ]}]}},
            },
        });
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let volume = serde_json::from_value(volume).expect("a PersistentVolume");
        api.create(&PostParams::default(), &volume).await.expect("a new one");
    }
}

impl Stage {
    /// What the controller says of a volume that is Found when there is a PersistentVolume that claims it.
    pub async fn named(&self, id: VolumeId, persistent: &str) {
        let named = json!({"metadata": {"annotations": {PERSISTENT_VOLUME_ANNOTATION: persistent}}});
        self.objects.patch(&id.to_string(), &PatchParams::default(), &Patch::Merge(&named)).await.expect("it is there");
    }

    /// What Kubernetes says of a PersistentVolume after a claim had it.
    pub async fn persistent_is(&self, name: &str, phase: &str) {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let params = PatchParams::default();
        let claimed = json!({"spec": {"claimRef": {"namespace": "default", "name": "data"}}});
        api.patch(name, &params, &Patch::Merge(&claimed)).await.expect("it is there");
        let status = json!({"status": {"phase": phase}});
        api.patch_status(name, &params, &Patch::Merge(&status)).await.expect("it is there");
    }
}

impl SimNode {
    /// A machine with one blank disk, once the controller knows of the node.
    pub async fn start(stage: &Stage, name: &str, label: &str, mib: u64) -> Self {
        let node = Self::start_unseen(&stage.client, name, label, mib).await;
        stage.known(|caches| caches.nodes.get(name).is_some()).await;
        node
    }

    pub async fn start_unseen(client: &Client, name: &str, label: &str, mib: u64) -> Self {
        let host = FakeHost::default();
        let geometry = Geometry { size: mib * MIB, sector: 512, offloads_zeroes: true };
        host.add_disk("fake0", &format!("SERIAL-{name}"), geometry);
        Self::of(client, name, json!({"sim": label}), host).await
    }
}

/// 1 GiB with a filesystem, on these nodes.
pub fn wanted(name: &str, nodes: Nodes) -> VolumeRequest {
    VolumeRequest {
        name: name.to_owned(),
        required: GIB,
        limit: None,
        usage: WantedUsage::Mount(None),
        parameters: [("class".to_owned(), "fast".to_owned())].into(),
        selector: Selector { class: Some("fast".to_owned()), set: None },
        nodes,
        timeout: TIMEOUT,
    }
}

pub fn on(node: &str) -> Nodes {
    Nodes::Preferred(vec![node.into()])
}
