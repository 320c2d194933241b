//! Volumes whose disk left, died or fails, under a real API server: they are made nowhere else, and are let go when
//! nobody waits.

use std::time::Duration;

use localpool::api::crd::{Intent, Phase, PoolVolume, VolumeReason};
use localpool::host::fake::{FakeHost, Fault};
use localpool::host::{Extent, Geometry};
use localpool::pool::{DiskView, Standing};
use localpool::volume::{Error, VolumeId, Volumes as _};
use localpool_testing::MIB;
use serde_json::json;

use crate::agent::{Stage, TIMEOUT, on, unique, wanted};
use crate::cluster;
use crate::nodes::{make, object, offering, offers, phase, set};
use crate::sim::SimNode;

/// Writes of the first copy of the table fail: by then, a volume that is made has been begun.
fn no_table() -> Fault {
    Fault { what: "write", range: Extent { start: 512, end: 34 * 512 }, times: u32::MAX }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_was_begun_on_a_disk_that_left_is_not_made_on_another_one_also_after_a_restart() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let label = unique("sim");
    set(&cluster.client, &label).await;
    let (name, pvc) = (unique("sim"), unique("pvc"));
    let host = FakeHost::default();
    let disks = ["fake0", "fake1"].map(|disk| {
        let geometry = Geometry { size: 512 * MIB, sector: 512, offloads_zeroes: true };
        host.add_disk(disk, &format!("{disk}-{name}"), geometry)
    });
    let mut node = SimNode::of(&cluster.client, &name, json!({"sim": label}), host).await;
    stage.known(|caches| caches.nodes.get(&name).is_some()).await;
    offers(&stage, &name, 500).await;
    // Neither is still being claimed or prepared when its writes begin to fail.
    let is_settled = |view: &DiskView| view.standing == Standing::Ready && view.owned && view.erasing == 0;
    while node.pool().disk_views().iter().filter(|view| is_settled(view)).count() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    disks.iter().for_each(|disk| disk.inject(no_table()));

    let id = VolumeId::of_name(&pvc);
    let mut wish = wanted(&pvc, on(&name));
    wish.required = 100 * MIB;
    wish.timeout = Duration::from_secs(120);
    wish.parameters = [("class".to_owned(), label.clone())].into();
    wish.selector.class = Some(label.clone());
    let scenario = async {
        let begun = |object: &PoolVolume| {
            phase(object) == Phase::Accepted && object.status.as_ref().is_some_and(|status| status.message.is_some())
        };
        let begun = object(&stage, id, begun).await;
        let named = begun.status.as_ref().and_then(|status| status.disk.clone()).expect("the disk is named");
        let views = node.pool().disk_views();
        let path = &views.iter().find(|view| view.id == named).expect("it is here").path;
        let away = if path.ends_with("fake0") { 0 } else { 1 };
        let other = &disks[1 - away];
        let platter = node.host.unplug(["fake0", "fake1"][away]).expect("it was there");
        disks.iter().for_each(|disk| disk.clear_faults());
        let writes = other.write_count();
        let waits = |object: &PoolVolume| {
            let status = object.status.as_ref();
            status.and_then(|status| status.message.as_deref()).is_some_and(|message| message.contains("is missing"))
        };
        node.pool().nudge();
        let waiting = object(&stage, id, |object| phase(object) == Phase::Accepted && waits(object)).await;
        assert_eq!(waiting.status.as_ref().and_then(|status| status.disk.as_ref()), Some(&named));
        assert_eq!(other.write_count(), writes, "the other disk was written");
        node.kill().await;
        node.run(&cluster.client);
        let other = async {
            while make(&stage, &label, &unique("pvc"), on(&name), 10).await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, other).await.expect("other volumes are not held up");
        assert!(node.pool().volume(id).is_err(), "it was made on the other disk");
        node.host.plug("fake7", &format!("fake{away}-{name}"), platter);
        node.pool().nudge();
        named
    };
    let (made, named) = tokio::join!(stage.volumes.create(wish), scenario);
    made.expect("its disk is back");
    assert_eq!(node.pool().usable(id).expect("usable").disk, named);
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_volume_of_a_dead_disk_is_deleted_when_the_disk_is_given_up_and_not_before() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let label = unique("sim");
    set(&cluster.client, &label).await;
    let (name, pvc) = (unique("sim"), unique("pvc"));
    let host = FakeHost::default();
    host.add_disk("fake0", &name, Geometry { size: 512 * MIB, sector: 512, offloads_zeroes: true });
    let mut node = SimNode::of(&cluster.client, &name, json!({"sim": label}), host).await;
    stage.known(|caches| caches.nodes.get(&name).is_some()).await;
    offers(&stage, &name, 500).await;
    make(&stage, &label, &pvc, on(&name), 10).await.expect("made");
    let id = VolumeId::of_name(&pvc);
    let disk = node.pool().usable(id).expect("usable").disk;
    node.host.unplug("fake0");
    node.pool().nudge();
    // If the agent has not seen it yet, it would delete the volume on that disk.
    while node.pool().usable(id).is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let deleting = async {
        // Each call ends in its time, and is repeated, as the provisioner does.
        while let Err(error) = stage.volumes.delete(id).await {
            assert!(matches!(error, Error::Aborted(_)), "{error:?}");
        }
    };
    let scenario = async {
        let missing = |object: &PoolVolume| {
            let reason = object.status.as_ref().and_then(|status| status.reason.clone());
            phase(object) == Phase::Deleting && reason == Some(VolumeReason::DiskMissing)
        };
        object(&stage, id, missing).await;
        assert!(node.pool().forget(&disk).expect("written"), "it is away");
        node.pool().nudge();
    };
    tokio::time::timeout(TIMEOUT, async { tokio::join!(deleting, scenario) }).await.expect("it is let go");
    node.kill().await;
}

