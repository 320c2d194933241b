//! A folder whose record is lost, or cannot be read: its object knows its size.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use localpool::api::crd::PoolVolume;
use localpool::host::{FilesystemRoot, Host as _};
use localpool::volume::Volumes as _;
use localpool_testing::MIB;
use serde_json::json;

use crate::agent::{on, unique};
use crate::cluster;
use crate::folders::offering;
use crate::leader::until;
use crate::nodes::make;
use crate::sim::SimNode;

fn root(node: &SimNode) -> Arc<dyn FilesystemRoot> {
    let at = node.host.own_mounts().join(node.pool().disk_views()[0].id.as_str());
    node.host.mounts().open_root(&at, Path::new("/dev/fake0p2")).expect("mounted")
}

fn size(object: &PoolVolume) -> Option<i64> {
    object.status.as_ref().and_then(|status| status.size)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_has_grown_and_lost_its_record_keeps_its_size_and_one_of_a_later_version_its_record() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512, json!({})).await;
    let id = make(&stage, &label, &unique("pvc"), on(&node.name), 10).await.expect("there is room").id;
    stage.volumes.expand(id, 50 * MIB, None).await.expect("there is room");
    stage.see(id, "grown", |object| size(object) == Some(50 << 20)).await;
    let record = PathBuf::from(format!("records/{id}.json"));
    let root = root(&node);
    let text = root.read(&record).expect("read").expect("there");
    node.kill().await;

    root.write(&record, "{\"format\": 1, \"si").expect("written");
    node.run(&cluster.client);
    let view = until("it is described", async || node.pool().usable(id).ok()).await;
    assert_eq!(view.size, 50 * MIB);
    node.kill().await;

    let later = text.replace("\"format\": 1", "\"format\": 2");
    root.write(&record, &later).expect("written");
    node.run(&cluster.client);
    let is_told = |object: &PoolVolume| {
        let health = object.status.iter().flat_map(|status| &status.health);
        health.into_iter().any(|entry| entry.reason == "NotDescribed")
    };
    let told = stage.see(id, "NotDescribed", is_told).await;
    assert_eq!(size(&told), Some(50 << 20), "nothing else says it");
    assert_eq!(root.read(&record).expect("read"), Some(later));
    drop(root);
    node.kill().await;
}
