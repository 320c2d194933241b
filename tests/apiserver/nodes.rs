//! Several nodes of a cluster, against the real API server and the real controller's port.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use localpool::api::crd::{DevicePool, FINALIZER, LocalVolumeSet, Phase, PoolVolume, VolumeReason};
use localpool::host::fake::Platter;
use localpool::pool::Standing;
use localpool::volume::{Error, Nodes, TOPOLOGY_KEY, Volume, VolumeId, Volumes as _};
use localpool_testing::MIB;
use serde_json::{Value, json};

use crate::agent::{Stage, TIMEOUT, on, unique, wanted};
use crate::cluster;
use crate::leader::until;
use crate::sim::SimNode;

/// A set for the nodes of one test, of a class of its own.
pub async fn set(client: &Client, label: &str) {
    set_with(client, label, json!({"partitioningSpec": {"mode": "Dynamic"}})).await;
}

/// The same of bare devices.
pub async fn bare_set(client: &Client, label: &str) {
    set_with(client, label, json!({"layout": "RawDevice"})).await;
}

async fn set_with(client: &Client, label: &str, layout: Value) {
    let selected = json!({"matchExpressions": [{"key": "sim", "operator": "In", "values": [label]}]});
    let mut set = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
        "metadata": {"name": label, "namespace": "default"},
        "spec": {
            "storageClassName": label, "nodeSelector": {"nodeSelectorTerms": [selected]},
            "deviceInclusionSpec": {"minSize": 0},
        },
    });
    set["spec"].as_object_mut().expect("a map").extend(layout.as_object().expect("a map").clone());
    let sets: Api<LocalVolumeSet> = Api::namespaced(client.clone(), "default");
    sets.create(&PostParams::default(), &serde_json::from_value(set).expect("a set")).await.expect("a new set");
}

/// Waits until a node's DevicePool offers a volume of that many MiB, as the controller sees it.
pub async fn offers(stage: &Stage, node: &str, mib: u64) {
    offering_so_much(stage, node, |largest| largest >= mib * MIB).await;
}

/// Waits until it offers less: else [`offers`] may be answered by what it offered before a volume was made.
pub async fn offers_less(stage: &Stage, node: &str, mib: u64) {
    offering_so_much(stage, node, |largest| largest < mib * MIB).await;
}

/// Waits until the largest volume that a node's DevicePool offers, in bytes, is so large, as the controller sees it.
async fn offering_so_much(stage: &Stage, node: &str, is_so: impl Fn(u64) -> bool) {
    let largest = |pool: &DevicePool| pool.status.iter().flat_map(|s| &s.sets).map(|set| set.largest).max();
    let largest = |pool: &DevicePool| largest(pool).and_then(|bytes| u64::try_from(bytes).ok());
    stage.known(|caches| caches.pools.get(node).is_some_and(|pool| largest(&pool).is_some_and(&is_so))).await;
}

/// A node with one disk of that many MiB, which its own set offers; and that set's label.
pub async fn offering(client: &Client, mib: u64) -> (Stage, String, SimNode) {
    let stage = Stage::new(client).await;
    let label = unique("sim");
    set(client, &label).await;
    stage.known(|caches| caches.sets.get(&format!("default/{label}")).is_some()).await;
    let node = SimNode::start(&stage, &unique("sim"), &label, mib).await;
    // The size minus label and tables.
    offers(&stage, &node.name, mib - 12).await;
    (stage, label, node)
}

pub async fn make(stage: &Stage, label: &str, name: &str, nodes: Nodes, mib: u64) -> Result<Volume, Error> {
    let mut wanted = wanted(name, nodes);
    wanted.required = mib * MIB;
    wanted.parameters = [("class".to_owned(), label.to_owned())].into();
    wanted.selector.class = Some(label.to_owned());
    stage.volumes.create(wanted).await
}

/// Waits until the object of a volume meets the condition, and returns it.
pub async fn object(stage: &Stage, id: VolumeId, holds: impl Fn(&PoolVolume) -> bool) -> Arc<PoolVolume> {
    let name = id.to_string();
    stage.known(|caches| caches.volumes.get(&name).is_some_and(|object| holds(&object))).await;
    stage.caches.volumes.get(&name).expect("just seen")
}

