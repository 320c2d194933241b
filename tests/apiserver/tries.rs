//! What the agent of a node tries again, how often, and what it says when it gives up.

use std::time::Duration;

use kube::api::DeleteParams;
use localpool::api::crd::{Phase, PoolVolume, VolumeReason};
use localpool::volume::{Error, VolumeId};

use crate::agent::{Stage, on, unique};
use crate::cluster;
use crate::leader::until;
use crate::nodes::{bare_set, make, offers, set};
use crate::sim::SimNode;
use crate::tap::Tap;

fn is_in(phase: Phase) -> impl Fn(&PoolVolume) -> bool {
    move |object| object.status.as_ref().is_some_and(|status| status.phase == phase)
}

/// Passes of the agent, one after the other: each looks at every volume.
pub async fn passes(node: &SimNode, count: usize) {
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
    let (tap, tapped) = Tap::on("/apis/localpool.dev/v1alpha1/devicepools", &cluster.client);
    let mut node = SimNode::start_unseen(&tapped, &name, &label, 512).await;
    stage.known(|caches| caches.nodes.get(&name).is_some()).await;
    offers(&stage, &name, 500).await;
    let id = make(&stage, &label, &pvc, on(&name), 100).await.expect("there is room").id;
    // No PersistentVolume claims it, although its object says so: the agent asks about it again and again.
    stage.objects.delete(&id.to_string(), &DeleteParams::default()).await.expect("deleted");
    stage.see(id, "found", is_in(Phase::Found)).await;
    stage.named(id, "gone").await;
    for _ in 0..20 {
        let before = tap.requests();
        node.pool().nudge();
        until("a pass asks", async || (tap.requests() > before).then_some(())).await;
    }
    let asked = settled(&tap).await;
    // By now it was tried so often that the next try is more than a minute away.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(tap.requests(), asked, "somebody came back earlier");
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_another_operation_held_up_is_not_given_up_as_one_that_its_disk_failed() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (label, name, pvc) = (unique("sim"), unique("sim"), unique("pvc"));
    set(&cluster.client, &label).await;
    let mut node = SimNode::start(&stage, &name, &label, 512).await;
    offers(&stage, &name, 500).await;
    let id = VolumeId::of_name(&pvc);
    let held = node.locks.hold(id).expect("nobody has it");
    let agent = async {
        stage.see(id, "accepted", is_in(Phase::Accepted)).await;
        passes(&node, 12).await;
        let now = stage.objects.get(&id.to_string()).await.expect("it is there");
        assert!(is_in(Phase::Accepted)(&now), "{:?}", now.status);
        drop(held);
        node.pool().nudge();
    };
    let (made, ()) = tokio::join!(make(&stage, &label, &pvc, on(&name), 100), agent);
    made.expect("nothing is wrong with its disk");
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_state_directory_is_full_says_that_and_blames_no_disk() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (label, name, pvc) = (unique("sim"), unique("sim"), unique("pvc"));
    bare_set(&cluster.client, &label).await;
    let mut node = SimNode::start(&stage, &name, &label, 64).await;
    offers(&stage, &name, 60).await;
    node.host.state.set_full(true);
    let id = VolumeId::of_name(&pvc);
    let agent = async {
        let failed = stage.see(id, "given up", is_in(Phase::Failed)).await;
        let status = failed.status.expect("just seen");
        let message = status.message.unwrap_or_default();
        assert_eq!(status.reason, Some(VolumeReason::JournalFailed), "{message}");
        assert!(message.contains("No space left") && !message.contains(": disk "), "{message}");
    };
    let (refused, ()) = tokio::join!(make(&stage, &label, &pvc, on(&name), 60), agent);
    let refused = refused.expect_err("nothing can be written down");
    assert!(matches!(&refused, Error::Exhausted(message) if message.contains("No space left")), "{refused:?}");
    assert!(stage.is_gone(id).await && node.pool().volumes().is_empty());

    node.host.state.set_full(false);
    make(&stage, &label, &pvc, on(&name), 60).await.expect("the disk is healthy");
    node.kill().await;
}

/// The count of requests once no more follow: an answer of the controller may take a second.
async fn settled(tap: &Tap) -> u64 {
    let mut count = tap.requests();
    loop {
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        match tap.requests() {
            now if now == count => return now,
            now => count = now,
        }
    }
}
