//! The cluster at a glance: its nodes, their agents, the controller, the versions of all, and what is wrong. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde::Serialize;

use super::node_summary::{ClusterCase, NodeSummary, ReplicaStatus, replicas};
use super::problems::{ClusterProblem, counted, problems};
use crate::api::crd::DevicePool;
use crate::api::quantity;
use crate::device::NodeName;
use crate::show::one_line;

/// Field names stay; new ones may come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    pub controllers: Vec<ReplicaStatus>,
    pub nodes: Vec<NodeSummary>,
    /// What is wrong, each with what to do, the worst first.
    pub problems: Vec<ClusterProblem>,
}

/// The whole status. `program` is the version of the program that asks.
pub fn status(case: &ClusterCase, program: &str) -> ClusterStatus {
    status_with(case, replicas(case), program)
}

/// The same, of these replicas.
pub fn status_with(case: &ClusterCase, controllers: Vec<ReplicaStatus>, program: &str) -> ClusterStatus {
    let mut volumes: BTreeMap<&NodeName, (usize, usize)> = BTreeMap::new();
    for volume in &case.volumes {
        let (all, unwell) = volumes.entry(&volume.spec.node).or_default();
        *all += 1;
        *unwell += usize::from(volume.status.as_ref().is_some_and(|status| !status.health.is_empty()));
    }
    let nodes: BTreeMap<NodeName, &Node> = case.nodes.iter().map(|node| (node.name_any().into(), &**node)).collect();
    let pools: BTreeMap<NodeName, &DevicePool> = case.pools.iter().map(|pool| (pool.node(), &**pool)).collect();
    let names: BTreeSet<&NodeName> = nodes.keys().chain(pools.keys()).collect();
    let summary = |name: &NodeName| {
        let count = volumes.get(name).copied().unwrap_or_default();
        NodeSummary::of(name, nodes.get(name).copied(), pools.get(name).copied(), count)
    };
    let nodes: Vec<NodeSummary> = names.into_iter().map(summary).collect();
    let problems = problems(case, &nodes, &controllers, program);
    ClusterStatus { controllers, nodes, problems }
}

