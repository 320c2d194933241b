//! The reaction against a real API server. It looks at all PersistentVolumes, so each of these tests is alone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt as _};
use localpool::operator::Lease;
use localpool::operator::controller::{LeaderStores, Metrics, ReactionMode, ReactionSettings, Reactor};
use localpool::volume::DRIVER_NAME;
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::codegen::http::{Method, Request};
use tower::service_fn;

use crate::agent::unique;
use crate::cluster;
use crate::leader::until;
use crate::stateful::{CLAIM, POD, Scene, object};

/// A reactor at work.
pub struct React {
    task: JoinHandle<()>,
    pub writes: Arc<Writes>,
    metrics: Metrics,
}

impl React {
    /// It leads by this Lease, whether that is there or not, and leaves there so often what it has watched. It
    /// watches for a second itself.
    pub fn begins(
        scene: &Scene,
        settings: ReactionSettings,
        leave: Duration,
        lease: Lease,
        writes: Arc<Writes>,
    ) -> Self {
        let metrics = Metrics::new(&Registry::new()).expect("fresh names");
        let client = writes.client(&scene.once);
        let own = LeaderStores::watch(&scene.stage.client);
        let reactor = Reactor::new(client, scene.stage.caches.clone(), own, metrics.clone(), settings, lease);
        let reactor = reactor.with_pace(PACE).with_handover(leave, SignedDuration::from_secs(1));
        Self { task: tokio::spawn(reactor.run()), writes, metrics }
    }

    /// How many are under way, whether it is said since when, how many nodes are bad, and whether it
    /// says that it is on.
    fn counts(&self) -> (i64, bool, i64, i64) {
        let reaction = &self.metrics.reaction;
        let mode = reaction.mode.with_label_values(&["On"]).get();
        (reaction.in_flight.get(), reaction.oldest.get() > 0, reaction.bad_nodes.get(), mode)
    }

    /// The steps that it has counted, and how often.
    fn steps(&self) -> Vec<(&'static str, u64)> {
        let counter = |step| self.metrics.reaction.steps.with_label_values(&[step]);
        STEPS.map(|step| (step, counter(step).get())).into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Waits until it has counted these steps and no others. What is done is counted a moment later.
    async fn has_counted<const N: usize>(&self, steps: [(&str, u64); N]) {
        until(&format!("{steps:?} are counted"), async || (self.steps() == steps).then_some(())).await;
    }
}

impl Drop for React {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a reactor wrote of some kinds.
pub struct Writes {
    kinds: &'static [&'static str],
    done: Mutex<Vec<String>>,
    /// How many are sent; the next one waits before, or the last one never gets its answer.
    most: AtomicUsize,
    stop: Stop,
    held: watch::Sender<bool>,
    is_open: watch::Sender<bool>,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Stop {
    BeforeTheNext,
    BeforeTheAnswer,
}

impl Writes {
    /// Of all but Events, conditions and Leases.
    pub fn new(most: usize, stop: Stop) -> Arc<Self> {
        Self::of(&["persistentvolumeclaims", "persistentvolumes", "eviction", "pods"], most, stop)
    }

    pub fn of(kinds: &'static [&'static str], most: usize, stop: Stop) -> Arc<Self> {
        let (held, is_open) = (watch::Sender::new(false), watch::Sender::new(false));
        Arc::new(Self { kinds, done: Mutex::default(), most: AtomicUsize::new(most), stop, held, is_open })
    }

    pub fn done(&self) -> Vec<String> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn client(self: &Arc<Self>, client: &Client) -> Client {
        let (client, writes) = (client.clone(), Arc::clone(self));
        let service = service_fn(move |request: Request<Body>| {
            let (client, writes) = (client.clone(), Arc::clone(&writes));
            async move {
                let Some(what) = what(&request, writes.kinds) else { return client.send(request).await };
                let is_last = writes.done().len() + 1 >= writes.most.load(Ordering::SeqCst);
                if writes.done().len() >= writes.most.load(Ordering::SeqCst) {
                    writes.hold().await;
                }
                let answer = client.send(request).await;
                let is_done = answer.as_ref().is_ok_and(|answer| answer.status().is_success());
                if is_done {
                    writes.done.lock().unwrap_or_else(PoisonError::into_inner).push(what);
                }
                if is_done && is_last && writes.stop == Stop::BeforeTheAnswer {
                    writes.hold().await;
                }
                answer
            }
        });
        Client::new(service, "default")
    }

