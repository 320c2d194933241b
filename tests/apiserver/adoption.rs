//! Volumes that nobody claims, and people who take them.

use std::time::Duration;

use kube::api::DeleteParams;
use localpool::api::crd::{Phase, PoolVolume};
use localpool::pool::Change;

use crate::agent::{Stage, on, unique};
use crate::cluster;
use crate::nodes::{make, offers, set};
use crate::sim::SimNode;
use crate::tap::Tap;

fn is_in(phase: Phase) -> impl Fn(&PoolVolume) -> bool {
    move |object| object.status.as_ref().is_some_and(|status| status.phase == phase)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_a_person_adopts_stays_adopted_though_its_agent_was_asking_who_claims_it() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (label, name, pvc) = (unique("sim"), unique("sim"), unique("pvc"));
    set(&cluster.client, &label).await;
    let (tap, tapped) = Tap::on("/apis/localpool.dev/v1alpha1/devicepools", &cluster.client);
    let mut node = SimNode::start_unseen(&tapped, &name, &label, 512).await;
    stage.known(|caches| caches.nodes.get(&name).is_some()).await;
    offers(&stage, &name, 500).await;
    let id = make(&stage, &label, &pvc, on(&name), 100).await.expect("there is room").id;
    stage.objects.delete(&id.to_string(), &DeleteParams::default()).await.expect("deleted");
    stage.see(id, "found", is_in(Phase::Found)).await;
    stage.named(id, "gone").await;

    tap.set_open(false);
    node.pool().nudge();
    tap.waited_at().await;
    // As the verb does.
    assert_eq!(node.pool().adopt_volume(id).expect("found"), Change::Done);
    node.pool().nudge();
    tap.set_open(true);
    stage.see(id, "usable", is_in(Phase::Ready)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.pool().usable(id).expect("it stays so");
    node.kill().await;
}
