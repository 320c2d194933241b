//! What the controller makes of a LocalVolumeDiscovery: the DaemonSet, and the status. Nobody runs its pods here; the
//! tests play the DaemonSet controller and the kubelets.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use localpool::api::crd::{
    DISCOVERY_NAME, DiscoveryPhase, LocalVolumeDiscovery, LocalVolumeDiscoveryResult, SCHEMA_ANNOTATION, discovery_crd,
};
use localpool::operator::controller::{Discoveries, Metrics};
use localpool::operator::crds::{self, Ownership};
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::agent::{Stage, unique};
use crate::cluster;
use crate::leader::{at_rest, namespace, until};

const NAME: &str = "localpool-discovery";

/// What the chart would tell the controller to run.
fn pattern() -> String {
    let labels = json!({"app.kubernetes.io/component": "discovery"});
    json!({
        "metadata": {"name": NAME, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [
                {"name": "localpool", "image": "i", "command": ["localpool", "discovery"], "args": ["--state-dir=/x"]},
            ]}},
        },
    })
    .to_string()
}

/// A controller at work in a namespace of its own.
struct Work {
    task: JoinHandle<()>,
    metrics: Metrics,
    namespace: String,
    daemons: Api<DaemonSet>,
    objects: Api<LocalVolumeDiscovery>,
    client: Client,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Work {
    /// What an earlier test has left on this server would be the older one.
    async fn begin(stage: &Stage) -> Self {
        let all: Api<LocalVolumeDiscovery> = Api::all(stage.client.clone());
        for left in all.list(&ListParams::default()).await.expect("an answer") {
            let of: Api<LocalVolumeDiscovery> = Api::namespaced(stage.client.clone(), &left.namespace().expect("one"));
            of.delete(&left.name_any(), &DeleteParams::default()).await.expect("it is there");
        }
        let namespace = namespace(&stage.client).await;
        let metrics = Metrics::new(&Registry::new()).expect("fresh names");
        let pattern = Some(pattern().parse().expect("a pattern"));
        let client = stage.client.clone();
        let work = Discoveries::new(client.clone(), &stage.caches, metrics.clone(), &namespace, pattern, "test");
        Self {
            task: tokio::spawn(work.run()),
            metrics,
            daemons: Api::namespaced(client.clone(), &namespace),
            objects: Api::namespaced(client.clone(), &namespace),
            namespace,
            client,
        }
    }

    async fn ask(&self, spec: Value) {
        self.objects
            .create(&PostParams::default(), &object(&self.namespace, DISCOVERY_NAME, spec))
            .await
            .expect("taken");
    }

    async fn change(&self, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.objects.patch(DISCOVERY_NAME, &PatchParams::default(), &patch).await.expect("taken");
    }

    /// The DaemonSet, once it meets the condition.
    async fn daemon(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        until(what, async || {
            let found = self.daemons.get_opt(NAME).await.expect("an answer")?;
            let found = serde_json::to_value(found).expect("JSON");
            holds(&found).then_some(found)
        })
        .await
    }

    /// As the DaemonSet controller would report it.
    async fn count(&self, wanted: i32, scheduled: i32, available: i32) {
        let generation = self.daemons.get(NAME).await.expect("it is there").metadata.generation;
        let status = json!({"status": {
            "observedGeneration": generation, "desiredNumberScheduled": wanted, "currentNumberScheduled": scheduled,
            "numberMisscheduled": 0, "numberReady": available, "numberAvailable": available,
        }});
        self.daemons.patch_status(NAME, &PatchParams::default(), &Patch::Merge(&status)).await.expect("taken");
    }

    /// Waits for `phase status reason` of the condition Available; gives its message.
    async fn says(&self, expected: &str) -> String {
        until(expected, async || {
            let found = self.objects.get(DISCOVERY_NAME).await.expect("it is there");
            let generation = found.metadata.generation;
            let status = found.status?;
            let available =
                status.conditions.iter().find(|c| c.type_ == "Available" && c.observed_generation == generation)?;
            let shown = format!("{:?} {} {}", status.phase, available.status, available.reason);
            (shown == expected).then(|| available.message.clone())
        })
        .await
    }
}

fn object(namespace: &str, name: &str, spec: Value) -> LocalVolumeDiscovery {
    let object = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeDiscovery",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    });
    serde_json::from_value(object).expect("ours")
}

fn on(names: &[&str]) -> Value {
    json!({"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": names},
    ]}]})
}

#[tokio::test]
async fn there_is_one_discovery_and_another_name_is_refused_with_the_one_to_use() {
    let cluster = cluster!(shared);
    let space = namespace(&cluster.client).await;
    let api: Api<LocalVolumeDiscovery> = Api::namespaced(cluster.client.clone(), &space);
    let refused = api.create(&PostParams::default(), &object(&space, "example-autodetect", json!({}))).await;
    let message = refused.expect_err("refused").to_string();
    assert!(message.contains("is called auto-discover-devices: use this name"), "{message}");
}

