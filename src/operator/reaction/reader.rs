//! Reads what `LiveFacts` hold from the API server. Of a namespace, the pods are listed once in a pass.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::gates::claim_of;
use super::home_reader::read_home;
use super::live::{ClaimFacts, LiveFacts, NamespaceFacts, PodFacts, SetFacts};
use super::marked::MarkedVolume;
use super::record::{ClaimUid, ReactionRecord};
use super::settings::{LABEL, LABEL_VALUE, PAUSE, ReactionMode};
use crate::operator::client::{find_in_pages, within};
use crate::operator::error::OperatorError;
use crate::operator::persistent_volume::object;
use crate::operator::pod_claims::claims;

/// How many pods are read at once: a namespace may have thousands.
const PAGE: u32 = 500;

/// Reads for one pass.
pub struct LiveReader {
    client: Client,
    mode: ReactionMode,
    pods: BTreeMap<String, Arc<Vec<SeenPod>>>,
}

/// A pod, and the set that controls it.
struct SeenPod {
    facts: PodFacts,
    claims: Vec<String>,
    set: Option<String>,
}

impl LiveReader {
    pub fn new(client: Client, mode: ReactionMode) -> Self {
        Self { client, mode, pods: BTreeMap::new() }
    }

    pub async fn read(&mut self, volume: &MarkedVolume) -> Result<LiveFacts, OperatorError> {
        let name = volume.volume.name_any();
        let found = Api::<PersistentVolume>::all(self.client.clone());
        let found = within(&format!("reading PersistentVolume {name}"), found.get_opt(&name)).await?;
        let mut live = LiveFacts { volume: found.map(object::needed).map(Arc::new), ..LiveFacts::default() };
        let record = volume.record.as_ref().and_then(|record| record.as_ref().ok());
        let claim = record.map(|record| record.claim.clone()).or_else(|| claim_of(volume));
        if let Some(claim) = &claim {
            live.claim = self.claim(claim).await?;
        }
        // The role allows no more.
        if self.mode == ReactionMode::Off {
            return Ok(live);
        }
        if let Some(claim) = &claim {
            self.users(claim, record, &mut live).await?;
        }
        let pod_node = live.pods.iter().filter(|pod| pod.uses_claim).find_map(|pod| pod.node.clone());
        read_home(&self.client, volume, pod_node.as_deref(), &mut live).await?;
        Ok(live)
    }

    /// Who uses the claim.
    async fn users(
        &mut self,
        claim: &ClaimUid,
        record: Option<&ReactionRecord>,
        live: &mut LiveFacts,
    ) -> Result<(), OperatorError> {
        live.namespace = self.namespace(&claim.namespace).await?;
        let pods = self.pods(&claim.namespace).await?;
        let uses = |pod: &&SeenPod| pod.claims.contains(&claim.name);
        let of_pod = || pods.iter().filter(uses).find_map(|pod| pod.set.clone());
        if let Some(set) = record.map(|record| record.set.name.clone()).or_else(of_pod) {
            live.set = self.set(&claim.namespace, &set).await?;
        }
        let uid = live.set.as_ref().map(|set| &set.uid);
        let is_needed = |pod: &&SeenPod| uses(pod) || uid.is_some_and(|uid| pod.facts.set.as_ref() == Some(uid));
        let with = |pod: &SeenPod| PodFacts { uses_claim: uses(&pod), ..pod.facts.clone() };
        live.pods = pods.iter().filter(is_needed).map(with).collect();
        Ok(())
    }

    async fn claim(&self, claim: &ClaimUid) -> Result<Option<ClaimFacts>, OperatorError> {
        let ClaimUid { namespace, name, .. } = claim;
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let what = format!("reading PersistentVolumeClaim {namespace}/{name}");
        Ok(within(&what, api.get_opt(name)).await?.map(|claim| claim_facts(&claim)))
    }

    async fn namespace(&self, name: &str) -> Result<NamespaceFacts, OperatorError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let found = within(&format!("reading Namespace {name}"), api.get_metadata_opt(name)).await?;
        Ok(found.map_or_else(NamespaceFacts::default, |found| NamespaceFacts {
            is_chosen: found.labels().get(LABEL).is_some_and(|value| value == LABEL_VALUE),
            is_paused: is_paused(&found),
        }))
    }

    async fn set(&self, namespace: &str, name: &str) -> Result<Option<SetFacts>, OperatorError> {
        let api: Api<StatefulSet> = Api::namespaced(self.client.clone(), namespace);
        let what = format!("reading StatefulSet {namespace}/{name}");
        Ok(within(&what, api.get_opt(name)).await?.map(|set| set_facts(&set)))
    }

    async fn pods(&mut self, namespace: &str) -> Result<Arc<Vec<SeenPod>>, OperatorError> {
        if let Some(pods) = self.pods.get(namespace) {
            return Ok(Arc::clone(pods));
        }
        let (mut all, what) = (Vec::new(), format!("listing the pods of {namespace}"));
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let fetch = async |params| within(&what, api.list(&params)).await;
        let keep = |page: Vec<Pod>| {
            all.extend(page.iter().map(seen));
            None::<()>
        };
        find_in_pages(ListParams::default().limit(PAGE), fetch, keep).await?;
        let all = Arc::new(all);
        self.pods.insert(namespace.to_owned(), Arc::clone(&all));
        Ok(all)
    }
}

