//! An agent that starts again while its disks owe it every answer: no object tells another thing than before until one
//! answers, and then each tells only what the answer says.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use localpool::api::crd::{DevicePool, DevicePoolStatus, HealthEntry};
use localpool::health::LossScope;
use localpool::host::fake::FakeHost;
use localpool::host::{DiskReport, DiskWarning, Geometry, Health};
use localpool_testing::MIB;
use serde_json::json;

use crate::agent::{Stage, unique};
use crate::cluster;
use crate::events::events_by_uid;
use crate::leader::{at_rest, until};
use crate::marks::{annotations, monitor, next_checkup};
use crate::nodes::set;
use crate::reasons::{Case, Place, all_tell, cases, pool, well_node};
use crate::sim::SimNode;
use crate::tap::{Tap, TapState};

/// What people see of one case: of the PoolVolume and its claim, and the marks with their times.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    health: Vec<HealthEntry>,
    healthy: Option<Condition>,
    marks: BTreeMap<String, String>,
    events: Vec<String>,
}

async fn seen(stage: &Stage, case: &Case) -> Seen {
    let Place::Disk { id, claim, .. } = &case.place else { panic!("{} is of no disk", case.name) };
    let mut status = stage.objects.get(&id.to_string()).await.expect("there").status.expect("set");
    // Who has found it is no news for people.
    status.health.iter_mut().for_each(|entry| entry.confirmed_by = None);
    let healthy = status.conditions.into_iter().find(|condition| condition.type_ == "Healthy");
    let events = events_by_uid(stage).await.remove(claim).unwrap_or_default();
    let events = events.into_iter().map(|(event, _)| event).collect();
    Seen { health: status.health, healthy, marks: annotations(&stage.client, &case.name).await, events }
}

async fn all_seen(stage: &Stage, cases: &[&Case]) -> Vec<Seen> {
    futures::future::join_all(cases.iter().map(|case| seen(stage, case))).await
}

async fn is_well(stage: &Stage, case: &Case) -> bool {
    let Seen { health, marks, events, .. } = seen(stage, case).await;
    health.is_empty() && marks.is_empty() && events.contains(&"VolumeRecovered x1".to_owned())
}

/// The processes of the agent that confirm the losses of these.
async fn confirmed_by(stage: &Stage, cases: &[&Case]) -> Vec<Option<String>> {
    let mut all = Vec::new();
    for case in cases.iter().filter(|case| case.reason().loss() != LossScope::Never) {
        let Place::Disk { id, .. } = &case.place else { continue };
        let status = stage.objects.get(&id.to_string()).await.expect("there").status.expect("set");
        all.extend(status.health.into_iter().map(|entry| entry.confirmed_by));
    }
    all
}

fn written(node: &SimNode) -> u64 {
    node.running.as_ref().expect("it runs").writes.volume.load(Ordering::Relaxed)
}

