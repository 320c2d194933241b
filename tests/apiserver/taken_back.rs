//! Orders that a person takes back or changes while the agent's watch does not show it yet: none is carried out as it
//! was, and none twice.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use localpool::api::crd::{DevicePool, OrderState, Phase, PoolVolume};
use localpool::device::DiskId;
use localpool::host::fake::{FakeHost, Platter};
use localpool::pool::Standing;
use localpool::volume::{VolumeId, Volumes as _};
use serde_json::{Value, json};

use crate::agent::{Stage, on, unique};
use crate::cluster;
use crate::disk_orders::{disk_of, is_so, order};
use crate::late_watch::LateWatch;
use crate::leader::until;
use crate::nodes::{make, offering, phase};
use crate::orders;
use crate::sim::SimNode;
use crate::tap::Tap;

const VOLUMES: &str = "/apis/localpool.dev/v1alpha1/poolvolumes";
/// Of one object, not the lists.
const ONE_VOLUME: &str = "/apis/localpool.dev/v1alpha1/poolvolumes/";
const POOLS: &str = "/apis/localpool.dev/v1alpha1/devicepools";
const ONE_POOL: &str = "/apis/localpool.dev/v1alpha1/devicepools/";

/// Until an agent that would carry out an order has done it.
async fn long_enough(node: &SimNode) {
    for _ in 0..10 {
        node.pool().nudge();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

fn is_conflict(object: &PoolVolume) -> bool {
    object.status.iter().flat_map(|status| &status.health).any(|entry| entry.reason == "Conflict")
}

fn says(object: &PoolVolume, text: &str) -> bool {
    object.status.as_ref().and_then(|status| status.message.as_ref()).is_some_and(|message| message.contains(text))
}

/// A volume that two disks of a node have, and a third one that is not there yet.
struct Copied {
    stage: Stage,
    node: SimNode,
    volume: VolumeId,
    /// The disk on which it was made.
    first: DiskId,
    third: DiskId,
    platter: Arc<Platter>,
}

impl Copied {
    /// The agent uses `agents`.
    async fn of(client: &Client, agents: &Client) -> Self {
        let (stage, label, mut node) = offering(client, 512).await;
        let pvc = unique("pvc");
        let volume = make(&stage, &label, &pvc, on(&node.name), 100).await.expect("there is room").id;
        let first = node.pool().usable(volume).expect("usable").disk;
        node.kill().await;
        let (_, second) = orders::copy(&node, &pvc, "SECOND").await;
        let (third, platter) = orders::copy(&node, &pvc, "THIRD").await;
        node.host.plug("fake1", "SECOND", second);
        node.run(agents);
        stage.see(volume, "in conflict", is_conflict).await;
        Self { stage, node, volume, first, third, platter }
    }

    async fn order(&self, order: Value, keep: Value) {
        let spec = Patch::Merge(json!({"spec": {"order": order, "keep": keep}}));
        self.stage.objects.patch(&self.volume.to_string(), &PatchParams::default(), &spec).await.expect("a person may");
    }

    /// An order that the agent has seen, and that waits for the third disk.
    async fn waits_for_the_third(&self) {
        self.order(json!("Settle"), json!(self.third)).await;
        let waiting = format!("{} of spec.keep", self.third);
        self.stage.see(self.volume, "waiting", |object| says(object, &waiting)).await;
    }

    async fn third_arrives(&self) {
        self.node.host.plug("fake2", "THIRD", Arc::clone(&self.platter));
        self.node.pool().nudge();
        until("the third disk is read", async || (self.node.pool().volumes().len() == 3).then_some(())).await;
    }

    /// The disk that has it, once it is one only.
    async fn settled_on(&self) -> DiskId {
        until("it is settled", async || self.node.pool().usable(self.volume).ok()).await.disk
    }

    /// How many disks have it.
    fn copies(&self) -> usize {
        self.node.pool().volumes().iter().filter(|view| view.id == self.volume).count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_copy_of_a_volume_gets_another_id_by_an_order_that_was_taken_back_though_the_watch_is_late() {
    let cluster = cluster!(shared);
    let (watch, agents) = LateWatch::on(VOLUMES, &cluster.client);
    let mut copied = Copied::of(&cluster.client, &agents).await;
    copied.waits_for_the_third().await;
    watch.set_open(false);
    copied.order(json!(null), json!(null)).await;
    copied.third_arrives().await;
    long_enough(&copied.node).await;
    assert_eq!(copied.copies(), 3, "one got another id: {:?}", copied.node.pool().volumes());
    watch.set_open(true);
    copied.node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_kept_on_the_disk_that_the_order_names_now_though_the_watch_still_shows_another_one() {
    let cluster = cluster!(shared);
    let (watch, agents) = LateWatch::on(VOLUMES, &cluster.client);
    let mut copied = Copied::of(&cluster.client, &agents).await;
    copied.waits_for_the_third().await;
    watch.set_open(false);
    copied.order(json!("Settle"), json!(copied.first)).await;
    copied.third_arrives().await;
    assert_eq!(copied.settled_on().await, copied.first);
    watch.set_open(true);
    long_enough(&copied.node).await;
    assert_eq!((copied.copies(), copied.settled_on().await), (1, copied.first.clone()));
    copied.node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_settles_one_conflict_and_not_the_next_one_though_nobody_has_called_it_done() {
    // Without a leader.
    let cluster = cluster!(shared);
    let mut copied = Copied::of(&cluster.client, &cluster.client).await;
    copied.order(json!("Settle"), json!(copied.first)).await;
    assert_eq!(copied.settled_on().await, copied.first);
    copied.third_arrives().await;
    let again = "carried out already";
    copied.stage.see(copied.volume, "in conflict again", |object| is_conflict(object) && says(object, again)).await;
    long_enough(&copied.node).await;
    assert_eq!(copied.copies(), 2, "nobody has looked at the third disk: {:?}", copied.node.pool().volumes());

    copied.order(json!(null), json!(null)).await;
    copied.stage.see(copied.volume, "without an order", |object| is_conflict(object) && !says(object, again)).await;
    copied.order(json!("Settle"), json!(copied.first)).await;
    assert_eq!(copied.settled_on().await, copied.first);
    copied.node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_found_volume_is_not_adopted_by_an_order_that_is_taken_back_while_the_agent_asks_for_it() {
    let cluster = cluster!(shared);
    let (reads, agents) = Tap::on_reads(ONE_VOLUME, &cluster.client);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let id = orders::found(&stage, &label, &node).await;
    node.kill().await;
    node.run(&agents);
    until("the agent is back", async || node.pool().volume(id).ok()).await;
    reads.set_open(false);
    orders::order(&stage, id, json!("Adopt")).await;
    reads.waited_at().await;
    orders::order(&stage, id, json!(null)).await;
    reads.set_open(true);
    long_enough(&node).await;
    let view = node.pool().volume(id).expect("it is there");
    assert!(view.record.is_some_and(|record| record.found), "it was adopted");
    orders::order(&stage, id, json!("Adopt")).await;
    stage.see(id, "adopted", |object| phase(object) == Phase::Ready).await;
    node.kill().await;
}

/// Waits until a node's agent says so many orders for disks.
async fn has_orders(stage: &Stage, node: &str, count: usize) {
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    until("the agent has seen it", async || {
        (pools.get(node).await.expect("there").status?.orders.len() == count).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_is_not_released_by_an_order_that_was_taken_back_before_it_was_empty_though_the_watch_is_late() {
    let cluster = cluster!(shared);
    let (watch, agents) = LateWatch::on(POOLS, &cluster.client);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let (name, disk) = (node.name.clone(), disk_of(&node));
    let volume = make(&stage, &label, &unique("pvc"), on(&name), 100).await.expect("there is room").id;
    node.kill().await;
    node.run(&agents);
    order(&stage, &name, &disk, json!("Release")).await;
    is_so(&stage, &name, OrderState::Waiting, &volume.to_string()).await;
    watch.set_open(false);
    order(&stage, &name, &disk, json!(null)).await;
    stage.volumes.delete(volume).await.expect("deleted");
    let is_empty = async || {
        let view = node.pool().disk_views().into_iter().next()?;
        (view.volumes == 0 && view.erasing == 0).then_some(())
    };
    until("the disk is empty", is_empty).await;
    long_enough(&node).await;
    assert_eq!(node.pool().members().len(), 1, "it was released");
    watch.set_open(true);
    has_orders(&stage, &name, 0).await;
    assert_eq!(node.pool().members().len(), 1, "it was released");
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_of_another_node_is_not_adopted_by_an_order_that_was_taken_back_before_it_came_though_the_watch_is_late()
{
    let cluster = cluster!(shared);
    let (watch, agents) = LateWatch::on(POOLS, &cluster.client);
    let (stage, label, mut from) = offering(&cluster.client, 512).await;
    let (disk, name) = (disk_of(&from), unique("sim"));
    let mut to = SimNode::of(&agents, &name, json!({"sim": label}), FakeHost::default()).await;
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    until("its DevicePool", async || pools.get_opt(&name).await.expect("an answer")).await;
    order(&stage, &name, &disk, json!("Adopt")).await;
    is_so(&stage, &name, OrderState::Waiting, "has no disk").await;
    watch.set_open(false);
    order(&stage, &name, &disk, json!(null)).await;
    let platter = from.host.unplug("fake0").expect("it was there");
    from.pool().nudge();
    to.host.plug("fake5", "MOVED", platter);
    long_enough(&to).await;
    assert!(to.pool().members().is_empty(), "it was adopted");
    watch.set_open(true);
    has_orders(&stage, &name, 0).await;
    assert!(to.pool().members().is_empty(), "it was adopted");
    from.kill().await;
    to.kill().await;
}

/// A node that has said that its disk is missing. The agent uses `agents`.
async fn without_its_disk(client: &Client, agents: &Client) -> (Stage, SimNode, DiskId) {
    let (stage, label, mut node) = offering(client, 512).await;
    let (name, disk) = (node.name.clone(), disk_of(&node));
    make(&stage, &label, &unique("pvc"), on(&name), 100).await.expect("there is room");
    node.kill().await;
    node.run(agents);
    let is_ready = async || (node.pool().disk_views().first()?.standing == Standing::Ready).then_some(());
    until("it has its disk", is_ready).await;
    node.host.unplug("fake0").expect("it was there");
    node.pool().nudge();
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    until("the agent says that it is missing", async || {
        (pools.get(&name).await.expect("there").status?.missing_disks == 1).then_some(())
    })
    .await;
    (stage, node, disk)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_disk_is_not_given_up_by_an_order_that_is_changed_while_the_agent_asks_for_it() {
    let cluster = cluster!(shared);
    let (reads, agents) = Tap::on_reads(ONE_POOL, &cluster.client);
    let (stage, mut node, disk) = without_its_disk(&cluster.client, &agents).await;
    let name = node.name.clone();
    reads.set_open(false);
    order(&stage, &name, &disk, json!("GiveUp")).await;
    reads.waited_at().await;
    order(&stage, &name, &disk, json!("Release")).await;
    reads.set_open(true);
    is_so(&stage, &name, OrderState::Waiting, "GiveUp is the order").await;
    long_enough(&node).await;
    assert_eq!(node.pool().disk_views().len(), 1, "it was given up");
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_for_a_disk_is_carried_out_when_the_api_server_says_that_it_stands_and_not_before() {
    let cluster = cluster!(shared);
    let (reads, agents) = Tap::on_reads(ONE_POOL, &cluster.client);
    let (stage, mut node, disk) = without_its_disk(&cluster.client, &agents).await;
    let name = node.name.clone();
    reads.set_open(false);
    order(&stage, &name, &disk, json!("GiveUp")).await;
    is_so(&stage, &name, OrderState::Waiting, "did not answer").await;
    assert_eq!(node.pool().disk_views().len(), 1, "nobody has said that it stands");
    reads.set_open(true);
    is_so(&stage, &name, OrderState::Done, "gave up").await;
    assert!(node.pool().disk_views().is_empty());
    node.kill().await;
}