fn is_paused(object: &impl ResourceExt) -> bool {
    object.annotations().contains_key(PAUSE)
}

fn claim_facts(claim: &PersistentVolumeClaim) -> ClaimFacts {
    ClaimFacts {
        uid: claim.uid().unwrap_or_default(),
        resource_version: claim.resource_version().unwrap_or_default(),
        volume: claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()),
        is_bound: claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound"),
        is_deleted: claim.metadata.deletion_timestamp.is_some(),
        is_paused: is_paused(claim),
    }
}

fn set_facts(set: &StatefulSet) -> SetFacts {
    let spec = set.spec.as_ref();
    let ordinals = spec.and_then(|spec| spec.ordinals.as_ref());
    let templates = spec.and_then(|spec| spec.volume_claim_templates.as_deref()).unwrap_or_default();
    SetFacts {
        name: set.name_any(),
        uid: set.uid().unwrap_or_default(),
        is_deleted: set.metadata.deletion_timestamp.is_some(),
        is_paused: is_paused(set),
        replicas: spec.and_then(|spec| spec.replicas).unwrap_or(1),
        first_ordinal: ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0),
        templates: templates.iter().map(ResourceExt::name_any).collect(),
        is_ordered: spec.and_then(|spec| spec.pod_management_policy.as_deref()) != Some("Parallel"),
    }
}

fn seen(pod: &Pod) -> SeenPod {
    let is_set = |kind: &str, version: &str| kind == "StatefulSet" && version.starts_with("apps/");
    let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
    let owner = owner.filter(|owner| is_set(&owner.kind, &owner.api_version));
    let status = pod.status.as_ref();
    let mut conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default().iter();
    let facts = PodFacts {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        resource_version: pod.resource_version().unwrap_or_default(),
        set: owner.map(|owner| owner.uid.clone()),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        is_deleted: pod.metadata.deletion_timestamp.is_some(),
        is_ready: conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        uses_claim: false,
    };
    SeenPod { claims: claims(pod), set: owner.map(|owner| owner.name.clone()), facts }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(owner: &Value, volumes: &Value, status: &Value) -> SeenPod {
        let owners = json!([{"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "o"}, owner]);
        let pod = json!({
            "metadata": {"name": "db-1", "uid": "p", "resourceVersion": "7", "ownerReferences": owners},
            "spec": {"nodeName": "n", "containers": [], "volumes": volumes}, "status": status,
        });
        seen(&serde_json::from_value(pod).expect("a pod"))
    }

    fn set() -> Value {
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
        let seen = pod(&set(), &volumes, &ready);
        assert_eq!(seen.claims, ["data-db-1", "db-1-scratch"]);
        assert_eq!((seen.set.as_deref(), seen.facts.set.as_deref()), (Some("db"), Some("s")));
        assert!(seen.facts.is_ready && !seen.facts.uses_claim);
    }

    #[test]
    fn only_a_stateful_set_of_kubernetes_that_controls_the_pod_is_its_set() {
        let mut mentions = set();
        mentions["controller"] = json!(false);
        let mut other_group = set();
        other_group["apiVersion"] = json!("apps.example.com/v1");
        let mut other_kind = set();
        other_kind["kind"] = json!("ReplicaSet");
        for owner in [mentions, other_group, other_kind] {
            let seen = pod(&owner, &json!([]), &json!({"phase": "Failed"}));
            assert_eq!((seen.set, seen.facts.set), (None, None), "{owner}");
            assert!(!seen.facts.is_ready);
        }
    }

    #[test]
    fn a_set_says_what_it_wants() {
        let templates = json!([{"metadata": {"name": "data"}}, {"metadata": {"name": "log"}}]);
        let of = |spec: Value| {
            let set = json!({"metadata": {"name": "db", "uid": "s"}, "spec": spec});
            set_facts(&serde_json::from_value(set).expect("a set"))
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
        let wanted = ["db-2", "db-3", "db-7", "db-8"].map(|pod| more.ordinal(pod));
        assert_eq!(wanted, [None, Some(3), Some(7), None]);
        assert!(plain.is_ordered && !more.is_ordered);
    }
}
