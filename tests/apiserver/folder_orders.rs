//! What a person chooses and orders for disks whose volumes are folders, with real agents on fake machines.

use kube::Api;
use kube::api::{Patch, PatchParams};
use localpool::api::crd::{DevicePool, OrderState};
use localpool::device::DiskId;
use localpool::host::fake::FakeHost;
use localpool::volume::Volumes as _;
use localpool_testing::MIB;
use serde_json::{Value, json};

use crate::agent::{Stage, on, unique};
use crate::cluster;
use crate::disk_orders::{adopt_released, disk_of, give_up_and_return, has_no_room, is_found, is_so, order};
use crate::folders::{has_room, offering, room};
use crate::leader::until;
use crate::nodes::{make, offers};
use crate::sim::SimNode;

/// What a person chooses for the disk.
async fn choose(stage: &Stage, node: &str, disk: &DiskId, choice: Value) -> kube::Result<DevicePool> {
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    let spec = json!({"spec": {"disks": {disk.as_str(): choice}}});
    pools.patch(node, &PatchParams::default(), &Patch::Merge(spec)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_of_folders_is_released_when_the_files_of_its_deleted_volumes_are_gone_and_can_be_adopted_again() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512, json!({})).await;
    let (name, disk) = (node.name.clone(), disk_of(&node));
    let volume = make(&stage, &label, &unique("pvc"), on(&name), 100).await.expect("there is room").id;
    order(&stage, &name, &disk, json!("Drain")).await;
    is_so(&stage, &name, OrderState::Waiting, "volumes on it: 1").await;
    has_no_room(&stage, &label, &name).await;
    stage.volumes.expand(volume, 120 * MIB, None).await.expect("what is on it grows as always");

    order(&stage, &name, &disk, json!("Release")).await;
    is_so(&stage, &name, OrderState::Waiting, &volume.to_string()).await;
    let platter = node.host.platter("fake0").expect("a disk");
    platter.set_hangs_at(Some("tree"));
    stage.volumes.delete(volume).await.expect("its folder is in the trash");
    is_so(&stage, &name, OrderState::Waiting, "is being erased").await;
    platter.set_hangs_at(None);
    let done = is_so(&stage, &name, OrderState::Done, "wiped").await;
    assert!(node.pool().members().is_empty());
    adopt_released(&stage, &name, &done.message, 400).await;
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_of_folders_that_was_given_up_is_held_when_it_is_back_until_a_person_adopts_it() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512, json!({})).await;
    let (name, disk) = (node.name.clone(), disk_of(&node));
    let volume = make(&stage, &label, &unique("pvc"), on(&name), 100).await.expect("there is room").id;
    give_up_and_return(&stage, &node, &disk, volume).await;
    // Nobody decided that it is used again.
    has_no_room(&stage, &label, &name).await;
    stage.volumes.delete(volume).await.expect("nobody waits for the disk");
    assert!(stage.is_gone(volume).await);
    node.kill().await;
    node.run(&stage.client);
    until("it is held", async || node.pool().volume(volume).ok().filter(|view| view.given_up)).await;
    assert_eq!(node.pool().disk_views()[0].erasing, 0);
    order(&stage, &name, &disk, json!("Adopt")).await;
    stage.see(volume, "found", is_found).await;
    offers(&stage, &name, 300).await;
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_of_folders_of_another_node_is_not_adopted_and_the_order_says_why() {
    let cluster = cluster!(shared);
    let (stage, label, mut from) = offering(&cluster.client, 512, json!({})).await;
    let (disk, name) = (disk_of(&from), unique("sim"));
    let mut to = SimNode::of(&stage.client, &name, json!({"sim": label}), FakeHost::default()).await;
    until("its DevicePool", async || {
        let pools: Api<DevicePool> = Api::all(stage.client.clone());
        pools.get_opt(&name).await.expect("an answer")
    })
    .await;
    let platter = from.host.unplug("fake0").expect("it was there");
    let before = platter.content();
    to.host.plug("fake5", "MOVED", platter);
    to.pool().nudge();
    order(&stage, &name, &disk, json!("Adopt")).await;
    let why = format!("its volumes are folders of a filesystem that says it is of node {}", from.name);
    is_so(&stage, &name, OrderState::Refused, &why).await;
    assert!(to.host.platter("fake5").expect("there").content() == before, "it was written");
    from.kill().await;
    to.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_chooses_for_a_disk_of_folders_is_about_new_volumes_only() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512, json!({"reserved": "50Mi"})).await;
    let (name, disk) = (node.name.clone(), disk_of(&node));
    let before = room(&stage, &label, &node).await.available;
    let volume = make(&stage, &label, &unique("pvc"), on(&name), 100).await.expect("there is room");
    let reserved = || node.pool().disk_views()[0].reserved / MIB;
    assert_eq!(reserved(), 50);
    for (choice, left) in [
        (json!("150Mi"), before - 200 * MIB),
        (json!(0), before - 50 * MIB),
        (json!("1Ti"), 0),
        (json!(null), before - 100 * MIB),
    ] {
        choose(&stage, &name, &disk, json!({"reserved": choice})).await.expect("chosen");
        has_room(&stage, &label, &node, left).await;
        assert_eq!(node.pool().usable(volume.id).expect("it keeps what it has").size, 100 * MIB, "{choice}");
    }
    for nonsense in [json!("much"), json!(-1), json!("-1Gi"), json!(true)] {
        let refused = choose(&stage, &name, &disk, json!({"reserved": nonsense})).await.expect_err("no size");
        assert!(matches!(&refused, kube::Error::Api(status) if status.code == 422), "{refused:?}");
    }

    choose(&stage, &name, &disk, json!({"cordon": true})).await.expect("chosen");
    let why = has_no_room(&stage, &label, &name).await;
    assert!(why.contains("a person has cordoned it"), "{why}");
    stage.volumes.expand(volume.id, 110 * MIB, None).await.expect("it grows as always");
    choose(&stage, &name, &disk, json!(null)).await.expect("chosen");
    has_room(&stage, &label, &node, before - 110 * MIB).await;
    node.kill().await;
}
