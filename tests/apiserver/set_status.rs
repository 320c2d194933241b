//! What the status of a set says about real agents: about a dry run, about more devices than it has room for, about a
//! node that is gone.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use localpool::api::crd::{DevicePool, LocalVolumeSet};
use localpool::host::Geometry;
use localpool::host::fake::FakeHost;
use localpool::operator::controller::DeletedNodePolicy;
use localpool_testing::MIB;
use serde_json::{Value, json};

use crate::agent::{Stage, unique};
use crate::cluster;
use crate::leader::{lead, until};
use crate::sim::SimNode;

/// A set for the nodes of one test.
async fn set(client: &Client, label: &str, dry_run: bool) -> Api<LocalVolumeSet> {
    let set = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
        "metadata": {"name": label, "namespace": "default"},
        "spec": {
            "storageClassName": label, "dryRun": dry_run,
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "sim", "operator": "In", "values": [label]}]}]},
            "deviceInclusionSpec": {"minSize": 0},
        },
    });
    let sets: Api<LocalVolumeSet> = Api::namespaced(client.clone(), "default");
    sets.create(&PostParams::default(), &serde_json::from_value(set).expect("a set")).await.expect("a new set");
    sets
}

/// The status as it is stored, once `Available` says so.
async fn says(sets: &Api<LocalVolumeSet>, name: &str, message: &str) -> Value {
    let is_said = |conditions: &[Condition]| {
        conditions.iter().find(|c| c.type_ == "Available").is_some_and(|c| c.message.starts_with(message))
    };
    until(&format!("{name} says: {message}"), async || {
        let status = sets.get(name).await.expect("it is there").status?;
        is_said(&status.conditions).then(|| serde_json::to_value(status).expect("JSON"))
    })
    .await
}

fn disks(count: usize) -> FakeHost {
    let host = FakeHost::default();
    for n in 0..count {
        let geometry = Geometry { size: 16 * MIB, sector: 512, offloads_zeroes: true };
        host.add_disk(&format!("fake{n}"), &unique("SERIAL"), geometry);
    }
    host
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dry_run_would_take_is_not_told_any_more_when_it_was_made_real() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let _work = lead(&stage, DeletedNodePolicy::Keep);
    let (label, name) = (unique("dry"), unique("n"));
    let mut node = SimNode::of(&stage.client, &name, json!({"sim": label}), disks(2)).await;
    let sets = set(&stage.client, &label, true).await;
    let status = says(&sets, &label, "dry run: would take 2 devices on 1 node").await;
    assert_eq!(status["wouldTakeDevices"].as_array().map(Vec::len), Some(2), "{status}");

    let real = Patch::Merge(json!({"spec": {"dryRun": false}}));
    sets.patch(&label, &PatchParams::default(), &real).await.expect("it is there");
    let status = says(&sets, &label, "2 devices on 1 node").await;
    assert_eq!(status["wouldTakeDevices"], json!([]));
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_counts_all_devices_though_it_has_no_room_to_name_them() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let _work = lead(&stage, DeletedNodePolicy::Keep);
    let (label, a, b) = (unique("many"), unique("n"), unique("n"));
    let sets = set(&stage.client, &label, true).await;
    let mut nodes = [
        SimNode::of(&stage.client, &a, json!({"sim": label}), disks(40)).await,
        SimNode::of(&stage.client, &b, json!({"sim": label}), disks(35)).await,
    ];
    let status = says(&sets, &label, "dry run: would take 75 devices on 2 nodes").await;
    let named = status["wouldTakeDevices"].as_array().expect("a list").len();
    assert_eq!((named, &status["wouldTakeDevicesOmitted"]), (64, &json!(75 - 64)));
    for node in &mut nodes {
        node.kill().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_deleted_counts_no_more_and_takes_no_lines() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let _work = lead(&stage, DeletedNodePolicy::Keep);
    let (label, stays, gone) = (unique("gone"), unique("n"), unique("n"));
    let mut nodes = [
        SimNode::of(&stage.client, &stays, json!({"sim": label}), disks(1)).await,
        SimNode::of(&stage.client, &gone, json!({"sim": label}), disks(3)).await,
    ];
    let sets = set(&stage.client, &label, false).await;
    says(&sets, &label, "4 devices on 2 nodes").await;
    nodes[1].kill().await;
    stage.delete_node(&gone).await;
    let status = says(&sets, &label, "1 device on 1 node").await;
    assert_eq!(status["totalProvisionedDeviceCount"], 1);
    let lines = status["unmatchedDevices"].to_string() + &status["wouldTakeDevices"].to_string();
    assert!(!lines.contains(&gone), "{lines}");
    nodes[0].kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_of_other_nodes_says_so_once_of_a_node_and_names_none_of_its_devices() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let _work = lead(&stage, DeletedNodePolicy::Keep);
    let (label, others, here, other) = (unique("own"), unique("others"), unique("n"), unique("n"));
    let sets = set(&stage.client, &label, false).await;
    set(&stage.client, &others, true).await;
    let mut nodes = [
        SimNode::of(&stage.client, &here, json!({"sim": label}), disks(1)).await,
        SimNode::of(&stage.client, &other, json!({"sim": others}), disks(3)).await,
    ];
    let status = says(&sets, &label, "1 device on 1 node").await;
    assert_eq!(status["unmatchedDevices"], json!([]), "{status}");
    let status = says(&sets, &others, "dry run: would take 3 devices on 1 node").await;
    assert_eq!(status["unmatchedDevices"], json!([]), "{status}");
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    for (node, own, foreign) in [(&here, &label, &others), (&other, &others, &label)] {
        let offers = pools.get(node).await.expect("it is there").status.expect("it was written").sets;
        let of = |name: &str| offers.iter().find(|offer| offer.name == name).expect("it was read");
        assert!(!of(own).node_not_selected, "{offers:?}");
        assert!(of(foreign).node_not_selected && of(foreign).unmatched.is_empty(), "{offers:?}");
    }
    for node in &mut nodes {
        node.kill().await;
    }
}
