//! A cluster where the Local Storage Operator's own CRDs came first: they prune fields that they do not know, so a
//! stored set is not what its writer meant.

use std::time::Duration;

use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use localpool::api::crd::{DevicePool, LocalVolumeSet, SCHEMA, SCHEMA_ANNOTATION, set_crd};
use localpool::operator::controller::DeletedNodePolicy;
use localpool::operator::crds::{self, Ownership};
use serde_json::{Value, json};

use crate::agent::{Stage, TIMEOUT};
use crate::cluster;
use crate::leader::{lead, until};
use crate::sim::SimNode;

/// The fields of the operator's LocalVolumeSet, and no others: all other fields are pruned.
fn operators_crd() -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let words = json!({"type": "array", "items": {"type": "string"}});
    let spec = json!({"type": "object", "properties": {
        "storageClassName": {"type": "string"}, "minDeviceCount": {"type": "integer"},
        "maxDeviceCount": {"type": "integer"}, "volumeMode": {"type": "string"}, "fsType": {"type": "string"},
        "nodeSelector": any, "tolerations": {"type": "array", "items": any},
        "deviceInclusionSpec": {"type": "object", "properties": {
            "deviceTypes": words, "deviceMechanicalProperties": words, "models": words, "vendors": words,
            "minSize": {"x-kubernetes-int-or-string": true}, "maxSize": {"x-kubernetes-int-or-string": true},
        }},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "localvolumesets.local.storage.openshift.io"},
        "spec": {
            "group": "local.storage.openshift.io", "scope": "Namespaced",
            "names": {"kind": "LocalVolumeSet", "listKind": "LocalVolumeSetList", "plural": "localvolumesets", "singular": "localvolumeset"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                    "spec": spec, "status": any,
                }}},
            }],
        },
    })
}

async fn apply_definition(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = serde_json::from_value(operators_crd()).expect("a CRD");
    definitions.create(&PostParams::default(), &definition).await.expect("a new CRD");
    let served = async || {
        let kind =
            ApiResource::from_gvk(&GroupVersionKind::gvk("local.storage.openshift.io", "v1alpha1", "LocalVolumeSet"));
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        all.list(&kube::api::ListParams::default()).await.ok()
    };
    until("the operator's CRD is served", served).await;
}

async fn apply(client: &Client, name: &str, more: Value) -> LocalVolumeSet {
    let sets: Api<LocalVolumeSet> = Api::namespaced(client.clone(), "default");
    let mut spec = json!({"storageClassName": name, "deviceInclusionSpec": {"minSize": 0}});
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
        spec.extend(more);
    }
    let set = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
        "metadata": {"name": name}, "spec": spec,
    });
    let set = serde_json::from_value(set).expect("a set");
    // A client that validates strictly would get an error; this one does not.
    sets.create(&PostParams::default(), &set).await.expect("it is taken")
}

/// For a moment after it accepted a definition the API server still prunes by the old one.
async fn kept_whole(client: &Client) {
    let sets: Api<LocalVolumeSet> = Api::namespaced(client.clone(), "default");
    until("the API server keeps what it is given", async || {
        if apply(client, "dry", json!({"dryRun": true})).await.spec["dryRun"] == true {
            return Some(());
        }
        sets.delete("dry", &DeleteParams::default()).await.ok()?;
        None
    })
    .await;
}