#[tokio::test]
async fn the_daemonset_is_made_follows_the_object_comes_back_and_goes_with_it_while_results_stay() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let work = Work::begin(&stage).await;
    work.ask(json!({"nodeSelector": on(&["worker-0", "worker-1"]),
        "tokerations": [{"key": "gpu", "operator": "Exists"}]}))
        .await;
    let told = work.says("DiscoveryFailed False Invalid").await;
    assert!(told.contains("spec.tokerations: unknown field; did you mean tolerations?"), "{told}");
    assert!(work.daemons.get_opt(NAME).await.expect("an answer").is_none(), "a slip does nothing");

    let tolerations = json!([{"key": "gpu", "operator": "Exists"}]);
    work.change(json!({"tokerations": null, "tolerations": tolerations})).await;
    let pod = |daemon: &Value| daemon["spec"]["template"]["spec"].clone();
    let nodes = |daemon: &Value| {
        pod(daemon)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].clone()
    };
    let made = work.daemon("a DaemonSet", |_| true).await;
    assert_eq!((nodes(&made), &pod(&made)["tolerations"]), (on(&["worker-0", "worker-1"]), &tolerations));
    assert_eq!(
        pod(&made)["containers"][0]["args"],
        json!(["--state-dir=/x", format!("--namespace={}", work.namespace)])
    );
    let owner = &made["metadata"]["ownerReferences"][0];
    let uid = work.objects.get(DISCOVERY_NAME).await.expect("it is there").uid();
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("LocalVolumeDiscovery"), &json!(uid)));

    let fields = json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-2"]}],
         "matchExpressions": [{"key": "disks", "operator": "Gt", "values": ["3"]}, {"key": "edge", "operator": "DoesNotExist"}]},
    ]});
    work.change(json!({"nodeSelector": fields})).await;
    work.daemon("it follows the selector", |daemon| nodes(daemon) == fields).await;
    work.change(json!({"nodeSelector": null})).await;
    work.daemon("it follows to all nodes", |daemon| nodes(daemon).is_null()).await;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "localpool", "image": "mine"}]}}}});
    work.daemons.patch(NAME, &PatchParams::default(), &Patch::Strategic(&image)).await.expect("taken");
    work.daemon("a change by hand is taken back", |daemon| pod(daemon)["containers"][0]["image"] == "i").await;
    work.daemons.delete(NAME, &DeleteParams::default()).await.expect("it is there");
    work.daemon("it comes back", |daemon| daemon["metadata"]["uid"] != made["metadata"]["uid"]).await;

    let results: Api<LocalVolumeDiscoveryResult> = Api::namespaced(work.client.clone(), &work.namespace);
    let result = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeDiscoveryResult",
        "metadata": {"name": "discovery-result-x"}, "spec": {"nodeName": "worker-0"},
    });
    results.create(&PostParams::default(), &serde_json::from_value(result).expect("ours")).await.expect("taken");
    work.objects.delete(DISCOVERY_NAME, &DeleteParams::default()).await.expect("it is there");
    until("the DaemonSet goes", async || work.daemons.get_opt(NAME).await.expect("an answer").is_none().then_some(()))
        .await;
    results.get("discovery-result-x").await.expect("it stays");
}

