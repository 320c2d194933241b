//! Which fields of a set the API server lets nobody change, and in which words.

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use localpool::api::crd::LocalVolumeSet;
use serde_json::{Value, json};

use crate::agent::unique;
use crate::cluster;

const ADDED: &str = "spec.partitioningSpec can be neither added nor removed later: make another set";
const FIXED: &str = "the spec of a set with a partitioningSpec cannot be changed: make another set";
const LAYOUT: &str = "spec.layout cannot be changed: make another set";

/// The API server's answer to a change of a new set's spec.
async fn change(client: &Client, spec: &Value, change: &Value) -> Result<(), String> {
    let name = unique("set");
    let mut set = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
        "metadata": {"name": name, "namespace": "default"},
        // It selects no node: the nodes of other tests have disks that it would take.
        "spec": {"storageClassName": "fast", "nodeSelector": nodes("nobodys")},
    });
    for (field, value) in spec.as_object().expect("an object") {
        set["spec"][field] = value.clone();
    }
    let sets: Api<LocalVolumeSet> = Api::namespaced(client.clone(), "default");
    sets.create(&PostParams::default(), &serde_json::from_value(set).expect("a set")).await.expect("a new set");
    let change = Patch::Merge(json!({ "spec": change }));
    match sets.patch(&name, &PatchParams::default(), &change).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 422 => Err(status.message.clone()),
        Err(error) => panic!("{spec} to {change:?}: {error}"),
    }
}

/// The nodes with that label.
fn nodes(disks: &str) -> Value {
    let label = json!({"key": "disks", "operator": "In", "values": [disks]});
    json!({"nodeSelectorTerms": [{"matchExpressions": [label]}]})
}

#[tokio::test]
async fn what_is_cut_is_not_cut_otherwise_and_a_refusal_says_which_rule_it_broke() {
    let cluster = cluster!(shared);
    let two = json!({"count": 2});
    let cut = || json!({"partitioningSpec": two, "nodeSelector": nodes("a")});
    for (spec, to, message) in [
        (cut(), json!({"partitioningSpec": {"count": 3}}), FIXED),
        (cut(), json!({"nodeSelector": nodes("b")}), FIXED),
        (cut(), json!({"maxDeviceCount": 3}), FIXED),
        (cut(), json!({"dryRun": true}), FIXED),
        (cut(), json!({"partitioningSpec": null}), ADDED),
        (json!({}), json!({"partitioningSpec": two}), ADDED),
        (json!({}), json!({"layout": "RawDevice"}), LAYOUT),
        (json!({"layout": "RawDevice"}), json!({"layout": "Whole"}), LAYOUT),
        (json!({"layout": "RawDevice"}), json!({"layout": null}), LAYOUT),
    ] {
        let refused = change(&cluster.client, &spec, &to).await.expect_err(&format!("{spec} to {to}"));
        assert!(refused.contains(message), "{spec} to {to}: {refused}");
        for other in [ADDED, FIXED, LAYOUT].iter().filter(|other| **other != message) {
            assert!(!refused.contains(other), "{spec} to {to}: {refused}");
        }
    }
}

#[tokio::test]
async fn a_dry_run_changes_all_but_whether_it_cuts_and_its_layout() {
    let cluster = cluster!(shared);
    let cut = || json!({"dryRun": true, "partitioningSpec": {"count": 2}});
    for to in [json!({"partitioningSpec": {"count": 3}}), json!({"maxDeviceCount": 3}), json!({"dryRun": false})] {
        assert_eq!(change(&cluster.client, &cut(), &to).await, Ok(()), "{to}");
    }
    // A set may have claimed disks before it became a dry run; without a partitioningSpec nobody can know.
    let plain = || json!({"dryRun": true});
    for (spec, to, message) in [
        (plain(), json!({"partitioningSpec": {"count": 2}}), ADDED),
        (cut(), json!({"partitioningSpec": null}), ADDED),
        (plain(), json!({"layout": "RawDevice"}), LAYOUT),
    ] {
        let refused = change(&cluster.client, &spec, &to).await.expect_err(&format!("{spec} to {to}"));
        assert!(refused.contains(message), "{spec} to {to}: {refused}");
    }
    assert_eq!(change(&cluster.client, &json!({}), &json!({"dryRun": true})).await, Ok(()), "it may be halted");
}
