//! A node that was installed again under its cluster, or restored to an earlier state: its state directory is gone or
//! older, and its PoolVolumes are not.

use kube::Api;
use localpool::agent::{Run, Verb};
use localpool::api::crd::{OrderState, Phase, PoolVolume};
use localpool::host::Host as _;
use localpool::pool::JOURNAL;
use localpool::volume::{VolumeId, Volumes as _};
use serde_json::json;

use crate::agent::{Stage, on, unique};
use crate::cluster;
use crate::disk_orders::{is_so, order};
use crate::leader::until;
use crate::nodes::{self, bare_set, offers, offers_less};
use crate::sim::SimNode;

/// A node whose one bare device is offered by a set of its own, which is also its class.
async fn with_bare_device(stage: &Stage) -> (SimNode, String) {
    let (label, name) = (unique("sim"), unique("sim"));
    bare_set(&stage.client, &label).await;
    let node = SimNode::start(stage, &name, &label, 64).await;
    offers(stage, &name, 60).await;
    (node, label)
}

async fn make(stage: &Stage, node: &SimNode, class: &str) -> VolumeId {
    nodes::make(stage, class, &unique("pvc"), on(&node.name), 60).await.expect("there is room").id
}

async fn done(node: &SimNode, verb: Verb) {
    let agent_handle = node.running.as_ref().expect("it runs").agent_handle.clone();
    let done = tokio::task::spawn_blocking(move || agent_handle.verb(verb)).await.expect("it ends");
    done.expect("it runs").expect("a person says so");
}

fn says(object: &PoolVolume, message: &str) -> bool {
    serde_json::to_string(object).expect("JSON").contains(message)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_younger_than_a_journal_that_was_put_back_is_left_until_a_person_says_which_is_right() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (mut node, class) = with_bare_device(&stage).await;
    let first = make(&stage, &node, &class).await;
    let older = node.host.state().load(JOURNAL).expect("read").expect("there");
    offers_less(&stage, &node.name, 60).await;
    stage.volumes.delete(first).await.expect("deleted");
    offers(&stage, &node.name, 60).await;
    let second = make(&stage, &node, &class).await;
    node.kill().await;
    node.host.state().store(JOURNAL, &older).expect("put back");
    let platter = node.host.platter("fake0").expect("a disk");
    let writes = platter.write_count();
    node.run(&stage.client);
    let object = second.to_string();
    stage.known(|caches| caches.volumes.get(&object).is_some_and(|it| says(&it, "localpool volume settle"))).await;
    stage.volumes.delete(second).await.expect_err("it would not be erased");
    let objects: Api<PoolVolume> = Api::all(stage.client.clone());
    let forgotten = objects.get_opt(&first.to_string()).await.expect("read");
    assert!(forgotten.is_none(), "the volume that the journal forgot to forget has an object again: {forgotten:?}");
    assert_eq!(platter.write_count(), writes);

    let keep = "/dev/fake0".to_owned();
    done(&node, Verb::SettleVolume { volume: second, keep, run: Run::Real }).await;
    stage.known(|caches| caches.volumes.get(&object).is_none_or(|it| !says(&it, "localpool volume settle"))).await;
    stage.volumes.delete(second).await.expect("as any other");
    offers(&stage, &node.name, 60).await;
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_device_that_a_volumes_object_names_is_left_until_it_is_adopted_and_has_the_volume_then() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (mut node, class) = with_bare_device(&stage).await;
    let made = make(&stage, &node, &class).await;
    let object = made.to_string();

    node.kill().await;
    node.host.state.lose();
    let platter = node.host.platter("fake0").expect("a disk");
    let writes = platter.write_count();
    node.run(&stage.client);
    stage.known(|caches| caches.volumes.get(&object).is_some_and(|it| says(&it, "localpool disk adopt"))).await;
    assert!(node.pool().members().is_empty() && platter.write_count() == writes);

    let adopt = Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run: Run::Real };
    done(&node, adopt).await;
    let is_back = |it: &PoolVolume| {
        it.status.as_ref().is_some_and(|status| status.phase == Phase::Ready) && !says(it, "localpool disk adopt")
    };
    stage.known(|caches| caches.volumes.get(&object).is_some_and(|it| is_back(&it))).await;
    assert_eq!(platter.write_count(), writes);
    stage.volumes.delete(made).await.expect("as any other");
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_device_that_is_here_is_never_given_up_by_an_order_though_the_journal_has_lost_it() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (mut node, class) = with_bare_device(&stage).await;
    let (made, disk) = (make(&stage, &node, &class).await, node.pool().disk_views()[0].id.clone());
    node.kill().await;
    node.host.state.lose();
    node.run(&stage.client);
    let object = made.to_string();
    stage.known(|caches| caches.volumes.get(&object).is_some_and(|it| says(&it, "localpool disk adopt"))).await;
    order(&stage, &node.name, &disk, json!("GiveUp")).await;
    is_so(&stage, &node.name, OrderState::Refused, "the node has it").await;
    done(&node, Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run: Run::Real }).await;
    stage.known(|caches| caches.volumes.get(&object).is_some_and(|it| !says(&it, "localpool disk adopt"))).await;
    // The device is opened by the pass after the adoption.
    until("it has its volume again", async || node.pool().usable(made).ok().map(drop)).await;
    node.kill().await;
}
