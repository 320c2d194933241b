//! What a person orders for disks in the spec of a DevicePool, with real agents on fake machines.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use localpool::agent::Run;
use localpool::api::crd::{DevicePool, DiskOrder, DiskOrderStatus, OrderState, Phase, PoolVolume};
use localpool::device::DiskId;
use localpool::host::{
    Geometry,
    fake::{FakeHost, Platter},
};
use localpool::operator::controller::DeletedNodePolicy;
use localpool::operator::drain::{cordon, drain, uncordon};
use localpool::pool::Standing;
use localpool::volume::{Error, VolumeId, Volumes as _};
use localpool_testing::MIB;
use serde_json::{Value, json};

use crate::agent::{Stage, on, unique};
use crate::cluster;
use crate::events::events;
use crate::leader::{at_rest, lead, until};
use crate::nodes::{make, offering, offers};
use crate::sim::SimNode;

pub async fn order(stage: &Stage, node: &str, disk: &DiskId, order: Value) {
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    let spec = json!({"spec": {"disks": {disk.as_str(): {"order": order}}}});
    pools.patch(node, &PatchParams::default(), &Patch::Merge(spec)).await.expect("there");
}

/// Waits until `status.orders` has one order in that state, with such words.
pub async fn is_so(stage: &Stage, node: &str, state: OrderState, message: &str) -> DiskOrderStatus {
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    until(&format!("an order of {node} is {state:?}, {message}"), async || {
        let mut orders = pools.get(node).await.expect("there").status?.orders;
        orders.pop().filter(|order| order.state == state && order.message.contains(message))
    })
    .await
}

/// Waits until the node takes no new volume, however small; gives the reason.
pub async fn has_no_room(stage: &Stage, label: &str, node: &str) -> String {
    let refused = until("no room", async || make(stage, label, &unique("pvc"), on(node), 1).await.err()).await;
    let Error::Exhausted(why) = refused else { panic!("{refused:?}") };
    why
}

/// Pulls the node's first disk, and waits until it is missed.
pub async fn pulled(node: &SimNode) -> Arc<Platter> {
    let platter = node.host.unplug("fake0").expect("it was there");
    node.pool().nudge();
    until("it is missing", async || (node.pool().disk_views()[0].standing == Standing::Missing).then_some(())).await;
    platter
}

/// Adopts the blank disk that the message of a done order names, and waits until it offers so many MiB again.
pub async fn adopt_released(stage: &Stage, node: &str, message: &str, mib: u64) {
    let (_, blank) = message.rsplit_once("order Adopt for ").expect("the id of the blank disk");
    order(stage, node, &DiskId::named(blank), json!("Adopt")).await;
    offers(stage, node, mib).await;
}

/// Pulls the disk of a volume, gives it up, plugs it in again, and waits until the volume on it is held.
pub async fn give_up_and_return(stage: &Stage, node: &SimNode, disk: &DiskId, volume: VolumeId) {
    let platter = pulled(node).await;
    order(stage, &node.name, disk, json!("GiveUp")).await;
    is_so(stage, &node.name, OrderState::Done, "gave up").await;
    node.host.plug("fake0", &format!("SERIAL-{}", node.name), platter);
    node.pool().nudge();
    until("it is held", async || node.pool().volume(volume).ok().filter(|view| view.given_up)).await;
}

