//! CRDs of a later version that appear under a running agent, and go away again: what a roll-out through many nodes
//! means for those whose turn has not come, and a rollback for all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use localpool::api::crd::{self, DevicePool, SCHEMA_ANNOTATION, set_crd};
use localpool::operator::controller::DeletedNodePolicy;
use localpool::operator::crds::{self, Ownership};
use localpool::volume::{Error, VolumeId, Volumes as _, WantedUsage};
use localpool_testing::MIB;
use serde_json::{Value, json};

use crate::agent::{Stage, on, unique, wanted};
use crate::cluster;
use crate::leader::{lead, until};
use crate::nodes::{offers, set};
use crate::sim::SimNode;

const NODE: &str = "upgraded";

/// Our CRDs with the number of a later version, after a change of each.
async fn apply_later(client: &Client, change: impl Fn(&str, &mut Value)) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crd::all() {
        let name = crd.name_any();
        let mut later = serde_json::to_value(crd).expect("JSON");
        later["metadata"]["annotations"][SCHEMA_ANNOTATION] = json!("7");
        change(&name, &mut later["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]);
        let params = PatchParams::apply("localpool-crds").force();
        api.patch(&name, &params, &Patch::Apply(&later)).await.expect("the API server takes it");
    }
}

/// Creates volumes and deletes them again, for ever.
async fn work(stage: Arc<Stage>, done: Arc<AtomicUsize>) {
    loop {
        let name = unique("pvc");
        let mut asked = wanted(&name, on(NODE));
        asked.required = MIB;
        asked.usage = WantedUsage::Block;
        asked.parameters = [("class".to_owned(), NODE.to_owned())].into();
        asked.selector.class = Some(NODE.to_owned());
        // The caller retries if it is asked to.
        while let Err(error) = stage.volumes.create(asked.clone()).await {
            assert!(matches!(error, Error::Aborted(_)), "a volume was not made: {error}");
        }
        while let Err(error) = stage.volumes.delete(VolumeId::of_name(&name)).await {
            assert!(matches!(error, Error::Aborted(_)), "a volume was not deleted: {error}");
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

async fn conditions(client: &Client) -> Option<Vec<Condition>> {
    let pools: Api<DevicePool> = Api::all(client.clone());
    Some(pools.get(NODE).await.ok()?.status?.conditions)
}

async fn condition(client: &Client, kind: &str) -> Option<(String, String)> {
    conditions(client).await?.into_iter().find(|one| one.type_ == kind).map(|one| (one.status, one.reason))
}

async fn has_seen(client: &Client, set: &str) -> bool {
    let pools: Api<DevicePool> = Api::all(client.clone());
    let status = pools.get(NODE).await.ok().and_then(|pool| pool.status);
    status.is_some_and(|status| status.sets.iter().any(|offer| offer.name == set))
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_made_all_the_time_while_crds_of_a_later_version_come_and_go() {
    let cluster = cluster!(fresh);
    let client = &cluster.client;
    crds::apply(client.clone(), Ownership::Respect).await.expect("a fresh cluster");
    let stage = Arc::new(Stage::new(client).await);
    let mut node = SimNode::start(&stage, NODE, NODE, 256).await;
    set(client, NODE).await;
    offers(&stage, NODE, 128).await;
    let leader = lead(&stage, DeletedNodePolicy::Keep);
    until("the leader says that the agent answers", async || condition(client, "Ready").await).await;
    drop(leader);
    let done = Arc::new(AtomicUsize::default());
    let working = tokio::spawn(work(Arc::clone(&stage), Arc::clone(&done)));
    let watched = client.clone();
    let watching = tokio::spawn(async move {
        loop {
            if let Some(conditions) = conditions(&watched).await {
                let ready = conditions.into_iter().find(|one| one.type_ == "Ready").map(|one| (one.status, one.reason));
                assert_eq!(ready.as_ref().map(|ready| ready.0.as_str()), Some("True"), "{ready:?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let goes_on = async || {
        let enough = done.load(Ordering::Relaxed) + 5;
        until("more volumes are made", async || {
            let ended = working.is_finished() || watching.is_finished();
            (ended || done.load(Ordering::Relaxed) >= enough).then_some(())
        })
        .await;
        assert!(!working.is_finished() && !watching.is_finished(), "see above");
    };
    // A new set has the agent ask which definitions there are.
    let claims = async |status: &str, reason: &str| {
        let name = unique("set");
        set(client, &name).await;
        let told = (status.to_owned(), reason.to_owned());
        until(&format!("the set {name} is seen, and Claiming is {told:?}"), async || {
            (has_seen(client, &name).await && condition(client, "Claiming").await? == told).then_some(())
        })
        .await;
    };
    goes_on().await;

    // One field more: everything continues, and a new set is followed.
    apply_later(client, |_, spec| spec["properties"]["later"] = json!({"type": "string"})).await;
    goes_on().await;
    claims("True", "AgentReady").await;
    goes_on().await;

    // And back, as in a rollback.
    crds::apply(client.clone(), Ownership::Respect).await.expect("served");
    claims("True", "AgentReady").await;
    goes_on().await;

    // A later CRD that drops what this version writes stops claiming, and nothing else.
    apply_later(client, |name, spec| {
        if name == set_crd().name_any() {
            spec.as_object_mut().expect("a schema").remove("x-kubernetes-preserve-unknown-fields");
        }
    })
    .await;
    claims("False", "HeldBack").await;
    goes_on().await;
    crds::apply(client.clone(), Ownership::Respect).await.expect("served");
    claims("True", "AgentReady").await;
    goes_on().await;
    working.abort();
    watching.abort();
    node.kill().await;
}
