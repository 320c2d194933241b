//! Volumes on filesystems that an administrator mounted and named, with a real agent on a fake machine: from the set to the
//! folder, over a mount that goes and comes, to the release.

use std::path::Path;

use kube::Api;
use kube::api::{Patch, PatchParams};
use localpool::api::crd::{DevicePool, LocalVolumeSet, OrderState, PoolVolume};
use localpool::host::{FsKind, Geometry, Host as _, Mounts as _};
use localpool::pool::PoolError;
use localpool::volume::Volumes as _;
use localpool_testing::MIB;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::agent::{Stage, on, unique};
use crate::cluster;
use crate::folders::{apply, has_room, set};
use crate::leader::until;
use crate::nodes::make;
use crate::sim::SimNode;

const PATH: &str = "/mnt/mine";

/// A set of named filesystems for the nodes with the label of its name.
fn set_of_filesystems(label: &str, fields: Value) -> Value {
    let mut set = set(label, &fields);
    if fields.get("deviceInclusionSpec").is_none() {
        set["spec"].as_object_mut().expect("an object").remove("deviceInclusionSpec");
    }
    set
}

fn mount(node: &SimNode) {
    let quota = ["prjquota".to_owned()];
    node.host.mounts.mount(Path::new("/dev/mine"), Path::new(PATH), FsKind::Xfs, &quota).expect("mounted");
}

fn checkup(node: &SimNode) {
    // As the event of a mount would.
    node.running.as_ref().expect("it runs").checkups.due();
}

async fn patch(stage: &Stage, node: &SimNode, disks: Value) {
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    let spec = json!({"spec": {"disks": disks}});
    pools.patch(&node.name, &PatchParams::default(), &Patch::Merge(spec)).await.expect("there");
}

/// Waits until that condition of the name has this reason.
async fn is_so(stage: &Stage, node: &SimNode, kind: &str, reason: &str) {
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    until(&format!("{kind} of {} is {reason}", node.name), async || {
        checkup(node);
        let mut all = pools.get(&node.name).await.ok()?.status?.disk_status;
        let conditions = all.remove("mine")?.conditions;
        conditions.iter().any(|said| said.type_ == kind && said.reason == reason).then_some(())
    })
    .await;
}

async fn ordered(stage: &Stage, node: &SimNode, disk: &str, order: &str) {
    patch(stage, node, json!({disk: {"order": order}})).await;
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    until(&format!("{order} is done"), async || {
        let orders = pools.get(&node.name).await.ok()?.status?.orders;
        orders.iter().any(|order| order.disk.as_str() == disk && order.state == OrderState::Done).then_some(())
    })
    .await;
    patch(stage, node, json!({disk: null})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_gets_a_folder_of_a_named_filesystem_and_keeps_it_while_that_is_unmounted() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let label = unique("named");
    apply(&cluster.client, set_of_filesystems(&label, json!({"filesystems": {"tags": ["fast"]}}))).await.expect("new");
    stage.known(|caches| caches.sets.get(&format!("default/{label}")).is_some()).await;
    let mut node = SimNode::start(&stage, &unique("sim"), &label, 512).await;
    node.host.add_disk("mine", "mine", Geometry { size: 512 * MIB, sector: 512, offloads_zeroes: true });
    node.host.filesystems().make(FsKind::Xfs, Path::new("/dev/mine"), Uuid::new_v4()).expect("made");
    mount(&node);
    until("the node has a DevicePool", async || {
        let pools: Api<DevicePool> = Api::all(stage.client.clone());
        pools.get(&node.name).await.ok()
    })
    .await;
    patch(&stage, &node, json!({"mine": {"path": PATH, "tags": ["slow"]}})).await;
    is_so(&stage, &node, "Schedulable", "NotChosen").await;
    patch(&stage, &node, json!({"mine": {"path": PATH, "tags": ["slow", "fast"]}})).await;
    is_so(&stage, &node, "Schedulable", "InPool").await;
    let disk = node.pool().disk_views().remove(0);
    assert!(disk.id.is_filesystem(), "the blank disk is nobody's: {disk:?}");
    let before = has_room(&stage, &label, &node, disk.free / MIB * MIB).await;
    let name = unique("pvc");
    let id = make(&stage, &label, &name, on(&node.name), 100).await.expect("there is room").id;
    has_room(&stage, &label, &node, before.available - 100 * MIB).await;
    let folder = node.pool().usable(id).expect("there").directory.expect("it is a folder");
    assert_eq!(folder.root, Path::new("/localpool/volumes").join(id.to_string()));

    node.host.mounts.unmount(Path::new(PATH)).expect("unmounted");
    is_so(&stage, &node, "Ready", "NotMounted").await;
    let away = |object: &PoolVolume| {
        object.status.iter().flat_map(|status| &status.health).any(|entry| entry.reason.starts_with("Disk"))
    };
    until("its volume says so", async || {
        checkup(&node);
        stage.objects.get(&id.to_string()).await.ok().filter(away)
    })
    .await;
    assert!(matches!(node.pool().usable(id), Err(PoolError::DiskAway { .. })));
    stage.volumes.delete(id).await.expect_err("nobody knows what is there");
    mount(&node);
    is_so(&stage, &node, "Schedulable", "InPool").await;
    assert_eq!(make(&stage, &label, &name, on(&node.name), 100).await.expect("it is there").id, id);

    until("it is deleted", async || stage.volumes.delete(id).await.ok()).await;
    has_room(&stage, &label, &node, before.available).await;
    ordered(&stage, &node, disk.id.as_str(), "Release").await;
    let root = node.host.mounts.open_root(Path::new(PATH), Path::new("/dev/mine")).expect("mounted");
    assert_eq!(root.names(Path::new("")).expect("read"), ["localpool-disk.cfg"]);
    is_so(&stage, &node, "Schedulable", "Released").await;
    ordered(&stage, &node, disk.id.as_str(), "Adopt").await;
    is_so(&stage, &node, "Schedulable", "InPool").await;
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_refuses_what_is_about_disks_beside_filesystems() {
    let cluster = cluster!(shared);
    for (field, value) in [
        ("array", json!({"level": "raid0"})),
        ("deviceInclusionSpec", json!({"minSize": "1Gi"})),
        ("minDeviceCount", json!(1)),
        ("hostMountPath", json!("/mnt/d")),
    ] {
        let refused =
            apply(&cluster.client, set_of_filesystems(&unique("named"), json!({"filesystems": {}, field: value})));
        let why = refused.await.expect_err("refused").to_string();
        assert!(why.contains(&format!("takes no disks: spec.{field} cannot be combined")), "{why}");
    }
    let mut whole = set_of_filesystems(&unique("named"), json!({"filesystems": {}}));
    whole["spec"].as_object_mut().expect("an object").remove("layout");
    let why = apply(&cluster.client, whole).await.expect_err("refused").to_string();
    assert!(why.contains("spec.filesystems is for the layout Directory alone"), "{why}");
    let label = unique("named");
    apply(&cluster.client, set_of_filesystems(&label, json!({"filesystems": {}, "dryRun": true}))).await.expect("new");
    let sets: Api<LocalVolumeSet> = Api::namespaced(cluster.client.clone(), "default");
    let removed = json!({"spec": {"filesystems": null}});
    let why =
        sets.patch(&label, &PatchParams::default(), &Patch::Merge(removed)).await.expect_err("refused").to_string();
    assert!(why.contains("spec.filesystems can be neither added nor removed later"), "{why}");
}
