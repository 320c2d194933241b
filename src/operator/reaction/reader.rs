//! Reads what `LiveFacts` hold from the API server. Of a namespace, the pods are listed once in a pass.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use kube::{Api, Client, ResourceExt};

use super::gates::pvc_of;
use super::home_reader::read_home;
use super::live::{LiveFacts, NamespaceFacts, PodFacts, PvcFacts, StatefulSetFacts};
use super::marked::MarkedVolume;
use super::record::{PvcUid, ReactionRecord};
use super::settings::{LABEL, LABEL_VALUE, PAUSE, ReactionMode};
use crate::device::NodeName;
use crate::operator::api_server::client::within;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::object_key::{ObjectName, Uid};
use crate::operator::kube_volume::LivePersistentVolumes;
use crate::operator::persistent_volume::pod_pvcs::{each_pod, pvc_names};
use crate::operator::status::ready::is_ready;

/// Reads for one pass.
pub struct LiveReader {
    client: Client,
    mode: ReactionMode,
    pods: BTreeMap<ObjectName<Namespace>, Arc<Vec<ReadPod>>>,
}

/// A pod, and the StatefulSet that controls it.
struct ReadPod {
    facts: PodFacts,
    pvcs: Vec<ObjectName<PersistentVolumeClaim>>,
    stateful_set: Option<ObjectName<StatefulSet>>,
}

impl LiveReader {
    pub fn new(client: Client, mode: ReactionMode) -> Self {
        Self { client, mode, pods: BTreeMap::new() }
    }

    pub async fn read(&mut self, volume: &MarkedVolume) -> Result<LiveFacts, OperatorError> {
        let found = LivePersistentVolumes::new(self.client.clone()).get(&ObjectName::of(&*volume.volume)).await?;
        let mut live = LiveFacts { volume: found.map(Arc::new), ..LiveFacts::default() };
        let record = volume.record.as_ref().and_then(|record| record.as_ref().ok());
        let pvc = record.map(|record| record.pvc.clone()).or_else(|| pvc_of(volume));
        if let Some(pvc) = &pvc {
            live.pvc = self.pvc(pvc).await?;
        }
        // The role allows no more.
        if self.mode == ReactionMode::Off {
            return Ok(live);
        }
        if let Some(pvc) = &pvc {
            self.users(pvc, record, &mut live).await?;
        }
        let pod_node = live.pods.iter().filter(|pod| pod.uses_pvc).find_map(|pod| pod.node.clone());
        read_home(&self.client, volume, pod_node.as_ref(), &mut live).await?;
        Ok(live)
    }

    /// The pods that use the claim.
    async fn users(
        &mut self,
        pvc: &PvcUid,
        record: Option<&ReactionRecord>,
        live: &mut LiveFacts,
    ) -> Result<(), OperatorError> {
        live.namespace = self.namespace(&pvc.namespace).await?;
        let pods = self.pods(&pvc.namespace).await?;
        let uses = |pod: &&ReadPod| pod.pvcs.contains(&pvc.name);
        let of_pod = || pods.iter().filter(uses).find_map(|pod| pod.stateful_set.clone());
        if let Some(stateful_set) = record.map(|record| record.stateful_set.name.clone()).or_else(of_pod) {
            live.stateful_set = self.stateful_set(&pvc.namespace, &stateful_set).await?;
        }
        let uid = live.stateful_set.as_ref().map(|stateful_set| &stateful_set.uid);
        let is_needed =
            |pod: &&ReadPod| uses(pod) || uid.is_some_and(|uid| pod.facts.stateful_set.as_ref() == Some(uid));
        let with = |pod: &ReadPod| PodFacts { uses_pvc: uses(&pod), ..pod.facts.clone() };
        live.pods = pods.iter().filter(is_needed).map(with).collect();
        Ok(())
    }

    async fn pvc(&self, pvc: &PvcUid) -> Result<Option<PvcFacts>, OperatorError> {
        let PvcUid { namespace, name, .. } = pvc;
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace.as_str());
        let what = format!("reading PersistentVolumeClaim {namespace}/{name}");
        Ok(within(&what, api.get_opt(name.as_str())).await?.map(|pvc| pvc_facts(&pvc)))
    }

    async fn namespace(&self, name: &ObjectName<Namespace>) -> Result<NamespaceFacts, OperatorError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let found = within(&format!("reading Namespace {name}"), api.get_metadata_opt(name.as_str())).await?;
        Ok(found.map_or_else(NamespaceFacts::default, |found| NamespaceFacts {
            is_chosen: found.labels().get(LABEL).is_some_and(|value| value == LABEL_VALUE),
            is_paused: is_paused(&found),
        }))
    }

    async fn stateful_set(
        &self,
        namespace: &ObjectName<Namespace>,
        name: &ObjectName<StatefulSet>,
    ) -> Result<Option<StatefulSetFacts>, OperatorError> {
        let api: Api<StatefulSet> = Api::namespaced(self.client.clone(), namespace.as_str());
        let what = format!("reading StatefulSet {namespace}/{name}");
        Ok(within(&what, api.get_opt(name.as_str())).await?.map(|stateful_set| set_facts(&stateful_set)))
    }

    async fn pods(&mut self, namespace: &ObjectName<Namespace>) -> Result<Arc<Vec<ReadPod>>, OperatorError> {
        if let Some(pods) = self.pods.get(namespace) {
            return Ok(Arc::clone(pods));
        }
        let mut all = Vec::new();
        each_pod(&self.client, namespace.as_str(), |pod| all.push(read_pod(&pod))).await?;
        let all = Arc::new(all);
        self.pods.insert(namespace.clone(), Arc::clone(&all));
        Ok(all)
    }
}