pub fn disk_of(node: &SimNode) -> DiskId {
    node.pool().disk_views()[0].id.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_is_released_when_its_volumes_are_gone_takes_no_new_ones_until_then_and_is_not_claimed_again() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let (name, disk) = (node.name.clone(), disk_of(&node));
    let volume = make(&stage, &label, &unique("pvc"), on(&name), 100).await.expect("there is room").id;
    order(&stage, &name, &disk, json!("Release")).await;
    let waits = is_so(&stage, &name, OrderState::Waiting, &volume.to_string()).await;
    assert!(waits.message.contains("volumes on it: 1"), "{}", waits.message);
    has_no_room(&stage, &label, &name).await;
    node.pool().usable(volume).expect("what it has can be used");
    stage.volumes.delete(volume).await.expect("deleted");
    is_so(&stage, &name, OrderState::Done, "wiped").await;
    assert!(node.pool().members().is_empty());
    // Before the agent is killed: it writes Events one after the other.
    let uid = stage.caches.pools.get(&name).and_then(|pool| pool.metadata.uid.clone()).expect("stored");
    let ended = until("an Event of its end", async || {
        events(&stage, &uid).await.into_iter().find(|(reason, _)| reason == "DiskOrderDone x1")
    });
    let (_, note) = ended.await;
    assert!(note.contains(disk.as_str()) && note.contains("wiped"), "{note}");
    node.kill().await;
    node.run(&stage.client);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    is_so(&stage, &name, OrderState::Done, "wiped").await;
    assert!(node.pool().members().is_empty(), "it is claimed again");
    // What the message says.
    adopt_released(&stage, &name, &note, 500).await;
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_here_is_never_given_up_by_an_order_from_before_it_was_pulled() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let (name, disk) = (node.name.clone(), disk_of(&node));
    let volume = make(&stage, &label, &unique("pvc"), on(&name), 100).await.expect("there is room").id;
    order(&stage, &name, &disk, json!("GiveUp")).await;
    is_so(&stage, &name, OrderState::Refused, "is not missing").await;
    let platter = pulled(&node).await;
    // An agent that begins does not try it either.
    node.kill().await;
    node.run(&stage.client);
    until("it looks", async || (node.pool().disk_views().first()?.standing == Standing::Missing).then_some(())).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    is_so(&stage, &name, OrderState::Refused, "is not missing").await;
    assert_eq!(node.pool().disk_views().len(), 1, "it was given up");

    order(&stage, &name, &disk, json!("Release")).await;
    is_so(&stage, &name, OrderState::Waiting, "GiveUp is the order").await;
    order(&stage, &name, &disk, json!("GiveUp")).await;
    is_so(&stage, &name, OrderState::Done, "gave up").await;
    let object = stage.see(volume, "there", |_| true).await;
    stage.volumes.delete(volume).await.expect("nobody waits for the disk");
    assert!(stage.is_gone(volume).await);
    let uid = object.metadata.uid.expect("stored");
    let note = not_erased(&stage, &uid).await;
    assert!(note.contains(disk.as_str()) && note.contains("not erased"), "{note}");
    node.host.plug("fake0", &format!("SERIAL-{name}"), platter);
    node.pool().nudge();
    until("it is held", async || node.pool().volume(volume).ok()).await;
    // Nobody decided that it is used again.
    has_no_room(&stage, &label, &name).await;

    // Nor does anybody by removing the order, nor by forgetting what was ordered.
    order(&stage, &name, &disk, json!(null)).await;
    node.kill().await;
    node.host.state.lose();
    node.run(&stage.client);
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    until("it is shown as held", async || {
        let status = pools.get(&name).await.expect("there").status?;
        let cordon = status.disks.first()?.cordon.clone()?;
        (status.orders.is_empty() && cordon.starts_with("GivenUp: ")).then_some(())
    })
    .await;
    has_no_room(&stage, &label, &name).await;
    assert!(node.pool().usable(volume).is_err() && stage.is_gone(volume).await);
    order(&stage, &name, &disk, json!("Adopt")).await;
    is_so(&stage, &name, OrderState::Done, &volume.to_string()).await;
    stage.see(volume, "found", is_found).await;
    offers(&stage, &name, 300).await;
    node.kill().await;
}

pub fn is_found(object: &PoolVolume) -> bool {
    object.status.as_ref().is_some_and(|status| status.phase == Phase::Found)
}

