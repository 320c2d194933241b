//! What is wrong in the cluster, each with what to do. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt as _};
use serde::Serialize;

use super::asked_disk::why_line;
use super::disks::UNKNOWN;
use super::node_summary::{COMPONENT_LABEL, ClusterCase, NodeSummary, ReplicaStatus, is_failing, is_ready};
use crate::api::crd::{DevicePool, DiskState, DiskStatus, NodeDiskSetup, PoolVolume};
use crate::device::DiskId;
use crate::health::HealthReason;

/// The condition of a set that says whether its spec is valid.
const VALID: &str = "Valid";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterProblem {
    pub what: String,
    pub next: String,
}

/// All of them, the worst first. `program` is the version of the program that asks.
pub fn problems(
    case: &ClusterCase,
    nodes: &[NodeSummary],
    controllers: &[ReplicaStatus],
    program: &str,
) -> Vec<ClusterProblem> {
    let no_controller = of_controllers(controllers);
    // Without a controller nobody judges agents, and the missing controller is in the list already.
    let is_judged = no_controller.is_none();
    let mut problems: Vec<ClusterProblem> = no_controller.into_iter().collect();
    problems.extend(skew(nodes, controllers, program));
    problems.extend(nodes.iter().filter_map(of_node));
    problems.extend(nodes.iter().filter_map(of_agent));
    problems.extend(nodes.iter().filter(|node| is_judged && node.agent == UNKNOWN).map(of_unjudged));
    problems.extend(case.pods.iter().filter_map(|pod| of_agent_pod(pod, nodes)));
    problems.extend(case.sets.iter().filter_map(|set| of_set(&**set, &set.status.as_ref()?.conditions)));
    problems.extend(case.local_volumes.iter().filter_map(|set| of_set(&**set, &set.status.as_ref()?.conditions)));
    problems.extend(case.disk_setups.iter().filter_map(|setup| of_disk_setup(setup)));
    problems.extend(case.pools.iter().flat_map(|pool| of_disks(pool)));
    problems.extend(nodes.iter().filter_map(|node| of_volumes(case, node)));
    problems
}

fn of_node(node: &NodeSummary) -> Option<ClusterProblem> {
    let name = &node.node;
    // A silent agent and its node are one problem (`of_agent`).
    (node.state == "NotReady" && node.since.is_none()).then(|| ClusterProblem {
        what: format!("node {name} is not ready: no pod starts there"),
        next: format!("`kubectl describe node {name}` says why"),
    })
}

/// The controller runs, and has not written its condition.
fn of_unjudged(node: &NodeSummary) -> ClusterProblem {
    ClusterProblem {
        what: format!("node {}: the controller has not said yet whether its agent answers", node.node),
        next: "ask again in a minute; if it is still so, look at the log of the controller".to_owned(),
    }
}

/// An agent that does not start. One that is silent is in the list already.
fn of_agent_pod(pod: &Pod, nodes: &[NodeSummary]) -> Option<ClusterProblem> {
    let is_agent = pod.labels().get(COMPONENT_LABEL).is_some_and(|one| one == "node");
    if !is_agent || is_ready(pod) || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("(none yet)");
    let is_listed = nodes.iter().any(|node| node.node == *on && (node.since.is_some() || node.state == "NotReady"));
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    (!is_listed).then(|| ClusterProblem {
        what: format!("node {on}: its agent, pod {namespace}/{name}, is not ready"),
        next: format!("`kubectl -n {namespace} describe pod {name}` and `kubectl -n {namespace} logs {name}` say why"),
    })
}

fn of_set<K: Resource<DynamicType = ()>>(set: &K, conditions: &[Condition]) -> Option<ClusterProblem> {
    let invalid = conditions.iter().find(|one| one.type_ == VALID && one.status == "False")?;
    let (kind, plural) = (K::kind(&()), K::plural(&()));
    let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
    Some(ClusterProblem {
        what: format!("{kind} {namespace}/{name} is not valid: {}", invalid.message),
        next: format!("kubectl -n {namespace} edit {plural} {name}"),
    })
}

/// One with a slip. What its disks lack is said with the disks.
fn of_disk_setup(setup: &NodeDiskSetup) -> Option<ClusterProblem> {
    let why = setup.slip()?;
    let name = setup.name_any();
    Some(ClusterProblem {
        what: format!("NodeDiskSetup {name} is not valid, and its disks stay as they are: {why}"),
        next: format!("kubectl edit nodedisksetup {name}"),
    })
}

