//! The Events that an agent writes about its disks and the claims of its volumes, under a real API server.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use localpool::api::crd::{CLAIM_UID_ANNOTATION, PoolVolume};
use localpool::volume::{VolumeId, Volumes as _};
use localpool_testing::found_async;
use serde_json::json;

use crate::agent::{AGAIN, Stage, TIMEOUT, on, unique};
use crate::cluster;
use crate::marks::monitor;
use crate::nodes::{make, object, offering};

/// All Events, as `reason xCOUNT`, sorted, each beside its note; by the UID of what they are about.
pub async fn events_by_uid(stage: &Stage) -> BTreeMap<String, Vec<(String, String)>> {
    let api: Api<Event> = Api::namespaced(stage.client.clone(), "default");
    let mut all: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for event in api.list(&ListParams::default()).await.expect("events").items {
        let count = event.series.map_or(1, |series| series.count);
        let pair = (format!("{} x{count}", event.reason.unwrap_or_default()), event.note.unwrap_or_default());
        let about = event.regarding.and_then(|about| about.uid).unwrap_or_default();
        all.entry(about).or_default().push(pair);
    }
    all.values_mut().for_each(|events| events.sort());
    all
}

/// Those about the object with this UID.
pub async fn events(stage: &Stage, uid: &str) -> Vec<(String, String)> {
    events_by_uid(stage).await.remove(uid).unwrap_or_default()
}

/// Waits until these are the Events about the object with this UID, and returns them.
pub async fn expect(stage: &Stage, uid: &str, reasons: &[&str]) -> Vec<(String, String)> {
    let poll = async || {
        let mut found = events(stage, uid).await;
        // A checkup may come while a disk that is back is opened.
        found.retain(|(_, note)| !note.ends_with("it is being opened again"));
        if found.iter().map(|(reason, _)| reason.as_str()).eq(reasons.iter().copied()) { Ok(found) } else { Err(found) }
    };
    found_async(TIMEOUT, AGAIN, poll).await.unwrap_or_else(|found| panic!("{found:?}, not {reasons:?}"))
}

fn reasons_of(object: &PoolVolume) -> Vec<&str> {
    object.status.iter().flat_map(|status| &status.health).map(|entry| entry.reason.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_dies_and_returns_is_an_event_of_its_pool_and_of_the_claim_once_and_none_after_a_restart() {
    // The monitor, which writes to all objects, says which claim has the volume.
    let cluster = cluster!(alone);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let _monitor = monitor(&stage);
    let (name, pvc, claim) = (node.name.clone(), unique("pvc"), unique("uid"));
    make(&stage, &label, &pvc, on(&name), 10).await.expect("made");
    let id = VolumeId::of_name(&pvc);
    stage.persistent(&pvc, id, &name).await;
    stage.persistent_is(&pvc, "Bound").await;
    let persistent: Api<PersistentVolume> = Api::all(stage.client.clone());
    let bound = json!({"spec": {"claimRef": {"uid": claim}}});
    persistent.patch(&pvc, &PatchParams::default(), &Patch::Merge(&bound)).await.expect("it is there");
    object(&stage, id, |object| object.annotation(CLAIM_UID_ANNOTATION) == Some(&claim)).await;
    let disk = node.pool().usable(id).expect("usable").disk;
    let pool = stage.caches.pools.get(&name).expect("it offers").uid().expect("it is stored");
    let found = expect(&stage, &pool, &["DiskClaimed x1"]).await;
    assert!(found[0].1.contains(disk.as_str()) && found[0].1.contains("/dev/fake0"), "{found:?}");
    assert_eq!(events(&stage, &claim).await, []);

    let platter = node.host.unplug("fake0").expect("it was there");
    node.pool().nudge();
    object(&stage, id, |object| reasons_of(object) == ["DiskMissing"]).await;
    expect(&stage, &pool, &["DiskClaimed x1", "DiskMissing x1"]).await;
    let found = expect(&stage, &claim, &["DiskMissing x1"]).await;
    assert!(found[0].1.contains(disk.as_str()), "{found:?}");

    node.kill().await;
    node.run(&cluster.client);
    node.host.plug("fake0", &format!("SERIAL-{name}"), platter.clone());
    node.pool().nudge();
    expect(&stage, &claim, &["DiskMissing x1", "VolumeRecovered x1"]).await;
    let found = expect(&stage, &pool, &["DiskClaimed x1", "DiskMissing x1", "DiskReturned x1"]).await;
    assert!(found[2].1.ends_with("is back"), "{found:?}");

    // One that comes and goes costs no new objects.
    node.host.unplug("fake0").expect("it was there");
    node.pool().nudge();
    expect(&stage, &claim, &["DiskMissing x1", "DiskMissing x1", "VolumeRecovered x1"]).await;
    node.host.plug("fake0", &format!("SERIAL-{name}"), platter);
    node.pool().nudge();
    expect(&stage, &claim, &["DiskMissing x1", "DiskMissing x1", "VolumeRecovered x2"]).await;

    stage.volumes.delete(id).await.expect_err("it is bound");
    stage.persistent_is(&pvc, "Released").await;
    let deleted = async {
        while stage.volumes.delete(id).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, deleted).await.expect("deleted");
    let erased = |found: &[(String, String)]| found.iter().filter(|(reason, _)| reason == "VolumeErased x1").count();
    let poll = async || {
        let found = events(&stage, &pool).await;
        if erased(&found) == 1 { Ok(()) } else { Err(found) }
    };
    found_async(TIMEOUT, AGAIN, poll).await.expect("it is erased");
    node.kill().await;
}