/// Waits until one Event says that the data of a volume is still there, and returns what it says.
pub async fn not_erased(stage: &Stage, uid: &str) -> String {
    let find = async || events(stage, uid).await.into_iter().find(|(reason, _)| reason.starts_with("VolumeNotErased"));
    let (reason, note) = until("an Event that its data is still there", find).await;
    assert_eq!(reason, "VolumeNotErased x1", "{note}");
    note
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_ends_and_erases_nothing_on_a_disk_that_was_given_up_and_came_back_before_it() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let (name, disk) = (node.name.clone(), disk_of(&node));
    let volume = make(&stage, &label, &unique("pvc"), on(&name), 100).await.expect("there is room").id;
    give_up_and_return(&stage, &node, &disk, volume).await;
    let uid = stage.see(volume, "there", |_| true).await.metadata.uid.expect("stored");
    stage.volumes.delete(volume).await.expect("nobody waits for the disk");
    assert!(stage.is_gone(volume).await);
    let note = not_erased(&stage, &uid).await;
    assert!(note.contains(disk.as_str()) && note.contains("the data stays on it"), "{note}");
    node.kill().await;
    node.run(&stage.client);
    until("it is held", async || node.pool().volume(volume).ok().filter(|view| view.given_up)).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert!(stage.is_gone(volume).await, "its object would be asked for again");
    assert_eq!(node.pool().disk_views()[0].erasing, 0);
    order(&stage, &name, &disk, json!("Adopt")).await;
    stage.see(volume, "found", is_found).await;
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_moves_to_another_node_is_adopted_there_when_it_arrives() {
    let cluster = cluster!(shared);
    let (stage, label, mut from) = offering(&cluster.client, 512).await;
    let (disk, name) = (disk_of(&from), unique("sim"));
    let volume = make(&stage, &label, &unique("pvc"), on(&from.name), 100).await.expect("there is room").id;
    let mut to = SimNode::of(&stage.client, &name, json!({"sim": label}), FakeHost::default()).await;
    until("its DevicePool", async || {
        let pools: Api<DevicePool> = Api::all(stage.client.clone());
        pools.get_opt(&name).await.expect("an answer")
    })
    .await;
    order(&stage, &name, &disk, json!("Adopt")).await;
    is_so(&stage, &name, OrderState::Waiting, "has no disk").await;
    let platter = from.host.unplug("fake0").expect("it was there");
    from.pool().nudge();
    to.host.plug("fake5", "MOVED", platter);
    to.pool().nudge();
    is_so(&stage, &name, OrderState::Done, "wrote the label").await;
    offers(&stage, &name, 350).await;
    assert!(to.pool().usable(volume).is_err(), "its object is of the other node: nobody uses it yet");
    order(&stage, &from.name, &disk, json!("GiveUp")).await;
    is_so(&stage, &from.name, OrderState::Done, "gave up").await;
    stage.volumes.delete(volume).await.expect("its claim is gone, and nothing is erased");
    let is_found_there = |object: &PoolVolume| {
        object.spec.node.as_str() == name && object.status.as_ref().is_some_and(|status| status.phase == Phase::Found)
    };
    stage.see(volume, "found on the other node", is_found_there).await;
    from.kill().await;
    to.kill().await;
}

/// A pod of the namespace of the stage's claim.
async fn pod_with(stage: &Stage, claim: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(stage.client.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).expect("an account");
    match accounts.create(&PostParams::default(), &account).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => panic!("an account: {error}"),
    }
    let name = unique("user");
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "automountServiceAccountToken": false, "containers": [{"name": "db", "image": "none"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        },
    });
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod")).await.expect("a new pod");
    name
}

