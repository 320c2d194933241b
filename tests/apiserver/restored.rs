//! What one record has lost and another one has: objects from a backup, which have no status, and labels that do not
//! describe a volume.

use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams};
use localpool::agent::{Run, Verb};
use localpool::api::crd::{DevicePool, Intent, Phase, PoolVolume, VolumeReason};
use localpool::host::Geometry;
use localpool::pool::{Content, relabel};
use localpool::volume::{Error, VolumeId, Volumes as _};
use localpool_testing::MIB;
use serde_json::json;

use crate::agent::{TIMEOUT, on, unique};
use crate::cluster;
use crate::leader::until;
use crate::nodes::{make, object, offering, offers, phase};
use crate::sim::SimNode;

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_whose_object_is_restored_while_its_disk_is_away_is_not_rejected_and_its_deletion_waits_for_the_disk()
{
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let (name, pvc) = (node.name.clone(), unique("pvc"));
    make(&stage, &label, &pvc, on(&name), 10).await.expect("made");
    let id = VolumeId::of_name(&pvc);
    stage.persistent(&pvc, id, &name).await;
    stage.persistent_is(&pvc, "Released").await;
    let before = object(&stage, id, |object| phase(object) == Phase::Ready).await;
    node.kill().await;
    let platter = node.host.unplug("fake0").expect("it was there");
    let content = platter.content();
    stage.lose(&before).await;
    let pools: Api<DevicePool> = Api::all(cluster.client.clone());
    let cordon = Patch::Merge(json!({"spec": {"cordon": true}}));
    pools.patch(&name, &PatchParams::default(), &cordon).await.expect("cordoned");
    stage.restore(&before).await;

    node.run(&stage.client);
    let object = object(&stage, id, |object| phase(object) != Phase::Pending).await;
    let status = object.status.clone().expect("set");
    assert!(status.phase == Phase::Accepted && status.message.is_some_and(|w| w.contains("is missing")), "{object:?}");
    let deleting = async {
        // Each call ends in its time, and is repeated, as the provisioner does.
        while let Err(error) = stage.volumes.delete(id).await {
            assert!(matches!(error, Error::Aborted(_)), "{error:?}");
        }
    };
    let back = async {
        stage.see(id, "ordered", |object| object.spec.intent == Intent::Delete).await;
        node.host.plug("fake3", &format!("SERIAL-{name}"), platter.clone());
        node.pool().nudge();
    };
    tokio::join!(deleting, back);
    assert!(stage.is_gone(id).await && node.pool().volume(id).is_err());
    assert!(platter.content() != content, "it was not erased");
    node.kill().await;
}

/// Somebody restored the object of a volume without its status, and its disk is given up: its pod must not start on an
/// empty volume.
#[tokio::test(flavor = "multi_thread")]
async fn no_empty_volume_is_made_in_the_place_of_one_that_a_persistent_volume_tells_of() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let (name, pvc) = (node.name.clone(), unique("pvc"));
    make(&stage, &label, &pvc, on(&name), 10).await.expect("made");
    let id = VolumeId::of_name(&pvc);
    let disk = node.pool().usable(id).expect("usable").disk;
    stage.persistent(&pvc, id, &name).await;
    for is_known in [true, false] {
        let before = stage.see(id, "there", |_| true).await;
        node.kill().await;
        if is_known {
            node.host.unplug("fake0").expect("it was there");
            let geometry = Geometry { size: 512 * MIB, sector: 512, offloads_zeroes: true };
            node.host.add_disk("fake1", &format!("OTHER-{name}"), geometry);
        }
        stage.lose(&before).await;
        stage.restore(&before).await;
        node.run(&stage.client);
        offers(&stage, &name, 400).await;
        if is_known {
            object(&stage, id, |object| phase(object) == Phase::Accepted).await;
            let release = Verb::ReleaseDisk { disk: disk.to_string(), run: Run::Real };
            let agent_handle = node.running.as_ref().expect("it runs").agent_handle.clone();
            let released = tokio::task::spawn_blocking(move || agent_handle.verb(release)).await.expect("it ends");
            released.expect("it runs").expect("it is away");
        }
        let refused = |object: &PoolVolume| {
            let reason = object.status.as_ref().and_then(|status| status.reason.clone());
            matches!(phase(object), Phase::Rejected | Phase::Failed) && reason == Some(VolumeReason::VolumeMissing)
        };
        object(&stage, id, refused).await;
        assert!(node.pool().volumes().is_empty(), "{is_known}: {:?}", node.pool().volumes());
    }
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_has_lost_its_description_of_a_volume_gets_it_again_from_the_object() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let (name, pvc) = (node.name.clone(), unique("pvc"));
    make(&stage, &label, &pvc, on(&name), 10).await.expect("made");
    let id = VolumeId::of_name(&pvc);
    let before = node.pool().usable(id).expect("usable");
    object(&stage, id, |object| phase(object) == Phase::Ready).await;
    {
        let members = node.pool().labelled_disks();
        let mut member = members[0].lock();
        let forget = |content: &Content| {
            let mut label = content.pruned_label();
            label.volumes.clear();
            Ok(relabel(label))
        };
        member.disk().expect("it is here").change(forget).expect("written");
    }
    assert!(node.pool().volume(id).expect("there").record.is_none(), "it is not described");
    node.pool().nudge();
    let described = async {
        while node.pool().usable(id).is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, described).await.expect("the object says what it is");
    assert_eq!(node.pool().usable(id).expect("usable"), before);
    stage.volumes.delete(id).await.expect("as any other");
    node.kill().await;
}

/// The backup is from before a claim had its volume, and after it the claim waits for another node: nothing of the
/// first volume is given to anybody, and a person has it when the second one is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_asks_again_after_a_restore_gets_an_empty_volume_and_its_first_one_is_found_with_its_data() {
    let cluster = cluster!(shared);
    let (stage, label, mut first) = offering(&cluster.client, 512).await;
    let pvc = unique("pvc");
    let id = VolumeId::of_name(&pvc);
    make(&stage, &label, &pvc, on(&first.name), 10).await.expect("made");
    let made = object(&stage, id, |object| phase(object) == Phase::Ready).await;
    first.kill().await;
    stage.lose(&made).await;

    let mut second = SimNode::start(&stage, &unique("sim"), &label, 512).await;
    offers(&stage, &second.name, 500).await;
    make(&stage, &label, &pvc, on(&second.name), 10).await.expect("it waits for this node now");
    first.run(&stage.client);
    until("its agent has looked", async || first.pool().volume(id).ok()).await;
    offers(&stage, &first.name, 400).await;
    let kept = object(&stage, id, |object| phase(object) == Phase::Ready).await;
    assert_eq!(kept.spec.node.as_str(), second.name, "the object is that of the second one");

    stage.volumes.delete(id).await.expect("deleted");
    let found = object(&stage, id, |object| phase(object) == Phase::Found).await;
    assert_eq!(found.spec.node.as_str(), first.name);
    assert!(second.pool().volume(id).is_err() && first.pool().volume(id).is_ok());
    first.kill().await;
    second.kill().await;
}
