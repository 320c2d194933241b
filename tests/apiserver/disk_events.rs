//! Events of what is done to a disk on a person's order: its content is destroyed, and it leaves the pool.

use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use localpool::api::crd::{DevicePool, LocalVolume};
use localpool::host::fake::FakeHost;
use localpool::host::{FsKind, Geometry, Host as _};
use localpool_testing::MIB;
use serde_json::{Value, json};

use crate::agent::{Stage, unique};
use crate::cluster;
use crate::disk_orders::order;
use crate::events::{events, expect};
use crate::leader::until;
use crate::sim::SimNode;

/// A LocalVolume of one class, for the nodes of one test.
async fn local_volume(client: &Client, label: &str, devices: Value) {
    let selector = json!({"matchExpressions": [{"key": "sim", "operator": "In", "values": [label]}]});
    let mut entry = json!({"storageClassName": label});
    entry.as_object_mut().expect("an object").extend(devices.as_object().expect("an object").clone());
    let volume = json!({
        "apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume",
        "metadata": {"name": label, "namespace": "default"},
        "spec": {"nodeSelector": {"nodeSelectorTerms": [selector]}, "storageClassDevices": [entry]},
    });
    let api: Api<LocalVolume> = Api::namespaced(client.clone(), "default");
    api.create(&PostParams::default(), &serde_json::from_value(volume).expect("ours")).await.expect("a new one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_wiped_by_order_and_one_that_is_released_are_events_of_their_pool() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (label, host, serial) = (unique("sim"), FakeHost::default(), unique("SERIAL"));
    host.add_disk("fake0", &serial, Geometry { size: 64 * MIB, sector: 512, offloads_zeroes: true });
    host.filesystems().make(FsKind::Ext4, "/dev/fake0".as_ref(), uuid::Uuid::nil()).expect("a filesystem");
    let order_of_wipe = json!({"devicePaths": ["/dev/fake0"], "forceWipeDevicesAndDestroyAllData": true});
    local_volume(&stage.client, &label, order_of_wipe).await;
    let mut node = SimNode::of(&stage.client, &unique("sim"), json!({"sim": label}), host).await;
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    let claimed = async || pools.get_opt(&node.name).await.expect("an answer").filter(has_disk);
    let uid = until("the disk is claimed", claimed).await.uid().expect("stored");
    let found = expect(&stage, &uid, &["DiskClaimed x1", "DiskWiped x1"]).await;
    let wiped = &found[1].1;
    assert!(wiped.contains("/dev/fake0") && wiped.contains(&label) && wiped.contains("it held ext4"), "{wiped}");

    let disk = node.pool().disk_views()[0].id.clone();
    order(&stage, &node.name, &disk, json!("Release")).await;
    // Whether a status says in between that it takes no new volumes is chance.
    let event = async |word: &str| {
        let found = async || events(&stage, &uid).await.into_iter().find(|(event, _)| event == word);
        until(word, found).await.1
    };
    event("DiskOrderDone x1").await;
    let released = event("DiskReleased x1").await;
    assert!(released.contains(disk.as_str()) && released.contains("does not belong to the pool"), "{released}");
    node.kill().await;
}

fn has_disk(pool: &DevicePool) -> bool {
    pool.status.as_ref().is_some_and(|status| !status.disks.is_empty())
}