async fn claiming_says(client: &Client, node: &str, reason: &str) -> String {
    let pools: Api<DevicePool> = Api::all(client.clone());
    until(&format!("the DevicePool of {node} says {reason}"), async || {
        let conditions = pools.get_opt(node).await.ok()??.status?.conditions;
        conditions.into_iter().find(|one| one.type_ == "Claiming" && one.reason == reason).map(|one| one.message)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn under_the_operators_own_crds_no_set_touches_a_disk_until_they_are_replaced() {
    let cluster = cluster!(fresh);
    let client = &cluster.client;
    apply_definition(client).await;
    let refused = crds::apply(client.clone(), Ownership::Respect).await.expect_err("it is another owner's");
    assert!(refused.to_string().contains("localvolumesets.local.storage.openshift.io"), "{refused}");

    let kept = apply(client, "dry", json!({"dryRun": true})).await;
    assert!(kept.spec["dryRun"].is_null(), "such a CRD keeps it: {}", kept.spec);
    let more = json!({"partitioningSpec": {"mode": "Dynamic"}, "deviceInclusionSpec": {"serials": ["none"]}});
    apply(client, "filtered", more).await;
    apply(client, "plain", json!({})).await;

    let node = SimNode::start_unseen(client, "other-crds-1", "any", 1024).await;
    let message = claiming_says(client, "other-crds-1", "HeldBack").await;
    assert!(message.contains("localvolumesets.local.storage.openshift.io"), "{message}");
    let platter = node.host.platter("fake0").expect("its disk");
    let stage = Stage::new(client).await;
    stage.known(|caches| caches.sets.all().len() == 3).await;
    let _leader = lead(&stage, DeletedNodePolicy::Keep);
    // Several times as long as a claim would take: this agent's disks need no age.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(platter.write_count(), 0, "a disk was written to");
    // They are the operator's objects, and it writes their status and makes their class.
    let sets: Api<LocalVolumeSet> = Api::namespaced(client.clone(), "default");
    let classes: Api<StorageClass> = Api::all(client.clone());
    for name in ["dry", "filtered", "plain"] {
        assert_eq!(sets.get(name).await.expect("it is there").status, None, "{name}");
        assert_eq!(classes.get_opt(name).await.expect("an answer"), None);
    }

    // What was pruned is not what its writer meant: they apply it again under our CRD.
    for name in ["dry", "filtered", "plain"] {
        sets.delete(name, &DeleteParams::default()).await.expect("it is there");
    }
    let pools: Api<DevicePool> = Api::all(client.clone());
    let forgotten = async || pools.get("other-crds-1").await.ok()?.status?.sets.is_empty().then_some(());
    until("the agent has seen that they are gone", forgotten).await;
    crds::apply(client.clone(), Ownership::Take).await.expect("it is ours now");
    // It is stored as its writer meant it; a watch that began before sees it without its `dryRun`.
    kept_whole(client).await;
    claiming_says(client, "other-crds-1", "AgentReady").await;
    assert_eq!(platter.write_count(), 0, "a dry run wrote");
    apply(client, "real", json!({})).await;
    let claimed = async || (!node.pool().labelled_disks().is_empty()).then_some(());
    tokio::time::timeout(TIMEOUT, until("the disk is claimed", claimed)).await.expect("soon");
    let told = async || sets.get("real").await.ok()?.status.filter(|status| status.total_provisioned_device_count == 1);
    until("the leader reports it", told).await;
    assert!(classes.get_opt("real").await.expect("an answer").is_some(), "its class is made");
    let mut node = node;
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_is_replaced_by_another_owners_while_the_agent_runs_ends_claiming() {
    let cluster = cluster!(fresh);
    let client = &cluster.client;
    crds::apply(client.clone(), Ownership::Respect).await.expect("a fresh cluster");
    let mut node = SimNode::start_unseen(client, "other-crds-2", "any", 64).await;
    claiming_says(client, "other-crds-2", "AgentReady").await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = set_crd().name_any();
    definitions.delete(&name, &DeleteParams::default()).await.expect("it is there");
    until("our definition is gone", async || definitions.get_opt(&name).await.ok()?.is_none().then_some(())).await;
    apply_definition(client).await;
    apply(client, "dry", json!({"dryRun": true})).await;
    claiming_says(client, "other-crds-2", "HeldBack").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let platter = node.host.platter("fake0").expect("its disk");
    assert_eq!(platter.write_count(), 0, "a pruned dry run became a real one");
    node.kill().await;
}

/// As `kubectl apply` does with somebody else's file: annotations that are not in it stay.
async fn put_over(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let over = Patch::Merge(json!({"spec": {"versions": operators_crd()["spec"]["versions"]}}));
    let name = set_crd().name_any();
    let found = definitions.patch(&name, &PatchParams::default(), &over).await.expect("the API server takes it");
    assert_eq!(found.annotations()[SCHEMA_ANNOTATION], SCHEMA);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_owners_schema_under_our_annotation_is_not_believed() {
    let cluster = cluster!(fresh);
    let client = &cluster.client;
    crds::apply(client.clone(), Ownership::Respect).await.expect("a fresh cluster");
    let mut node = SimNode::start_unseen(client, "other-crds-3", "any", 64).await;
    claiming_says(client, "other-crds-3", "AgentReady").await;
    put_over(client).await;
    let sets: Api<LocalVolumeSet> = Api::namespaced(client.clone(), "default");
    until("the API server prunes by the new schema", async || {
        if apply(client, "dry", json!({"dryRun": true})).await.spec["dryRun"].is_null() {
            return Some(());
        }
        sets.delete("dry", &DeleteParams::default()).await.ok()?;
        None
    })
    .await;
    let pools: Api<DevicePool> = Api::all(client.clone());
    // First it says that it reads everything again.
    until("pool and set say which CRD it is, and what to do", async || {
        let message = claiming_says(client, "other-crds-3", "HeldBack").await;
        let of_set = pools.get("other-crds-3").await.ok()?.status?.sets.pop()?.message;
        let all = ["localvolumesets.", "another schema replaced it, which drops", "`helm upgrade`"];
        (all.iter().all(|part| message.contains(part)) && of_set == Some(message)).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let platter = node.host.platter("fake0").expect("its disk");
    assert_eq!(platter.write_count(), 0, "a pruned dry run became a real one");
    // An agent that never saw another CRD does not believe it either.
    node.kill().await;
    node.run(client);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(platter.write_count(), 0, "a pruned dry run became a real one");

    crds::apply(client.clone(), Ownership::Respect).await.expect("it has our annotation, so it is ours");
    sets.delete("dry", &DeleteParams::default()).await.expect("it is there");
    kept_whole(client).await;
    claiming_says(client, "other-crds-3", "AgentReady").await;
    assert_eq!(platter.write_count(), 0, "a dry run wrote");
    node.kill().await;
}
