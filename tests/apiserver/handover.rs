//! What one leader leaves to the next in its Lease: reactors one after the other, against a real API server. The
//! interval is an hour, so whoever begins within a test has taken over what another one has watched.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease as KubeLease;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use localpool::operator::Lease;
use localpool::operator::controller::ReactionMode;
use localpool::operator::lease::hold;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::agent::{PLAYED, TIMEOUT, unique};
use crate::cluster;
use crate::leader::until;
use crate::reaction::{PACE, React, Stop, Writes, a_while, clean, settings};
use crate::stateful::{Scene, object};

const HANDOVER: &str = "localpool.dev/reaction-handover";
/// The name that the controller writes it by.
const MANAGER: &str = "localpool-reaction";
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// The Lease that the reactors of a test lead by. The test says who has it, as the lease's manager does.
struct TestLease {
    api: Api<KubeLease>,
    name: String,
    namespace: String,
    /// The lost volume.
    volume: String,
}

impl TestLease {
    /// A new one, which `leader` has.
    async fn of(scene: &Scene, leader: &str) -> Self {
        let api: Api<KubeLease> = Api::namespaced(scene.client(), &scene.namespace);
        let name = unique("lease");
        let lease = object(json!({"metadata": {"name": name}}));
        api.create(&PostParams::default(), &lease).await.expect("a new one");
        let volume = scene.persistent().get(&scene.volumes[1]).await.expect("there").uid().expect("one");
        let lease = Self { api, name, namespace: scene.namespace.clone(), volume };
        lease.goes_to(leader).await;
        lease
    }

    async fn change(&self, manager: &str, change: Value) {
        let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        self.api.patch(&self.name, &params, &Patch::Merge(change)).await.expect("it is there");
    }

    /// By a server-side apply, as kube-lease-manager does it: before one, the API server keeps no times of a Lease.
    async fn goes_to(&self, leader: &str) {
        let now = written(Timestamp::now());
        let spec = json!({"holderIdentity": leader, "acquireTime": now, "renewTime": now, "leaseDurationSeconds": 30});
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec});
        let params = PatchParams::apply("manager").force();
        self.api.patch(&self.name, &params, &Patch::Apply(lease)).await.expect("it is there");
    }

    /// kube-lease-manager itself gets it. It ends with the task.
    async fn is_taken_by(&self, scene: &Scene, leader: &str) -> JoinSet<()> {
        let free =
            json!({"acquireTime": null, "renewTime": null, "holderIdentity": null, "leaseDurationSeconds": null});
        self.change("manager", json!({"spec": free})).await;
        let (leads, mut led) = watch::channel(false);
        let mut task = JoinSet::new();
        task.spawn(hold(scene.client(), self.lease(leader), leads, std::future::pending()));
        tokio::time::timeout(TIMEOUT, led.wait_for(|leads| *leads)).await.expect("it is free").expect("it is held");
        task
    }

    /// What a leader leaves that has watched for so long.
    fn watched(&self, seconds: i64, at: Timestamp) -> Value {
        json!({
            "version": 1, "written": at, "calm": seconds, "maxBadNodes": 0, "steadyClock": seconds, "unwatched": 0,
            "lost": {"Ready": {PLAYED: {self.volume.as_str(): seconds}}},
        })
    }

    async fn leaves(&self, manager: &str, text: &Value) {
        self.change(manager, json!({"metadata": {"annotations": {HANDOVER: text.to_string()}}})).await;
    }

    async fn text(&self) -> Option<Value> {
        let lease = self.api.get(&self.name).await.expect("it is there");
        lease.annotations().get(HANDOVER).map(|text| serde_json::from_str(text).expect("JSON"))
    }

    /// For how long the volume was lost, as the text says.
    async fn lasted(&self) -> Option<i64> {
        self.text().await?["lost"]["Ready"][PLAYED][self.volume.as_str()].as_i64()
    }

    fn lease(&self, identity: &str) -> Lease {
        let (namespace, name) = (self.namespace.clone(), self.name.clone());
        Lease { namespace, name, identity: identity.to_owned() }
    }

    fn leader(&self, scene: &Scene, identity: &str, interval: SignedDuration, writes: Arc<Writes>) -> React {
        let lease = self.lease(identity);
        React::begins(scene, settings(ReactionMode::On, interval), PACE, lease, writes)
    }
}

