//! What a person orders for a volume that no claim leads to, with the real monitor, and an agent on a fake machine. The
//! monitor writes to all objects, so each of these tests is alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use localpool::agent::{Reconciler, Run};
use localpool::api::crd::{Intent, Phase, PoolVolume};
use localpool::claim::{Rule, sample::rule};
use localpool::device::{DiskId, Owner, label::Layout};
use localpool::host::{
    Geometry, Host,
    fake::{FakeHost, Platter},
};
use localpool::operator::volume::{ManifestRequest, erase, manifest};
use localpool::pool::{CreateRequest, Pool, Selector, WantedUsage, Workers};
use localpool::volume::VolumeId;
use localpool_testing::MIB;
use serde_json::{Value, json};

use crate::agent::{Stage, on, unique};
use crate::cluster;
use crate::leader::until;
use crate::marks::monitor;
use crate::nodes::{make, offering};
use crate::sim::SimNode;
use crate::tap::Tap;

fn is_in(phase: Phase) -> impl Fn(&PoolVolume) -> bool {
    move |object| object.status.as_ref().is_some_and(|status| status.phase == phase)
}

/// Status and reason of the condition OrderDone.
fn order_done(object: &PoolVolume) -> Option<(String, String)> {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    let mut found = conditions.filter(|condition| condition.type_ == "OrderDone");
    found.next().map(|condition| (condition.status.clone(), condition.reason.clone()))
}

fn has_order(status: &str, reason: &str) -> impl Fn(&PoolVolume) -> bool {
    let expected = Some((status.to_owned(), reason.to_owned()));
    move |object| order_done(object) == expected
}

pub async fn order(stage: &Stage, id: VolumeId, order: Value) {
    let patch = Patch::Merge(json!({"spec": {"order": order}}));
    stage.objects.patch(&id.to_string(), &PatchParams::default(), &patch).await.expect("a person may");
}

/// Refused, although no PersistentVolume names it any more.
fn refused_now(object: &PoolVolume) -> bool {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|one| one.type_ == "OrderDone" && one.message.contains("when this was ordered"))
}

/// A volume whose object somebody deleted.
pub async fn found(stage: &Stage, label: &str, node: &SimNode) -> VolumeId {
    let id = make(stage, label, &unique("pvc"), on(&node.name), 100).await.expect("there is room").id;
    stage.objects.delete(&id.to_string(), &DeleteParams::default()).await.expect("deleted");
    stage.see(id, "found", is_in(Phase::Found)).await;
    id
}