fn of_controllers(controllers: &[ReplicaStatus]) -> Option<ClusterProblem> {
    let how = "`kubectl get pods -A -l localpool.dev/component=controller` shows its pods; `kubectl describe` and `kubectl \
               logs` of one say why it does not run";
    let what = match controllers {
        [] => "no controller runs: no volumes are made or deleted",
        some if some.iter().any(|one| one.ready) => return None,
        _ => "no replica of the controller is ready: no volumes are made or deleted",
    };
    Some(ClusterProblem { what: what.to_owned(), next: how.to_owned() })
}

/// Parts that are of different versions.
fn skew(nodes: &[NodeSummary], controllers: &[ReplicaStatus], program: &str) -> Option<ClusterProblem> {
    let mut versions: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut agents: BTreeMap<&str, usize> = BTreeMap::new();
    for version in nodes.iter().filter_map(|node| node.version.as_deref()) {
        *agents.entry(version).or_default() += 1;
    }
    for (version, count) in agents {
        versions.entry(version).or_default().push(counted(count, "agent"));
    }
    let of_controllers: BTreeSet<&str> = controllers.iter().filter_map(|one| one.version.as_deref()).collect();
    for version in of_controllers {
        versions.entry(version).or_default().push("the controller".to_owned());
    }
    versions.entry(program).or_default().push("this program".to_owned());
    if versions.len() < 2 {
        return None;
    }
    let texts: Vec<String> = versions.iter().map(|(version, who)| format!("{version}: {}", who.join(", "))).collect();
    Some(ClusterProblem {
        what: format!("not all parts are of one version: {}", texts.join("; ")),
        next: "end the upgrade, or use the program of that version".to_owned(),
    })
}

fn of_agent(node: &NodeSummary) -> Option<ClusterProblem> {
    let name = &node.node;
    let since = node.since.as_ref()?;
    let action = HealthReason::from(node.agent.clone()).row().map(|row| row.action);
    let otherwise = "docs/health.md says what to do about it";
    Some(ClusterProblem {
        what: format!(
            "node {name}: its agent does not answer, since {since} ({}); what follows of it is old",
            node.agent
        ),
        next: action.unwrap_or(otherwise).to_owned(),
    })
}

/// The disks of a pool with which something is wrong.
fn wrong(pool: &DevicePool) -> impl Iterator<Item = &DiskStatus> {
    let disks = pool.status.iter().flat_map(|status| &status.disks);
    disks.filter(|disk| disk.state == DiskState::Missing || is_failing(disk))
}

fn of_disks(pool: &DevicePool) -> Vec<ClusterProblem> {
    let node = pool.node();
    let problem = |disk: &DiskStatus| {
        let said = match (disk.health.first(), &disk.message) {
            (Some(entry), _) => format!("{}: {}", entry.reason, entry.message),
            (None, Some(message)) => format!("{:?}: {message}", disk.state),
            (None, None) => format!("{:?}", disk.state),
        };
        ClusterProblem {
            what: format!("node {node}: disk {} ({}): {said}", disk.id, disk.path),
            next: format!("{} says what is on it and what to do", why_line(&node, &disk.id)),
        }
    };
    wrong(pool).map(problem).collect()
}

/// What is wrong with volumes beside what is wrong with their disks, which are named already.
fn of_volumes(case: &ClusterCase, node: &NodeSummary) -> Option<ClusterProblem> {
    let pool = case.pools.iter().find(|pool| pool.node() == node.node);
    let named: BTreeSet<&DiskId> = pool.into_iter().flat_map(|pool| wrong(pool)).map(|disk| &disk.id).collect();
    let is_beside = |volume: &&Arc<PoolVolume>| {
        let Some(status) = volume.status.as_ref().filter(|status| !status.health.is_empty()) else { return false };
        volume.spec.node == node.node && status.disk.as_ref().is_none_or(|disk| !named.contains(disk))
    };
    let beside = case.volumes.iter().filter(is_beside).count();
    (beside > 0 && node.since.is_none()).then(|| ClusterProblem {
        what: format!("node {}: something is wrong with {beside} of its {} volumes", node.node, node.volumes),
        next: format!("`kubectl localpool volumes --node {} -o wide` says what", node.node),
    })
}

pub fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
