//! A node that was made anew under its cluster: its state directory is gone, and its PoolVolumes are not.

use kube::Api;
use kube::api::PostParams;
use localpool::agent::Verb;
use localpool::api::crd::{LocalVolumeSet, Phase, PoolVolume};
use localpool::volume::Volumes as _;
use serde_json::json;

use crate::agent::{MIB, Stage, on, unique, wanted};
use crate::cluster;
use crate::nodes::offers;
use crate::sim::SimNode;

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_device_that_a_volumes_object_names_is_left_until_it_is_adopted_and_has_the_volume_then() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (label, name, volume) = (unique("sim"), unique("sim"), unique("pvc"));
    let selected = json!({"matchExpressions": [{"key": "sim", "operator": "In", "values": [label]}]});
    let set = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
        "metadata": {"name": label, "namespace": "default"},
        "spec": {
            "storageClassName": label, "nodeSelector": {"nodeSelectorTerms": [selected]},
            "deviceInclusionSpec": {"minSize": 0}, "layout": "RawDevice",
        },
    });
    let sets: Api<LocalVolumeSet> = Api::namespaced(cluster.client.clone(), "default");
    sets.create(&PostParams::default(), &serde_json::from_value(set).expect("a set")).await.expect("a new set");
    let mut node = SimNode::start(&stage, &name, &label, 64).await;
    offers(&stage, &name, 60).await;
    let mut wanted = wanted(&volume, on(&name));
    wanted.required = 60 * MIB;
    wanted.parameters = [("class".to_owned(), label.clone())].into();
    wanted.selector.class = Some(label.clone());
    let made = stage.volumes.create(wanted).await.expect("there is room");
    let object = made.id.to_string();
    let says = |object: &PoolVolume, words: &str| serde_json::to_string(object).expect("JSON").contains(words);

    node.kill().await;
    node.host.state.lose();
    let platter = node.host.platter("fake0").expect("a disk");
    let writes = platter.write_count();
    node.run(&stage.client);
    stage.known(|caches| caches.volumes.get(&object).is_some_and(|it| says(&it, "localpool disk adopt"))).await;
    assert!(node.pool().members().is_empty() && platter.write_count() == writes);

    let adopt = Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), dry_run: false };
    let agent_handle = node.running.as_ref().expect("it runs").agent_handle.clone();
    let adopted = tokio::task::spawn_blocking(move || agent_handle.verb(adopt)).await.expect("it ends");
    adopted.expect("it runs").expect("a person says so");
    let is_back = |it: &PoolVolume| {
        it.status.as_ref().is_some_and(|status| status.phase == Phase::Ready) && !says(it, "localpool disk adopt")
    };
    stage.known(|caches| caches.volumes.get(&object).is_some_and(|it| is_back(&it))).await;
    assert_eq!(platter.write_count(), writes);
    stage.volumes.delete(made.id).await.expect("as any other");
    node.kill().await;
}
