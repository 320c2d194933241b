//! Disks of folders that fail half-way, and an expansion that waits for an agent: what the volumes of the disk say, and
//! when that ends.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use localpool::api::crd::PoolVolume;
use localpool::host::{Extent, fake::Fault};
use localpool::pool::Standing;
use localpool::volume::{VolumeId, Volumes as _};
use localpool_testing::MIB;
use serde_json::{Value, json};

use crate::agent::{Stage, on, unique};
use crate::cluster;
use crate::folders::{offering, room};
use crate::leader::until;
use crate::nodes::make;
use crate::sim::SimNode;
use crate::tap::Tap;
use crate::tries::passes;

/// Two folders of 100 MiB on the disk of a node, which passes have seen, so that none is due any more.
async fn two(stage: &Stage, label: &str, node: &SimNode) -> [VolumeId; 2] {
    let made = async || make(stage, label, &unique("pvc"), on(&node.name), 100).await.expect("there is room").id;
    let both = [made().await, made().await];
    passes(node, 10).await;
    both
}

/// The next change of that sort fails.
fn fail_once(node: &SimNode, what: &'static str) {
    let everywhere = Extent { start: 0, end: u64::MAX };
    node.host.platter("fake0").expect("a disk").inject(Fault { what, range: everywhere, times: 1 });
}

fn reasons(object: &PoolVolume) -> Vec<&str> {
    object.status.iter().flat_map(|status| &status.health).map(|entry| entry.reason.as_str()).collect()
}

async fn patch(stage: &Stage, id: VolumeId, change: Value) {
    let params = PatchParams::default();
    stage.objects.patch(&id.to_string(), &params, &Patch::Merge(&change)).await.expect("it is there");
}

async fn is_ready_again(node: &SimNode) {
    let standing = async || (node.pool().disk_views().first()?.standing == Standing::Ready).then_some(());
    until("the disk is open again", standing).await;
}

/// The disk of a volume fails; whether the volume says so before a pass opens the disk again.
async fn is_reported_between_two_passes(stage: &Stage, label: &str, node: &SimNode, volume: VolumeId) -> bool {
    let other = make(stage, label, &unique("pvc"), on(&node.name), 1).await.expect("there is room").id;
    // By then these have seen both, so that none is due any more.
    passes(node, 10).await;
    fail_once(node, "tree remove");
    // Of the pool alone, nobody asks for a pass.
    let pool = Arc::clone(node.pool());
    let failed = tokio::task::spawn_blocking(move || pool.delete(other)).await.expect("no bug");
    assert!(failed.is_err(), "{failed:?}");
    patch(stage, volume, json!({"metadata": {"annotations": {"example.com/looked-at": unique("now")}}})).await;
    until("it is reported, or the disk is open again", async || {
        let is_open = node.pool().disk_views().first()?.standing == Standing::Ready;
        let object = stage.objects.get(&volume.to_string()).await.expect("it is there");
        match reasons(&object)[..] {
            ["DiskNotReady"] => Some(true),
            [] if is_open => Some(false),
            _ => None,
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_reported_of_a_disk_between_two_passes_ends_with_the_pass_that_opens_it_again() {
    // A set that another test makes is a pass of every agent, and would open the disk before anybody sees its reason.
    let cluster = cluster!(alone);
    let (stage, label, mut node) = offering(&cluster.client, 512, json!({})).await;
    let volume = make(&stage, &label, &unique("pvc"), on(&node.name), 100).await.expect("there is room").id;
    // Nor does it if a pass that was due already is faster.
    let mut tries = 1;
    while !is_reported_between_two_passes(&stage, &label, &node, volume).await {
        assert!(tries < 20, "a pass was always faster");
        tries += 1;
    }
    node.pool().nudge();
    stage.see(volume, "well", |object| reasons(object).is_empty()).await;
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fails_while_a_volume_is_deleted_or_grows_is_opened_again_though_nothing_else_happens() {
    // A set that another test makes is a pass of every agent, and would open the disk, too.
    let cluster = cluster!(alone);
    let (stage, label, mut node) = offering(&cluster.client, 512, json!({})).await;
    let [volume, other] = two(&stage, &label, &node).await;
    fail_once(&node, "tree limit");
    let grown = stage.volumes.expand(volume, 150 * MIB, None).await.expect("it is tried again");
    assert_eq!(grown.size, 150 * MIB);
    is_ready_again(&node).await;
    fail_once(&node, "tree remove");
    stage.volumes.delete(other).await.expect("it is tried again");
    is_ready_again(&node).await;
    stage.see(volume, "well", |object| reasons(object).is_empty()).await;
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expansion_that_waits_for_an_agent_waits_until_its_disk_is_told_what_its_set_reserves_and_promises() {
    let cluster = cluster!(shared);
    for (fields, is_promised) in [(json!({"reserved": "200Mi"}), false), (json!({"overprovision": 250}), true)] {
        let (stage, label, mut node) = offering(&cluster.client, 512, fields.clone()).await;
        let room = room(&stage, &label, &node).await;
        let [volume, _] = two(&stage, &label, &node).await;
        // All that one volume may have, though another one has some of that.
        let wanted = room.largest / MIB * MIB;
        node.kill().await;
        patch(&stage, volume, json!({"spec": {"size": wanted}})).await;
        let (sets, agents) = Tap::on("/apis/local.storage.openshift.io/v1alpha1/localvolumesets", &cluster.client);
        sets.set_open(false);
        node.run(&agents);
        until("its disk is open", async || node.pool().usable(volume).ok()).await;
        node.pool().nudge();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let size = node.pool().usable(volume).expect("it is there").size;
        assert_eq!(size, 100 * MIB, "{fields}: nobody knows what is reserved");
        sets.set_open(true);
        let tried = |object: &PoolVolume| {
            object.status.as_ref().is_some_and(|status| status.observed_size.is_some_and(|size| size > 100 << 20))
        };
        let status = stage.see(volume, "answered", tried).await.status.expect("just seen");
        assert_eq!(status.resize_error.is_none(), is_promised, "{fields}: {status:?}");
        let size = node.pool().usable(volume).expect("it is there").size;
        assert_eq!(size, if is_promised { wanted } else { 100 * MIB }, "{fields}");
        node.kill().await;
    }
}
