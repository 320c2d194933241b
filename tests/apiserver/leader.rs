//! What the leader writes, each thing only once.

use std::fmt::Debug;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use localpool::agent::Run;
use localpool::api::crd::{DevicePool, FINALIZER, LocalVolumeSet, PoolVolume};
use localpool::operator::controller::{AgentPods, DeletedNodePolicy, Leader, LeaderStores, Metrics};
use localpool::operator::drain::forget;
use localpool::operator::volume::abandon;
use localpool::volume::{Error, VolumeId, Volumes as _};
use localpool_testing::{MIB, found_async};
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::agent::{AGAIN, Stage, TIMEOUT, on, unique, wanted};
use crate::cluster;
use crate::nodes::{offers, set as set_of_sims};
use crate::sim::SimNode;

/// A leader at work.
pub struct Work {
    task: JoinHandle<()>,
    metrics: Metrics,
    _own: LeaderStores,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub fn lead(stage: &Stage, gone: DeletedNodePolicy) -> Work {
    lead_with_retention(stage, gone, SignedDuration::from_mins(10))
}

/// A leader that removes sooner what nobody asks for any more.
fn lead_with_retention(stage: &Stage, gone: DeletedNodePolicy, retention: SignedDuration) -> Work {
    lead_with(stage, gone, "default", "app=no-agents", |leader| leader.with_retention(retention))
}

/// A leader for the agents whose pods have this label.
pub fn lead_with(
    stage: &Stage,
    gone: DeletedNodePolicy,
    namespace: &str,
    selector: &str,
    with: impl FnOnce(Leader) -> Leader,
) -> Work {
    let metrics = Metrics::new(&Registry::new()).expect("fresh names");
    let agents = AgentPods { namespace: namespace.to_owned(), selector: selector.to_owned() };
    let own = LeaderStores::watch(&stage.client);
    let (client, stores) = (stage.client.clone(), stage.caches.clone());
    let leader = Leader::new(client, stores, own.classes.clone(), metrics.clone(), agents, gone, "test");
    Work { task: tokio::spawn(with(leader).run()), metrics, _own: own }
}

pub async fn until<T>(what: &str, poll: impl AsyncFn() -> Option<T>) -> T {
    let found = found_async(TIMEOUT, AGAIN, async || poll().await.ok_or(())).await;
    found.unwrap_or_else(|()| panic!("never: {what}"))
}

/// Waits until what is looked at stays the same while something goes on, and returns it: one late write is allowed, and two
/// that write over each other never come to rest.
pub async fn at_rest<T: PartialEq + Debug>(what: &str, look: impl AsyncFn() -> T, meanwhile: impl AsyncFn()) -> T {
    let mut before = look().await;
    for _ in 0..5 {
        meanwhile().await;
        let now = look().await;
        if now == before {
            return now;
        }
        before = now;
    }
    panic!("never at rest: {what}; {before:?}")
}

pub async fn namespace(client: &Client) -> String {
    let name = unique("space");
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let api: Api<Namespace> = Api::all(client.clone());
    api.create(&PostParams::default(), &serde_json::from_value(object).expect("ours")).await.expect("a new one");
    name
}

async fn set(client: &Client, namespace: &str, name: &str, spec: Value) -> Api<LocalVolumeSet> {
    let api: Api<LocalVolumeSet> = Api::namespaced(client.clone(), namespace);
    let object = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    });
    api.create(&PostParams::default(), &serde_json::from_value(object).expect("ours")).await.expect("a new one");
    api
}

/// `status reason` of a condition, once there is one for this generation.
async fn told(api: &Api<LocalVolumeSet>, name: &str, kind: &str) -> String {
    until(&format!("{kind} of {name}"), async || {
        let set = api.get(name).await.expect("it is there");
        let generation = set.metadata.generation;
        let status = set.status?;
        let condition = status.conditions.iter().find(|c| c.type_ == kind && c.observed_generation == generation)?;
        Some(format!("{} {}", condition.status, condition.reason))
    })
    .await
}

pub async fn events(client: &Client, namespace: &str, about: &ObjectReference) -> Vec<String> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let all = api.list(&ListParams::default()).await.expect("events").items;
    let ours = all.into_iter().filter(|e| e.regarding.as_ref().and_then(|r| r.name.clone()) == about.name);
    let mut reasons: Vec<String> = ours
        .map(|event| {
            let times = event.series.map_or(1, |series| series.count);
            format!("{} x{times}", event.reason.unwrap_or_default())
        })
        .collect();
    reasons.sort();
    reasons
}

