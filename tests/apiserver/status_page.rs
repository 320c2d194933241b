//! The status page of the program itself, with a simulated node of a real API server.

use k8s_openapi::api::core::v1::{PersistentVolume, Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use localpool::operator::crds::{self, Ownership};
use localpool::volume::VolumeId;
use localpool_testing::eventually_async;
use serde_json::{Value, json};

use crate::agent::{AGAIN, Stage, TIMEOUT, on, unique};
use crate::cluster;
use crate::nodes::{make, offering};
use crate::role::{Controller, account_of_sidecars, namespace};

const HOST: &str = "Host: localhost:9812\r\n";

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// The claim `default/data` gets the volume, as the provisioner and Kubernetes leave it.
async fn bound(client: &Client, stage: &Stage, name: &str, id: VolumeId, node: &str) {
    stage.persistent(name, id, node).await;
    stage.persistent_is(name, "Bound").await;
    let of_claim = json!({"spec": {"claimRef": {"uid": "of-the-claim"}}});
    let all: Api<PersistentVolume> = Api::all(client.clone());
    all.patch(name, &PatchParams::default(), &Patch::Merge(&of_claim)).await.expect("it is there");
}

/// A pod that uses a claim of the namespace `default`, and waits for a node.
async fn pod_of_claim(client: &Client, name: &str, claim: &str) -> Api<Pod> {
    // No controller makes it here.
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = object(json!({"metadata": {"name": "default"}}));
    accounts.create(&PostParams::default(), &account).await.expect("a new one");
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "automountServiceAccountToken": false, "containers": [{"name": "db", "image": "none"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        },
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    pods.create(&PostParams::default(), &object(pod)).await.expect("a new pod");
    pods
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_page_shows_a_disk_of_a_node_and_its_pod_and_that_it_left_and_is_made_only_when_something_changed() {
    let cluster = cluster!(fresh);
    namespace(&cluster).await;
    account_of_sidecars(&cluster).await;
    crds::apply(cluster.client.clone(), Ownership::Respect).await.expect("served");
    let controller = Controller::start(&cluster, "page");
    controller.wait_for("/readyz", 200).await;
    let (stage, label, mut node) = offering(&cluster.client, 512).await;
    let pvc = unique("pvc");
    let volume = make(&stage, &label, &pvc, on(&node.name), 10).await.expect("made");

    let shows = async |parts: &[&str]| {
        let has_all = async || {
            let page = controller.page("/", HOST).await;
            page.is_some_and(|(code, html)| code == 200 && parts.iter().all(|part| html.contains(part)))
        };
        let is_shown = eventually_async(TIMEOUT, AGAIN, has_all).await;
        assert!(is_shown, "{parts:?} is not in {:?}", controller.page("/", HOST).await);
    };
    let card = format!("data-node=\"{}\"", node.name);
    shows(&[&card, "<button type=button class=\"t g\"", "1 disk, 1 volume, ", &format!("default/{label}")]).await;

    // The pod of its claim comes and goes; nobody has looked before.
    bound(&cluster.client, &stage, &pvc, volume.id, &node.name).await;
    shows(&["data-l=Claim>default/data<td><td data-l=State>"]).await;
    let pods = pod_of_claim(&cluster.client, "db-0", "data").await;
    shows(&["data-l=Claim>default/data<td data-l=Pods>db-0<td data-l=State>"]).await;
    pods.delete("db-0", &DeleteParams::default()).await.expect("it is there");
    shows(&["data-l=Claim>default/data<td><td data-l=State>"]).await;

    // Until something changes there is nothing to send. Agent and controller may still have something to write.
    let tag = async || {
        let (_, page) = controller.page("/content", HOST).await.expect("served");
        let line = page.lines().find(|line| line.to_lowercase().starts_with("etag:")).expect("a tag").to_owned();
        line.split_once(' ').expect("a value").1.trim().to_owned()
    };
    let is_known = async || {
        let headers = format!("{HOST}If-None-Match: {}\r\n", tag().await);
        controller.page("/content", &headers).await.is_some_and(|(code, _)| code == 304)
    };
    assert!(eventually_async(TIMEOUT, AGAIN, is_known).await, "what has not changed is sent again");
    let before = tag().await;

    node.host.unplug("fake0");
    node.pool().nudge();
    shows(&["1 of 1 disk", "<button type=button class=\"t b\"", " wrong</h1>", "kubectl localpool why disk "]).await;
    let (code, _) = controller.page("/content", &format!("{HOST}If-None-Match: {before}\r\n")).await.expect("served");
    assert_eq!(code, 200, "what has changed is sent");

    // A name of another site can be made to lead here.
    assert_eq!(controller.page("/", "Host: evil.example:9812\r\n").await.expect("served").0, 403);
    node.kill().await;
    controller.stop();
}