pub fn phase(object: &PoolVolume) -> Phase {
    object.status.as_ref().map_or(Phase::Pending, |status| status.phase)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_goes_where_it_is_wanted_and_elsewhere_only_where_the_request_allows_it() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let label = unique("sim");
    set(&cluster.client, &label).await;
    let (a, b) = (unique("sim-a"), unique("sim-b"));
    let mut nodes = [SimNode::start(&stage, &a, &label, 1024).await, SimNode::start(&stage, &b, &label, 1024).await];
    for node in [&a, &b] {
        offers(&stage, node, 1000).await;
    }
    let first = unique("pvc");
    let made = make(&stage, &label, &first, on(&a), 600).await.expect("there is room");
    assert_eq!((made.node.as_str(), made.size), (a.as_str(), 600 * MIB));
    assert!(nodes[0].pool().volume(made.id).is_ok(), "it is on the disk of the node");

    let second = unique("pvc");
    let full = make(&stage, &label, &second, on(&a), 600).await.expect_err("no room on that node");
    assert!(matches!(&full, Error::Exhausted(message) if message.contains(&a)), "{full:?}");
    assert!(stage.is_gone(VolumeId::of_name(&second)).await, "the refused object was withdrawn");
    let elsewhere = Nodes::Preferred(vec![a.as_str().into(), b.as_str().into()]);
    let made = make(&stage, &label, &second, elsewhere, 600).await.expect("there is room on the other");
    assert_eq!(made.node, b);

    // The agent settles before it reports: what is offered after the deletion must not be what was offered before all
    // this.
    offering_so_much(&stage, &a, |largest| largest < 600 * MIB).await;
    stage.volumes.delete(VolumeId::of_name(&first)).await.expect("deleted");
    assert!(stage.is_gone(VolumeId::of_name(&first)).await);
    assert!(nodes[0].pool().volume(VolumeId::of_name(&first)).is_err(), "and from its disk");
    offers(&stage, &a, 1000).await;
    make(&stage, &label, &unique("pvc"), on(&a), 900).await.expect("the space is free again");
    for node in &mut nodes {
        node.kill().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_nodes_at_once_each_make_their_volumes() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let label = unique("sim");
    set(&cluster.client, &label).await;
    let mut nodes = Vec::new();
    for _ in 0..20 {
        nodes.push(SimNode::start(&stage, &unique("sim"), &label, 256).await);
    }
    for node in &nodes {
        offers(&stage, &node.name, 200).await;
    }
    let wishes = nodes.iter().flat_map(|node| [(node.name.clone(), unique("pvc")), (node.name.clone(), unique("pvc"))]);
    let wishes: Vec<(String, String)> = wishes.collect();
    let making = wishes.iter().map(|(node, name)| make(&stage, &label, name, on(node), 64));
    for ((node, name), made) in wishes.iter().zip(futures::future::join_all(making).await) {
        let made = made.unwrap_or_else(|error| panic!("{name} on {node}: {error}"));
        assert_eq!(made.node, *node);
    }
    for node in &mut nodes {
        assert_eq!(node.pool().volumes().len(), 2, "{}", node.name);
        node.kill().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_are_deleted_by_hand_come_back_from_the_disk_and_nothing_is_erased() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 1024).await;
    let name = node.name.clone();
    let (claimed, nobodys) = (unique("pvc"), unique("pvc"));
    for volume in [&claimed, &nobodys] {
        make(&stage, &label, volume, on(&name), 100).await.expect("there is room");
    }
    let claimed_id = VolumeId::of_name(&claimed);
    let persistent: PersistentVolume = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": claimed},
        "spec": {
            "capacity": {"storage": "100Mi"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "csi.localpool.dev", "volumeHandle": claimed_id.to_string()},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": TOPOLOGY_KEY, "operator": "In", "values": [name]}]},
            ]}},
        },
    }))
    .expect("a PersistentVolume");
    let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
    volumes.create(&PostParams::default(), &persistent).await.expect("made");

    for (volume, after) in [(&claimed, Phase::Ready), (&nobodys, Phase::Found)] {
        let id = VolumeId::of_name(volume);
        let before = object(&stage, id, |object| phase(object) == Phase::Ready).await;
        stage.objects.delete(&id.to_string(), &DeleteParams::default()).await.expect("deleted");
        let uid = before.metadata.uid.clone();
        let back = object(&stage, id, |object| object.metadata.uid != uid && phase(object) == after).await;
        assert_eq!(back.metadata.finalizers.as_deref(), Some(&[FINALIZER.to_owned()][..]));
        assert_eq!((&back.spec.volume_name, back.spec.required), (volume, before.spec.required));
        assert!(node.pool().volume(id).is_ok(), "its data is where it was");
    }
    let listed = stage.volumes.list().await.expect("an answer");
    let listed = |id: VolumeId| listed.iter().any(|volume| volume.id == id && !volume.found);
    assert!(listed(claimed_id) && !listed(VolumeId::of_name(&nobodys)));
    let refused = stage.volumes.delete(VolumeId::of_name(&nobodys)).await.expect_err("it is nobody's");
    assert!(matches!(refused, Error::Precondition(_)), "{refused:?}");

    // The mark is on the disk: a new process says the same.
    node.kill().await;
    node.run(&cluster.client);
    let found = async {
        while node.pool().volumes().len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, found).await.expect("the new process finds both volumes");
    let waits = node.pool().usable(VolumeId::of_name(&nobodys)).expect_err("it waits for its adoption");
    assert!(waits.to_string().contains("volume adopt"), "{waits}");
    assert!(node.pool().usable(claimed_id).is_ok());
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_away_serves_what_it_missed_and_what_was_withdrawn_is_not_made() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 1024).await;
    let name = node.name.clone();
    let kept = unique("pvc");
    let id = make(&stage, &label, &kept, on(&name), 100).await.expect("there is room").id;
    node.kill().await;

    let missed = unique("pvc");
    let mut wish = wanted(&missed, on(&name));
    // The last quarter of it is far more than a busy machine needs to withdraw the object.
    wish.timeout = Duration::from_secs(12);
    wish.selector.class = Some(label.clone());
    wish.parameters = [("class".to_owned(), label.clone())].into();
    let silent = stage.volumes.create(wish).await.expect_err("nobody answers");
    assert!(matches!(&silent, Error::Exhausted(message) if message.contains(&name)), "{silent:?}");
    assert!(stage.is_gone(VolumeId::of_name(&missed)).await);
    // Deleted while no agent runs: the order waits for the agent.
    let ordered = async {
        stage.see(id, "ordered", |object| object.metadata.deletion_timestamp.is_some()).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    tokio::select! {
        ended = stage.volumes.delete(id) => panic!("nobody has erased it: {ended:?}"),
        () = ordered => {}
    }

    node.run(&cluster.client);
    let deleted = async {
        while !stage.is_gone(id).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, deleted).await.expect("the agent does what was ordered");
    assert!(node.pool().volumes().is_empty(), "and nothing that was withdrawn: {:?}", node.pool().volumes());
    node.kill().await;
}

