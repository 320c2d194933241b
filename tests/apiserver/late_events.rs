//! Events of marks that the API server does not take at first.

use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use localpool::operator::controller::ReservePolicy;
use serde_json::json;

use crate::agent::{Stage, unique};
use crate::cluster;
use crate::leader::until;
use crate::marks::{annotations, events, monitor_through, persistent, ready};
use crate::sent::Sent;

/// A local PersistentVolume of a node without an agent.
async fn volume(client: &Client, node: &str) -> String {
    let name = unique("local-pv");
    persistent(client, &name, node, json!({"local": {"path": "/mnt/x"}})).await;
    name
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_not_written_with_its_mark_is_written_later_and_once() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let (client, node) = (&stage.client, unique("node"));
    stage.node(&node).await;
    ready(client, &node, "Unknown").await;
    let names = [volume(client, &node).await, volume(client, &node).await];
    let (sent, through) = Sent::through(client);
    sent.refuse_events(true);
    let work = monitor_through(&stage, through, ReservePolicy::Never);
    for name in &names {
        let is_marked = async || annotations(client, name).await.contains_key("NodeNotReady").then_some(());
        until("it is marked all the same", is_marked).await;
    }
    // One of them in each pass.
    let failed = || work.metrics.errors.with_label_values(&["monitor"]).get();
    until("an Event is tried again", async || (sent.events() >= 3 && failed() >= 3).then_some(())).await;
    events(client, &names[0], "Mark", &[]).await;
    sent.refuse_events(false);
    for name in &names {
        events(client, name, "Mark", &["NodeNotReady"]).await;
    }
    // A change, and so another pass; and one more, as what waits is written last in a pass.
    for _ in 0..2 {
        let later = volume(client, &node).await;
        events(client, &later, "Mark", &["NodeNotReady"]).await;
    }
    let api: Api<Event> = Api::all(client.clone());
    for name in names {
        let about = ListParams::default().fields(&format!("regarding.name={name}"));
        let all = api.list(&about).await.expect("listed").items;
        assert!(all.len() == 1 && all[0].series.is_none(), "once: {all:?}");
    }
}
