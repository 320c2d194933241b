//! The health of volumes as CSI's Controller of Kubernetes tells it: the program itself, asked by gRPC, with agents on fake
//! machines. It reads PoolVolumes, so each of its four answers must be what they say.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PostParams;
use localpool::api::crd::{DevicePool, PoolVolumeStatus};
use localpool::host::fake::FakeHost;
use localpool::host::{DiskReport, DiskWarning, FilesystemState, FsKind, Geometry, Health, Host as _, TargetKind};
use localpool::operator::crds::{self, Ownership};
use localpool::rpc::client::connect;
use localpool::rpc::proto::controller_client::ControllerClient;
use localpool::rpc::proto::list_volumes_response::Entry;
use localpool::rpc::proto::volume_health::VolumeHealthEntry;
use localpool::rpc::proto::{
    ControllerGetVolumeHealthRequest, ControllerGetVolumeRequest, ControllerListVolumeHealthRequest,
    DeleteVolumeRequest, ListVolumesRequest, VolumeCondition, VolumeHealth, VolumeHealthErrorType,
};
use localpool::volume::{TOPOLOGY_KEY, VolumeId};
use localpool_testing::{MIB, found_async};
use serde_json::json;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::agent::{Stage, TIMEOUT, on, unique};
use crate::cluster;
use crate::marks::next_checkup;
use crate::nodes::{make, set};
use crate::role::{Controller, account_of_sidecars, namespace};
use crate::silent::AgentPod;
use crate::sim::SimNode;

/// Neither has room for two volumes.
const DISKS: [&str; 2] = ["nvme0n1", "nvme1n1"];

type Csi = ControllerClient<Channel>;

/// A volume alone on a disk, and all that it must have, the worst first.
struct Sick<'a> {
    id: VolumeId,
    node: &'a str,
    reasons: &'a [&'a str],
}

/// What the four calls say of a volume.
#[derive(Debug, PartialEq)]
struct Told {
    nodes: Vec<HashMap<String, String>>,
    listed: VolumeCondition,
    got: VolumeCondition,
    health: Vec<VolumeHealthEntry>,
    /// `None`: it is not among those that are unwell.
    unwell: Option<Vec<VolumeHealthEntry>>,
}

/// What they must say of a volume whose object says this.
fn as_its_object(node: &str, status: &PoolVolumeStatus) -> Told {
    let entries: Vec<VolumeHealthEntry> = status
        .health
        .iter()
        .map(|entry| {
            let kind = match entry.severity.as_str() {
                "Degraded" => VolumeHealthErrorType::Degraded,
                "Inaccessible" => VolumeHealthErrorType::Inaccessible,
                "DataLoss" => VolumeHealthErrorType::DataLoss,
                other => panic!("{other} is no severity"),
            };
            VolumeHealthEntry { status: kind.into(), reason: entry.reason.clone(), message: entry.message.clone() }
        })
        .collect();
    let sentences: Vec<String> =
        status.health.iter().map(|entry| format!("{}: {}", entry.reason, entry.message)).collect();
    let condition = match sentences.as_slice() {
        [] => VolumeCondition { abnormal: false, message: "Healthy: the volume is healthy".to_owned() },
        all => VolumeCondition { abnormal: true, message: all.join("; ") },
    };
    Told {
        nodes: vec![[(TOPOLOGY_KEY.to_owned(), node.to_owned())].into()],
        listed: condition.clone(),
        got: condition,
        unwell: Some(entries.clone()).filter(|entries| !entries.is_empty()),
        health: entries,
    }
}

/// All pages of a list: each but the last is as long as asked for. `ask` gives a page and the token of the next one.
async fn pages<T>(most: u8, ask: impl AsyncFn(i32, String) -> (Vec<T>, String)) -> Vec<T> {
    let (mut all, mut token) = (Vec::new(), String::new());
    loop {
        let (page, next) = ask(most.into(), token).await;
        let (found, full) = (page.len(), usize::from(most));
        assert!(found == full || (found < full && next.is_empty()), "{found} on a page of {most}, {next:?}");
        all.extend(page);
        if next.is_empty() {
            return all;
        }
        token = next;
    }
}

/// All volumes, by pages of two.
async fn listed(csi: &Csi) -> Vec<Entry> {
    pages(2, async |max_entries, starting_token| {
        let page = csi.clone().list_volumes(ListVolumesRequest { max_entries, starting_token }).await;
        let page = page.expect("an answer").into_inner();
        (page.entries, page.next_token)
    })
    .await
}

/// Those that are unwell, by pages of one.
async fn unwell(csi: &Csi) -> Vec<VolumeHealth> {
    pages(1, async |max_entries, starting_token| {
        let request = ControllerListVolumeHealthRequest { max_entries, starting_token, ..Default::default() };
        let page = csi.clone().controller_list_volume_health(request).await.expect("an answer").into_inner();
        (page.entries, page.next_token)
    })
    .await
}