/// An object that asks for a volume with a filesystem, as a controller that ended right after writing it leaves it.
async fn ask(stage: &Stage, label: &str, name: &str, node: &str, mib: u64) -> VolumeId {
    let id = VolumeId::of_name(name);
    let object = json!({
        "apiVersion": "localpool.dev/v1alpha1", "kind": "PoolVolume",
        "metadata": {"name": id.to_string(), "finalizers": [FINALIZER]},
        "spec": {
            "node": node, "volumeName": name, "required": mib * MIB, "volumeMode": "Filesystem",
            "parameters": {"class": label},
        },
    });
    let object = serde_json::from_value(object).expect("a PoolVolume");
    stage.objects.create(&PostParams::default(), &object).await.expect("a new one");
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_an_agent_that_has_just_begun_is_answered_by_the_sets_and_not_before_it_knows_them() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 1024).await;
    let name = node.name.clone();
    for _ in 0..5 {
        node.kill().await;
        let asked = ask(&stage, &label, &unique("pvc"), &name, 100).await;
        node.run(&cluster.client);
        let answered =
            object(&stage, asked, |object| ![Phase::Pending, Phase::Accepted].contains(&phase(object))).await;
        assert_eq!(phase(&answered), Phase::Ready, "there is room: {:?}", answered.status);
    }
    node.kill().await;
}

/// Waits until nothing has been written for a while, as cleaning and the label's older copy come after a claim.
async fn settled(platter: &Platter) {
    let mut writes = platter.write_count();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        match platter.write_count() {
            now if now == writes => return,
            now => writes = now,
        }
    }
}

