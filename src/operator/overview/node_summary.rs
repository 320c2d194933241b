//! The nodes and the replicas of the controller, one row each. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use serde::Serialize;

use super::disks::{UNKNOWN, size_cell, text_cell};
use crate::api::crd::{
    DevicePool, DiskState, DiskStatus, LocalVolume, LocalVolumeSet, NodeDiskSetup, PoolVolume, READY,
};
use crate::device::NodeName;
use crate::operator::bytes::unsigned;
use crate::operator::disk::member::is_member;
use crate::operator::node::ready::{NodeReadiness, readiness};
use crate::operator::pool::agent_life::silence;
use crate::show::{InList, ListColumn, TableCell, Tone};

/// The label with the version of a pod's program.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";
/// The label that says which part of localpool a pod is.
pub const COMPONENT_LABEL: &str = "localpool.dev/component";

/// What is known of the cluster: as it was read now, or as the controller has it in memory.
#[derive(Default)]
pub struct ClusterCase {
    pub pools: Vec<Arc<DevicePool>>,
    pub volumes: Vec<Arc<PoolVolume>>,
    pub nodes: Vec<Arc<Node>>,
    /// localpool's own.
    pub pods: Vec<Pod>,
    pub sets: Vec<Arc<LocalVolumeSet>>,
    pub local_volumes: Vec<Arc<LocalVolume>>,
    pub disk_setups: Vec<Arc<NodeDiskSetup>>,
    /// The replica of the controller that writes; `None`: nobody, or whoever asks may not know.
    pub leader: Option<String>,
}

/// A replica of the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    pub pod: String,
    pub namespace: String,
    pub ready: bool,
    /// It is the one that writes.
    pub leader: bool,
    pub version: Option<String>,
}

/// One node. Field names stay; new ones may come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSummary {
    pub node: NodeName,
    /// `Ready`, `NotReady`, `Cordoned` (by kubectl), `Deleted`.
    pub state: String,
    /// `Ready`, `Cordoned` (its DevicePool), or why it does not answer; `None`: no agent has reported there; `Unknown`: nobody
    /// has said yet whether it answers.
    pub agent: String,
    pub since: Option<String>,
    pub version: Option<String>,
    pub disks: usize,
    pub missing: usize,
    /// Disks with which something else is wrong.
    pub failing: usize,
    pub cordoned: usize,
    pub volumes: usize,
    /// Volumes with which something is wrong.
    pub unwell: usize,
    /// Bytes.
    pub size: u64,
    pub free: u64,
    pub largest: u64,
    pub erasing: u64,
}

impl NodeSummary {
    pub fn of(
        name: &NodeName,
        node: Option<&Node>,
        pool: Option<&DevicePool>,
        (volumes, unwell): (usize, usize),
    ) -> Self {
        let cordoned = node.and_then(|node| node.spec.as_ref()?.unschedulable).unwrap_or(false);
        let state = match readiness(node) {
            NodeReadiness::Gone => "Deleted",
            NodeReadiness::NotReady => "NotReady",
            NodeReadiness::Ready if cordoned => "Cordoned",
            NodeReadiness::Ready => "Ready",
        };
        let status = pool.and_then(|pool| pool.status.as_ref());
        let disks: Vec<&DiskStatus> = status.into_iter().flat_map(|status| &status.disks).collect();
        let count = |holds: &dyn Fn(&DiskStatus) -> bool| disks.iter().filter(|disk| holds(disk)).count();
        let sum = |of: &dyn Fn(&DiskStatus) -> i64| disks.iter().map(|disk| unsigned::<u64>(of(disk))).sum::<u64>();
        let is_here = |disk: &DiskStatus| disk.state != DiskState::Missing;
        let silent = pool.and_then(silence);
        let agent = match (pool, silent) {
            (None, _) => "None".to_owned(),
            (Some(_), Some(ready)) => ready.reason.clone(),
            (Some(pool), None) if !is_judged(pool) => UNKNOWN.to_owned(),
            (Some(pool), None) if pool.spec.cordon => "Cordoned".to_owned(),
            (Some(_), None) => "Ready".to_owned(),
        };
        let largest = status.into_iter().flat_map(|status| &status.sets);
        let largest = largest.map(|set| unsigned::<u64>(set.largest.max(set.block_largest))).max().unwrap_or(0);
        Self {
            node: name.clone(),
            state: state.to_owned(),
            agent,
            since: silent.map(|ready| ready.last_transition_time.0.to_string()),
            version: status.map(|status| status.version.clone()).filter(|version| !version.is_empty()),
            disks: disks.len(),
            missing: count(&|disk| disk.state == DiskState::Missing),
            failing: count(&is_failing),
            cordoned: count(&|disk| disk.cordon.is_some()),
            volumes,
            unwell,
            // What a member of an array has is its array's.
            size: sum(&|disk| if is_member(disk) { 0 } else { disk.size }),
            free: sum(&|disk| if is_here(disk) { disk.free } else { 0 }),
            largest: if silent.is_some() { 0 } else { largest },
            erasing: sum(&|disk| disk.erasing),
        }
    }
}