async fn health(csi: &Csi, id: VolumeId) -> Result<VolumeHealth, Status> {
    let request = ControllerGetVolumeHealthRequest { volume_id: id.to_string(), ..Default::default() };
    let answer = csi.clone().controller_get_volume_health(request).await?.into_inner();
    Ok(answer.volume_health.expect("it is required"))
}

/// What the four calls say of each of these volumes; that there are others is an error.
async fn told(csi: &Csi, volumes: &[Sick<'_>]) -> Result<Vec<Told>, String> {
    let (mut listed, mut unwell) = (listed(csi).await, unwell(csi).await);
    let mut all = Vec::new();
    for Sick { id, .. } in volumes {
        let volume_id = id.to_string();
        let is_it = |entry: &Entry| entry.volume.as_ref().is_some_and(|volume| volume.volume_id == volume_id);
        let at = listed.iter().position(is_it).ok_or_else(|| format!("{id} is not listed"))?;
        let entry = listed.remove(at);
        let failed = |status: Status| format!("{id}: {status}");
        let request = ControllerGetVolumeRequest { volume_id: volume_id.clone() };
        let got = csi.clone().controller_get_volume(request).await.map_err(failed)?.into_inner();
        assert_eq!(got.volume, entry.volume);
        let topology = entry.volume.into_iter().flat_map(|volume| volume.accessible_topology);
        let health = health(csi, *id).await.map_err(failed)?;
        assert_eq!(health.volume_id, volume_id);
        let at = unwell.iter().position(|found| found.volume_id == volume_id);
        all.push(Told {
            nodes: topology.map(|topology| topology.segments).collect(),
            listed: entry.status.and_then(|status| status.volume_condition).expect("a condition"),
            got: got.status.and_then(|status| status.volume_condition).expect("a condition"),
            health: health.health_statuses,
            unwell: at.map(|at| unwell.remove(at).health_statuses),
        });
    }
    match (listed.as_slice(), unwell.as_slice()) {
        ([], []) => Ok(all),
        others => Err(format!("there are others: {others:?}")),
    }
}

/// Waits until the objects of these volumes, which are all, have exactly these reasons, and the four calls say the same,
/// while the agents of the machines do checkups.
async fn all_say(stage: &Stage, csi: &Csi, machines: &[&SimNode], volumes: &[Sick<'_>]) {
    let poll = async || {
        for machine in machines {
            // An NVMe disk is asked once a minute.
            machine.host.advance(Duration::from_secs(60));
            next_checkup(machine);
        }
        let mut wrong = Vec::new();
        let told = told(csi, volumes).await.map_err(|why| vec![why])?;
        for (found, Sick { id, node, reasons }) in told.into_iter().zip(volumes) {
            let status = stage.objects.get(&id.to_string()).await.expect("there").status.expect("it is Ready");
            let has = status.health.iter().map(|entry| entry.reason.as_str());
            if !has.eq(reasons.iter().copied()) {
                wrong.push(format!("{id} has {:?}, not {reasons:?}", status.health));
            }
            let expected = as_its_object(node, &status);
            if found != expected {
                wrong.push(format!("{id} is told as {found:?}, not as {expected:?}"));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    };
    let said = found_async(TIMEOUT, Duration::from_millis(500), poll).await;
    said.unwrap_or_else(|wrong| panic!("{}", wrong.join("\n")));
}

fn reports(warning: DiskWarning) -> DiskReport {
    DiskReport { warnings: vec![warning], ..DiskReport::of(Health::Failing("words".to_owned())) }
}

/// A node with two disks, and with a pod that says that its agent lives.
async fn machine(stage: &Stage, label: &str) -> SimNode {
    let (name, host) = (unique("sim"), FakeHost::default());
    for disk in DISKS {
        let geometry = Geometry { size: 64 * MIB, sector: 512, offloads_zeroes: true };
        host.add_disk(disk, &format!("{disk}-{name}"), geometry);
        host.set_health(disk, Health::Passed);
    }
    let labels = json!({"app.kubernetes.io/name": "localpool", "app.kubernetes.io/component": "node"});
    let pod = AgentPod::labelled(&stage.client, "localpool", &name, labels).await;
    pod.is_ready("True", Timestamp::now()).await;
    let node = SimNode::of(&stage.client, &name, json!({"sim": label}), host).await;
    stage.known(|caches| caches.nodes.get(&name).is_some()).await;
    let has_both = |pool: &DevicePool| pool.status.as_ref().is_some_and(|status| status.disks.len() == DISKS.len());
    stage.known(|caches| caches.pools.get(&name).is_some_and(|pool| has_both(&pool))).await;
    node
}

/// A volume of 32 MiB, and the name of its disk.
async fn volume(stage: &Stage, label: &str, node: &SimNode) -> (VolumeId, String) {
    let id = make(stage, label, &unique("pvc"), on(&node.name), 32).await.expect("there is room").id;
    let of_it = node.pool().usable(id).expect("made").disk;
    let disk = node.pool().disk_views().into_iter().find(|disk| disk.id == of_it).expect("it has one");
    (id, disk.path.file_name().expect("a name").to_string_lossy().into_owned())
}

/// Mounts it for kubelet, as a stage does.
fn mount(node: &SimNode, id: VolumeId) -> PathBuf {
    let (view, target) = (node.pool().usable(id).expect("made"), PathBuf::from(format!("/pods/{id}")));
    node.host.filesystems().make(FsKind::Ext4, &view.node, id.uuid()).expect("a filesystem");
    node.host.mounts().mount(&view.node, &target, FsKind::Ext4, &[]).expect("mounted");
    node.host.mounts().make_target(&target, TargetKind::Directory).expect("made");
    node.board.mounted(id, &target, node.board.unmounts());
    target
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_of_a_cluster_tells_by_all_four_calls_of_csi_what_the_pool_volumes_say_until_their_repair() {
    let cluster = cluster!(fresh);
    namespace(&cluster).await;
    account_of_sidecars(&cluster).await;
    crds::apply(cluster.client.clone(), Ownership::Respect).await.expect("served");
    let controller = Controller::start(&cluster, "health");
    controller.wait_for("/readyz", 200).await;
    let csi = ControllerClient::new(connect(&controller.socket).await.expect("connected"));
    // The program answers the agents.
    let (stage, label) = (Stage::without_answers(&cluster.client).await, unique("sim"));
    set(&cluster.client, &label).await;
    let (mut here, mut there) = (machine(&stage, &label).await, machine(&stage, &label).await);
    let [(worse, worse_on), (missing, missing_on)] =
        [volume(&stage, &label, &here).await, volume(&stage, &label, &here).await];
    let [(failing, failing_on), (well, _)] =
        [volume(&stage, &label, &there).await, volume(&stage, &label, &there).await];
    let target = mount(&here, worse);
    let (this, other) = (here.name.clone(), there.name.clone());
    let sick = |reasons: [&'static [&'static str]; 4]| {
        let volumes = [(worse, &this), (missing, &this), (failing, &other), (well, &other)];
        let all = volumes.into_iter().zip(reasons);
        all.map(|((id, node), reasons)| Sick { id, node, reasons }).collect::<Vec<_>>()
    };
    let all_are_well = sick([&[]; 4]);
    all_say(&stage, &csi, &[&here, &there], &all_are_well).await;

    here.host.set_filesystem_state(&target, FilesystemState { is_read_only: true, ..FilesystemState::default() });
    here.host.set_report(&worse_on, reports(DiskWarning::SpareLow));
    let platter = here.host.unplug(&missing_on).expect("it was there");
    here.pool().nudge();
    there.host.set_report(&failing_on, reports(DiskWarning::Unreliable));
    let some_are_sick = sick([&["FilesystemReadOnly", "DiskSpareLow"], &["DiskMissing"], &["DiskFailing"], &[]]);
    all_say(&stage, &csi, &[&here, &there], &some_are_sick).await;

    here.host.set_filesystem_state(&target, FilesystemState::default());
    here.host.set_health(&worse_on, Health::Passed);
    here.host.plug(&missing_on, &format!("{missing_on}-{this}"), platter);
    here.pool().nudge();
    all_say(&stage, &csi, &[&here, &there], &sick([&[], &[], &["DiskFailing"], &[]])).await;

    // What the agent has found stays beside that its node is gone.
    there.kill().await;
    stage.delete_node(&other).await;
    let without_node = sick([&[], &[], &["NodeGone", "DiskFailing"], &["NodeGone"]]);
    all_say(&stage, &csi, &[&here], &without_node).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": other, "labels": {"sim": label}}});
    let nodes: Api<Node> = Api::all(stage.client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(node).expect("a node")).await.expect("a new node");
    there.host.set_health(&failing_on, Health::Passed);
    there.run(&stage.client);
    all_say(&stage, &csi, &[&here, &there], &all_are_well).await;

    // Past the driver: its disk is there, and does not have it any more.
    let pool = Arc::clone(here.pool());
    tokio::task::spawn_blocking(move || pool.delete(missing)).await.expect("no bug").expect("deleted");
    here.pool().nudge();
    all_say(&stage, &csi, &[&here, &there], &sick([&[], &["VolumeMissing"], &[], &[]])).await;
    let delete = DeleteVolumeRequest { volume_id: missing.to_string(), ..DeleteVolumeRequest::default() };
    // Each call ends in its time, and is repeated, as the provisioner does.
    while let Err(status) = csi.clone().delete_volume(delete.clone()).await {
        assert_eq!(status.code(), Code::Aborted, "{status}");
    }
    let rest: Vec<Sick<'_>> = all_are_well.into_iter().filter(|volume| volume.id != missing).collect();
    all_say(&stage, &csi, &[&here, &there], &rest).await;
    assert_eq!(health(&csi, missing).await.expect_err("it is gone").code(), Code::NotFound);
    here.kill().await;
    there.kill().await;
    controller.stop();
}