/// Waits until a set offers a disk of a node whose agent has just started.
async fn until_offered(node: &SimNode) {
    let is_offered = async {
        while !node.pool().disk_views().iter().any(|view| view.owned && view.standing == Standing::Ready) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, is_offered).await.expect("the set is known");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_asked_for_longer_ago_than_any_call_lasts_is_rejected_by_a_late_agent_and_no_disk_is_written() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 1024).await;
    let name = node.name.clone();
    let platter = node.host.platter("fake0").expect("a disk");
    settled(&platter).await;
    // What its workers had begun has ended with it.
    node.kill().await;
    let (writes, content) = (platter.write_count(), platter.content());
    let asked = ask(&stage, &label, &unique("pvc"), &name, 100).await;
    node.clock = || Timestamp::now() + SignedDuration::from_mins(11);
    node.run(&cluster.client);
    let refused = async |asked| {
        let refused = object(&stage, asked, |object| phase(object) != Phase::Pending).await;
        let status = refused.status.as_ref().expect("it was answered");
        assert!(status.phase == Phase::Rejected && status.reason == Some(VolumeReason::Stale), "{status:?}");
        assert!(status.message.as_deref().is_some_and(|message| message.contains("11 minutes ago")), "{status:?}");
    };
    refused(asked).await;
    // Even if it could be made at once.
    until_offered(&node).await;
    refused(ask(&stage, &label, &unique("pvc"), &name, 100).await).await;
    // An opening syncs what it finds.
    assert_eq!(platter.write_count(), writes + 1, "the disk was written");
    assert!(platter.content() == content, "the disk was written");
    assert!(node.pool().volumes().is_empty(), "{:?}", node.pool().volumes());

    // Only the age decides: a request that somebody may still wait for is fulfilled.
    node.kill().await;
    node.clock = || Timestamp::now() + SignedDuration::from_mins(9);
    node.run(&cluster.client);
    until_offered(&node).await;
    let asked = ask(&stage, &label, &unique("pvc"), &name, 100).await;
    let answered = object(&stage, asked, |object| ![Phase::Pending, Phase::Accepted].contains(&phase(object))).await;
    assert_eq!(phase(&answered), Phase::Ready, "{:?}", answered.status);
    assert!(platter.content() != content && node.pool().usable(asked).is_ok());
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_volumes_of_a_deleted_node_are_kept_named_and_never_made_twice() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let label = unique("sim");
    set(&cluster.client, &label).await;
    let (gone, other) = (unique("sim"), unique("sim"));
    let mut nodes =
        [SimNode::start(&stage, &gone, &label, 512).await, SimNode::start(&stage, &other, &label, 512).await];
    for node in [&gone, &other] {
        offers(&stage, node, 500).await;
    }
    let name = unique("pvc");
    let id = make(&stage, &label, &name, on(&gone), 100).await.expect("there is room").id;
    nodes[0].kill().await;
    stage.delete_node(&gone).await;

    let volume = stage.volumes.get(id).await.expect("an answer").expect("kept");
    assert!(volume.condition.word() == "NodeGone", "{:?}", volume.condition);
    let retried = make(&stage, &label, &name, Nodes::Any, 100).await.expect_err("its data is on that node");
    assert!(matches!(&retried, Error::Precondition(message) if message.contains("abandon")), "{retried:?}");
    let deleted = stage.volumes.delete(id).await.expect_err("nobody can erase it");
    assert!(matches!(&deleted, Error::Precondition(message) if message.contains(&gone)), "{deleted:?}");
    for node in &mut nodes {
        node.kill().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordoned_node_takes_no_new_volume_and_keeps_what_it_has() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let name = node.name.clone();
    let kept = make(&stage, &label, &unique("pvc"), on(&name), 100).await.expect("there is room");
    let pools: Api<DevicePool> = Api::all(cluster.client.clone());
    let cordon = |cordon: bool| Patch::Merge(json!({"spec": {"cordon": cordon}}));
    pools.patch(&name, &PatchParams::default(), &cordon(true)).await.expect("cordoned");
    // The agent sees it a little later.
    let make_small = async || make(&stage, &label, &unique("pvc"), on(&name), 1).await;
    let refused = until("a refusal", async || make_small().await.err()).await;
    assert!(matches!(&refused, Error::Exhausted(message) if message.contains("cordon")), "{refused:?}");
    assert!(node.pool().usable(kept.id).is_ok());
    pools.patch(&name, &PatchParams::default(), &cordon(false)).await.expect("uncordoned");
    until("it is open again", async || make_small().await.ok()).await;
    node.kill().await;
}