pub fn about(name: &str) -> ObjectReference {
    ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() }
}

#[tokio::test]
async fn sets_get_their_class_and_a_status_and_an_idle_leader_writes_nothing() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let client = &cluster.client;
    let (space, class, taken) = (namespace(client).await, unique("class"), unique("taken"));
    stage.node(&unique("n")).await;
    let other = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": taken},
        "provisioner": "kubernetes.io/no-provisioner",
    });
    let classes: Api<StorageClass> = Api::all(client.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(other).expect("ours")).await.expect("a new one");
    let work = lead(&stage, DeletedNodePolicy::Keep);

    let api = set(client, &space, "good", json!({"storageClassName": class})).await;
    assert_eq!(told(&api, "good", "Valid").await, "True Valid");
    assert_eq!(told(&api, "good", "StorageClassReady").await, "True Ready");
    assert_eq!(told(&api, "good", "Available").await, "False NoDevices");
    let made = classes.get(&class).await.expect("made");
    assert_eq!(made.provisioner, "csi.localpool.dev");
    assert_eq!(made.labels()["local.storage.openshift.io/owner-name"], "good");

    set(client, &space, "typo", json!({"storageClassName": unique("none"), "dryRnu": true})).await;
    assert_eq!(told(&api, "typo", "Valid").await, "False Invalid");
    set(client, &space, "late", json!({"storageClassName": taken})).await;
    assert_eq!(told(&api, "late", "StorageClassReady").await, "False ForeignProvisioner");
    assert_eq!(classes.get(&taken).await.expect("there").provisioner, "kubernetes.io/no-provisioner");
    let nowhere = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "no", "operator": "Exists"}]}]});
    set(client, &space, "nowhere", json!({"storageClassName": class, "nodeSelector": nowhere})).await;
    assert_eq!(told(&api, "nowhere", "Available").await, "False NoNodeSelected");

    for (name, reasons) in [
        ("good", vec!["StorageClassCreated x1"]),
        ("typo", vec!["Invalid x1"]),
        ("late", vec!["ForeignProvisioner x1"]),
        ("nowhere", vec!["NoNodeSelected x1"]),
    ] {
        until(&format!("{reasons:?} about {name}"), async || {
            (events(client, &space, &about(name)).await == reasons).then_some(())
        })
        .await;
    }

    // A deleted class comes back, and a corrected spec is reported as valid.
    classes.delete(&class, &Default::default()).await.expect("there");
    until("the class again", async || classes.get_opt(&class).await.expect("an answer")).await;
    let right = json!({"spec": {"dryRnu": null}});
    api.patch("typo", &PatchParams::default(), &Patch::Merge(&right)).await.expect("there");
    assert_eq!(told(&api, "typo", "Valid").await, "True Valid");

    let writes = || {
        ["sets", "classes", "nodes", "leftovers", "events"]
            .map(|controller| work.metrics.writes.with_label_values(&[controller]).get())
    };
    // This wakes the leader up without a change that matters.
    let is_woken = async || {
        stage.pool(&unique("n"), 5).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
    };
    at_rest("nothing changes, and it writes", async || (writes(), versions(&api).await), is_woken).await;
    let errors: u64 = ["sets", "classes", "nodes", "leftovers", "events"]
        .map(|controller| work.metrics.errors.with_label_values(&[controller]).get())
        .iter()
        .sum();
    assert_eq!(errors, 0);
}

async fn versions(api: &Api<LocalVolumeSet>) -> Vec<Option<String>> {
    let all = api.list(&ListParams::default()).await.expect("an answer");
    all.items.iter().map(|set| set.resource_version()).collect()
}

async fn made(stage: &Stage, node: &str) -> (String, VolumeId) {
    let name = unique("pvc");
    let id = VolumeId::of_name(&name);
    let agent = async {
        let asked = stage.asked(id).await;
        stage.make(&asked, 1).await;
    };
    let (made, ()) = tokio::join!(stage.volumes.create(wanted(&name, on(node))), agent);
    made.expect("made");
    (name, id)
}

/// An object about which no agent has said anything.
async fn asked(stage: &Stage, node: &str, intent: &str) -> VolumeId {
    let name = unique("pvc");
    let id = VolumeId::of_name(&name);
    let object = json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume",
        "metadata": {"name": id.to_string(), "finalizers": [FINALIZER]},
        "spec": {"node": node, "volumeName": name, "required": 1 << 20, "volumeMode": "Block", "intent": intent},
    });
    let object = serde_json::from_value(object).expect("ours");
    stage.objects.create(&PostParams::default(), &object).await.expect("a new one");
    id
}

