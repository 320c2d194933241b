//! One volume id on two disks of a node, as its object reports it.

use std::time::Duration;

use localpool::agent::{Run, Verb};
use localpool::api::crd::{Phase, PoolVolume, VolumeReason};
use localpool::host::Geometry;
use localpool::pool::{CreateRequest, Selector, WantedUsage};
use localpool::volume::{Error, VolumeId};
use localpool_testing::MIB;

use crate::agent::{Stage, TIMEOUT, on, unique};
use crate::cluster;
use crate::nodes::{make, offers, set};
use crate::sim::SimNode;

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_on_two_disks_is_a_conflict_that_its_object_tells_with_the_verb_that_settles_it() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (label, name, pvc) = (unique("sim"), unique("sim"), unique("pvc"));
    set(&cluster.client, &label).await;
    let mut node = SimNode::start(&stage, &name, &label, 512).await;
    offers(&stage, &name, 500).await;
    let id = VolumeId::of_name(&pvc);
    make(&stage, &label, &pvc, on(&name), 100).await.expect("there is room");

    // Nobody knows any more that it was begun on a disk that is away, so it is made a second time.
    node.kill().await;
    let first = node.host.unplug("fake0").expect("it was there");
    node.host.state.lose();
    let geometry = Geometry { size: 512 * MIB, sector: 512, offloads_zeroes: true };
    node.host.add_disk("fake1", &format!("SECOND-{name}"), geometry);
    node.run(&cluster.client);
    let request = CreateRequest {
        id,
        name: pvc.clone(),
        required: 100 * MIB,
        limit: None,
        usage: WantedUsage::Mount(None),
        parameters: [("class".to_owned(), label.clone())].into(),
        selector: Selector { class: Some(label.clone()), set: None },
    };
    let made = async {
        while node.pool().create(&request).is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, made).await.expect("the second disk is claimed");
    node.host.plug("fake0", &format!("SERIAL-{name}"), first);
    node.pool().nudge();

    let told = stage.see(id, "in conflict", |object| reason(object) == Some("Conflict")).await;
    let status = told.status.as_ref().expect("just seen");
    let text = status.message.as_deref().unwrap_or_default();
    assert_eq!(status.phase, Phase::Ready, "it stays what it was: {text}");
    let disks: Vec<String> = node.pool().disk_views().into_iter().map(|view| view.id.to_string()).collect();
    assert_eq!(disks.len(), 2);
    assert!(text.contains("localpool volume settle") && disks.iter().all(|disk| text.contains(disk)), "{text}");
    let healthy = status.conditions.iter().find(|condition| condition.type_ == "Healthy").expect("it is reported");
    assert_eq!((healthy.status.as_str(), healthy.reason.as_str()), ("False", "Conflict"), "{}", healthy.message);
    stage.known(|caches| caches.volumes.get(&id.to_string()).is_some_and(|it| reason(&it) == Some("Conflict"))).await;
    let refused = make(&stage, &label, &pvc, on(&name), 100).await.expect_err("which of them?");
    assert!(matches!(&refused, Error::Precondition(text) if text.contains("volume settle")), "{refused:?}");

    let settle = Verb::SettleVolume { volume: id, keep: "/dev/fake1".to_owned(), run: Run::Real };
    let agent_handle = node.running.as_ref().expect("it runs").agent_handle.clone();
    let settled = tokio::task::spawn_blocking(move || agent_handle.verb(settle)).await.expect("it ends");
    settled.expect("it runs").expect("a person says so");
    let is_settled = |object: &PoolVolume| reason(object).is_none() && object.status.is_some();
    let now = stage.see(id, "settled", is_settled).await;
    assert_eq!(now.status.as_ref().map(|status| (status.phase, status.message.clone())), Some((Phase::Ready, None)));
    node.kill().await;
}

fn reason(object: &PoolVolume) -> Option<&str> {
    object.status.as_ref()?.reason.as_ref().map(VolumeReason::word)
}