async fn is_erased(stage: &Stage, node: &SimNode, id: VolumeId) {
    until("the volume is erased", async || (stage.is_gone(id).await && node.pool().volume(id).is_err()).then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_found_volume_is_erased_by_order_but_not_while_a_persistent_volume_names_it_even_for_another_node() {
    let cluster = cluster!(alone);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let (id, kept) = (found(&stage, &label, &node).await, found(&stage, &label, &node).await);
    let name = unique("pv");
    stage.persistent(&name, id, "elsewhere").await;
    let _work = monitor(&stage);
    order(&stage, id, json!("Erase")).await;
    stage.see(id, "refused", has_order("False", "PersistentVolumeExists")).await;
    let refused = erase(stage.client.clone(), id, Run::Real).await.expect_err("it has a PersistentVolume").to_string();
    assert!(refused.contains(&name) && node.pool().volume(id).is_ok(), "{refused}");
    let volumes: Api<PersistentVolume> = Api::all(stage.client.clone());
    // Kubernetes' controller removes its finalizer; here it does not run.
    let unprotected = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    volumes.patch(&name, &PatchParams::default(), &unprotected).await.expect("it is there");
    volumes.delete(&name, &DeleteParams::default()).await.expect("deleted");
    // It must not lie in wait until the PersistentVolume is gone for another reason.
    stage.see(id, "still refused", refused_now).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(node.pool().volume(id).is_ok(), "it lay in wait");
    order(&stage, id, json!(null)).await;
    stage.see(id, "without an order", |object| order_done(object).is_none()).await;
    order(&stage, id, json!("Erase")).await;
    is_erased(&stage, &node, id).await;
    assert!(node.pool().volume(kept).is_ok(), "nobody ordered anything for the other one");
    // The controller was stopped between its two writes.
    let begun = Patch::Merge(json!({"spec": {"intent": "Delete", "order": "Erase"}}));
    stage.objects.patch(&kept.to_string(), &PatchParams::default(), &begun).await.expect("written");
    is_erased(&stage, &node, kept).await;
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_to_erase_that_is_taken_back_before_it_is_carried_out_erases_nothing() {
    let cluster = cluster!(alone);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let id = found(&stage, &label, &node).await;
    // Of one object, not the lists.
    let (reads, client) = Tap::on_reads("/apis/localpool.dev/v1alpha1/poolvolumes/", &cluster.client);
    reads.set_open(false);
    let tapped = Stage::new(&client).await;
    let _work = monitor(&tapped);
    order(&stage, id, json!("Erase")).await;
    reads.waited_at().await;
    order(&stage, id, json!(null)).await;
    reads.set_open(true);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let object = stage.objects.get(&id.to_string()).await.expect("it is there");
    assert!(object.spec.intent == Intent::Keep && node.pool().volume(id).is_ok(), "{object:?}");
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_verb_erases_a_ready_volume_only_when_nobody_has_named_it_for_a_while_and_dry_changes_nothing() {
    let cluster = cluster!(alone);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let id = make(&stage, &label, &unique("pvc"), on(&node.name), 100).await.expect("there is room").id;
    let verb = async |run| erase(stage.client.clone(), id, run).await;
    let early = verb(Run::Real).await.expect_err("its PersistentVolume may be on its way").to_string();
    assert!(early.contains("ten minutes"), "{early}");
    let _work = monitor(&stage);
    let is_unclaimed = |object: &PoolVolume| {
        object.status.iter().flat_map(|status| &status.conditions).any(|condition| condition.type_ == "Unclaimed")
    };
    stage.see(id, "unclaimed", is_unclaimed).await;
    let lines = verb(Run::Dry).await.expect("it would be done").join("\n");
    assert!(lines.contains("would erase") && node.pool().volume(id).is_ok(), "{lines}");
    assert_eq!(stage.objects.get(&id.to_string()).await.expect("there").spec.order, None);
    verb(Run::Real).await.expect("nobody has it");
    is_erased(&stage, &node, id).await;
    verb(Run::Real).await.expect_err("it is not there any more");
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_found_volume_is_adopted_by_order_and_the_volume_of_a_deleted_node_is_abandoned() {
    let cluster = cluster!(alone);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let id = found(&stage, &label, &node).await;
    let _work = monitor(&stage);
    order(&stage, id, json!("Adopt")).await;
    stage.see(id, "adopted", is_in(Phase::Ready)).await;
    stage.see(id, "reported", has_order("True", "Done")).await;
    node.pool().usable(id).expect("it can be used");
    order(&stage, id, json!("Abandon")).await;
    stage.see(id, "refused", has_order("False", "NodeExists")).await;
    node.kill().await;
    stage.delete_node(&node.name).await;
    until("it is given up", async || stage.is_gone(id).await.then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manifest_of_a_found_volume_gives_it_to_a_claim_whose_name_the_object_then_has() {
    let cluster = cluster!(alone);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let id = found(&stage, &label, &node).await;
    let request = |claim: Option<&str>| ManifestRequest {
        volume: id,
        claim: claim.map(|claim| claim.parse().expect("a name")),
        storage_class: None,
        access_mode: "ReadWriteOnce".to_owned(),
    };
    let unknown = manifest(stage.client.clone(), request(None)).await.expect_err("no claim had it").to_string();
    assert!(unknown.contains("--claim"), "{unknown}");
    let name = unique("data");
    let yaml = manifest(stage.client.clone(), request(Some(&format!("default/{name}")))).await.expect("a manifest");
    let (persistent, claim) = yaml.split_once("---\n").and_then(|(_, all)| all.split_once("---\n")).expect("two");
    let persistent: PersistentVolume = serde_saphyr::from_str(persistent).expect("a PersistentVolume");
    let claim: PersistentVolumeClaim = serde_saphyr::from_str(claim).expect("a claim");
    let volumes: Api<PersistentVolume> = Api::all(stage.client.clone());
    let made = volumes.create(&PostParams::default(), &persistent).await.expect("the API server takes it");
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(stage.client.clone(), "default");
    claims.create(&PostParams::default(), &claim).await.expect("the API server takes it");
    // Kubernetes' controller binds them; here it does not run.
    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    volumes.patch_status(&made.name_any(), &PatchParams::default(), &bound).await.expect("bound");
    let _work = monitor(&stage);
    stage.see(id, "usable", is_in(Phase::Ready)).await;
    let expected = format!("default/{name}");
    stage.see(id, "claimed", move |object| object.claim() == Some(&expected)).await;
    let named = manifest(stage.client.clone(), request(None)).await.expect_err("it has one").to_string();
    assert!(named.contains(&made.name_any()), "{named}");
    node.kill().await;
}

/// Another disk of a node that has a volume of this name as well: it was made by an agent that knew nothing
/// of the first disk.
pub async fn copy(node: &SimNode, name: &str, serial: &str) -> (DiskId, Arc<Platter>) {
    let (host, owner) = (FakeHost::default(), Owner { cluster: "sim".to_owned(), node: node.name.as_str().into() });
    host.add_disk("fake9", serial, Geometry { size: 512 * MIB, sector: 512, offloads_zeroes: true });
    let host = Arc::new(host);
    let (machine, name) = (Arc::clone(&host) as Arc<dyn Host>, name.to_owned());
    let made = tokio::task::spawn_blocking(move || {
        let pool = Arc::new(Pool::open(Arc::clone(&machine), owner, Workers::Caller).expect("a pool"));
        let rule = Rule { layout: Layout::Carved {}, ..rule("set") };
        let mut agent = Reconciler::new(machine, Arc::clone(&pool), Duration::ZERO, vec![rule]);
        (0..3).for_each(|_| drop(agent.pass().expect("a pass")));
        let (id, usage, selector) = (VolumeId::of_name(&name), WantedUsage::Block, Selector::default());
        let request =
            CreateRequest { id, name, required: MIB, limit: None, usage, parameters: BTreeMap::new(), selector };
        pool.create(&request).expect("made").0.disk
    });
    let disk = made.await.expect("no bug");
    (disk, host.unplug("fake9").expect("it was there"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_on_two_disks_is_on_the_one_that_a_person_orders_and_the_data_of_the_other_is_kept() {
    let cluster = cluster!(alone);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let pvc = unique("pvc");
    let volume = make(&stage, &label, &pvc, on(&node.name), 100).await.expect("there is room").id;
    let right = node.pool().usable(volume).expect("usable").disk;
    node.kill().await;
    let (_, other) = copy(&node, &pvc, "SECOND").await;
    node.host.plug("fake1", "SECOND", other);
    node.run(&stage.client);
    let is_conflict = |object: &PoolVolume| {
        object.status.iter().flat_map(|status| &status.health).any(|entry| entry.reason == "Conflict")
    };
    stage.see(volume, "in conflict", is_conflict).await;
    let _work = monitor(&stage);
    let settle = async |keep: Value| {
        let spec = Patch::Merge(json!({"spec": {"order": "Settle", "keep": keep}}));
        stage.objects.patch(&volume.to_string(), &PatchParams::default(), &spec).await
    };
    let refused = settle(Value::Null).await.expect_err("of which disk?").to_string();
    assert!(refused.contains("needs spec.keep"), "{refused}");
    settle(json!("gpt-nobodys")).await.expect("there");
    let says = |object: &PoolVolume| {
        let message = object.status.as_ref().and_then(|status| status.message.as_ref());
        message.is_some_and(|message| message.contains("gpt-nobodys of spec.keep"))
    };
    let waits = stage.see(volume, "waiting", says).await;
    stage.see(volume, "not done", has_order("False", "InConflict")).await;
    assert!(is_conflict(&waits) && node.pool().usable(volume).is_err());
    settle(json!(right)).await.expect("there");
    let is_settled = |object: &PoolVolume| !is_conflict(object) && is_in(Phase::Ready)(object);
    stage.see(volume, "settled", is_settled).await;
    stage.see(volume, "done", has_order("True", "Done")).await;
    assert_eq!(node.pool().usable(volume).expect("it can be used").disk, right);
    let views = node.pool().volumes();
    let aside: Vec<_> = views.iter().filter(|view| view.id != volume).collect();
    assert!(views.len() == 2 && aside.len() == 1 && aside[0].record.as_ref().is_some_and(|record| record.found));
    node.kill().await;
}