/// Whether each disk but those of `but` owes its answers from now on.
fn all_hang(node: &SimNode, cases: &[Case], hang: Option<()>, but: &str) {
    for case in cases.iter().filter(|case| case.row.word != but) {
        let Place::Disk { disk, .. } = &case.place else { continue };
        node.host.platter(disk).expect("a disk").set_hangs_at(hang.map(|()| "report"));
    }
    node.host.mounts.gate.set_hangs_at(hang.map(|()| "filesystem_state"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_has_found_outlasts_it_until_the_next_one_has_an_answer_and_no_volume_is_written_twice() {
    let cluster = cluster!(alone);
    let stage = Stage::new(&cluster.client).await;
    let (label, mut node) = well_node(&stage).await;
    let _monitor = monitor(&stage);
    let cases = cases(&stage, &label, &node).await;
    let of_disks = cases.into_iter().filter(|case| matches!(case.place, Place::Disk { .. }));
    let all: Vec<Case> = of_disks.collect();
    all.iter().for_each(|case| case.play(&node.host, true));
    all_tell(&stage, &node, &all, true).await;
    let kept: Vec<&Case> = all.iter().collect();
    let of =
        |words: &[&str]| -> Vec<&Case> { kept.iter().copied().filter(|case| words.contains(&case.row.word)).collect() };
    // What the kernel knows without the disk, the next one finds at once; and what it has counted is over some time.
    let (at_once, counted) = (of(&["ArrayFailed", "NotMountPoint"]), of(&["DiskMediaErrors", "DiskIoErrors"]));
    assert_eq!((at_once.len(), counted.len()), (2, 2));
    // The last checkup may still have something to write.
    let seen = async || all_seen(&stage, &kept).await;
    let before =
        at_rest("it tells other things", seen, async || tokio::time::sleep(Duration::from_secs(3)).await).await;

    node.kill().await;
    all_hang(&node, &all, Some(()), "");
    let agent = pool(&stage, &node.name).await.1.agent.expect("said");
    node.run(&stage.client);
    until("the next one has had a checkup", async || node.board.paths().map(drop)).await;
    for case in &all {
        let Place::Disk { disk, .. } = &case.place else { continue };
        node.host.platter(disk).expect("a disk").until_somebody_waits();
    }
    let other = async || pool(&stage, &node.name).await.1.agent.filter(|process| *process != agent);
    let process = until("the next one has written", other).await;
    next_checkup(&node);
    assert_eq!(all_seen(&stage, &kept).await, before);
    until("they are confirmed", async || {
        (confirmed_by(&stage, &at_once).await == vec![Some(process.clone()); 2]).then_some(())
    })
    .await;
    assert_eq!(written(&node), 2, "these two");
    let losses = of(&["DiskReadOnly", "DiskNotAnswering"]);
    assert_eq!(confirmed_by(&stage, &losses).await, vec![Some(agent); 2], "by the one before");

    // All answer but the one that did not before.
    all_hang(&node, &all, None, "DiskNotAnswering");
    // In all, it must be less than what was counted is held for.
    until("all have answered", async || {
        node.host.advance(Duration::from_secs(1));
        next_checkup(&node);
        (confirmed_by(&stage, &losses).await == vec![Some(process.clone()); 2]).then_some(())
    })
    .await;
    assert_eq!(all_seen(&stage, &kept).await, before, "what was counted is held");
    for case in &counted {
        until(&format!("{} is over", case.name), async || {
            node.host.advance(Duration::from_secs(601));
            next_checkup(&node);
            is_well(&stage, case).await.then_some(())
        })
        .await;
    }
    let is_over = |case: &Case| counted.iter().any(|over| over.name == case.name);
    let lasts: Vec<&Case> = kept.iter().copied().filter(|case| !is_over(case)).collect();
    let expected = before.into_iter().zip(&kept).filter(|(_, case)| !is_over(case)).map(|(seen, _)| seen);
    assert_eq!(all_seen(&stage, &lasts).await, expected.collect::<Vec<_>>());
    assert_eq!(written(&node), 2 + 2 + 2, "the other two losses, and those counts: each once");
    let status = pool(&stage, &node.name).await.1;
    assert!(status.disks.iter().filter(|disk| disk.cordon.is_some()).count() >= 6, "{:?}", status.disks);

    // What is cured is well.
    all.iter().for_each(|case| case.play(&node.host, false));
    for case in &lasts {
        until(&format!("{} is well", case.name), async || {
            node.host.advance(Duration::from_secs(601));
            next_checkup(&node);
            is_well(&stage, case).await.then_some(())
        })
        .await;
    }
    node.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_agent_before_has_written_of_its_disks_is_not_written_over_while_it_cannot_be_read() {
    let cluster = cluster!(shared);
    let stage = Stage::new(&cluster.client).await;
    let (reads, agents) = Tap::on_reads("/apis/localpool.dev/v1alpha1/devicepools/", &cluster.client);
    let (label, host) = (unique("sim"), FakeHost::default());
    set(&stage.client, &label).await;
    host.add_disk("fake0", &unique("SERIAL"), Geometry { size: 64 * MIB, sector: 512, offloads_zeroes: true });
    let sick =
        DiskReport { warnings: vec![DiskWarning::Unreliable], ..DiskReport::of(Health::Failing("s".to_owned())) };
    host.set_report("fake0", sick);
    let mut node = SimNode::of(&agents, &unique("sim"), json!({"sim": label}), host).await;
    let (pools, name): (Api<DevicePool>, _) = (Api::all(stage.client.clone()), node.name.clone());
    let status = async || pools.get_opt(&name).await.expect("an answer")?.status;
    let health = |status: &DevicePoolStatus| -> Option<Vec<HealthEntry>> { Some(status.disks.first()?.health.clone()) };
    until("the disk is failing", async || {
        status().await.filter(|status| health(status).is_some_and(|health| !health.is_empty()))
    })
    .await;
    node.kill().await;
    let before = status().await.expect("written");

    node.host.platter("fake0").expect("a disk").set_hangs_at(Some("report"));
    reads.set(TapState::Refusing);
    let asked = reads.requests();
    node.run(&agents);
    until("it is asked again", async || (reads.requests() > asked + 1).then_some(())).await;
    let status = async || pools.get(&name).await.expect("there").status.expect("set");
    let now = status().await;
    assert_eq!((&now.agent, &now.disks), (&before.agent, &before.disks));
    reads.set(TapState::Open);
    let after =
        until("the next one writes", async || Some(status().await).filter(|status| status.agent != before.agent)).await;
    assert_eq!(health(&after), health(&before));
    node.host.platter("fake0").expect("a disk").set_hangs_at(None);
    node.kill().await;
}
