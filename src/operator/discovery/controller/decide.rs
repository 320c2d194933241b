//! The status of a LocalVolumeDiscovery, from the state of its DaemonSet. Pure but for the clock of conditions.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::creating::is_of;
use crate::api::crd::{DiscoveryPhase, DiscoveryReason, LocalVolumeDiscovery, LocalVolumeDiscoveryStatus};
use crate::operator::event::clip;
use crate::operator::status::condition::condition;

/// All nodes that are selected are looked at.
pub const AVAILABLE: &str = "Available";
/// Something prevents a check of some nodes, and does not go away by itself.
pub const DEGRADED: &str = "Degraded";
/// At most this many pods are named.
pub const TOLD: usize = 3;

/// The state of the discovery.
#[derive(Clone, Debug, PartialEq)]
pub enum DaemonState {
    /// Nothing can start: one word, and a sentence.
    Refused { reason: DiscoveryReason, message: String },
    /// There is a DaemonSet.
    Running(Daemons),
}

/// What the status of the DaemonSet and those of its pods say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Daemons {
    /// The status is about the present spec of the DaemonSet.
    pub observed: bool,
    pub wanted: i32,
    pub scheduled: i32,
    pub available: i32,
    /// Why pods do not run.
    pub troubles: Vec<String>,
    /// How many nodes there are.
    pub nodes: usize,
    pub selected: usize,
}

/// The reasons of a waiting pod that do not go away by themselves.
const FAILURES: [&str; 9] = [
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

impl Daemons {
    pub fn of(daemon: &DaemonSet, pods: &[impl AsRef<Pod>], nodes: usize, selected: usize) -> Self {
        let status = daemon.status.clone().unwrap_or_default();
        let own = pods.iter().map(AsRef::as_ref).filter(|pod| is_of(daemon, pod));
        Self {
            observed: status.observed_generation.unwrap_or_default() >= daemon.metadata.generation.unwrap_or_default(),
            wanted: status.desired_number_scheduled,
            scheduled: status.current_number_scheduled,
            available: status.number_available.unwrap_or_default(),
            troubles: own.filter_map(trouble).collect(),
            nodes,
            selected,
        }
    }

    /// Pods that should be there and are not: only an event has the reason.
    pub fn lacks_pods(&self) -> bool {
        self.observed && self.scheduled < self.wanted
    }
}

/// What keeps a pod from running, if it does not go away by itself.
fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("no node");
    let unscheduled = status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False");
    let message = match unscheduled {
        Some(condition) => Some(format!("cannot be scheduled: {}", condition.message.as_deref().unwrap_or_default())),
        None => status.container_statuses.iter().flatten().find_map(container_trouble),
    };
    let failed = || (status.phase.as_deref() == Some("Failed")).then(|| status.message.clone().unwrap_or_default());
    message.or_else(failed).map(|message| format!("{node}: {}", message.trim()))
}

fn container_trouble(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref()?;
    let last = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    let ended = state.terminated.as_ref().or(last).filter(|ended| ended.exit_code != 0);
    // The last line of the container helps more than the fact that it is restarted.
    let ending = ended.map(|ended| {
        let message = ended.message.as_deref().map(str::trim).filter(|message| !message.is_empty());
        message.map_or_else(|| format!("it ended with {}", ended.exit_code), last_line)
    });
    let waiting = state.waiting.as_ref().and_then(|waiting| {
        let reason = waiting.reason.as_deref().filter(|reason| FAILURES.contains(reason))?;
        Some((reason, waiting.message.clone().unwrap_or_default()))
    });
    match (waiting, ending) {
        (Some((reason, _)), Some(ending)) => Some(format!("{reason}: {ending}")),
        (Some((reason, message)), None) => Some(format!("{reason}: {message}")),
        (None, ending) => ending,
    }
}

fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().to_owned()
}

