//! Deletions that have ended while the agent's watch does not show it yet: what they ordered is not done once more.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use localpool::api::crd::{DevicePool, OrderState, Phase, PoolVolumeStatus};
use localpool::device::DiskId;
use localpool::pool::Standing;
use localpool::volume::{VolumeId, Volumes as _};
use serde_json::json;

use crate::agent::{Stage, on, unique};
use crate::cluster;
use crate::disk_orders::{disk_of, is_found, is_so, not_erased, order};
use crate::late_watch::LateWatch;
use crate::leader::until;
use crate::nodes::{make, offering};
use crate::sim::SimNode;
use crate::tap::Tap;

const VOLUMES: &str = "/apis/localpool.dev/v1alpha1/poolvolumes";

/// A volume on a disk that was given up and came back: a deletion ends and erases nothing.
struct Held {
    stage: Stage,
    node: SimNode,
    disk: DiskId,
    volume: VolumeId,
    uid: String,
}

impl Held {
    /// The agent uses `agents`.
    async fn of(client: &Client, agents: &Client) -> Self {
        let (stage, label, mut node) = offering(client, 512).await;
        let (name, disk) = (node.name.clone(), disk_of(&node));
        let volume = make(&stage, &label, &unique("pvc"), on(&name), 100).await.expect("there is room").id;
        let platter = node.host.unplug("fake0").expect("it was there");
        node.pool().nudge();
        order(&stage, &name, &disk, json!("GiveUp")).await;
        is_so(&stage, &name, OrderState::Done, "gave up").await;
        node.host.plug("fake0", &format!("SERIAL-{name}"), platter);
        node.kill().await;
        node.run(agents);
        until("it is held", async || node.pool().volume(volume).ok().filter(|view| view.given_up)).await;
        let uid = stage.see(volume, "there", |_| true).await.metadata.uid.expect("stored");
        Self { stage, node, disk, volume, uid }
    }

    fn is_whole(&self) {
        let pool = self.node.pool();
        assert!(pool.volume(self.volume).is_ok(), "it was erased");
        assert_eq!(pool.disk_views()[0].erasing, 0, "it is being erased");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_ends_once_though_all_volumes_are_due_again_before_that() {
    let cluster = cluster!(shared);
    let (patches, agents) = Tap::on_patches(VOLUMES, &cluster.client);
    let mut held = Held::of(&cluster.client, &agents).await;
    patches.set_open(false);
    let before = patches.requests();
    let next_pass = async {
        patches.waited_at().await;
        // The reconcile that this makes due comes as soon as the deletion has ended.
        let cordon = Patch::Merge(json!({"spec": {"cordon": true}}));
        let pools: Api<DevicePool> = Api::all(held.stage.client.clone());
        pools.patch(&held.node.name, &PatchParams::default(), &cordon).await.expect("it is there");
        tokio::time::sleep(Duration::from_secs(1)).await;
        patches.set_open(true);
    };
    let (deleted, ()) = tokio::join!(held.stage.volumes.delete(held.volume), next_pass);
    deleted.expect("nobody waits for the disk");
    tokio::time::sleep(Duration::from_secs(2)).await;
    not_erased(&held.stage, &held.uid).await;
    assert_eq!(patches.requests() - before, 1);
    held.is_whole();
    held.node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_adopts_after_its_deletion_is_not_erased_by_the_object_that_the_watch_still_shows() {
    let cluster = cluster!(shared);
    let (watch, late) = LateWatch::on(VOLUMES, &cluster.client);
    let (patches, agents) = Tap::on_patches(VOLUMES, &late);
    let mut held = Held::of(&cluster.client, &agents).await;
    patches.set_open(false);
    let end = async {
        patches.waited_at().await;
        watch.set_open(false);
        patches.set_open(true);
    };
    let (deleted, ()) = tokio::join!(held.stage.volumes.delete(held.volume), end);
    deleted.expect("nobody waits for the disk");
    let note = not_erased(&held.stage, &held.uid).await;
    assert!(note.contains("the data stays on it"), "{note}");
    order(&held.stage, &held.node.name, &held.disk, json!("Adopt")).await;
    until("it is adopted", async || held.node.pool().volume(held.volume).ok().filter(|view| !view.given_up)).await;
    held.node.pool().nudge();
    tokio::time::sleep(Duration::from_secs(3)).await;
    held.is_whole();
    watch.set_open(true);
    held.stage.see(held.volume, "found", is_found).await;
    held.is_whole();
    held.node.kill().await;
}

fn is_deleting(status: &PoolVolumeStatus) -> bool {
    status.phase == Phase::Deleting
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_whose_finalizer_a_person_took_off_to_save_it_is_not_erased_when_its_disk_is_back() {
    let cluster = cluster!(shared);
    let (watch, agents) = LateWatch::on(VOLUMES, &cluster.client);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let volume = make(&stage, &label, &unique("pvc"), on(&node.name), 100).await.expect("there is room").id;
    node.kill().await;
    node.run(&agents);
    until("the agent is back", async || node.pool().volume(volume).ok()).await;
    let platter = node.host.unplug("fake0").expect("it was there");
    node.pool().nudge();
    let stands = async |standing| (node.pool().disk_views().first()?.standing == standing).then_some(());
    until("it is missing", async || stands(Standing::Missing).await).await;
    let stuck = async {
        // The agent has seen the deletion.
        let stuck = stage.see(volume, "stuck", |object| object.status.as_ref().is_some_and(is_deleting)).await;
        watch.set_open(false);
        stuck
    };
    let stuck = tokio::select! {
        ended = stage.volumes.delete(volume) => panic!("its disk is away: {ended:?}"),
        stuck = stuck => stuck,
    };
    stage.let_go(&stuck).await;
    node.host.plug("fake0", &format!("SERIAL-{}", node.name), platter);
    node.pool().nudge();
    until("it is back", async || stands(Standing::Ready).await).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(node.pool().volume(volume).is_ok() && node.pool().disk_views()[0].erasing == 0, "it was erased");
    watch.set_open(true);
    stage.see(volume, "found", is_found).await;
    node.kill().await;
}
