//! The speed of disks, measured by a command in the pod that waits: the real part of the leader, an agent on a fake machine,
//! and a fake in the place of the API server's way into a container, as no kubelet runs here.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use localpool::api::crd::{BenchmarkRequest, BenchmarkState, DevicePool, DiskBenchmark, NodeDiskSetup, PodBenchmark};
use localpool::host::DiskFigures;
use localpool::host::fake::FakeSpeed;
use localpool::operator::controller::{CommandEnd, PodCommands, PodExec, PodTarget};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::agent::Stage;
use crate::benchmarks::{FIGURES, MAP, bound, document, measured, mount, record_with, setup, until_value, value};
use crate::cluster;
use crate::leader::{namespace, until};
use crate::nodes::offering;
use crate::sim::SimNode;

/// What a command in a pod measures, unlike the agent.
const IN_POD: DiskFigures = DiskFigures { read_iops: 9, read_bandwidth: 99, write_iops: 999, write_bandwidth: 9999 };

/// Answers each command with the next of these; without one, it does not end.
#[derive(Default)]
struct FakeExec {
    answers: Mutex<VecDeque<CommandEnd>>,
    began: Mutex<Vec<Began>>,
}

struct Began {
    target: PodTarget,
    command: Vec<String>,
    limit: Duration,
    /// Of one that does not end by itself.
    end: Option<oneshot::Sender<CommandEnd>>,
}

impl PodExec for FakeExec {
    fn run(&self, target: PodTarget, command: Vec<String>, limit: Duration) -> BoxFuture<'static, CommandEnd> {
        let (end, ends) = oneshot::channel();
        let answer = self.answers.lock().expect("no panic").pop_front();
        self.began.lock().expect("no panic").push(Began {
            target,
            command,
            limit,
            end: Some(end).filter(|_| answer.is_none()),
        });
        async move {
            match answer {
                Some(answer) => answer,
                // Whoever asked has given up before this is dropped.
                None => ends.await.unwrap_or_else(|_| CommandEnd::Lost("the test ended".to_owned())),
            }
        }
        .boxed()
    }
}

impl FakeExec {
    fn with(answers: impl IntoIterator<Item = CommandEnd>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), began: Mutex::default() })
    }

    fn count(&self) -> usize {
        self.began.lock().expect("no panic").len()
    }

    async fn until_count(&self, count: usize) {
        until("the command begins", async || (self.count() >= count).then_some(())).await;
        assert_eq!(self.count(), count);
    }

    /// Ends the last one.
    fn end(&self, end: CommandEnd) {
        let sender = self.began.lock().expect("no panic").last_mut().and_then(|began| began.end.take());
        assert!(sender.expect("it runs").send(end).is_ok(), "somebody waits for it");
    }
}

fn commands(exec: &Arc<FakeExec>, spaces: &[&str]) -> Option<PodCommands> {
    Some(PodCommands::by(Arc::clone(exec) as _, spaces.iter().map(|space| (*space).to_owned())))
}

/// A NodeDiskSetup whose command runs in the container that waits.
async fn in_pod(client: &Client, label: &str, more: Value) -> Api<NodeDiskSetup> {
    let mut options = json!({"runIn": "Pod", "command": ["iotune", "--format"], "timeoutSeconds": 90});
    options.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    setup(client, label, json!({ "diskBenchmarkOptions": options })).await
}

fn container(name: &str) -> Value {
    let mounts = json!([{"name": "data", "mountPath": "/var/lib/scylla"}]);
    json!({"name": name, "image": "none", "volumeMounts": mounts})
}

/// A pod of the volume's claim, as the scheduler and kubelet leave it: its init container runs.
async fn pod(client: &Client, space: &str, name: &str, claim: &str, node: &str) -> Api<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), space);
    // No controller makes it here.
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).expect("an account");
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), space);
    let _ = accounts.create(&PostParams::default(), &account).await;
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            "initContainers": [container("wait")], "containers": [container("scylla")],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod")).await.expect("a new pod");
    let status = |name: &str, state: Value| {
        let rest = json!({"name": name, "image": "none", "imageID": "", "ready": false, "restartCount": 0});
        let mut status = rest;
        status["state"] = state;
        status
    };
    let statuses = json!({"status": {
        "phase": "Pending",
        "initContainerStatuses": [status("wait", json!({"running": {}}))],
        "containerStatuses": [status("scylla", json!({"waiting": {"reason": "PodInitializing"}}))],
    }});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&statuses)).await.expect("there");
    pods
}

/// The only request of the node's pool.
async fn request(client: &Client, node: &str) -> Option<BenchmarkRequest> {
    let pool = Api::<DevicePool>::all(client.clone()).get(node).await.expect("there");
    pool.spec.benchmarks.into_iter().next()
}