fn is_paused(object: &impl ResourceExt) -> bool {
    object.annotations().contains_key(PAUSE)
}

fn pvc_facts(pvc: &PersistentVolumeClaim) -> PvcFacts {
    PvcFacts {
        uid: Uid::of(pvc).unwrap_or_default(),
        resource_version: pvc.resource_version().unwrap_or_default(),
        volume: pvc.spec.as_ref().and_then(|spec| spec.volume_name.clone()).map(ObjectName::from),
        is_bound: pvc.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound"),
        is_deleted: pvc.metadata.deletion_timestamp.is_some(),
        is_paused: is_paused(pvc),
    }
}

fn set_facts(stateful_set: &StatefulSet) -> StatefulSetFacts {
    let spec = stateful_set.spec.as_ref();
    let ordinals = spec.and_then(|spec| spec.ordinals.as_ref());
    let templates = spec.and_then(|spec| spec.volume_claim_templates.as_deref()).unwrap_or_default();
    StatefulSetFacts {
        name: ObjectName::of(stateful_set),
        uid: Uid::of(stateful_set).unwrap_or_default(),
        is_deleted: stateful_set.metadata.deletion_timestamp.is_some(),
        is_paused: is_paused(stateful_set),
        replicas: spec.and_then(|spec| spec.replicas).unwrap_or(1),
        first_ordinal: ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0),
        templates: templates.iter().map(ResourceExt::name_any).collect(),
        is_ordered: spec.and_then(|spec| spec.pod_management_policy.as_deref()) != Some("Parallel"),
    }
}

fn read_pod(pod: &Pod) -> ReadPod {
    let is_set = |kind: &str, version: &str| kind == "StatefulSet" && version.starts_with("apps/");
    let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    let owner = owner.filter(|owner| is_set(&owner.kind, &owner.api_version));
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let facts = PodFacts {
        name: ObjectName::of(pod),
        uid: Uid::of(pod).unwrap_or_default(),
        resource_version: pod.resource_version().unwrap_or_default(),
        stateful_set: owner.map(|owner| owner.uid.clone().into()),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).map(NodeName::from),
        is_deleted: pod.metadata.deletion_timestamp.is_some(),
        is_ready: is_ready(conditions),
        uses_pvc: false,
    };
    ReadPod { pvcs: pvc_names(pod), stateful_set: owner.map(|owner| owner.name.as_str().into()), facts }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(owner: &Value, volumes: &Value, status: &Value) -> ReadPod {
        let owners = json!([{"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "o"}, owner]);
        let pod = json!({
            "metadata": {"name": "db-1", "uid": "p", "resourceVersion": "7", "ownerReferences": owners},
            "spec": {"nodeName": "n", "containers": [], "volumes": volumes}, "status": status,
        });
        read_pod(&serde_json::from_value(pod).expect("a pod"))
    }

    fn stateful_set() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "s", "controller": true})
    }

    #[test]
    fn a_pod_says_which_claims_it_uses_and_which_set_controls_it() {
        let volumes = json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-1"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "tmp", "emptyDir": {}},
        ]);
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let seen = pod(&stateful_set(), &volumes, &ready);
        assert_eq!(seen.pvcs, ["data-db-1", "db-1-scratch"]);
        assert_eq!((seen.stateful_set, seen.facts.stateful_set), (Some("db".into()), Some("s".into())));
        assert!(seen.facts.is_ready && !seen.facts.uses_pvc);
    }

    #[test]
    fn only_a_stateful_set_of_kubernetes_that_controls_the_pod_is_its_set() {
        let mut mentions = stateful_set();
        mentions["controller"] = json!(false);
        let mut other_group = stateful_set();
        other_group["apiVersion"] = json!("apps.example.com/v1");
        let mut other_kind = stateful_set();
        other_kind["kind"] = json!("ReplicaSet");
        for owner in [mentions, other_group, other_kind] {
            let seen = pod(&owner, &json!([]), &json!({"phase": "Failed"}));
            assert_eq!((seen.stateful_set, seen.facts.stateful_set), (None, None), "{owner}");
            assert!(!seen.facts.is_ready);
        }
    }

    #[test]
    fn a_set_says_what_it_wants() {
        let templates = json!([{"metadata": {"name": "data"}}, {"metadata": {"name": "log"}}]);
        let of = |spec: Value| {
            let stateful_set = json!({"metadata": {"name": "db", "uid": "s"}, "spec": spec});
            set_facts(&serde_json::from_value(stateful_set).expect("a set"))
        };
        let base = json!({"selector": {}, "serviceName": "db", "template": {}, "volumeClaimTemplates": templates});
        let plain = of(base.clone());
        assert_eq!((plain.replicas, plain.first_ordinal), (1, 0));
        assert_eq!(plain.templates, ["data", "log"]);
        let mut more = base;
        more["replicas"] = json!(5);
        more["ordinals"] = json!({"start": 3});
        more["podManagementPolicy"] = json!("Parallel");
        let more = of(more);
        let wanted = ["db-2", "db-3", "db-7", "db-8"].map(|pod| more.ordinal(&pod.into()));
        assert_eq!(wanted, [None, Some(3), Some(7), None]);
        assert!(plain.is_ordered && !more.is_ordered);
    }
}
