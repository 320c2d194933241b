//! A class whose sets have different modes, each on its own nodes.

use kube::api::PostParams;
use kube::{Api, Client};
use localpool::api::crd::{DevicePool, LocalVolumeSet};
use localpool::host::Geometry;
use localpool::host::fake::FakeHost;
use localpool::volume::{Error, Nodes, Selector, VolumeId, Volumes as _, WantedUsage};
use localpool_testing::MIB;
use serde_json::json;

use crate::agent::{Stage, on, unique, wanted};
use crate::cluster;
use crate::sim::SimNode;

async fn set(client: &Client, class: &str, mode: &str) {
    let label = format!("{class}-{}", mode.to_lowercase());
    let selected = json!({"matchExpressions": [{"key": "sim", "operator": "In", "values": [class]}]});
    let set = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
        "metadata": {"name": label, "namespace": "default"},
        "spec": {
            "storageClassName": class, "volumeMode": mode, "nodeSelector": {"nodeSelectorTerms": [selected]},
            "deviceInclusionSpec": {"minSize": 0, "models": [mode]}, "partitioningSpec": {"mode": "Dynamic"},
        },
    });
    let sets: Api<LocalVolumeSet> = Api::namespaced(client.clone(), "default");
    sets.create(&PostParams::default(), &serde_json::from_value(set).expect("a set")).await.expect("a new set");
}

/// A node with a disk for that mode, which both sets select.
async fn node(stage: &Stage, class: &str, mode: &str, mib: u64) -> SimNode {
    let (name, host) = (unique("sim"), FakeHost::default());
    let geometry = Geometry { size: mib * MIB, sector: 512, offloads_zeroes: true };
    host.add_disk("fake0", &format!("SERIAL-{name}"), geometry);
    host.edit("fake0", |block| block.model = Some(mode.to_owned()));
    let node = SimNode::of(&stage.client, &name, json!({"sim": class}), host).await;
    stage.known(|caches| caches.nodes.get(&name).is_some()).await;
    let room = |pool: &DevicePool| {
        let sets = pool.status.iter().flat_map(|status| &status.sets);
        sets.map(|set| set.largest.max(set.block_largest)).max() > Some(0)
    };
    stage.known(|caches| caches.pools.get(&name).is_some_and(|pool| room(&pool))).await;
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_led_away_from_a_node_whose_sets_do_not_allow_its_mode_and_is_told_which_do() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let class = unique("mixed");
    set(&cluster.client, &class, "Block").await;
    set(&cluster.client, &class, "Filesystem").await;
    // The node that cannot serve it has more room.
    let mut block = node(&stage, &class, "Block", 2048).await;
    let mut files = node(&stage, &class, "Filesystem", 512).await;
    let selector = Selector { class: Some(class.clone()), set: None };
    let wish = |nodes: Nodes, usage| {
        let mut wish = wanted(&unique("pvc"), nodes);
        (wish.required, wish.usage, wish.selector) = (100 * MIB, usage, selector.clone());
        wish.parameters = [("class".to_owned(), class.clone())].into();
        wish
    };
    let largest = async |node: &SimNode| {
        let room = stage.volumes.capacity(selector.clone(), None, Some(node.name.as_str().into())).await;
        room.expect("an answer").largest
    };
    let mount = WantedUsage::Mount(None);

    // If the choice is the controller's, it never takes a node that cannot serve it.
    for nodes in [Nodes::Any, Nodes::AnyOf(vec![block.name.as_str().into(), files.name.as_str().into()])] {
        let made = stage.volumes.create(wish(nodes, mount)).await.expect("there is room");
        assert_eq!(made.node, files.name);
    }
    let made = stage.volumes.create(wish(Nodes::Any, WantedUsage::Block)).await.expect("there is room");
    assert_eq!(made.node, block.name);

    // The scheduler, which does not know modes, has chosen.
    assert!(largest(&block).await > 0);
    let wrong = wish(on(&block.name), mount);
    let refused = stage.volumes.create(wrong.clone()).await.expect_err("its set allows Block only");
    let message =
        format!("node {}: the sets of class {class} that have disks there allow volumeMode Block only", block.name);
    let told = |refusal: &str| refusal.contains(&message) && refusal.contains(&format!("{} can serve", files.name));
    assert!(matches!(&refused, Error::Exhausted(refusal) if told(refusal)), "{refused:?}");
    assert!(stage.is_gone(VolumeId::of_name(&wrong.name)).await);
    assert_eq!(largest(&block).await, 0, "it would be chosen again");
    assert!(largest(&files).await > 0);
    stage.volumes.create(wish(on(&block.name), WantedUsage::Block)).await.expect("who is there already is served");

    files.kill().await;
    stage.delete_node(&files.name).await;
    let refused = stage.volumes.create(wrong).await.expect_err("nobody can serve it now");
    assert!(matches!(&refused, Error::Exhausted(refusal) if refusal.contains("no node has a disk")), "{refused:?}");
    block.kill().await;
}