/// What ends the wait for a disk that is away.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Back,
    GivenUp,
}

/// A volume whose disk left and whose object was lost while its agent was down. Only its PersistentVolume remains.
async fn order_what_only_a_persistent_volume_tells_of(stage: &Stage, label: &str, end: End) {
    let (name, pvc) = (unique("sim"), unique("pvc"));
    let mut node = SimNode::start(stage, &name, label, 512).await;
    offers(stage, &name, 500).await;
    make(stage, label, &pvc, on(&name), 10).await.expect("made");
    let id = VolumeId::of_name(&pvc);
    let disk = node.pool().usable(id).expect("usable").disk;
    stage.persistent(&pvc, id, &name).await;
    stage.persistent_is(&pvc, "Released").await;
    let before = object(stage, id, |object| phase(object) == Phase::Ready).await;
    node.kill().await;
    let platter = node.host.unplug("fake0").expect("it was there");
    let content = platter.content();
    stage.lose(&before).await;

    let deleting = async {
        // Each call ends in its time, and is repeated, as the provisioner does.
        while let Err(error) = stage.volumes.delete(id).await {
            assert!(matches!(error, Error::Aborted(_)), "{end:?}: {error:?}");
        }
    };
    let scenario = async {
        let ordered = stage.see(id, "ordered", |object| object.metadata.deletion_timestamp.is_some()).await;
        assert!(ordered.metadata.uid != before.metadata.uid && ordered.status.is_none(), "{ordered:?}");
        node.run(&stage.client);
        let missing = |object: &PoolVolume| {
            let reason = object.status.as_ref().and_then(|status| status.reason.clone());
            phase(object) == Phase::Deleting && reason == Some(VolumeReason::DiskMissing)
        };
        let waits = object(stage, id, missing).await;
        assert_eq!((&waits.metadata.uid, waits.spec.intent), (&ordered.metadata.uid, Intent::Delete));
        let message = waits.status.as_ref().and_then(|status| status.message.clone()).unwrap_or_default();
        assert!(message.contains(disk.as_str()), "it does not say which disk: {message}");
        assert!(platter.content() == content, "it is away");
        match end {
            End::Back => {
                node.host.plug("fake3", &format!("SERIAL-{name}"), platter.clone());
                node.pool().nudge();
            }
            End::GivenUp => {
                assert!(node.pool().forget(&disk).expect("written"), "it is away");
                node.pool().nudge();
            }
        }
        node
    };
    let ((), mut node) = tokio::time::timeout(TIMEOUT, async { tokio::join!(deleting, scenario) })
        .await
        .unwrap_or_else(|_| panic!("{end:?}: it is not let go"));
    assert!(stage.is_gone(id).await && node.pool().volume(id).is_err(), "{end:?}");
    assert_eq!(platter.content() == content, end == End::GivenUp, "{end:?}");
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_whose_disk_and_object_are_gone_is_ordered_erased_and_let_go_when_the_disk_is_back_or_given_up() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let label = unique("sim");
    set(&cluster.client, &label).await;
    for end in [End::Back, End::GivenUp] {
        order_what_only_a_persistent_volume_tells_of(&stage, &label, end).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_whose_disk_fails_it_again_and_again_leaves_its_pod_to_another_node() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let name = node.name.clone();
    node.host.platter("fake0").expect("it is there").inject(no_table());
    let pvc = unique("pvc");
    let refused = make(&stage, &label, &pvc, on(&name), 100).await.expect_err("its disk fails");
    assert!(matches!(&refused, Error::Exhausted(message) if message.contains(&name)), "{refused:?}");
    assert!(stage.is_gone(VolumeId::of_name(&pvc)).await, "and nothing of it is left");
    assert!(node.pool().volumes().is_empty());
    node.kill().await;
}
