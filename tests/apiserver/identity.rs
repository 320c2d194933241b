//! A machine whose state directory came from another cluster. A real agent on a fake machine, against the real API server.

use localpool::operator::node::cluster_uid;

use crate::agent::{Stage, unique};
use crate::cluster;
use crate::elsewhere::says;
use crate::nodes::{offers, set};
use crate::sim::SimNode;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_cluster_claims_nothing_until_it_is_told_which_one_it_is_in() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (label, name) = (unique("sim"), unique("sim"));
    let mut node = SimNode::start(&stage, &name, &label, 1024).await;
    node.kill().await;
    node.cluster = Some("00000000-0000-4000-8000-000000000000".to_owned());
    node.run(&stage.client);
    set(&cluster.client, &label).await;
    says(&stage, &name, "says 00000000-0000-4000-8000-000000000000").await;
    says(&stage, &name, "localpool state set-aside cluster").await;
    assert_eq!(node.host.platter("fake0").expect("a disk").write_count(), 0);
    // As after the verb and a start: the agent has asked.
    node.kill().await;
    node.cluster = Some(cluster_uid(cluster.client.clone()).await.expect("it answers"));
    node.run(&stage.client);
    offers(&stage, &name, 1000).await;
    node.kill().await;
}
