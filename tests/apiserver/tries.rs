//! What the agent of a node tries again, and how often.

use std::time::Duration;

use kube::api::DeleteParams;
use localpool::api::crd::{Phase, PoolVolume};
use localpool::volume::{Error, Volume, Volumes as _};

use crate::agent::{MIB, Stage, on, unique, wanted};
use crate::cluster;
use crate::nodes::{offers, set};
use crate::sim::SimNode;
use crate::tap::Tap;

async fn make(stage: &Stage, class: &str, name: &str, node: &str, mib: u64) -> Result<Volume, Error> {
    let mut wanted = wanted(name, on(node));
    wanted.required = mib * MIB;
    wanted.parameters = [("class".to_owned(), class.to_owned())].into();
    wanted.selector.class = Some(class.to_owned());
    stage.volumes.create(wanted).await
}

fn is_in(phase: Phase) -> impl Fn(&PoolVolume) -> bool {
    move |object| object.status.as_ref().is_some_and(|status| status.phase == phase)
}

/// Passes of the agent, one after the other: each looks at every volume.
async fn passes(node: &SimNode, count: usize) {
    for _ in 0..count {
        node.pool().nudge();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_waits_is_come_back_to_once_however_often_it_was_looked_at() {
    // A set that another test makes is a reason to look.
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let (label, name, pvc) = (unique("sim"), unique("sim"), unique("pvc"));
    set(&cluster.client, &label).await;
    let (tap, tapped) = Tap::on("/api/v1/persistentvolumes", &cluster.client);
    let mut node = SimNode::start_unseen(&tapped, &name, &label, 512).await;
    stage.known(|caches| caches.nodes.get(&name).is_some()).await;
    offers(&stage, &name, 500).await;
    let id = make(&stage, &label, &pvc, &name, 100).await.expect("there is room").id;
    // No PersistentVolume claims it: it is found, and asked about again and again.
    stage.objects.delete(&id.to_string(), &DeleteParams::default()).await.expect("deleted");
    stage.see(id, "found", is_in(Phase::Found)).await;
    let before = tap.requests();
    passes(&node, 20).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let asked = tap.requests();
    assert!(asked > before + 5, "each look asks: {before} to {asked}");
    // By now it was tried so often that nobody is to come back to it within a minute.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(tap.requests(), asked, "somebody came back earlier");
    node.kill().await;
}
