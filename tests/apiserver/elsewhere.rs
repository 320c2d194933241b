//! Others who have disks on the same node: PersistentVolumes that promise them, and the Local Storage Operator's
//! diskmaker. Real agents on fake machines, against the real API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use localpool::api::crd::DevicePool;
use serde_json::json;

use crate::agent::{Stage, unique};
use crate::cluster;
use crate::leader::at_rest;
use crate::nodes::{offers, set};
use crate::sim::SimNode;

/// Waits until the node's DevicePool contains these words anywhere.
pub async fn says(stage: &Stage, node: &str, message: &str) {
    let is_said = |pool: &DevicePool| serde_json::to_string(&pool.status).expect("JSON").contains(message);
    stage.known(|caches| caches.pools.get(node).is_some_and(|pool| is_said(&pool))).await;
}

/// Another provisioner's PersistentVolume, on nodes with that label.
async fn promise(client: &Client, name: &str, label: &str, path: &str) -> Api<PersistentVolume> {
    let term = json!({"matchExpressions": [{"key": "sim", "operator": "In", "values": [label]}]});
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": "local-volume-provisioner"}},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": label,
            "local": {"path": path}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    });
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).expect("a volume")).await.expect("new");
    volumes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_another_persistent_volume_promises_is_claimed_only_when_that_is_gone() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (label, name, volume) = (unique("sim"), unique("sim"), unique("local-pv"));
    let volumes = promise(&cluster.client, &volume, &label, "/dev/fake0").await;
    set(&cluster.client, &label).await;
    let mut node = SimNode::start(&stage, &name, &label, 1024).await;
    says(&stage, &name, &format!("the PersistentVolume {volume} of provisioner local-volume-provisioner promises it"))
        .await;
    assert_eq!(node.host.platter("fake0").expect("a disk").write_count(), 0);
    // Nobody removes it here once the volume is unused.
    let unprotected = json!({"metadata": {"finalizers": null}});
    volumes.patch(&volume, &PatchParams::default(), &Patch::Merge(unprotected)).await.expect("it is there");
    volumes.delete(&volume, &DeleteParams::default()).await.expect("it is there");
    offers(&stage, &name, 1000).await;
    node.kill().await;
}

/// The token of the question that the node's agent asks now, and did not ask before.
async fn asked(stage: &Stage, node: &str, before: &str) -> String {
    let token = |pool: &DevicePool| pool.status.as_ref()?.question.as_ref().map(|asked| asked.token.clone());
    let now = || stage.caches.pools.get(node).and_then(|pool| token(&pool)).filter(|token| token != before);
    stage.known(|_| now().is_some()).await;
    now().expect("just seen")
}

/// What the controller says: nothing is promised, but what the answer has no room for.
async fn answer(stage: &Stage, node: &str, token: &str, omitted: i64) {
    let answer = json!({"token": token, "promises": [], "promisesOmitted": omitted, "claimed": []});
    let answer = Patch::Merge(json!({"spec": {"answer": answer}}));
    let pools: Api<DevicePool> = Api::all(stage.client.clone());
    pools.patch(node, &PatchParams::default(), &answer).await.expect("it is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_claimed_before_the_question_is_answered_and_no_older_answer_counts_nor_one_that_is_cut() {
    // Nobody but this test answers.
    let cluster = cluster!(alone);
    let mut stage = Stage::without_answers(&cluster.client).await;
    let (label, name, volume) = (unique("sim"), unique("sim"), unique("local-pv"));
    set(&cluster.client, &label).await;
    let mut node = SimNode::start(&stage, &name, &label, 1024).await;
    let is_untouched = |node: &SimNode| node.host.platter("fake0").expect("a disk").write_count() == 0;
    let first = asked(&stage, &name, "").await;
    says(&stage, &name, "localpool's controller has not answered yet").await;
    answer(&stage, &name, "an older question", 0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(is_untouched(&node));
    answer(&stage, &name, &first, 3).await;
    says(&stage, &name, "3 are missing").await;
    assert!(is_untouched(&node));

    // It asks again, and what was promised meanwhile is in the answer to that.
    let second = asked(&stage, &name, &first).await;
    answer(&stage, &name, &first, 0).await;
    promise(&cluster.client, &volume, &label, "/dev/fake0").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(is_untouched(&node));
    stage.answer();
    says(&stage, &name, &format!("the PersistentVolume {volume} of provisioner local-volume-provisioner promises it"))
        .await;
    let answered = stage.caches.pools.get(&name).and_then(|pool| pool.spec.answer.clone()).expect("it is answered");
    assert!(answered.token != first && is_untouched(&node), "{second} {answered:?}");
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_controller_is_away_nothing_is_claimed_and_the_pool_says_what_it_waits_for() {
    let cluster = cluster!(alone);
    let mut stage = Stage::without_answers(&cluster.client).await;
    let (label, name) = (unique("sim"), unique("sim"));
    let mut node = SimNode::start(&stage, &name, &label, 1024).await;
    node.kill().await;
    node.timeout = Duration::from_secs(1);
    node.run(&stage.client);
    set(&cluster.client, &label).await;
    says(&stage, &name, "localpool's controller has not answered within 1 s").await;
    assert_eq!(node.host.platter("fake0").expect("a disk").write_count(), 0);
    stage.answer();
    offers(&stage, &name, 1000).await;
    // Nothing is to be decided any more: nothing is asked.
    let question = || stage.caches.pools.get(&name).and_then(|pool| pool.status.clone()).expect("it reports").question;
    let a_pass = async || {
        node.pool().nudge();
        tokio::time::sleep(Duration::from_secs(2)).await;
    };
    assert!(at_rest("it asks", async || question(), a_pass).await.is_some());
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_operators_diskmaker_runs_nothing_is_claimed_until_it_is_gone() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (label, name, pod) = (unique("sim"), unique("sim"), unique("diskmaker-manager"));
    let diskmaker = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod, "labels": {"app": "diskmaker-manager"}},
        "spec": {"nodeName": name, "containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false},
    });
    let namespace = unique("storage");
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    namespaces.create(&PostParams::default(), &serde_json::from_value(made).expect("ours")).await.expect("new");
    // Nobody creates it here, and no pod is accepted without it.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &namespace);
    accounts.create(&PostParams::default(), &serde_json::from_value(account).expect("ours")).await.expect("new");
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(diskmaker).expect("a pod")).await.expect("new");
    set(&cluster.client, &label).await;
    let mut node = SimNode::start(&stage, &name, &label, 1024).await;
    says(&stage, &name, "DiskmakerRuns").await;
    says(&stage, &name, "nothing new is claimed on this node").await;
    assert_eq!(node.host.platter("fake0").expect("a disk").write_count(), 0);
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods.delete(&pod, &at_once).await.expect("it is there");
    offers(&stage, &name, 1000).await;
    says(&stage, &name, "the sets claim disks here").await;
    node.kill().await;
}