#[tokio::test]
async fn the_status_tells_of_pods_that_run_that_cannot_and_that_are_not_even_made() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let work = Work::begin(&stage).await;
    work.ask(json!({})).await;
    work.daemon("a DaemonSet", |_| true).await;
    work.says("Discovering False Starting").await;
    work.count(2, 2, 2).await;
    assert_eq!(work.says("Discovering True Running").await, "devices of 2 of 2 nodes are being discovered");

    let written = async || work.metrics.writes.with_label_values(&["discovery"]).get();
    let is_woken = async || {
        stage.node(&unique("worker")).await;
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    };
    at_rest("nothing changes, and it writes", written, is_woken).await;

    let uid = work.daemons.get(NAME).await.expect("it is there").uid().expect("a UID");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "one", "labels": {"app.kubernetes.io/component": "discovery"},
                     "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": NAME, "uid": uid}]},
        "spec": {"nodeName": "worker-0", "automountServiceAccountToken": false,
                 "containers": [{"name": "localpool", "image": "i"}]},
    });
    let pods: Api<Pod> = Api::namespaced(work.client.clone(), &work.namespace);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(work.client.clone(), &work.namespace);
    accounts.create(&PostParams::default(), &serde_json::from_value(account).expect("ours")).await.expect("taken");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("ours")).await.expect("taken");
    let waiting = json!({"status": {"phase": "Pending", "containerStatuses": [{
        "name": "localpool", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
    }]}});
    pods.patch_status("one", &PatchParams::default(), &Patch::Merge(&waiting)).await.expect("taken");
    work.count(2, 2, 0).await;
    let told = work.says("DiscoveryFailed False PodsFailing").await;
    assert!(told.contains("worker-0: ImagePullBackOff: no such image"), "{told}");
    work.count(2, 2, 1).await;
    work.says("Discovering False PodsFailing").await;

    let pod = pods.get("one").await.expect("it is there").uid();
    let warning = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "w", "namespace": work.namespace},
        "involvedObject": {"kind": "Pod", "name": "one", "namespace": work.namespace, "uid": pod},
        "reason": "FailedMount", "type": "Warning", "lastTimestamp": "2026-01-01T00:00:00Z",
        "message": "hostPath type check failed: /run/udev is not a directory",
    });
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(work.client.clone(), &work.namespace);
    events.create(&PostParams::default(), &serde_json::from_value(warning).expect("ours")).await.expect("taken");
    let creating = json!({"status": {"startTime": "2026-01-01T00:00:00Z", "containerStatuses": [{
        "name": "localpool", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ContainerCreating"}},
    }]}});
    pods.patch_status("one", &PatchParams::default(), &Patch::Merge(&creating)).await.expect("taken");
    until("a pod that never gets its container says why", async || {
        work.says("Discovering False PodsFailing")
            .await
            .contains("FailedMount: hostPath type check failed")
            .then_some(())
    })
    .await;

    pods.delete("one", &DeleteParams::default().grace_period(0)).await.expect("it is there");
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": work.namespace},
        "involvedObject": {"kind": "DaemonSet", "name": NAME, "namespace": work.namespace, "uid": uid},
        "reason": "FailedCreate", "type": "Warning", "lastTimestamp": "2026-01-01T00:00:00Z",
        "message": "violates PodSecurity \"restricted\"",
    });
    events.create(&PostParams::default(), &serde_json::from_value(event).expect("ours")).await.expect("taken");
    work.count(2, 0, 0).await;
    let told = work.says("DiscoveryFailed False PodsFailing").await;
    assert!(told.contains("violates PodSecurity"), "{told}");
    work.count(2, 2, 2).await;
    work.says("Discovering True Running").await;
}

#[tokio::test]
async fn under_another_owners_definition_a_discovery_is_its_own_and_left_alone() {
    let cluster = cluster!(fresh);
    let client = &cluster.client;
    crds::apply(client.clone(), Ownership::Respect).await.expect("a fresh cluster");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let theirs = Patch::Merge(json!({"metadata": {"annotations": {SCHEMA_ANNOTATION: null}}}));
    definitions.patch(&discovery_crd().name_any(), &PatchParams::default(), &theirs).await.expect("it is there");
    let stage = Stage::new(client).await;
    let work = Work::begin(&stage).await;
    work.ask(json!({})).await;
    // Several times as long as it takes when the CRD is ours.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert!(work.daemons.get_opt(NAME).await.expect("an answer").is_none(), "a DaemonSet was made");
    let object = work.objects.get(DISCOVERY_NAME).await.expect("it is there");
    assert_eq!(object.status, None, "its status is its owner's");

    crds::apply(client.clone(), Ownership::Take).await.expect("it is ours now");
    stage.node(&unique("worker")).await;
    work.daemon("a DaemonSet", |_| true).await;
}

#[tokio::test]
async fn the_older_one_is_in_charge_wherever_it_is_and_the_other_says_so_until_it_is_alone() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let elsewhere = namespace(&cluster.client).await;
    let work = Work::begin(&stage).await;
    let others: Api<LocalVolumeDiscovery> = Api::namespaced(cluster.client.clone(), &elsewhere);
    others.create(&PostParams::default(), &object(&elsewhere, DISCOVERY_NAME, json!({}))).await.expect("taken");
    let daemon = work.daemon("a DaemonSet in our namespace", |_| true).await;
    assert!(daemon["metadata"]["ownerReferences"].is_null(), "an owner in another namespace would count as gone");
    let args = |daemon: &Value| daemon["spec"]["template"]["spec"]["containers"][0]["args"][1].clone();
    assert_eq!(args(&daemon), json!(format!("--namespace={elsewhere}")), "the results go to the object");
    // Ages are shown in seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    work.ask(json!({})).await;
    let told = work.says("DiscoveryFailed False NotInCharge").await;
    assert!(told.contains(&format!("{elsewhere}/{DISCOVERY_NAME} is in charge")), "{told}");
    let phase = others.get(DISCOVERY_NAME).await.expect("it is there").status.expect("a status").phase;
    assert_eq!(phase, DiscoveryPhase::Discovering);
    others.delete(DISCOVERY_NAME, &DeleteParams::default()).await.expect("it is there");
    work.daemon("it is the other one's now", |daemon| args(daemon) == json!(format!("--namespace={}", work.namespace)))
        .await;
    work.says("Discovering False Starting").await;
    work.objects.delete(DISCOVERY_NAME, &DeleteParams::default()).await.expect("it is there");
    until("the DaemonSet goes", async || work.daemons.get_opt(NAME).await.expect("an answer").is_none().then_some(()))
        .await;
}