#[tokio::test]
async fn what_nobody_asks_for_any_more_is_withdrawn_by_time_alone_and_an_order_to_erase_never() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let node = unique("n");
    stage.node(&node).await;
    let (waiting, ordered) = (asked(&stage, &node, "Keep").await, asked(&stage, &node, "Delete").await);
    stage.objects.delete(&ordered.to_string(), &DeleteParams::default()).await.expect("there");
    let later = asked(&stage, &node, "Keep").await;
    let _work = lead_with_retention(&stage, DeletedNodePolicy::Keep, SignedDuration::from_secs(4));
    for left in [waiting, later] {
        until("it is withdrawn", async || stage.is_gone(left).await.then_some(())).await;
    }
    assert!(!stage.is_gone(ordered).await, "only its node's agent knows whether it is erased");
}

#[tokio::test]
async fn the_device_pool_of_a_deleted_node_goes_when_no_volume_of_that_node_is_left() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    let nodes = ["empty", "used", "stays"].map(unique);
    for node in &nodes {
        stage.node(node).await;
        stage.pool(node, 5).await;
    }
    let [empty, used, _] = &nodes;
    let (_, id) = made(&stage, used).await;
    let _work = lead_with_retention(&stage, DeletedNodePolicy::Keep, SignedDuration::from_secs(1));
    for node in [empty, used] {
        stage.delete_node(node).await;
    }
    let there = async |node: &str| pools.get_opt(node).await.expect("an answer").is_some();
    until("the pool of a node without volumes goes", async || (!there(empty).await).then_some(())).await;
    stage.see(id, "marked", gone_mark).await;
    assert!(there(used).await, "its volumes are not given up");
    abandon(stage.client.clone(), id, Run::Real).await.expect("given up");
    until("it goes after its last volume", async || (!there(used).await).then_some(())).await;
    assert!(there(&nodes[2]).await);
}

fn gone_mark(object: &PoolVolume) -> bool {
    let conditions = object.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
    conditions.iter().any(|condition| condition.type_ == "NodeGone" && condition.status == "True")
}

