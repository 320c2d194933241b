//! Disks that take no new volumes: by a DevicePool's spec, and by their health.

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use localpool::api::crd::{DevicePool, DevicePoolStatus, Phase};
use localpool::host::{DiskReport, DiskWarning, Health};
use localpool::volume::{Error, Nodes};
use localpool_testing::MIB;
use serde_json::{Value, json};

use crate::agent::{Stage, on, unique};
use crate::cluster;
use crate::events::expect;
use crate::leader::until;
use crate::nodes::{make, object, offering, offers, phase};
use crate::sim::SimNode;

async fn patch(stage: &Stage, node: &str, spec: Value) {
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    pools.patch(node, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await.expect("there");
}

/// Waits until the controller sees such a status.
async fn status(stage: &Stage, node: &str, holds: impl Fn(&DevicePoolStatus) -> bool) -> DevicePoolStatus {
    let has = |pool: &DevicePool| pool.status.as_ref().is_some_and(&holds);
    stage.known(|caches| caches.pools.get(node).is_some_and(|pool| has(&pool))).await;
    stage.caches.pools.get(node).and_then(|pool| pool.status.clone()).expect("just seen")
}

fn is_cordoned(status: &DevicePoolStatus) -> bool {
    status.disks.iter().any(|disk| disk.cordon.is_some()) && status.sets.iter().all(|set| set.largest == 0)
}

/// What the condition about the disks of the spec says.
fn disks_found(status: &DevicePoolStatus) -> Option<(String, String)> {
    let found = status.conditions.iter().find(|condition| condition.type_ == "DisksFound")?;
    Some((found.status.clone(), found.message.clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_a_person_cordons_takes_no_new_volumes_and_an_id_that_is_no_disk_disturbs_nothing() {
    let cluster = cluster!(shared);
    let (stage, label, node) = offering(&cluster.client, 512).await;
    let other = SimNode::start(&stage, &unique("sim"), &label, 512).await;
    offers(&stage, &other.name, 500).await;
    let kept = make(&stage, &label, &unique("pvc"), on(&node.name), 100).await.expect("there is room");
    let id = node.pool().disk_views()[0].id.to_string();

    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    for nonsense in [json!("yes"), json!(1), json!([])] {
        let spec = json!({"spec": {"disks": {&id: {"cordon": nonsense}}}});
        let refused =
            pools.patch(&node.name, &PatchParams::default(), &Patch::Merge(&spec)).await.expect_err("no bool");
        assert!(matches!(&refused, kube::Error::Api(status) if status.code == 422), "{refused:?}");
    }
    // Each disk is written on its own.
    patch(&stage, &node.name, json!({"disks": {"gpt-of-another-node": {"cordon": true}}})).await;
    patch(&stage, &node.name, json!({"disks": {&id: {"cordon": true}}})).await;
    let seen = status(&stage, &node.name, |status| is_cordoned(status) && disks_found(status).is_some()).await;
    let text = "spec.disks names ids that are not in this node's pool: gpt-of-another-node";
    assert_eq!(disks_found(&seen), Some(("False".to_owned(), text.to_owned())));
    assert_eq!(seen.disks[0].cordon.as_deref(), Some("a person has cordoned it"));
    let message = seen.disks[0].message.as_deref();
    assert_eq!(message, Some("it takes no new volumes: a person has cordoned it"));
    let refused = make(&stage, &label, &unique("pvc"), on(&node.name), 100).await.expect_err("cordoned");
    let says = |text: &str| text.contains(&id) && text.contains("a person has cordoned it");
    assert!(matches!(&refused, Error::Exhausted(text) if says(text)), "{refused:?}");
    let both = Nodes::Preferred(vec![node.name.as_str().into(), other.name.as_str().into()]);
    let made = make(&stage, &label, &unique("pvc"), both, 100).await.expect("there is room on the other");
    assert_eq!(made.node, other.name);
    let kept = object(&stage, kept.id, |object| phase(object) == Phase::Ready).await;
    assert!(kept.status.as_ref().is_some_and(|status| status.health.is_empty()));

    let uid = stage.caches.pools.get(&node.name).and_then(|pool| pool.uid()).expect("it is stored");
    expect(&stage, &uid, &["DiskClaimed x1", "DiskCordoned x1"]).await;

    patch(&stage, &node.name, json!({"disks": null})).await;
    let seen = status(&stage, &node.name, |status| !is_cordoned(status) && disks_found(status).is_none()).await;
    assert_eq!((seen.disks[0].cordon.as_ref(), seen.disks[0].message.as_ref()), (None, None));
    make(&stage, &label, &unique("pvc"), on(&node.name), 100).await.expect("open again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fails_is_cordoned_also_right_after_a_restart_until_a_person_decides_otherwise() {
    let cluster = cluster!(shared);
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let name = node.name.clone();
    let id = node.pool().disk_views()[0].id.to_string();
    // It is not asked again for an hour: an agent that is killed right after it has found something loses Events.
    until("the disk was asked", async || (node.host.health_asked() > 0).then_some(())).await;
    let failing = DiskReport::of(Health::Failing("words".to_owned()));
    node.host.set_report("fake0", DiskReport { warnings: vec![DiskWarning::Unreliable], ..failing });
    let uid = stage.caches.pools.get(&name).and_then(|pool| pool.uid()).expect("it is stored");
    expect(&stage, &uid, &["DiskClaimed x1"]).await;
    // As the agent starts again, it asks the disk at once.
    node.kill().await;
    node.run(&cluster.client);
    let seen = status(&stage, &name, is_cordoned).await;
    let why = seen.disks[0].cordon.clone().expect("cordoned");
    assert!(why.starts_with("DiskFailing: "), "{why}");
    assert_eq!((seen.cordoned_disks, seen.unhealthy_disks), (1, 1));
    let [healthy] = &seen.disks[0].conditions[..] else { panic!("one condition: {:?}", seen.disks[0]) };
    let said = [&healthy.type_, &healthy.status, &healthy.reason].map(String::as_str);
    assert_eq!(said, ["Healthy", "False", "DiskFailing"]);
    expect(&stage, &uid, &["DiskClaimed x1", "DiskCordoned x1", "DiskFailing x1"]).await;

    // The disk does not answer to the next agent: what the last one found counts.
    node.kill().await;
    let platter = node.host.unplug("fake0").expect("it was there");
    platter.set_hangs_at(Some("report"));
    node.host.plug("fake0", &format!("SERIAL-{name}"), platter);
    node.run(&cluster.client);
    let refused = make(&stage, &label, &unique("pvc"), on(&name), 100).await.expect_err("cordoned");
    assert!(matches!(&refused, Error::Exhausted(message) if message.contains(&why)), "{refused:?}");

    patch(&stage, &name, json!({"disks": {&id: {"cordon": false}}})).await;
    until("a person opened it", async || {
        make(&stage, &label, &unique("pvc"), on(&name), 100).await.ok().filter(|made| made.size == 100 * MIB)
    })
    .await;
    // It is as sick as before.
    status(&stage, &name, |status| (status.cordoned_disks, status.unhealthy_disks) == (0, 1)).await;
}