pub fn decide(object: &LocalVolumeDiscovery, state: &DaemonState) -> LocalVolumeDiscoveryStatus {
    let before = object.status.clone().unwrap_or_default().conditions;
    let generation = object.metadata.generation;
    let (phase, available, degraded) = match state {
        DaemonState::Refused { reason, message } => (
            DiscoveryPhase::DiscoveryFailed,
            (false, reason.clone(), message.clone()),
            Some((reason.clone(), message.clone())),
        ),
        DaemonState::Running(daemons) => running(daemons),
    };
    let (holds, reason, message) = available;
    let available = condition(&before, AVAILABLE, holds, reason.word(), clip(message), generation);
    let degraded = match degraded {
        Some((reason, message)) => condition(&before, DEGRADED, true, reason.word(), clip(message), generation),
        None => condition(&before, DEGRADED, false, DiscoveryReason::AsExpected.word(), "nothing is wrong", generation),
    };
    LocalVolumeDiscoveryStatus {
        phase,
        conditions: vec![available, degraded],
        observed_generation: generation.unwrap_or_default(),
    }
}

/// The phase, whether and why all is available, and what is degraded.
type DaemonProgress = (DiscoveryPhase, (bool, DiscoveryReason, String), Option<(DiscoveryReason, String)>);

fn running(daemons: &Daemons) -> DaemonProgress {
    use DiscoveryPhase::{Discovering, DiscoveryFailed};
    let Daemons { observed, wanted, scheduled: _, available, troubles, nodes, selected } = daemons;
    if !observed {
        return (
            Discovering,
            (false, DiscoveryReason::Starting, "the DaemonSet has just been written".to_owned()),
            None,
        );
    }
    let on = format!("devices of {available} of {wanted} nodes are being discovered");
    if *wanted == 0 {
        let message = match selected {
            0 => format!("nodeSelector selects none of {nodes} nodes"),
            count => format!(
                "{count} of {nodes} nodes are selected, but none of them accepts the pods: see their taints and labels"
            ),
        };
        return (Discovering, (false, DiscoveryReason::NoNode, message), None);
    }
    if troubles.is_empty() {
        return match available >= wanted {
            true => (Discovering, (true, DiscoveryReason::Running, on), None),
            false => (Discovering, (false, DiscoveryReason::Starting, on), None),
        };
    }
    if available >= wanted {
        return (Discovering, (true, DiscoveryReason::Running, on), None);
    }
    let mut text = troubles[..troubles.len().min(TOLD)].join("; ");
    if let Some(more @ 1..) = troubles.len().checked_sub(TOLD) {
        text.push_str(&format!("; and {more} more"));
    }
    let message = format!("{on}; {text}");
    let phase = if *available == 0 { DiscoveryFailed } else { Discovering };
    (phase, (false, DiscoveryReason::PodsFailing, message.clone()), Some((DiscoveryReason::PodsFailing, message)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::super::sample::discovery;
    use super::*;

    fn daemon(wanted: i32, scheduled: i32, available: i32) -> DaemonSet {
        let daemon = json!({
            "metadata": {"name": "d", "uid": "d-uid", "generation": 3},
            "status": {"observedGeneration": 3, "desiredNumberScheduled": wanted, "currentNumberScheduled": scheduled,
                       "numberAvailable": available, "numberMisscheduled": 0, "numberReady": available},
        });
        serde_json::from_value(daemon).expect("a DaemonSet")
    }

    fn pod(node: &str, container: Value) -> Arc<Pod> {
        let mut status = json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 3});
        for (key, value) in container.as_object().expect("an object") {
            status[key] = value.clone();
        }
        let pod = json!({
            "metadata": {"name": "p", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d-uid"}]},
            "spec": {"nodeName": node, "containers": []},
            "status": {"containerStatuses": [status]},
        });
        Arc::new(serde_json::from_value(pod).expect("a Pod"))
    }

    fn decided(daemon: &DaemonSet, pods: &[Arc<Pod>], selected: usize) -> (DiscoveryPhase, String, String, String) {
        let object = discovery("storage", json!({}));
        let status = decide(&object, &DaemonState::Running(Daemons::of(daemon, pods, 5, selected)));
        assert_eq!(status.observed_generation, 2);
        let [available, degraded] = &status.conditions[..] else { panic!("two conditions") };
        let message = format!("{} {}", available.status, available.reason);
        (status.phase, message, available.message.clone(), degraded.status.clone())
    }

    use DiscoveryPhase::{Discovering, DiscoveryFailed};

    #[test]
    fn pods_that_run_are_available_and_those_that_come_up_are_no_failure() {
        let (phase, text, message, degraded) = decided(&daemon(3, 3, 3), &[], 3);
        assert_eq!((phase, text.as_str(), degraded.as_str()), (Discovering, "True Running", "False"));
        assert_eq!(message, "devices of 3 of 3 nodes are being discovered");
        let starting = pod("a", json!({"state": {"waiting": {"reason": "ContainerCreating"}}}));
        let (phase, text, ..) = decided(&daemon(3, 3, 1), &[starting], 3);
        assert_eq!((phase, text.as_str()), (Discovering, "False Starting"));
        let mut new = daemon(3, 3, 3);
        new.metadata.generation = Some(4);
        assert_eq!(decided(&new, &[], 3).1, "False Starting", "what is said is of an older state");
    }

    #[test]
    fn a_pod_that_cannot_come_up_is_a_failure_with_its_reason_and_one_of_many_is_not_all() {
        let image =
            || pod("a", json!({"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}));
        let (phase, text, message, degraded) = decided(&daemon(1, 1, 0), &[image()], 1);
        assert_eq!((phase, text.as_str(), degraded.as_str()), (DiscoveryFailed, "False PodsFailing", "True"));
        assert_eq!(message, "devices of 0 of 1 nodes are being discovered; a: ImagePullBackOff: no such image");
        let (phase, text, ..) = decided(&daemon(3, 3, 2), &[image()], 3);
        assert_eq!((phase, text.as_str()), (Discovering, "False PodsFailing"));
    }

    #[test]
    fn a_pod_that_ends_again_and_again_says_its_last_line_and_does_not_count_as_starting_in_between() {
        let ended = json!({"terminated": {"exitCode": 1, "message": "one\nforbidden\n"}});
        let waits = json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended});
        let runs = json!({"state": {"running": {}}, "lastState": ended});
        for (container, text) in
            [(waits, "CrashLoopBackOff: forbidden"), (runs, "a: forbidden"), (json!({"state": ended}), "a: forbidden")]
        {
            let (phase, _, message, _) = decided(&daemon(1, 1, 0), &[pod("a", container)], 1);
            assert!(phase == DiscoveryFailed && message.ends_with(text), "{message}");
        }
        let recovered = json!({"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1}}});
        assert_eq!(decided(&daemon(1, 1, 1), &[pod("a", recovered)], 1).1, "True Running");
    }

    #[test]
    fn pods_of_others_and_nodes_that_nobody_selected_are_told_from_failures() {
        let mut other = pod("a", json!({"state": {"waiting": {"reason": "ErrImagePull"}}}));
        Arc::make_mut(&mut other).metadata.owner_references = None;
        assert_eq!(decided(&daemon(1, 1, 0), &[other], 1).1, "False Starting");
        let (phase, text, message, _) = decided(&daemon(0, 0, 0), &[], 0);
        assert_eq!((phase, text.as_str()), (Discovering, "False NoNode"));
        assert_eq!(message, "nodeSelector selects none of 5 nodes");
        assert!(decided(&daemon(0, 0, 0), &[], 2).2.starts_with("2 of 5 nodes are selected"));
    }

    #[test]
    fn a_refusal_is_a_failure_with_a_message_and_a_long_one_is_cut() {
        let object = discovery("storage", json!({}));
        let refused = DaemonState::Refused { reason: DiscoveryReason::Invalid, message: "ä".repeat(2000) };
        let status = decide(&object, &refused);
        assert_eq!(status.phase, DiscoveryFailed);
        assert!(status.conditions[0].message.len() <= 1000);
        let again = LocalVolumeDiscovery { status: Some(status.clone()), ..object };
        assert_eq!(decide(&again, &refused), status, "nothing to write");
    }
}