    async fn hold(&self) {
        self.held.send_replace(true);
        let _ = self.is_open.subscribe().wait_for(|is_open| *is_open).await;
    }

    pub fn holds(&self) -> bool {
        *self.held.borrow()
    }

    pub async fn is_held(&self) {
        let mut held = self.held.subscribe();
        let waited = tokio::time::timeout(crate::agent::TIMEOUT, held.wait_for(|held| *held)).await;
        waited.unwrap_or_else(|_| panic!("no more than {:?}", self.done())).expect("it is ours");
    }

    pub fn go_on(&self) {
        self.most.store(usize::MAX, Ordering::SeqCst);
        self.is_open.send_replace(true);
    }
}

/// The name of a write that counts.
fn what(request: &Request<Body>, kinds: &[&str]) -> Option<String> {
    let path = request.uri().path();
    let is_dry = request.uri().query().is_some_and(|query| query.contains("dryRun"));
    let kind = kinds.iter().find(|kind| path.split('/').any(|part| part == **kind))?;
    let writes = [Method::POST, Method::PATCH, Method::DELETE, Method::PUT];
    (writes.contains(request.method()) && !is_dry).then(|| format!("{} {kind}", request.method()))
}

pub const PACE: Duration = Duration::from_millis(200);
const BEGIN: &str = "PATCH persistentvolumes";
const DELETE_CLAIM: &str = "DELETE persistentvolumeclaims";
const EVICT: &str = "POST eviction";
const FINISH: &str = "PATCH persistentvolumes";
/// The values of the label `step`.
const STEPS: [&str; 7] = ["Begun", "ClaimDeleted", "PodEvicted", "Finished", "Cancelled", "Stopped", "VolumeDeleted"];

fn react(scene: &Scene, mode: ReactionMode) -> React {
    react_with(scene, mode, Writes::new(usize::MAX, Stop::BeforeTheNext))
}

fn react_with(scene: &Scene, mode: ReactionMode, writes: Arc<Writes>) -> React {
    let lease = Lease { namespace: scene.namespace.clone(), name: "none".to_owned(), identity: "test".to_owned() };
    let interval = SignedDuration::from_secs(1);
    React::begins(scene, settings(mode, interval), PACE, lease, writes)
}

pub fn settings(mode: ReactionMode, recover_after: SignedDuration) -> ReactionSettings {
    ReactionSettings { mode, recover_after, at_once: 1, per_hour: 100, max_bad_nodes: 100 }
}

/// Waits for the condition Reaction of the lost volume.
async fn reports(scene: &Scene, reason: &str) {
    let holds = async || scene.condition().await.filter(|(_, found)| found == reason).map(drop);
    until(&format!("the condition {reason}"), holds).await;
}

/// The Events of one reason about an object.
async fn events(client: &Client, name: &str, reason: &str) -> Vec<Event> {
    let api: Api<Event> = Api::all(client.clone());
    let fields = format!("regarding.name={name},reason={reason}");
    api.list(&ListParams::default().fields(&fields)).await.expect("listed").items
}

async fn told(client: &Client, name: &str, reason: &str, word: &str) {
    let begins = |event: &Event| event.note.as_ref().is_some_and(|note| note.starts_with(word));
    let found = async || events(client, name, reason).await.into_iter().find(begins);
    until(&format!("{reason} {word} about {name}"), found).await;
}

async fn until_some(poll: impl AsyncFn() -> Option<()>) {
    while poll().await.is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Several passes.
pub async fn a_while() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}

/// Whether the reaction has ended, as it must end.
async fn is_whole(scene: &Scene, first: &str) -> Option<()> {
    let (policy, record, reacted) = scene.state().await;
    let reacted = reacted.filter(|_| record.is_none())?;
    assert_eq!((policy.as_str(), reacted["policy"].as_str()), ("Retain", Some("Delete")));
    assert_eq!((reacted["claim"]["uid"].as_str(), reacted["pod"].as_str()), (Some(first), Some(POD)));
    assert_eq!(reacted["ended"]["how"], "Finished", "{reacted}");
    let (claim, is_deleted) = scene.claim().await.expect("it was made again");
    assert!(claim != first && !is_deleted);
    Some(())
}

/// Whether it was taken back. Whoever wants the old policy again sets it.
async fn is_cancelled(scene: &Scene) -> Option<()> {
    let (policy, record, reacted) = scene.state().await;
    let reacted = reacted.filter(|reacted| record.is_none() && reacted["ended"]["how"] == "Cancelled")?;
    assert_eq!((policy.as_str(), reacted["policy"].as_str()), ("Retain", Some("Delete")));
    Some(())
}

pub async fn clean(scene: &Scene) {
    for name in &scene.volumes {
        let unprotected = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let _ = scene.persistent().patch(name, &PatchParams::default(), &unprotected).await;
        let _ = scene.persistent().delete(name, &DeleteParams::default()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_killed_between_any_two_steps_resumes() {
    let cluster = cluster!(alone);
    for stop in [Stop::BeforeTheNext, Stop::BeforeTheAnswer] {
        let scene = Arc::new(Scene::new(&cluster).await);
        let (first, _) = scene.claim().await.expect("there");
        let _others = scene.others();
        let mut all = Vec::new();
        // Each of them dies at its first write that counts, before it or right after.
        for _ in 0..20 {
            let writes = Writes::new(1, stop);
            let reactor = react_with(&scene, ReactionMode::On, Arc::clone(&writes));
            let goes_on = async || if writes.holds() { Some(()) } else { is_whole(&scene, &first).await };
            if tokio::time::timeout(crate::agent::TIMEOUT, until_some(goes_on)).await.is_err() {
                let (state, condition, claim) = (scene.state().await, scene.condition().await, scene.claim().await);
                panic!("after {all:?} and {:?} it is stuck: {state:?}, {condition:?}, {claim:?}", writes.done());
            }
            drop(reactor);
            all.extend(writes.done());
            if is_whole(&scene, &first).await.is_some() {
                break;
            }
        }
        // The pod that the set made while its claim was being deleted is evicted too: nobody else makes the set look.
        assert_eq!(all, [BEGIN, DELETE_CLAIM, EVICT, EVICT, FINISH]);
        is_whole(&scene, &first).await.expect("it is whole");
        let volume = scene.persistent().get(&scene.volumes[1]).await.expect("it stays");
        assert!(volume.metadata.deletion_timestamp.is_none());
        clean(&scene).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_dies_under_a_set_and_everybody_is_told_each_step() {
    let cluster = cluster!(alone);
    let scene = Arc::new(Scene::new(&cluster).await);
    let (first, _) = scene.claim().await.expect("there");
    let _others = scene.others();
    let writes = Writes::new(2, Stop::BeforeTheNext);
    let reactor = react_with(&scene, ReactionMode::On, Arc::clone(&writes));
    // It is about to evict the pod.
    writes.is_held().await;
    let (in_flight, is_dated, bad, mode) = reactor.counts();
    assert!(in_flight == 1 && is_dated && bad > 0 && mode == 1, "{:?}", reactor.counts());
    writes.go_on();
    until("it is whole", async || is_whole(&scene, &first).await).await;
    reports(&scene, "Finished").await;
    reactor.has_counted([("Begun", 1), ("ClaimDeleted", 1), ("PodEvicted", 2), ("Finished", 1)]).await;
    // Another test may have left bad nodes behind.
    until("nothing is under way", async || (reactor.counts() == (0, false, bad - 1, 1)).then_some(())).await;
    assert_eq!(reactor.writes.done(), [BEGIN, DELETE_CLAIM, EVICT, EVICT, FINISH]);
    let volume = &scene.volumes[1];
    for about in [volume.as_str(), CLAIM] {
        told(&cluster.client, about, "ReactionBegun", &format!("PersistentVolume {volume} is lost (DiskMissing)"))
            .await;
        told(&cluster.client, about, "ReactionClaimDeleted", "claim data-db-1 is deleted").await;
        told(&cluster.client, about, "ReactionPodEvicted", "pod db-1 is evicted").await;
        told(&cluster.client, about, "ReactionFinished", "pod db-1 is ready with a new volume").await;
    }
    told(&cluster.client, "db", "ReactionFinished", "pod db-1").await;
    a_while().await;
    assert_eq!(reactor.writes.done().len(), 5, "once");
    let metrics = reactor.metrics.clone();
    drop(reactor);
    let says = || (metrics.reaction.mode.with_label_values(&["On"]).get(), metrics.reaction.bad_nodes.get());
    until("another leader counts", async || (says() == (0, 0)).then_some(())).await;
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_agent_that_runs_now_has_not_found_itself_moves_nothing_before_it_has() {
    let cluster = cluster!(alone);
    let scene = Arc::new(Scene::new(&cluster).await);
    let (first, _) = scene.claim().await.expect("there");
    let _others = scene.others();
    scene.agent_again("next").await;
    let reactor = react(&scene, ReactionMode::On);
    // The volume has said for months that it is lost.
    reports(&scene, "NobodyKnows").await;
    a_while().await;
    assert_eq!(reactor.writes.done(), [""; 0]);
    scene.confirm("one that is not there").await;
    a_while().await;
    assert_eq!(reactor.writes.done(), [""; 0]);
    scene.confirm("next").await;
    until("it is whole", async || is_whole(&scene, &first).await).await;
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_volumes_are_under_way_than_may_be_at_once() {
    let cluster = cluster!(alone);
    let scenes = [Arc::new(Scene::new(&cluster).await), Arc::new(Scene::new(&cluster).await)];
    let (mut firsts, mut others) = (Vec::new(), Vec::new());
    for scene in &scenes {
        firsts.push(scene.claim().await.expect("there").0);
        others.push(scene.others());
    }
    let reactor = react(&scenes[0], ReactionMode::On);
    let waited = AtomicUsize::new(0);
    until("both are whole", async || {
        let held = &reactor.metrics.reaction.held;
        waited.fetch_add(usize::from(held.with_label_values(&["TooManyAtOnce"]).get() == 1), Ordering::SeqCst);
        assert!(reactor.counts().0 <= 1, "{:?}", reactor.counts());
        is_whole(&scenes[0], &firsts[0]).await?;
        is_whole(&scenes[1], &firsts[1]).await
    })
    .await;
    assert!(waited.load(Ordering::SeqCst) > 0, "neither waited for the other");
    // One after the other.
    let one = [BEGIN, DELETE_CLAIM, EVICT, EVICT, FINISH];
    assert_eq!(reactor.writes.done(), [one, one].concat());
    drop((reactor, others));
    for scene in &scenes {
        clean(scene).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_made_again_under_its_name_is_not_deleted() {
    let cluster = cluster!(alone);
    let scene = Scene::new(&cluster).await;
    let writes = Writes::new(1, Stop::BeforeTheNext);
    let reactor = react_with(&scene, ReactionMode::On, Arc::clone(&writes));
    // It is about to delete the claim.
    writes.is_held().await;
    let unprotected = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    scene.claims().patch(CLAIM, &PatchParams::default(), &unprotected).await.expect("there");
    scene.claims().delete(CLAIM, &DeleteParams::default()).await.expect("there");
    let claim = json!({"metadata": {"name": CLAIM}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "other",
    }});
    let second = scene.claims().create(&PostParams::default(), &object(claim)).await.expect("a new one");
    writes.go_on();
    reports(&scene, "WaitsForBinding").await;
    a_while().await;
    assert_eq!(scene.claim().await, Some((second.uid().expect("one"), false)));
    assert_eq!(reactor.writes.done(), [BEGIN], "neither claim nor pod is touched");
    drop(reactor);
    // Without a record, the claimRef says whose the volume is.
    scene.annotate(&scene.volumes[1], json!({"localpool.dev/reaction": null})).await;
    let reactor = react(&scene, ReactionMode::On);
    reports(&scene, "ClaimElsewhere").await;
    a_while().await;
    assert_eq!(reactor.writes.done(), [""; 0]);
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_made_again_under_its_name_by_somebody_else_is_not_evicted() {
    let cluster = cluster!(alone);
    let scene = Scene::new(&cluster).await;
    let writes = Writes::new(2, Stop::BeforeTheNext);
    let reactor = react_with(&scene, ReactionMode::On, Arc::clone(&writes));
    // It is about to evict the pod.
    writes.is_held().await;
    scene.pods().delete(POD, &DeleteParams::default().grace_period(0)).await.expect("there");
    scene.pod(POD, Value::Null, Some(&scene.nodes[1])).await;
    writes.go_on();
    reports(&scene, "WaitsForClaim").await;
    a_while().await;
    let pod = scene.pods().get(POD).await.expect("there");
    assert!(pod.metadata.deletion_timestamp.is_none());
    assert_eq!(reactor.writes.done(), [BEGIN, DELETE_CLAIM]);
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_changed_meanwhile_is_looked_at_again() {
    let cluster = cluster!(alone);
    let scene = Scene::new(&cluster).await;
    let volume = &scene.volumes[1];
    let paused = |value: Value| json!({"localpool.dev/reaction-pause": value});
    let writes = Writes::new(0, Stop::BeforeTheNext);
    let reactor = react_with(&scene, ReactionMode::On, Arc::clone(&writes));
    // It is about to begin.
    writes.is_held().await;
    scene.annotate(volume, paused(json!("a person looks at it"))).await;
    writes.go_on();
    reports(&scene, "Paused").await;
    assert_eq!(scene.state().await, ("Delete".to_owned(), None, None));
    drop(reactor);
    scene.annotate(volume, paused(Value::Null)).await;
    let writes = Writes::new(1, Stop::BeforeTheNext);
    let reactor = react_with(&scene, ReactionMode::On, Arc::clone(&writes));
    // It is about to delete the claim.
    writes.is_held().await;
    assert_eq!(scene.state().await.0, "Retain");
    let change = Patch::Merge(json!({"metadata": {"annotations": paused(json!(""))}}));
    scene.claims().patch(CLAIM, &PatchParams::default(), &change).await.expect("there");
    writes.go_on();
    until("it is taken back", async || is_cancelled(&scene).await).await;
    assert!(scene.claim().await.is_some_and(|(_, is_deleted)| !is_deleted));
    told(&cluster.client, volume, "ReactionCancelled", "claim data-db-1 is kept").await;
    reactor.has_counted([("Begun", 1), ("Cancelled", 1)]).await;
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_created_again_under_its_name_in_the_middle_takes_the_reaction_back() {
    let cluster = cluster!(alone);
    let scene = Scene::new(&cluster).await;
    let (first, _) = scene.claim().await.expect("there");
    let writes = Writes::new(1, Stop::BeforeTheNext);
    let reactor = react_with(&scene, ReactionMode::On, Arc::clone(&writes));
    // It is about to delete the claim, and is killed.
    writes.is_held().await;
    drop(reactor);
    let node = &scene.nodes[1];
    scene.stage.delete_node(node).await;
    scene.stage.node(node).await;
    scene.is_ready(node).await;
    // What the last agent said of the volume still stands: nobody has looked on the new node yet.
    let reactor = react(&scene, ReactionMode::On);
    until("it is taken back", async || is_cancelled(&scene).await).await;
    assert_eq!(scene.claim().await, Some((first, false)), "its claim is gone");
    assert!(!reactor.writes.done().iter().any(|done| [DELETE_CLAIM, EVICT].contains(&done.as_str())));
    told(&cluster.client, &scene.volumes[1], "ReactionCancelled", "claim data-db-1 is kept").await;
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_disruption_budget_keeps_the_claim() {
    let cluster = cluster!(alone);
    let scene = Arc::new(Scene::new(&cluster).await);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client.clone(), &scene.namespace);
    let spec = json!({"minAvailable": 2, "selector": {"matchLabels": {"app": "db"}}});
    let budget = object(json!({"metadata": {"name": "db"}, "spec": spec}));
    budgets.create(&PostParams::default(), &budget).await.expect("a new one");
    let allows = async |allowed: i32| {
        let status = json!({"status": {
            "disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3,
            "observedGeneration": 1,
        }});
        budgets.patch_status("db", &PatchParams::default(), &Patch::Merge(&status)).await.expect("there");
    };
    allows(0).await;
    let (first, _) = scene.claim().await.expect("there");
    let reactor = react(&scene, ReactionMode::On);
    reports(&scene, "BudgetExhausted").await;
    told(&cluster.client, CLAIM, "ReactionHeld", "BudgetExhausted").await;
    a_while().await;
    assert_eq!(reactor.writes.done(), [""; 0]);
    assert_eq!(scene.claim().await, Some((first.clone(), false)));
    allows(1).await;
    until("the claim is deleted", async || scene.claim().await.filter(|(_, is_deleted)| *is_deleted)).await;
    let used = async || budgets.get("db").await.expect("there").status.expect("set").disruptions_allowed;
    until("the budget is used by the eviction", async || (used().await == 0).then_some(())).await;
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_leaders_at_once_delete_one_claim_once() {
    let cluster = cluster!(alone);
    // Both are about to begin; one has begun, and both are about to delete the claim.
    for begun in [0, 1] {
        let scene = Arc::new(Scene::new(&cluster).await);
        let (first, _) = scene.claim().await.expect("there");
        let _others = scene.others();
        let all = [Writes::new(begun, Stop::BeforeTheNext), Writes::new(0, Stop::BeforeTheNext)];
        let mut both = Vec::new();
        for writes in &all {
            both.push(react_with(&scene, ReactionMode::On, Arc::clone(writes)));
            writes.is_held().await;
        }
        all.iter().for_each(|writes| writes.go_on());
        until("it is whole", async || is_whole(&scene, &first).await).await;
        a_while().await;
        let all: Vec<String> = all.iter().flat_map(|writes| writes.done()).collect();
        let count = |what: &str| all.iter().filter(|write| *write == what).count();
        assert_eq!((count(BEGIN), count(DELETE_CLAIM)), (2, 1), "{all:?}");
        // Both may evict the same pod at the same moment; the request has its UID.
        assert!((2..=4).contains(&count(EVICT)), "{all:?}");
        drop(both);
        clean(&scene).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn switched_off_nothing_is_deleted() {
    let cluster = cluster!(alone);
    let scene = Scene::new(&cluster).await;
    let untouched = ("Delete".to_owned(), None, None);
    let reactor = react(&scene, ReactionMode::DryRun);
    reports(&scene, "DryRun").await;
    told(&cluster.client, CLAIM, "ReactionWouldBegin", "DryRun").await;
    assert_eq!((reactor.writes.done(), scene.state().await), (vec![], untouched.clone()));
    drop(reactor);
    let reactor = react(&scene, ReactionMode::Off);
    until("nothing is reported", async || scene.condition().await.is_none().then_some(())).await;
    assert_eq!((reactor.writes.done(), scene.state().await), (vec![], untouched.clone()));
    drop(reactor);
    // In the middle: the claim lives.
    let writes = Writes::new(1, Stop::BeforeTheNext);
    let reactor = react_with(&scene, ReactionMode::On, Arc::clone(&writes));
    writes.is_held().await;
    drop(reactor);
    assert!(scene.state().await.1.is_some());
    let reactor = react(&scene, ReactionMode::Off);
    until("it is taken back", async || is_cancelled(&scene).await).await;
    reactor.has_counted([("Cancelled", 1)]).await;
    drop(reactor);
    // In the middle: the claim is being deleted.
    let writes = Writes::new(2, Stop::BeforeTheNext);
    let reactor = react_with(&scene, ReactionMode::On, Arc::clone(&writes));
    writes.is_held().await;
    drop(reactor);
    let reactor = react(&scene, ReactionMode::Off);
    let has_stopped = async || scene.state().await.2.filter(|reacted| reacted["ended"]["how"] == "Stopped").map(drop);
    until("it has stopped", has_stopped).await;
    told(
        &cluster.client,
        CLAIM,
        "ReactionStopped",
        "stopped after claim data-db-1 was deleted: The reaction is not in mode On",
    )
    .await;
    a_while().await;
    assert_eq!(reactor.writes.done(), ["PATCH persistentvolumes"]);
    reactor.has_counted([("Stopped", 1)]).await;
    let pod = scene.pods().get(POD).await.expect("nobody evicts it");
    assert!(pod.metadata.deletion_timestamp.is_none());
    assert_eq!(scene.state().await.0, "Retain", "its data stays");
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_and_a_bare_pod_get_an_event() {
    let cluster = cluster!(alone);
    let scene = Scene::empty(&cluster).await;
    let deployment =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true});
    let (node, stem) = (&scene.nodes[0], unique("pod"));
    let mut pods = Vec::new();
    for (number, owner) in [deployment, Value::Null].into_iter().enumerate() {
        let (pod, volume) = (format!("{stem}-{number}"), &scene.volumes[number]);
        let csi = json!({"csi": {"driver": DRIVER_NAME, "volumeHandle": scene.lost.to_string()}});
        scene.volume(volume, node, csi, Some(&format!("data-{pod}"))).await;
        // There is no PoolVolume.
        scene.mark(volume, "VolumeMissing").await;
        scene.pod(&pod, owner, Some(node)).await;
        pods.push(pod);
    }
    let reactor = react(&scene, ReactionMode::On);
    for pod in &pods {
        told(&cluster.client, &format!("data-{pod}"), "ReactionHeld", "NotStatefulSet").await;
    }
    a_while().await;
    assert_eq!(reactor.writes.done(), [""; 0]);
    for pod in &pods {
        let told = events(&cluster.client, &format!("data-{pod}"), "ReactionHeld").await;
        assert!(told.len() == 1 && told[0].series.is_none(), "once: {told:?}");
    }
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_available_marked_volume_is_deleted_and_a_released_one_is_not() {
    let cluster = cluster!(alone);
    let scene = Scene::empty(&cluster).await;
    let [free, released, by_hand] = [0, 1, 2].map(|number: usize| scene.volumes[number].clone());
    for name in [&free, &released, &by_hand] {
        scene.volume(name, &scene.nodes[0], json!({"local": {"path": "/mnt/x"}}), None).await;
        scene.mark(name, "HostPathNotExist").await;
        if *name != by_hand {
            scene.annotate(name, json!({"pv.kubernetes.io/provisioned-by": "static"})).await;
        }
    }
    scene.phase(&released, "Released").await;
    scene.paths(&scene.nodes[0], &[&free, &released, &by_hand], "HostPathNotExist").await;
    let reactor = react(&scene, ReactionMode::On);
    told(&cluster.client, &free, "ReactionVolumeDeleted", "PersistentVolume").await;
    told(&cluster.client, &released, "ReactionHeld", "HasData").await;
    told(&cluster.client, &by_hand, "ReactionHeld", "MadeByHand").await;
    a_while().await;
    assert_eq!(reactor.writes.done(), ["DELETE persistentvolumes"]);
    reactor.has_counted([("VolumeDeleted", 1)]).await;
    for (name, is_deleted) in [(&free, true), (&released, false), (&by_hand, false)] {
        let volume = scene.persistent().get(name).await.expect("its protection keeps it");
        assert_eq!(volume.metadata.deletion_timestamp.is_some(), is_deleted, "{name}");
    }
    clean(&scene).await;
}

/// A node that is not ready, with these taints.
async fn is_not_ready(scene: &Scene, node: &str, taints: Value) {
    let nodes: Api<Node> = Api::all(scene.client());
    let params = PatchParams::default();
    let tainted = Patch::Merge(json!({"spec": {"taints": taints}}));
    nodes.patch(node, &params, &tainted).await.expect("there");
    let status = Patch::Strategic(json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}));
    nodes.patch_status(node, &params, &status).await.expect("there");
    let says_so = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|found| found.type_ == "Ready" && found.status == "Unknown")
    };
    scene.stage.known(|stores| stores.nodes.get(node).is_some_and(|node| says_so(&node))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_available_volume_is_deleted_if_its_path_is_no_mount_point_or_its_node_is_gone_or_fenced_and_not_before() {
    let cluster = cluster!(alone);
    let mut scene = Scene::empty(&cluster).await;
    let away = unique("node");
    scene.stage.node(&away).await;
    scene.stage.pool(&away, 8).await;
    scene.is_ready(&away).await;
    scene.nodes.push(away);
    scene.volumes.push(unique("pvc"));
    let marks = ["NotMountPoint", "NodeGone", "NodeNotReady", "NodeNotReady"];
    for ((name, node), mark) in scene.volumes.iter().zip(&scene.nodes).zip(marks) {
        scene.volume(name, node, json!({"local": {"path": "/mnt/x"}}), None).await;
        scene.annotate(name, json!({"pv.kubernetes.io/provisioned-by": "static"})).await;
        scene.mark(name, mark).await;
    }
    let ([unmounted, of_gone, of_fenced, of_away], [ready, gone, fenced, away]) =
        (&scene.volumes[..], &scene.nodes[..])
    else {
        panic!("four of each")
    };
    scene.paths(ready, &[unmounted], "NotMountPoint").await;
    scene.stage.delete_node(gone).await;
    let shut_down = json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"});
    is_not_ready(&scene, fenced, json!([shut_down])).await;
    // It may only be out of reach, and write.
    is_not_ready(&scene, away, json!([])).await;
    let reactor = react(&scene, ReactionMode::On);
    for name in [unmounted, of_gone, of_fenced] {
        told(&cluster.client, name, "ReactionVolumeDeleted", "PersistentVolume").await;
    }
    told(&cluster.client, of_away, "ReactionHeld", "NodeNotFenced").await;
    reactor.has_counted([("VolumeDeleted", 3)]).await;
    a_while().await;
    assert_eq!(reactor.writes.done(), ["DELETE persistentvolumes"; 3]);
    let volume = scene.persistent().get(of_away).await.expect("it stays");
    assert_eq!(volume.metadata.deletion_timestamp, None);
    clean(&scene).await;
}