#[tokio::test]
async fn a_deleted_nodes_volume_is_kept_and_marked_until_the_node_is_back() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let node = unique("n");
    stage.node(&node).await;
    let (name, id) = made(&stage, &node).await;
    let _work = lead(&stage, DeletedNodePolicy::Keep);
    stage.delete_node(&node).await;
    stage.see(id, "marked", gone_mark).await;
    until("an Event", async || {
        (events(&stage.client, "default", &about(&id.to_string())).await == ["NodeDeleted x1"]).then_some(())
    })
    .await;
    let seen = stage.volumes.get(id).await.expect("an answer").expect("it is kept");
    assert!(seen.condition.word() == "NodeGone", "{:?}", seen.condition);
    for answer in [stage.volumes.delete(id).await, stage.volumes.create(wanted(&name, on(&node))).await.map(|_| ())] {
        let message = format!("localpool volume abandon {id}");
        assert!(matches!(&answer, Err(Error::Precondition(refusal)) if refusal.contains(&message)), "{answer:?}");
    }
    let marked = stage.objects.get(&id.to_string()).await.expect("it is there");
    let dry = abandon(stage.client.clone(), id, Run::Dry).await.expect("it could be given up");
    assert!(dry[0].starts_with("would give up"), "{dry:?}");
    assert_eq!(stage.objects.get(&id.to_string()).await.expect("it is there"), marked, "nothing was done");

    stage.node(&node).await;
    stage.see(id, "not marked any more", |object| !gone_mark(object)).await;
    stage.volumes.create(wanted(&name, on(&node))).await.expect("it is there");
    let refused = abandon(stage.client.clone(), id, Run::Real).await.expect_err("its node exists");
    assert!(refused.to_string().contains("exists"), "{refused}");

    stage.delete_node(&node).await;
    stage.persistent(&name, id, &node).await;
    let lines = abandon(stage.client.clone(), id, Run::Real).await.expect("given up");
    assert!(lines[1].contains(&format!("PersistentVolume {name}")), "{lines:?}");
    assert!(stage.is_gone(id).await);
    stage.volumes.delete(id).await.expect("its PersistentVolume may go");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_outlives_its_node_leaves_the_leaders_mark_and_each_writes_it_once() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let (label, node) = (unique("sim"), unique("sim"));
    set_of_sims(&cluster.client, &label).await;
    let mut sim = SimNode::start(&stage, &node, &label, 512).await;
    offers(&stage, &node, 500).await;
    let mut wish = wanted(&unique("pvc"), on(&node));
    wish.required = 100 * MIB;
    wish.parameters = [("class".to_owned(), label.clone())].into();
    wish.selector.class = Some(label.clone());
    let id = stage.volumes.create(wish).await.expect("there is room").id;
    let _work = lead(&stage, DeletedNodePolicy::Keep);
    stage.delete_node(&node).await;
    stage.see(id, "marked", gone_mark).await;
    let volume = async || stage.objects.get(&id.to_string()).await.expect("it is there");
    let passes = async || {
        for _ in 0..30 {
            sim.pool().nudge();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    at_rest("they write over each other", volume, passes).await;
    until("an Event", async || {
        (events(&stage.client, "default", &about(&id.to_string())).await == ["NodeDeleted x1"]).then_some(())
    })
    .await;

    // The agent's own report stands beside the mark.
    sim.host.unplug("fake0").expect("it was there");
    sim.pool().nudge();
    let says = |object: &PoolVolume| {
        let conditions = object.status.iter().flat_map(|status| &status.conditions);
        conditions.filter(|condition| condition.reason == "DiskMissing").count() == 1
    };
    let told = stage.see(id, "unhealthy", says).await;
    assert!(gone_mark(&told), "{:?}", told.status);
    sim.kill().await;
}

#[tokio::test]
async fn a_deleted_nodes_volume_is_given_up_where_the_administrator_said_so() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let (gone, stays) = (unique("gone"), unique("stays"));
    stage.node(&gone).await;
    stage.node(&stays).await;
    let (_, lost) = made(&stage, &gone).await;
    let (_, kept) = made(&stage, &stays).await;
    let _work = lead(&stage, DeletedNodePolicy::Release);
    stage.delete_node(&gone).await;
    until("the object is given up", async || stage.is_gone(lost).await.then_some(())).await;
    until("an Event", async || {
        (events(&stage.client, "default", &about(&lost.to_string())).await == ["NodeDeletedVolumeReleased x1"])
            .then_some(())
    })
    .await;
    assert!(!stage.is_gone(kept).await, "another node's volume has nothing to do with it");
    stage.volumes.delete(lost).await.expect("nothing of it is known any more");
}

#[tokio::test]
async fn a_node_that_is_gone_is_forgotten_by_one_verb_and_never_while_it_or_its_agent_is_there() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (node, stays) = (unique("gone"), unique("stays"));
    stage.node(&node).await;
    stage.node(&stays).await;
    let lost = [made(&stage, &node).await.1, made(&stage, &node).await.1];
    let (_, kept) = made(&stage, &stays).await;
    let verb = async |run| forget(stage.client.clone(), node.as_str().into(), run).await;
    let refused = verb(Run::Real).await.expect_err("it exists").to_string();
    assert!(refused.contains("it exists"), "{refused}");
    stage.delete_node(&node).await;
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    let pool =
        json!({"apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": node}, "spec": {}});
    pools.create(&PostParams::default(), &serde_json::from_value(pool).expect("ours")).await.expect("a new one");
    let refused = verb(Run::Real).await.expect_err("an agent may write it").to_string();
    assert!(refused.contains("its agent answers"), "{refused}");
    let silent = json!({"type": "Ready", "status": "Unknown", "reason": "NodeGone", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = Patch::Merge(json!({"status": {"conditions": [silent]}}));
    pools.patch_status(&node, &PatchParams::default(), &status).await.expect("there");

    let dry = verb(Run::Dry).await.expect("it could be forgotten").join("\n");
    assert!(lost.iter().all(|id| dry.contains(&format!("would give up volume {id}"))), "{dry}");
    assert!(dry.contains("would delete DevicePool") && !stage.is_gone(lost[0]).await, "{dry}");
    let done = verb(Run::Real).await.expect("forgotten").join("\n");
    assert!(done.contains("gave up volume") && done.contains("nothing is erased"), "{done}");
    for id in lost {
        assert!(stage.is_gone(id).await);
    }
    assert!(pools.get_opt(&node).await.expect("an answer").is_none());
    assert!(!stage.is_gone(kept).await, "another node's volume has nothing to do with it");
    let refused = verb(Run::Real).await.expect_err("nothing of it is left").to_string();
    assert!(refused.contains("nothing is known"), "{refused}");
}
