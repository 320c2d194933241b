//! The cluster that the checks run on: its API as JSON objects, kubectl for what people type, and what a test waits
//! for.
//!
//! Takes in KUBECONFIG and what scripts/test-cluster sets in the environment; gives out `Cluster`.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use localpool_testing::found_async;
use serde_json::Value;

use crate::machine::Machine;

pub const DRIVER: &str = "csi.localpool.dev";
pub const TOPOLOGY: &str = "topology.localpool.dev/node";
/// Where the chart is.
pub const HOME: &str = "localpool";
/// The time limit for nearly everything. A machine that tests with all its cores is slow at times.
pub const SOON: Duration = Duration::from_secs(180);

#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    /// The image of pods: busybox with its applets.
    pub image: String,
    /// Set if the checks can look at the machine of the node.
    pub machine: Option<Machine>,
}

/// Kinds by their names: group, version, plural, whether they live in a namespace.
const KINDS: [(&str, &str, &str, &str, bool); 28] = [
    ("Namespace", "", "v1", "namespaces", false),
    ("Node", "", "v1", "nodes", false),
    ("Pod", "", "v1", "pods", true),
    ("Event", "", "v1", "events", true),
    ("ConfigMap", "", "v1", "configmaps", true),
    ("ServiceAccount", "", "v1", "serviceaccounts", true),
    ("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims", true),
    ("PersistentVolume", "", "v1", "persistentvolumes", false),
    ("Deployment", "apps", "v1", "deployments", true),
    ("DaemonSet", "apps", "v1", "daemonsets", true),
    ("StatefulSet", "apps", "v1", "statefulsets", true),
    ("Lease", "coordination.k8s.io", "v1", "leases", true),
    ("StorageClass", "storage.k8s.io", "v1", "storageclasses", false),
    ("CSINode", "storage.k8s.io", "v1", "csinodes", false),
    ("CSIDriver", "storage.k8s.io", "v1", "csidrivers", false),
    ("CSIStorageCapacity", "storage.k8s.io", "v1", "csistoragecapacities", true),
    ("DevicePool", "localpool.dev", "v1alpha1", "devicepools", false),
    ("PoolVolume", "localpool.dev", "v1alpha1", "poolvolumes", false),
    ("NodeDiskSetup", "localpool.dev", "v1alpha1", "nodedisksetups", false),
    ("LocalVolumeSet", "local.storage.openshift.io", "v1alpha1", "localvolumesets", true),
    ("LocalVolume", "local.storage.openshift.io", "v1", "localvolumes", true),
    ("LocalVolumeDiscovery", "local.storage.openshift.io", "v1alpha1", "localvolumediscoveries", true),
    ("LocalVolumeDiscoveryResult", "local.storage.openshift.io", "v1alpha1", "localvolumediscoveryresults", true),
    ("CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions", false),
    ("ValidatingAdmissionPolicy", "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", false),
    (
        "ValidatingAdmissionPolicyBinding",
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicybindings",
        false,
    ),
    ("ClusterRole", "rbac.authorization.k8s.io", "v1", "clusterroles", false),
    ("Job", "batch", "v1", "jobs", true),
];

impl Cluster {
    pub async fn new() -> Self {
        let client = Client::try_default().await.expect("KUBECONFIG names a cluster");
        let image = std::env::var("LOCALPOOL_TEST_IMAGE").unwrap_or_else(|_| "localpool.dev/test-app:dev".to_owned());
        Self { client, image, machine: Machine::of_this_run() }
    }