impl ClusterStatus {
    /// What is wrong, for people; what this version does not know is not said to be well.
    pub fn problems_text(&self) -> String {
        let Self { controllers: _, nodes, problems } = self;
        let agents = nodes.iter().filter(|node| node.agent == "Ready" || node.agent == "Cordoned").count();
        if problems.is_empty() {
            let disks: usize = nodes.iter().map(|node| node.disks).sum();
            let free: u64 = nodes.iter().map(|node| node.free).sum();
            let (agents, disks) = (counted(agents, "agent"), counted(disks, "disk"));
            return format!("nothing is wrong: {agents}, {disks}, {} free\n", quantity::short(free));
        }
        problems
            .iter()
            .map(|ClusterProblem { what, next }| format!("{}\n    {}\n", one_line(what), one_line(next)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::super::node_summary::{COMPONENT_LABEL, VERSION_LABEL};
    use super::*;
    use crate::api::crd::{DiskState, DiskStatus, NodeDiskSetup, Phase};
    use crate::health::HealthReason;
    use crate::operator::bytes::unsigned;
    use crate::operator::disk::member::MEMBER;
    use crate::operator::volume::sample::{in_phase, pool, status_condition};

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("an object")
    }

    fn replica(name: &str, ready: &str, version: &str) -> Pod {
        let labels = json!({COMPONENT_LABEL: "controller", VERSION_LABEL: version});
        read(json!({
            "metadata": {"name": name, "namespace": "localpool", "labels": labels},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
    }

    /// A node that is well, with one disk and a controller.
    fn case() -> ClusterCase {
        let mut pool = pool("n", [3, 2, 1]);
        let disk = json!({"id": "gpt-1", "path": "/dev/sdb", "layout": "Carved", "set": "d/s", "size": 9 << 30,
                          "free": 3_u64 << 30, "volumes": 1, "state": "Ready", "erasing": 1 << 30});
        let status = pool.status.as_mut().expect("set");
        (status.disks, status.version) = (vec![read(disk)], "1.0.0".to_owned());
        ClusterCase {
            pools: vec![Arc::new(pool)],
            volumes: vec![Arc::new(in_phase(Phase::Ready))],
            nodes: vec![Arc::new(read(json!({"metadata": {"name": "n"}})))],
            pods: vec![replica("c-0", "True", "1.0.0"), replica("c-1", "True", "1.0.0")],
            leader: Some("c-1".to_owned()),
            sets: Vec::new(),
            local_volumes: Vec::new(),
            disk_setups: Vec::new(),
        }
    }

    #[test]
    fn the_size_of_a_node_has_what_an_array_has_once() {
        let mut case = case();
        let disks = &mut Arc::make_mut(&mut case.pools[0]).status.as_mut().expect("set").disks;
        let array = disks[0].clone();
        let size = unsigned::<u64>(array.size);
        disks.push(DiskStatus { id: crate::device::DiskId::named("gpt-2"), layout: MEMBER.to_owned(), ..array });
        assert_eq!(status(&case, "1.0.0").nodes[0].size, size);
    }

    fn problems(case: &ClusterCase) -> String {
        status(case, "1.0.0").problems_text()
    }

    fn first_disk(case: &mut ClusterCase) -> &mut DiskStatus {
        &mut Arc::make_mut(&mut case.pools[0]).status.as_mut().expect("set").disks[0]
    }

    #[test]
    fn a_cluster_that_is_well_says_so_and_what_it_has() {
        let found = status(&case(), "1.0.0");
        assert_eq!(found.problems_text(), "nothing is wrong: 1 agent, 1 disk, 3Gi free\n");
        let node = &found.nodes[0];
        assert_eq!(
            (node.state.as_str(), node.agent.as_str(), node.version.as_deref()),
            ("Ready", "Ready", Some("1.0.0"))
        );
        assert_eq!((node.disks, node.missing, node.failing, node.volumes, node.unwell), (1, 0, 0, 1, 0));
        assert_eq!((node.largest, node.erasing), (2 << 30, 1 << 30));
        let leads: Vec<_> = found.controllers.iter().map(|one| (one.pod.as_str(), one.ready, one.leader)).collect();
        assert_eq!(leads, [("c-0", true, false), ("c-1", true, true)]);
    }

    #[test]
    fn a_controller_that_does_not_run_and_versions_that_differ_are_told() {
        let mut none = case();
        none.pods.clear();
        assert!(problems(&none).starts_with("no controller runs"), "{}", problems(&none));
        none.pods = vec![replica("c-0", "False", "1.0.0")];
        assert!(problems(&none).starts_with("no replica of the controller is ready"));
        let mut skewed = case();
        skewed.pods = vec![replica("c-0", "True", "1.1.0")];
        let said = problems(&skewed);
        assert!(said.contains("1.0.0: 1 agent, this program; 1.1.0: the controller"), "{said}");
        let other = status(&case(), "2.0.0").problems_text();
        assert!(other.contains("1.0.0: 1 agent, the controller; 2.0.0: this program"), "{other}");
    }

    #[test]
    fn a_disk_setup_with_a_slip_is_told_with_its_field_and_one_that_is_valid_is_not() {
        let setup = |accepted: &str| -> Arc<NodeDiskSetup> {
            let accepted = json!({"type": "Accepted", "status": accepted, "reason": "x", "message": "spec.localDiskPath: unknown field",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            Arc::new(read(json!({
                "apiVersion": "localpool.dev/v1alpha1", "kind": "NodeDiskSetup", "metadata": {"name": "fast"}, "spec": {},
                "status": {"conditions": [accepted]},
            })))
        };
        let mut one = case();
        one.disk_setups = vec![setup("True")];
        assert!(problems(&one).starts_with("nothing is wrong"), "{}", problems(&one));
        one.disk_setups = vec![setup("False")];
        let said = problems(&one);
        assert!(said.contains("NodeDiskSetup fast is not valid") && said.contains("spec.localDiskPath"), "{said}");
        assert!(said.contains("kubectl edit nodedisksetup fast"), "{said}");
    }

    #[test]
    fn a_silent_agent_a_missing_and_a_failing_disk_and_a_sick_volume_are_told_with_what_to_do() {
        let mut one = case();
        let silent = status_condition("Ready", "Unknown", "AgentSilent", "no answer");
        Arc::make_mut(&mut one.pools[0]).status.as_mut().expect("set").conditions = vec![silent];
        let found = status(&one, "1.0.0");
        assert_eq!((found.nodes[0].agent.as_str(), found.nodes[0].largest), ("AgentSilent", 0));
        let action = HealthReason::AgentSilent.row().expect("known").action;
        assert!(found.problems_text().contains(action), "{}", found.problems_text());
        let mut one = case();
        first_disk(&mut one).state = DiskState::Missing;
        let said = problems(&one);
        assert!(said.contains("node n: disk gpt-1 (/dev/sdb): Missing") && said.contains("why disk n/gpt-1"), "{said}");
        assert_eq!((status(&one, "1.0.0").nodes[0].missing, status(&one, "1.0.0").nodes[0].failing), (1, 0));
        let mut one = case();
        let sick = || read(json!({"reason": "DiskFailing", "severity": "Degraded", "message": "it\nfails"}));
        first_disk(&mut one).health = vec![sick()];
        assert!(problems(&one).contains("DiskFailing: it\u{fffd}fails"), "{}", problems(&one));
        let mut one = case();
        Arc::make_mut(&mut one.volumes[0]).status.as_mut().expect("set").health = vec![sick()];
        let said = problems(&one);
        assert!(said.contains("1 of its 1 volumes") && said.contains("volumes --node n -o wide"), "{said}");
    }

    #[test]
    fn nothing_is_only_well_if_each_agent_node_and_set_is() {
        let mut one = case();
        let agent = json!({
            "metadata": {"name": "a-1", "namespace": "localpool", "labels": {COMPONENT_LABEL: "node"}},
            "spec": {"nodeName": "m", "containers": []}, "status": {"conditions": [{"type": "Ready", "status": "False"}]},
        });
        one.pods.push(read(agent));
        let said = problems(&one);
        assert!(said.starts_with("node m: its agent, pod localpool/a-1, is not ready\n"), "{said}");
        assert!(said.contains("kubectl -n localpool describe pod a-1"), "{said}");
        let mut one = case();
        one.nodes = vec![Arc::new(read(
            json!({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
        ))];
        assert!(problems(&one).starts_with("node n is not ready"), "{}", problems(&one));
        let mut one = case();
        let condition = status_condition("Valid", "False", "Invalid", "spec.dryrun: unknown field");
        let set = json!({"apiVersion": "v", "kind": "k", "metadata": {"name": "s", "namespace": "d"}, "spec": {},
                         "status": {"conditions": [condition]}});
        one.sets = vec![Arc::new(read(set))];
        let said = problems(&one);
        assert!(said.starts_with("LocalVolumeSet d/s is not valid: spec.dryrun: unknown field"), "{said}");
        assert!(said.contains("kubectl -n d edit localvolumesets s"), "{said}");
        let mut one = case();
        Arc::make_mut(&mut one.pools[0]).status.as_mut().expect("set").conditions.clear();
        assert_eq!(status(&one, "1.0.0").nodes[0].agent, "Unknown");
        assert!(problems(&one).contains("has not said yet whether its agent answers"), "{}", problems(&one));
        one.pods.clear();
        assert!(!problems(&one).contains("has not said yet"), "that no controller runs is enough");
    }

    #[test]
    fn a_bad_disk_hides_no_volume_of_another_disk_and_a_missing_one_has_nothing_free() {
        let mut one = case();
        first_disk(&mut one).state = DiskState::Missing;
        let volume = |disk: &str| {
            let mut volume = in_phase(Phase::Ready);
            let status = volume.status.as_mut().expect("set");
            status.disk = Some(crate::device::DiskId::named(disk));
            status.health = vec![read(json!({"reason": "DiskFailing", "severity": "Degraded", "message": "it fails"}))];
            Arc::new(volume)
        };
        one.volumes = vec![volume("gpt-1"), volume("gpt-2")];
        assert!(problems(&one).contains("something is wrong with 1 of its 2 volumes"), "{}", problems(&one));
        one.volumes.pop();
        assert!(!problems(&one).contains("something is wrong"), "{}", problems(&one));
        assert_eq!(status(&one, "1.0.0").nodes[0].free, 0);
    }

    #[test]
    fn nodes_without_an_agent_and_pools_without_a_node_are_shown() {
        let mut one = case();
        one.nodes = vec![Arc::new(read(json!({"metadata": {"name": "m"}, "spec": {"unschedulable": true}})))];
        let found = status(&one, "1.0.0");
        let seen: Vec<_> =
            found.nodes.iter().map(|node| (node.node.as_str(), node.state.as_str(), node.agent.as_str())).collect();
        assert_eq!(seen, [("m", "Cordoned", "None"), ("n", "Deleted", "Ready")]);
    }
}