#[tokio::test(flavor = "multi_thread")]
async fn the_verb_orders_a_drain_once_and_says_at_each_step_what_is_on_the_disk_and_what_is_next() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let (name, disk) = (node.name.clone(), disk_of(&node));
    let volume = make(&stage, &label, &unique("pvc"), on(&name), 100).await.expect("there is room").id;
    let persistent = unique("pv");
    stage.persistent(&persistent, volume, &name).await;
    stage.persistent_is(&persistent, "Bound").await;
    let verb = async |run| drain(stage.client.clone(), disk.clone(), run).await.expect("the disk is there").join("\n");
    let order_of = async || {
        let pools: Api<DevicePool> = Api::all(stage.client.clone());
        pools.get(&name).await.expect("there").spec.disks.get(&disk).and_then(|choice| choice.order)
    };
    let (user, other) = (pod_with(&stage, "data").await, pod_with(&stage, "another").await);
    let dry = verb(Run::Dry).await;
    let named = ["would order Drain", &volume.to_string(), &persistent, &user, "kubectl -n default delete pvc data"];
    for text in named {
        assert!(dry.contains(text), "{text}: {dry}");
    }
    assert!(!dry.contains(&other), "it has another claim: {dry}");
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), "default");
    pods.delete(&user, &DeleteParams::default()).await.expect("it is there");
    pods.delete(&other, &DeleteParams::default()).await.expect("it is there");
    let stopped = verb(Run::Dry).await;
    assert!(stopped.contains("claim default/data (used by no pod)"), "{stopped}");
    assert_eq!(order_of().await, None);
    let done = verb(Run::Real).await;
    assert!(done.contains("ordered Drain"), "{done}");
    is_so(&stage, &name, OrderState::Waiting, &volume.to_string()).await;
    has_no_room(&stage, &label, &name).await;
    let again = verb(Run::Real).await;
    assert!(again.contains("Drain is ordered for it already") && again.contains("Waiting"), "{again}");

    // Somebody deletes the claim.
    stage.persistent_is(&persistent, "Released").await;
    let released = verb(Run::Dry).await;
    assert!(
        released.contains(&format!("kubectl patch pv {persistent}")) && !released.contains("delete pvc"),
        "{released}"
    );
    stage.volumes.delete(volume).await.expect("deleted");
    is_so(&stage, &name, OrderState::Done, "no volume is on it").await;
    let empty = verb(Run::Real).await;
    assert!(empty.contains(r#""order":"Release""#) && !empty.contains("delete pvc"), "{empty}");
    assert_eq!(order_of().await, Some(DiskOrder::Drain), "a verb never releases by itself");
    order(&stage, &name, &disk, json!("Release")).await;
    is_so(&stage, &name, OrderState::Done, "wiped").await;
    let say =
        async |text: &str| until(text, async || Some(verb(Run::Dry).await).filter(|said| said.contains(text))).await;
    let left = say("is not in the pool").await;
    assert!(left.contains("Release is Done") && left.contains("it can be removed"), "{left}");
    node.host.unplug("fake0").expect("it was there");
    node.host.add_disk("fake1", "NEW", Geometry { size: 512 * MIB, sector: 512, offloads_zeroes: true });
    node.pool().nudge();
    let claimed = say("fake1").await;
    assert!(claimed.contains(&format!("Ready, set default/{label}")), "{claimed}");
    let forget = json!({"spec": {"disks": {disk.as_str(): null}}}).to_string();
    assert!(claimed.contains(&forget), "{claimed}");
    offers(&stage, &name, 500).await;
    order(&stage, &name, &disk, json!(null)).await;
    let forgotten = async || drain(stage.client.clone(), disk.clone(), Run::Dry).await.err();
    let forgotten = until("nobody knows the old disk", forgotten).await.to_string();
    assert!(forgotten.contains("no DevicePool has a disk"), "{forgotten}");
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_whose_disk_moved_to_another_node_says_conflict_until_its_object_is_gone_and_once() {
    let cluster = cluster!(alone);
    let (stage, label, mut from) = offering(&cluster.client, 512).await;
    let (disk, name) = (disk_of(&from), unique("sim"));
    let volume = make(&stage, &label, &unique("pvc"), on(&from.name), 100).await.expect("there is room").id;
    let mut to = SimNode::of(&stage.client, &name, json!({"sim": label}), FakeHost::default()).await;
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    until("its DevicePool", async || pools.get_opt(&name).await.expect("an answer")).await;
    let _work = lead(&stage, DeletedNodePolicy::Keep);
    let platter = from.host.unplug("fake0").expect("it was there");
    from.pool().nudge();
    order(&stage, &name, &disk, json!("Adopt")).await;
    to.host.plug("fake5", "MOVED", platter);
    to.pool().nudge();
    is_so(&stage, &name, OrderState::Done, "wrote the label").await;
    let conflict = |object: &PoolVolume| {
        let conditions = object.status.iter().flat_map(|status| &status.conditions);
        let found =
            conditions.into_iter().find(|condition| condition.type_ == "Conflict" && condition.status == "True");
        found.map(|condition| condition.message.clone())
    };
    let reasons = |object: &PoolVolume| -> Vec<String> {
        object.status.iter().flat_map(|status| &status.health).map(|entry| entry.reason.clone()).collect()
    };
    let all_say =
        |object: &PoolVolume| conflict(object).is_some() && reasons(object) == ["DiskElsewhere", "DiskMissing"];
    let seen = stage.see(volume, "in conflict", all_say).await;
    let message = conflict(&seen).expect("it says so");
    assert!(message.contains(&name) && message.contains(disk.as_str()), "{message}");
    let passes = async || {
        for _ in 0..30 {
            from.pool().nudge();
            to.pool().nudge();
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let object = async || stage.objects.get(&volume.to_string()).await.expect("it is there");
    assert!(all_say(&at_rest("they write over each other", object, passes).await));

    order(&stage, &from.name, &disk, json!("GiveUp")).await;
    is_so(&stage, &from.name, OrderState::Done, "gave up").await;
    stage.volumes.delete(volume).await.expect("its claim is gone, and nothing is erased");
    let is_there = |object: &PoolVolume| object.spec.node.as_str() == name && conflict(object).is_none();
    // Its agent has tried in vain for a while, and waits between two tries.
    let found = until("found on the other node", async || {
        to.pool().nudge();
        stage.objects.get_opt(&volume.to_string()).await.expect("an answer").filter(is_there)
    })
    .await;
    assert!(!reasons(&found).contains(&"DiskElsewhere".to_owned()), "{found:?}");
    from.kill().await;
    to.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_verbs_cordon_a_disk_and_take_that_back_and_dry_they_write_nothing() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let (name, disk) = (node.name.clone(), disk_of(&node));
    let client = || stage.client.clone();
    let pools: Api<DevicePool> = Api::all(client());
    let spec = async || pools.get(&name).await.expect("there").spec;
    let before = spec().await;
    let dry = cordon(client(), disk.clone(), Run::Dry).await.expect("the disk is there");
    assert!(dry[0].contains("would cordon") && dry[0].contains(&name), "{dry:?}");
    assert_eq!(spec().await, before);
    cordon(client(), disk.clone(), Run::Real).await.expect("the disk is there");
    assert_eq!(spec().await.disks[&disk].cordon, Some(true));
    has_no_room(&stage, &label, &name).await;
    let again = cordon(client(), disk.clone(), Run::Real).await.expect("the disk is there");
    assert!(again[0].contains("cordoned already"), "{again:?}");
    let dry = uncordon(client(), disk.clone(), Run::Dry).await.expect("the disk is there");
    assert!(dry[0].contains("would uncordon") && spec().await.disks[&disk].cordon == Some(true), "{dry:?}");
    uncordon(client(), disk.clone(), Run::Real).await.expect("the disk is there");
    assert_eq!(spec().await, before, "an entry stays that says nothing");
    offers(&stage, &name, 500).await;
    // One that no pool of a node has: it is somebody else's, or nobody's.
    for refused in [
        cordon(client(), DiskId::named("gpt-nobodys"), Run::Real).await,
        uncordon(client(), DiskId::named("gpt-nobodys"), Run::Real).await,
        drain(client(), DiskId::named("gpt-nobodys"), Run::Real).await,
    ] {
        let refused = refused.expect_err("nobody has it").to_string();
        assert!(refused.contains("no DevicePool has a disk gpt-nobodys"), "{refused}");
    }
    assert_eq!(spec().await, before);
    node.kill().await;
}
