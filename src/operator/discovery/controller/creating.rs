//! Pods whose container is not created yet: which they are, and which of them have waited for too long. Pure.
//!
//! A volume that cannot be mounted and a network that cannot be set up leave a pod at ContainerCreating for ever; its
//! status does not say why, only an event does.

use crate::device::NodeName;
use crate::operator::api_server::object_key::Uid;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};
use kube::ResourceExt as _;

/// A large image over a slow network takes less.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(3);
/// What a container waits for while nothing has gone wrong yet.
const BEFORE: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// A pod that a node's kubelet runs, or should run, and that has no container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creating {
    pub uid: Uid<Pod>,
    node: NodeName,
    since: Option<Timestamp>,
}

impl Creating {
    /// The pods of a DaemonSet.
    pub fn of(daemon: &DaemonSet, pods: &[impl AsRef<Pod>]) -> Vec<Self> {
        pods.iter().map(AsRef::as_ref).filter(|pod| is_of(daemon, pod)).filter_map(Self::read).collect()
    }

    fn read(pod: &Pod) -> Option<Self> {
        let status = pod.status.as_ref();
        let node = pod.spec.as_ref()?.node_name.as_deref()?.into();
        let ended = matches!(status.and_then(|status| status.phase.as_deref()), Some("Failed" | "Succeeded"));
        let waits = |container: &ContainerStatus| {
            let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
            waiting.and_then(|waiting| waiting.reason.as_deref()).is_some_and(|reason| BEFORE.contains(&reason))
        };
        let mut containers = status.into_iter().flat_map(|status| status.container_statuses.iter().flatten());
        if ended || pod.metadata.deletion_timestamp.is_some() || !containers.all(waits) {
            return None;
        }
        let since = status.and_then(|status| status.start_time.as_ref()).or(pod.metadata.creation_timestamp.as_ref());
        Some(Self { uid: Uid::of(pod).unwrap_or_default(), node, since: since.map(|time| time.0) })
    }

    pub fn is_stuck(&self, now: Timestamp) -> bool {
        self.since.is_some_and(|since| now.duration_since(since) > STUCK_AFTER)
    }

    /// The message about a pod that is stuck; `why` is the newest warning about it.
    pub fn message(&self, why: Option<&Event>) -> String {
        let minutes = STUCK_AFTER.as_mins();
        let first = format!("{}: its container was not created after {minutes} minutes", self.node);
        let Some(why) = why else { return first };
        let parts = [&why.reason, &why.message].into_iter().flatten().map(|part| part.trim());
        let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        format!("{first}: {}", parts.join(": "))
    }
}

/// Whether a pod is one of a DaemonSet.
pub fn is_of(daemon: &DaemonSet, pod: &Pod) -> bool {
    pod.owner_references().iter().any(|owner| Some(&owner.uid) == daemon.metadata.uid.as_ref())
}

/// The newest event.
pub fn newest(events: Vec<Event>) -> Option<Event> {
    events.into_iter().max_by_key(|event| {
        let time = event.last_timestamp.as_ref().map(|time| time.0);
        time.or(event.event_time.as_ref().map(|time| time.0)).or(event
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn daemon() -> DaemonSet {
        serde_json::from_value(json!({"metadata": {"name": "d", "uid": "d-uid"}})).expect("a DaemonSet")
    }

    fn pod(status: Value) -> Arc<Pod> {
        let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d-uid"});
        let pod = json!({
            "metadata": {"name": "p", "uid": "p-uid", "ownerReferences": [owner], "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "a", "containers": []}, "status": status,
        });
        Arc::new(serde_json::from_value(pod).expect("a Pod"))
    }

    fn container(state: Value) -> Value {
        json!([{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state}])
    }

    fn creating(status: Value) -> Vec<Creating> {
        Creating::of(&daemon(), &[pod(status)])
    }

    #[test]
    fn a_pod_at_container_creating_is_stuck_after_minutes_of_its_node_having_it() {
        let waits = container(json!({"waiting": {"reason": "ContainerCreating"}}));
        let of = creating(json!({"containerStatuses": waits, "startTime": "2026-01-01T01:00:00Z"}));
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        assert!(!of[0].is_stuck(at("2026-01-01T01:02:59Z")));
        assert!(of[0].is_stuck(at("2026-01-01T01:03:01Z")));
        // The kubelet has not reported anything: count from when the pod was created.
        let silent = creating(json!({"phase": "Pending"}));
        assert!(silent[0].is_stuck(at("2026-01-01T00:03:01Z")) && !silent[0].is_stuck(at("2026-01-01T00:02:00Z")));
    }

    #[test]
    fn pods_that_run_that_ended_and_those_of_others_are_none_of_them() {
        for state in [json!({"running": {}}), json!({"waiting": {"reason": "CrashLoopBackOff"}})] {
            assert_eq!(creating(json!({"containerStatuses": container(state)})), []);
        }
        assert_eq!(creating(json!({"phase": "Failed"})), []);
        let mut other = pod(json!({"phase": "Pending"}));
        Arc::make_mut(&mut other).metadata.owner_references = None;
        assert_eq!(Creating::of(&daemon(), &[other]), []);
        let mut nowhere = pod(json!({"phase": "Pending"}));
        Arc::make_mut(&mut nowhere).spec.as_mut().expect("a spec").node_name = None;
        assert_eq!(Creating::of(&daemon(), &[nowhere]), [], "the scheduler reports it");
    }

    #[test]
    fn the_newest_warning_says_why() {
        let event = |time: &str, message: &str| {
            let event = json!({"metadata": {}, "involvedObject": {}, "lastTimestamp": time, "reason": "FailedMount", "message": message});
            serde_json::from_value::<Event>(event).expect("an Event")
        };
        let newest = newest(vec![event("2026-01-01T00:02:00Z", "new"), event("2026-01-01T00:01:00Z", "old")]);
        let stuck = &creating(json!({"phase": "Pending"}))[0];
        assert_eq!(
            stuck.message(newest.as_ref()),
            "a: its container was not created after 3 minutes: FailedMount: new"
        );
        assert_eq!(stuck.message(None), "a: its container was not created after 3 minutes");
    }
}