/// As a MicroTime.
fn written(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// The lost volume is well.
fn unmarked() -> Value {
    json!({"DiskMissing": null, "FirstMarkTime": null, "localpool.dev/unusable-since": null})
}

fn none() -> Arc<Writes> {
    Writes::new(0, Stop::BeforeTheNext)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_goes_on_where_the_one_before_was() {
    let cluster = cluster!(alone);
    let scene = Scene::new(&cluster).await;
    let lease = TestLease::of(&scene, "first").await;
    lease.leaves(MANAGER, &lease.watched(3600, Timestamp::now())).await;
    lease.goes_to("second").await;
    let reactor = lease.leader(&scene, "second", HOUR, none());
    // It is about to begin.
    reactor.writes.is_held().await;
    let lasted = lease.lasted().await.expect("it leaves what it has watched, too");
    assert!(lasted >= 3599, "{lasted}");
    drop(reactor);
    // And a third one.
    let _manager = lease.is_taken_by(&scene, "third").await;
    let reactor = lease.leader(&scene, "third", HOUR, none());
    reactor.writes.is_held().await;
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_counts_from_zero_by_what_is_old_or_of_an_unknown_time() {
    let cluster = cluster!(alone);
    let scene = Scene::new(&cluster).await;
    let now = Timestamp::now;
    let minutes = SignedDuration::from_mins;
    for case in ["old", "ahead", "by nobody", "renewed since"] {
        let lease = TestLease::of(&scene, "second").await;
        let (manager, at) = match case {
            "old" => (MANAGER, now() - minutes(2)),
            "ahead" => (MANAGER, now() + minutes(2)),
            // The API server does not say when.
            "by nobody" => ("a person", now()),
            _ => (MANAGER, now()),
        };
        lease.leaves(manager, &lease.watched(3600, at)).await;
        if case == "renewed since" {
            let renewed = json!({"spec": {"renewTime": written(now() + minutes(2))}});
            lease.change("manager", renewed).await;
        }
        let reactor = lease.leader(&scene, "second", HOUR, none());
        let from_zero = async || lease.lasted().await.filter(|lasted| *lasted < 1000).map(drop);
        until(&format!("it counts for itself: {case}"), from_zero).await;
        assert!(!reactor.writes.holds(), "{case}");
    }
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_have_the_lease_takes_over_nothing_and_leaves_nothing() {
    let cluster = cluster!(alone);
    let scene = Scene::new(&cluster).await;
    let lease = TestLease::of(&scene, "first").await;
    let text = lease.watched(3600, Timestamp::now());
    lease.leaves(MANAGER, &text).await;
    let reactor = lease.leader(&scene, "second", HOUR, none());
    a_while().await;
    assert_eq!(lease.text().await, Some(text));
    assert!(!reactor.writes.holds());
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_leaders_that_are_each_shorter_than_the_interval_begins() {
    let cluster = cluster!(alone);
    let scene = Scene::new(&cluster).await;
    let lease = TestLease::of(&scene, "none").await;
    let interval = 20;
    let (mut leaders, mut before) = (0, 0);
    loop {
        leaders += 1;
        let identity = format!("leader-{leaders}");
        let written = lease.text().await.map(|text| text["written"].clone()).unwrap_or_default();
        lease.goes_to(&identity).await;
        let reactor = lease.leader(&scene, &identity, SignedDuration::from_secs(interval), none());
        let begins = async || {
            let of_another = lease.text().await.is_none_or(|text| text["written"] == written);
            if reactor.writes.holds() { Some(interval) } else { lease.lasted().await.filter(|_| !of_another) }
        };
        let first = until("it leaves what it has watched", begins).await;
        assert!(first >= before.min(interval - 1), "it began at {first} s");
        // Each of them dies after three seconds that count.
        let ends = async || {
            let lasted = lease.lasted().await.filter(|lasted| *lasted >= before + 3);
            if reactor.writes.holds() { Some(None) } else { lasted.map(Some) }
        };
        match until("it watches", ends).await {
            Some(lasted) => before = lasted,
            None => break,
        }
    }
    assert!(leaders > 3, "{leaders}");
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_stopped_and_continues_writes_over_no_newer_text() {
    let cluster = cluster!(alone);
    let scene = Scene::new(&cluster).await;
    let lease = TestLease::of(&scene, "first").await;
    lease.leaves(MANAGER, &lease.watched(3000, Timestamp::now())).await;
    // It takes over, leaves what it has watched, and is stopped when it is about to do so again.
    let writes = Writes::of(&["leases"], 2, Stop::BeforeTheNext);
    let reactor = lease.leader(&scene, "first", HOUR, writes);
    reactor.writes.is_held().await;
    assert!(lease.lasted().await.is_some_and(|lasted| lasted >= 3000));
    let done = reactor.writes.done();
    lease.goes_to("second").await;
    let text = lease.watched(7, Timestamp::now());
    lease.leaves(MANAGER, &text).await;
    reactor.writes.go_on();
    a_while().await;
    assert_eq!((lease.text().await, reactor.writes.done()), (Some(text), done));
    // It leads again, and does not know what was meanwhile.
    lease.goes_to("first").await;
    let again = async || lease.text().await.filter(|text| text["calm"] != 7);
    let text = until("it leaves what it has watched", again).await;
    assert!(text["calm"].as_i64().is_some_and(|calm| calm < 1000), "{text}");
    assert!(lease.lasted().await.is_some_and(|lasted| lasted < 1000), "{text}");
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_lost_the_lease_since_it_left_something_does_nothing() {
    let cluster = cluster!(alone);
    let scene = Scene::new(&cluster).await;
    let lease = TestLease::of(&scene, "first").await;
    // As with a clock that went back: it does not see that its lease has ended. It is far longer than a busy machine
    // needs to give the lease to another one.
    let interval = std::time::Duration::from_secs(12);
    let of = settings(ReactionMode::On, SignedDuration::try_from(interval).expect("short"));
    let began = std::time::Instant::now();
    let seldom = std::time::Duration::from_secs(3600);
    let reactor = React::begins(&scene, of, seldom, lease.lease("first"), none());
    until("it leaves what it has watched", async || lease.lasted().await).await;
    lease.goes_to("second").await;
    while began.elapsed() < interval + PACE * 20 {
        a_while().await;
    }
    assert!(!reactor.writes.holds());
    // It is the leader again, and has watched.
    lease.goes_to("first").await;
    reactor.writes.is_held().await;
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_lease_was_put_back_counts_from_zero() {
    let cluster = cluster!(alone);
    let scene = Scene::new(&cluster).await;
    let lease = TestLease::of(&scene, "first").await;
    let old = lease.watched(3000, Timestamp::now());
    lease.leaves(MANAGER, &old).await;
    let _reactor = lease.leader(&scene, "first", HOUR, none());
    let own = async || lease.text().await.filter(|text| text["written"] != old["written"] && text["calm"] != 0);
    until("it leaves what it has watched", own).await;
    assert!(lease.lasted().await.is_some_and(|lasted| lasted >= 3000));
    lease.leaves(MANAGER, &old).await;
    let from_zero = async || lease.lasted().await.filter(|lasted| *lasted < 1000);
    until("it counts again", from_zero).await;
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_well_again_goes_at_once_from_what_is_left() {
    let cluster = cluster!(alone);
    let scene = Scene::new(&cluster).await;
    scene.mark(&scene.volumes[2], "VolumeMissing").await;
    let lease = TestLease::of(&scene, "first").await;
    let seldom = std::time::Duration::from_secs(3600);
    let of = settings(ReactionMode::On, HOUR);
    let _reactor = React::begins(&scene, of, seldom, lease.lease("first"), none());
    let count = async |wanted| {
        let text = lease.text().await?;
        let of_processes = text["lost"]["Ready"].as_object()?.values();
        (of_processes.filter_map(|lost| Some(lost.as_object()?.len())).sum::<usize>() == wanted).then_some(())
    };
    until("it leaves what it has watched of both", async || count(2).await).await;
    scene.annotate(&scene.volumes[1], unmarked()).await;
    until("one goes", async || count(1).await).await;
    assert_eq!(lease.lasted().await, None);
    clean(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_and_nothing_written_while_nothing_counts() {
    let cluster = cluster!(alone);
    let scene = Scene::new(&cluster).await;
    let lease = TestLease::of(&scene, "first").await;
    let _reactor = lease.leader(&scene, "first", HOUR, none());
    until("it leaves what it has watched", async || lease.lasted().await).await;
    scene.annotate(&scene.volumes[1], unmarked()).await;
    until("it goes", async || lease.text().await.is_none().then_some(())).await;
    let version = async || lease.api.get(&lease.name).await.expect("there").resource_version();
    let before = version().await;
    a_while().await;
    assert_eq!(version().await, before);
    clean(&scene).await;
}