/// Whether the controller has said if the agent answers.
fn is_judged(pool: &DevicePool) -> bool {
    let mut conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.type_ == READY)
}

/// A pod says so of itself.
pub fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

/// It is there, and something is wrong with it.
pub fn is_failing(disk: &DiskStatus) -> bool {
    disk.state != DiskState::Missing && (disk.state == DiskState::NotReady || !disk.health.is_empty())
}

pub fn replicas(case: &ClusterCase) -> Vec<ReplicaStatus> {
    let label = |pod: &Pod, key: &str| pod.labels().get(key).cloned();
    let is_one = |pod: &&Pod| label(pod, COMPONENT_LABEL).as_deref() == Some("controller");
    let of = |pod: &Pod| ReplicaStatus {
        pod: pod.name_any(),
        namespace: pod.namespace().unwrap_or_default(),
        ready: is_ready(pod),
        leader: case.leader.as_deref() == Some(&*pod.name_any()),
        version: label(pod, VERSION_LABEL),
    };
    case.pods.iter().filter(is_one).map(of).collect()
}

fn count_cell(count: usize, tone: Tone) -> TableCell {
    TableCell::toned(count.to_string(), if count == 0 { Tone::Plain } else { tone })
}

impl InList for NodeSummary {
    const LIST: &'static str = "nodes";
    const NONE: &'static str = "the cluster has no nodes";
    const COLUMNS: &'static [ListColumn<Self>] = &[
        ListColumn::narrow("NODE", |node| node.node.as_str().into()),
        ListColumn::narrow("STATE", |node| match node.state.as_str() {
            "Ready" => TableCell::toned("Ready", Tone::Good),
            "Cordoned" => TableCell::toned("Cordoned", Tone::Doubtful),
            other => TableCell::toned(other, Tone::Bad),
        }),
        ListColumn::narrow("AGENT", |node| match node.agent.as_str() {
            "Ready" => TableCell::toned("Ready", Tone::Good),
            other @ ("Cordoned" | "None" | UNKNOWN) => TableCell::toned(other, Tone::Doubtful),
            other => TableCell::toned(other, Tone::Bad),
        }),
        ListColumn::narrow("VERSION", |node| text_cell(node.version.as_deref())),
        ListColumn::number("DISKS", |node| node.disks.to_string().into()),
        ListColumn::number("MISSING", |node| count_cell(node.missing, Tone::Bad)),
        ListColumn::number("FAILING", |node| count_cell(node.failing, Tone::Bad)),
        ListColumn::number("CORDONED", |node| count_cell(node.cordoned, Tone::Doubtful)),
        ListColumn::number("VOLUMES", |node| node.volumes.to_string().into()),
        ListColumn::number("SIZE", |node| size_cell(node.size)),
        ListColumn::number("FREE", |node| size_cell(node.free)),
        ListColumn::number("LARGEST", |node| size_cell(node.largest)),
        ListColumn::number("ERASING", |node| size_cell(node.erasing)),
        ListColumn::wide_number("UNWELL", |node| count_cell(node.unwell, Tone::Bad)),
        ListColumn::wide("SILENT-SINCE", |node| text_cell(node.since.as_deref())),
    ];

    /// What kubectl takes.
    fn name(&self) -> String {
        format!("devicepool.localpool.dev/{}", self.node)
    }
}

impl InList for ReplicaStatus {
    const LIST: &'static str = "controllers";
    const NONE: &'static str = "no controller runs";
    const COLUMNS: &'static [ListColumn<Self>] = &[
        ListColumn::narrow("CONTROLLER", |one| format!("{}/{}", one.namespace, one.pod).into()),
        ListColumn::narrow("READY", |one| match one.ready {
            true => TableCell::toned("yes", Tone::Good),
            false => TableCell::toned("no", Tone::Bad),
        }),
        ListColumn::narrow("LEADER", |one| if one.leader { "yes".into() } else { TableCell::default() }),
        ListColumn::narrow("VERSION", |one| text_cell(one.version.as_deref())),
    ];

    fn name(&self) -> String {
        format!("pod/{}", self.pod)
    }
}
