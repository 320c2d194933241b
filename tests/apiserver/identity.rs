//! A machine whose state directory came from another cluster. A real agent on a fake machine, against the real API
//! server.

use std::time::Duration;

use localpool::agent::{Run, Verb};
use localpool::host::Geometry;
use localpool::operator::agent::cluster_uid;
use localpool_testing::MIB;

use crate::agent::{Stage, TIMEOUT, on, unique};
use crate::cluster;
use crate::elsewhere::says;
use crate::nodes::{make, offers, set};
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
    says(&stage, &name, "names 00000000-0000-4000-8000-000000000000").await;
    says(&stage, &name, "localpool state set-aside cluster").await;
    assert_eq!(node.host.platter("fake0").expect("a disk").write_count(), 0);
    // As after the verb and a start: the agent has asked.
    node.kill().await;
    node.cluster = Some(cluster_uid(cluster.client.clone()).await.expect("it answers"));
    node.run(&stage.client);
    offers(&stage, &name, 1000).await;
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_with_the_label_of_the_old_cluster_is_left_beside_others_until_it_is_adopted() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (label, name) = (unique("sim"), unique("sim"));
    set(&cluster.client, &label).await;
    let mut node = SimNode::start(&stage, &name, &label, 1024).await;
    offers(&stage, &name, 1000).await;
    let id = make(&stage, &label, &unique("pvc"), on(&name), 100).await.expect("there is room").id;
    let disk = node.pool().usable(id).expect("usable").disk;
    let old = node.host.platter("fake0").expect("a disk");
    node.kill().await;
    let content = old.content();

    // As after the verb and a start in another cluster, with one more disk.
    let geometry = Geometry { size: 2048 * MIB, sector: 512, offloads_zeroes: true };
    node.host.add_disk("fake1", &format!("SECOND-{name}"), geometry);
    node.cluster = Some(cluster_uid(cluster.client.clone()).await.expect("it answers"));
    node.run(&stage.client);
    offers(&stage, &name, 2000).await;
    let is_member = |node: &SimNode| node.pool().members().iter().any(|member| *member.id() == disk);
    let is_left = |node: &SimNode| {
        assert!(!is_member(node), "it was taken: {:?}", node.pool().disk_views());
        assert!(node.pool().usable(id).is_err(), "its volume is used");
        assert!(old.content() == content, "it was written");
    };
    is_left(&node);
    let adopt = async |node: &SimNode, run| {
        let verb = Verb::AdoptDisk { disk: "/dev/fake0".to_owned(), run };
        let agent_handle = node.running.as_ref().expect("it runs").agent_handle.clone();
        let done = tokio::task::spawn_blocking(move || agent_handle.verb(verb)).await.expect("it ends");
        done.expect("it runs").expect("a person says so").join("\n")
    };
    let says = adopt(&node, Run::Dry).await;
    assert!(says.contains("cluster sim"), "{says}");
    is_left(&node);
    adopt(&node, Run::Real).await;
    let taken = async {
        while !is_member(&node) || node.pool().volume(id).is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, taken).await.expect("the disk is taken, with its volume");
    node.kill().await;
}