async fn in_pods(setups: &Api<NodeDiskSetup>, name: &str, is: impl Fn(&Condition) -> bool) -> Condition {
    let of_setup = async || {
        let status = setups.get(name).await.expect("there").status?;
        status.conditions.into_iter().find(|condition| condition.type_ == "BenchmarksInPods").filter(&is)
    };
    until("the NodeDiskSetup says so", of_setup).await
}

fn says(words: &'static str) -> impl Fn(&DiskBenchmark) -> bool {
    move |result| result.message.as_ref().is_some_and(|why| why.contains(words))
}

/// A volume of a new namespace whose pod waits.
async fn waiting(stage: &Stage, label: &str, node: &SimNode, space: &str) -> (String, String) {
    let (name, key) = bound(stage, label, &node.name, space).await;
    pod(&stage.client, space, &name, &name, &node.name).await;
    mount(node, &name);
    (name, key)
}

async fn delete_key(client: &Client, space: &str, key: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), space);
    // What is written from then on is of a later second.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let without = json!({"data": {key: null}});
    maps.patch(MAP, &PatchParams::default(), &Patch::Merge(&without)).await.expect("there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_once_in_the_pod_that_waits_and_its_figures_are_kept_for_all_volumes_of_the_disk() {
    let cluster = cluster!(alone);
    let (stage, label, node) = offering(&cluster.client, 128).await;
    let (client, space) = (&stage.client, namespace(&cluster.client).await);
    node.host.set_speed(FakeSpeed::Figures(FIGURES));
    let setups = in_pod(client, &label, json!({})).await;
    let exec = FakeExec::with([]);
    let _work = record_with(&stage, commands(&exec, &[&space]));
    let (name, key) = bound(&stage, &label, &node.name, &space).await;
    pod(client, &space, "waits", &name, &node.name).await;
    measured(client, &node.name, says("no volume on it whose pod waits is mounted")).await;
    assert_eq!(exec.count(), 0, "the agent has not said that the disk is idle");
    mount(&node, &name);
    exec.until_count(1).await;
    {
        let began = exec.began.lock().expect("no panic");
        let target = &began[0].target;
        assert_eq!([&target.namespace, &target.pod, &target.container], [&space, "waits", "wait"]);
        assert_eq!(
            (began[0].command.join(" "), began[0].limit),
            ("iotune --format".to_owned(), Duration::from_secs(90))
        );
    }
    let begun = request(client, &node.name).await.and_then(|request| request.pod).expect("it is noted before");
    assert_eq!((begun.tries, begun.begun.map(|begun| begun.pod)), (1, Some(format!("{space}/waits"))));
    let runs = measured(client, &node.name, says("the command runs in container wait")).await;
    assert_eq!(runs.state, BenchmarkState::Waiting);
    assert_eq!(value(client, &space, &key).await, None);

    exec.end(CommandEnd::Printed(document(IN_POD)));
    assert_eq!(until_value(client, &space, &key).await, document(IN_POD));
    measured(client, &node.name, |result| result.figures == Some(IN_POD)).await;
    let (_, other) = waiting(&stage, &label, &node, &space).await;
    assert_eq!(until_value(client, &space, &other).await, document(IN_POD));
    let condition = in_pods(&setups, &label, |condition| condition.status == "True").await;
    assert!(condition.message.contains(&space), "{}", condition.message);
    assert_eq!(exec.count(), 1);
    assert!(until("the request is over", async || request(client, &node.name).await.is_none().then_some(true)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_fails_or_prints_something_else_gives_an_empty_value_and_says_why() {
    let cluster = cluster!(alone);
    let (stage, label, node) = offering(&cluster.client, 128).await;
    let (client, space) = (&stage.client, namespace(&cluster.client).await);
    in_pod(client, &label, json!({})).await;
    let failed = "the command ended with exit code 3; its last words: no space";
    let wrong = document(IN_POD).replace("write_iops", "secret");
    let exec = FakeExec::with([CommandEnd::Failed(failed.to_owned()), CommandEnd::Printed(wrong)]);
    let _work = record_with(&stage, commands(&exec, &[&space]));
    let (_, key) = waiting(&stage, &label, &node, &space).await;
    assert_eq!(until_value(client, &space, &key).await, "");
    let result = measured(client, &node.name, |result| result.state == BenchmarkState::Failed).await;
    assert_eq!(result.message.as_deref(), Some(failed));
    delete_key(client, &space, &key).await;
    exec.until_count(2).await;
    assert_eq!(until_value(client, &space, &key).await, "");
    let result = measured(client, &node.name, says("its disk has no `write_iops`")).await;
    assert!((result.figures.is_none(), result.message.is_some_and(|why| !why.contains("secret"))) == (true, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_run_it_the_agent_measures_and_a_condition_says_so() {
    let cluster = cluster!(alone);
    let (stage, label, node) = offering(&cluster.client, 128).await;
    let (client, space) = (&stage.client, namespace(&cluster.client).await);
    node.host.set_speed(FakeSpeed::Figures(FIGURES));
    let setups = in_pod(client, &label, json!({})).await;
    let exec = FakeExec::with([CommandEnd::Forbidden]);
    let other = namespace(client).await;
    let work = record_with(&stage, commands(&exec, &[&other]));
    let (_, key) = waiting(&stage, &label, &node, &space).await;
    let condition = in_pods(&setups, &label, |condition| condition.status == "False").await;
    assert!(condition.message.contains("execNamespaces does not have"), "{}", condition.message);
    assert_eq!(condition.reason, "NoExecRight");
    assert_eq!(until_value(client, &space, &key).await, document(FIGURES));
    assert_eq!(exec.count(), 0);
    drop(work);

    // It is listed, and the API server refuses it all the same.
    let _work = record_with(&stage, commands(&exec, &[&space]));
    let slower = DiskFigures { read_iops: 1, ..FIGURES };
    node.host.set_speed(FakeSpeed::Figures(slower));
    delete_key(client, &space, &key).await;
    exec.until_count(1).await;
    assert_eq!(until_value(client, &space, &key).await, document(slower));
    assert_eq!(exec.count(), 1);
}

/// The time of the command is over, whatever it was.
async fn expire(client: &Client, node: &str) {
    let mut request = request(client, node).await.expect("it stands");
    let begun = request.pod.as_mut().and_then(|pod| pod.begun.as_mut()).expect("it has begun");
    begun.until.0 = "2026-03-01T00:00:00Z".parse().expect("a time");
    let change = json!({"spec": {"benchmarks": [request]}});
    let api: Api<DevicePool> = Api::all(client.clone());
    api.patch(node, &PatchParams::default(), &Patch::Merge(&change)).await.expect("there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_begins_no_second_command_in_its_time_and_none_for_ever() {
    let cluster = cluster!(alone);
    let (stage, label, node) = offering(&cluster.client, 128).await;
    let (client, space) = (&stage.client, namespace(&cluster.client).await);
    in_pod(client, &label, json!({})).await;
    let exec = FakeExec::with([]);
    let work = record_with(&stage, commands(&exec, &[&space]));
    let (_, key) = waiting(&stage, &label, &node, &space).await;
    exec.until_count(1).await;
    drop(work);

    let next = FakeExec::with([]);
    let work = record_with(&stage, commands(&next, &[&space]));
    measured(client, &node.name, says("the command runs in")).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(next.count(), 0, "the first one may go on");
    let pod = request(client, &node.name).await.and_then(|request| request.pod);
    assert!(matches!(pod, Some(PodBenchmark { tries: 1, begun: Some(_), ended: None })), "{pod:?}");
    expire(client, &node.name).await;
    next.until_count(1).await;
    // Here the connection is lost.
    next.end(CommandEnd::Lost("it was cut".to_owned()));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((next.count(), value(client, &space, &key).await), (1, None));
    drop(work);

    let last = FakeExec::with([]);
    let _work = record_with(&stage, commands(&last, &[&space]));
    expire(client, &node.name).await;
    assert_eq!(until_value(client, &space, &key).await, "");
    measured(client, &node.name, says("has begun 2 times, and nobody saw its end")).await;
    assert_eq!(last.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_not_there_and_a_claim_of_two_pods_are_told_and_waited_for() {
    let cluster = cluster!(alone);
    let (stage, label, node) = offering(&cluster.client, 128).await;
    let (client, space) = (&stage.client, namespace(&cluster.client).await);
    let setups = in_pod(client, &label, json!({"container": "tune"})).await;
    let exec = FakeExec::with([CommandEnd::Printed(document(IN_POD))]);
    let _work = record_with(&stage, commands(&exec, &[&space]));
    let (name, key) = waiting(&stage, &label, &node, &space).await;
    let condition = in_pods(&setups, &label, |condition| condition.reason == "NoContainer").await;
    assert!(condition.message.contains("no container \"tune\"; it has wait, scylla"), "{}", condition.message);

    let pods = pod(client, &space, "second", &name, &node.name).await;
    let named = json!({"spec": {"diskBenchmarkOptions": {"container": "wait"}}});
    setups.patch(&label, &PatchParams::default(), &Patch::Merge(&named)).await.expect("there");
    in_pods(&setups, &label, |condition| condition.message.contains("both use claim")).await;
    assert_eq!((exec.count(), value(client, &space, &key).await), (0, None));
    pods.delete("second", &DeleteParams::default().grace_period(0)).await.expect("there");
    assert_eq!(until_value(client, &space, &key).await, document(IN_POD));
    in_pods(&setups, &label, |condition| condition.status == "True").await;
}
