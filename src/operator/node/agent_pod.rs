//! The pod of an agent: only what says since when it is ready, or not ready. All other fields are skipped as they are
//! read, and labels and annotations are dropped: a large cluster has thousands of these pods.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource};
use serde::Deserialize;

use crate::device::NodeName;
use crate::operator::api_server::store::{Decoded, Store};
use crate::operator::api_server::watch::Watched;
use crate::operator::status::ready::{READY, ready, says_ready};

/// Where the agents' pods are, and how they are found.
#[derive(Clone, Debug)]
pub struct AgentPods {
    pub namespace: String,
    /// `key=value,…`.
    pub selector: String,
}

impl AgentPods {
    pub(in crate::operator) fn watched(&self, client: Client) -> Watched<AgentPod> {
        let selected = Config::default().labels(&self.selector);
        Watched::some(Api::namespaced(client, &self.namespace), selected, "Pods of the agents")
    }
}

#[derive(Resource, Clone, Debug, Default, PartialEq, Deserialize)]
#[resource(inherit = Pod)]
pub(in crate::operator) struct AgentPod {
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: AgentPodSpec,
    #[serde(default)]
    status: AgentPodStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AgentPodSpec {
    node_name: Option<NodeName>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct AgentPodStatus {
    #[serde(default)]
    conditions: Vec<PodCondition>,
}

/// Whether a pod is ready, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::operator) enum PodReady {
    Since(Timestamp),
    /// kubelet or the node controller said so, or the pod was created then and nobody has said anything.
    NotSince(Timestamp),
}

impl AgentPod {
    /// A store of them, by node.
    pub fn store() -> Store<Self> {
        Store::grouped(|a, b| a.ready() == b.ready() && a.node() == b.node(), Self::node)
    }

    pub fn trimmed(self) -> Decoded<Self> {
        let Self { metadata, spec, mut status } = self;
        let ObjectMeta { name, namespace, uid, resource_version, creation_timestamp, .. } = metadata;
        let metadata =
            ObjectMeta { name, namespace, uid, resource_version, creation_timestamp, ..ObjectMeta::default() };
        status.conditions.retain(|condition| condition.type_ == READY);
        Ok(Self { metadata, spec, status })
    }

    fn node(&self) -> Option<NodeName> {
        self.spec.node_name.clone()
    }

    /// `None`: its times are not known.
    pub fn ready(&self) -> Option<PodReady> {
        let said = ready(&self.status.conditions);
        let made = self.metadata.creation_timestamp.as_ref();
        let since = said.and_then(|condition| condition.last_transition_time.as_ref()).or(made)?.0;
        Some(match said {
            Some(condition) if says_ready(condition) => PodReady::Since(since),
            _ => PodReady::NotSince(since),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(conditions: serde_json::Value) -> AgentPod {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "p", "namespace": "localpool", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "1970-01-01T00:00:01Z",
                "labels": {"app": "x"}, "annotations": {"a": "long"},
            },
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running", "conditions": conditions},
        });
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn of_a_pod_only_its_name_its_node_and_its_conditions_are_kept() {
        let read = pod(json!([])).trimmed().ok().expect("it can be read");
        assert_eq!((read.metadata.labels.as_ref(), read.metadata.annotations.as_ref()), (None, None));
        assert_eq!((read.metadata.uid.as_deref(), read.node()), (Some("u"), Some("n".into())));
    }

    #[test]
    fn a_pod_tells_since_when_it_is_ready_or_not() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let said = |status: &str| {
            json!([{"type": "Initialized", "status": "True", "lastTransitionTime": "1970-01-01T00:00:03Z"},
                   {"type": "Ready", "status": status, "lastTransitionTime": "1970-01-01T00:00:05Z"}])
        };
        assert_eq!(pod(said("True")).ready(), Some(PodReady::Since(at(5))));
        assert_eq!(pod(said("False")).ready(), Some(PodReady::NotSince(at(5))));
        assert_eq!(pod(said("Unknown")).ready(), Some(PodReady::NotSince(at(5))));
        assert_eq!(pod(json!([])).ready(), Some(PodReady::NotSince(at(1))), "kubelet has never seen it");
    }
}