    /// The objects of a kind, in one namespace or all.
    pub fn api(&self, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let found = KINDS.iter().find(|known| known.0 == kind);
        let (_, group, version, plural, namespaced) = found.unwrap_or_else(|| panic!("no kind {kind} is known here"));
        let resource = ApiResource {
            group: (*group).to_owned(),
            version: (*version).to_owned(),
            api_version: if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") },
            kind: kind.to_owned(),
            plural: (*plural).to_owned(),
        };
        match namespace.filter(|_| *namespaced) {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Creates an object; its kind, name and namespace are in it.
    pub async fn try_create(&self, object: &Value) -> Result<Value, kube::Error> {
        let kind = object["kind"].as_str().unwrap();
        let api = self.api(kind, object["metadata"]["namespace"].as_str());
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        api.create(&PostParams::default(), &object).await.map(json)
    }

    pub async fn create(&self, object: &Value) -> Value {
        let made = self.try_create(object).await;
        made.unwrap_or_else(|error| panic!("making {} {}: {error}", object["kind"], object["metadata"]["name"]))
    }

    pub async fn get(&self, kind: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
        let api = self.api(kind, namespace);
        let found = answered(async || api.get_opt(name).await).await;
        found.unwrap_or_else(|e| panic!("reading {kind} {name}: {e}")).map(json)
    }

    pub async fn list(&self, kind: &str, namespace: Option<&str>) -> Vec<Value> {
        let api = self.api(kind, namespace);
        let all = answered(async || api.list(&ListParams::default()).await).await;
        all.unwrap_or_else(|error| panic!("listing {kind}: {error}")).items.into_iter().map(json).collect()
    }

    pub async fn delete(&self, kind: &str, namespace: Option<&str>, name: &str) {
        let api = self.api(kind, namespace);
        match answered(async || api.delete(name, &DeleteParams::default()).await).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("deleting {kind} {name}: {error}"),
        }
    }

    pub async fn try_patch(
        &self,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        patch: &Value,
    ) -> Result<Value, kube::Error> {
        let api = self.api(kind, namespace);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(json)
    }

    pub async fn patch(&self, kind: &str, namespace: Option<&str>, name: &str, patch: &Value) -> Value {
        let patched = self.try_patch(kind, namespace, name, patch).await;
        patched.unwrap_or_else(|error| panic!("patching {kind} {name}: {error}"))
    }

    /// Waits until an object meets the condition, and returns it.
    pub async fn until(
        &self,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        let poll = async || match self.api(kind, namespace).get_opt(name).await {
            Ok(Some(found)) => {
                let found = json(found);
                if holds(&found) { Ok(found) } else { Err(format!("{}", found["status"])) }
            }
            Ok(None) => Err("it does not exist".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        eventually(&format!("{kind} {name}: {what}"), SOON, poll).await
    }

    pub async fn until_gone(&self, kind: &str, namespace: Option<&str>, name: &str) {
        let poll = async || match self.api(kind, namespace).get_opt(name).await {
            Ok(None) => Ok(()),
            Ok(Some(found)) => Err(format!("{}", json(found))),
            Err(error) => Err(error.to_string()),
        };
        eventually(&format!("{kind} {name} is gone"), SOON, poll).await;
    }

    /// The nodes that run an agent.
    pub async fn nodes(&self) -> Vec<String> {
        self.list("DevicePool", None).await.iter().map(|pool| name(pool).to_owned()).collect()
    }

    /// The PoolVolume behind a claim, which is bound.
    pub async fn volume_of(&self, namespace: &str, claim: &str) -> Value {
        let claim = self.get("PersistentVolumeClaim", Some(namespace), claim).await.expect("the claim");
        let pv = claim["spec"]["volumeName"].as_str().expect("a claim that is bound").to_owned();
        let pv = self.get("PersistentVolume", None, &pv).await.expect("the PersistentVolume of a bound claim");
        let handle = pv["spec"]["csi"]["volumeHandle"].as_str().expect("a CSI volume").to_owned();
        self.get("PoolVolume", None, &handle).await.expect("the PoolVolume of a PersistentVolume")
    }
}

fn json(object: DynamicObject) -> Value {
    serde_json::to_value(object).expect("an object of the API is JSON")
}

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("an object with a name")
}

/// Looks until it finds something; if it does not, the panic has the last answer.
pub async fn eventually<T, E: Debug>(what: &str, within: Duration, poll: impl AsyncFnMut() -> Result<T, E>) -> T {
    let found = found_async(within, Duration::from_millis(200), poll).await;
    found.unwrap_or_else(|seen| panic!("not within {} s: {what}; at last: {seen:?}", within.as_secs()))
}

/// The API server's answer in the end. While it starts fifty pods, it may not answer at once, or ask to retry; no check
/// is about that. Only for calls that may be made twice.
async fn answered<T>(mut call: impl AsyncFnMut() -> Result<T, kube::Error>) -> Result<T, kube::Error> {
    let until = Instant::now() + SOON;
    loop {
        match call().await {
            Err(kube::Error::Api(status)) if status.code < 429 => return Err(kube::Error::Api(status)),
            Err(_) if Instant::now() < until => tokio::time::sleep(Duration::from_millis(500)).await,
            ended => return ended,
        }
    }
}

/// Runs a program; returns what it printed, whatever its outcome.
pub async fn attempt(program: &str, arguments: &[&str]) -> Result<String, String> {
    let program = program.to_owned();
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let run = move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        localpool_testing::attempt(&program, &arguments)
    };
    tokio::task::spawn_blocking(run).await.expect("it does not panic")
}

/// Runs a program that has to succeed, and returns what it printed.
pub async fn run(program: &str, arguments: &[&str]) -> String {
    attempt(program, arguments).await.unwrap_or_else(|output| panic!("{output}"))
}

pub async fn kubectl(arguments: &[&str]) -> String {
    run("kubectl", arguments).await
}
