//! A pod that uses claims: only its name and theirs. All other fields are skipped as they are read, labels and annotations are
//! dropped, and so is each pod without a claim: a large cluster has tens of thousands of pods.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Deserialize;

use super::volumes::PodsOfPvc;
use crate::operator::api_server::object_key::{ObjectKey, ObjectName};
use crate::operator::api_server::store::{Decoded, Store};
use crate::operator::api_server::watch::Watched;
use crate::operator::persistent_volume::pod_pvcs::pvc_names_of;

/// Selects the pods that have not ended: the others use nothing.
pub const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// As it is kept.
#[derive(Resource, Clone, Debug, Default, PartialEq)]
#[resource(inherit = Pod)]
pub struct ClaimPod {
    metadata: ObjectMeta,
    claims: Vec<ObjectName<PersistentVolumeClaim>>,
}

/// As it is read.
#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = Pod)]
pub struct PodVolumes {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: PodVolumesSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct PodVolumesSpec {
    #[serde(default)]
    volumes: Vec<Volume>,
}

impl PodVolumes {
    /// Those of all namespaces.
    pub fn watched(client: Client) -> Watched<Self> {
        Watched::some(Api::all(client), Config::default().fields(NOT_ENDED), "Pods")
    }

    /// Whether it uses a claim. The volumes of a pod never change.
    pub fn uses_claims(&self) -> bool {
        self.spec.volumes.iter().any(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some())
    }

    pub fn trimmed(self) -> Decoded<ClaimPod> {
        let claims = pvc_names_of(&self.name_any(), &self.spec.volumes);
        let ObjectMeta { name, namespace, uid, resource_version, .. } = self.metadata;
        Ok(ClaimPod {
            metadata: ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() },
            claims,
        })
    }
}

impl ClaimPod {
    pub fn store() -> Store<Self> {
        Store::new(|a, b| (&a.metadata.uid, &a.claims) == (&b.metadata.uid, &b.claims))
    }
}

/// Which of these pods use each claim.
pub fn by_claim(pods: &Store<ClaimPod>) -> PodsOfPvc {
    let mut found = PodsOfPvc::new();
    for pod in pods.all() {
        let namespace = pod.namespace().unwrap_or_default();
        for claim in &pod.claims {
            let key = ObjectKey::new(&namespace, claim.as_str());
            found.entry(key).or_default().insert(pod.name_any().into());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(name: &str, version: &str, volumes: Value) -> PodVolumes {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "app", "uid": name, "resourceVersion": version,
                "labels": {"app": "db"}, "annotations": {"a": "long"}, "ownerReferences": [],
            },
            "spec": {"containers": [{"name": "c", "env": [{"name": "PASSWORD", "value": "hunter2"}]}], "volumes": volumes},
            "status": {"phase": "Running"},
        });
        serde_json::from_value(pod).expect("a pod")
    }

    fn claim(name: &str) -> Value {
        json!({"name": "data", "persistentVolumeClaim": {"claimName": name}})
    }

    fn kept(pod: PodVolumes) -> ClaimPod {
        pod.trimmed().ok().expect("it can be read")
    }

    #[test]
    fn of_a_pod_only_its_name_and_those_of_its_claims_are_kept_and_nothing_of_one_without_claims() {
        let pod =
            read("db-0", "7", json!([claim("data"), {"name": "tmp", "ephemeral": {}}, {"name": "x", "emptyDir": {}}]));
        assert!(pod.uses_claims());
        assert!(!format!("{pod:?}").contains("hunter2"), "it is not even read");
        let pod = kept(pod);
        assert_eq!(pod.claims, ["data", "db-0-tmp"]);
        let meta = ObjectMeta { labels: None, annotations: None, owner_references: None, ..pod.metadata.clone() };
        assert_eq!(pod.metadata, meta);
        // So 10,000 of them take less than ten megabytes.
        assert!(size_of::<ClaimPod>() < 700, "{}", size_of::<ClaimPod>());
        for none in [json!([]), json!([{"name": "x", "emptyDir": {}}])] {
            assert!(!read("web", "1", none).uses_claims());
        }
    }

    #[test]
    fn each_claim_has_the_pods_of_its_namespace_that_use_it_and_their_status_is_no_change() {
        let store = ClaimPod::store();
        let pods =
            [read("db-1", "1", json!([claim("data")])), read("db-0", "2", json!([claim("data"), claim("more")]))];
        store.replace(pods.into_iter().map(PodVolumes::trimmed).collect());
        let found = by_claim(&store);
        assert_eq!(found["app/data"], ["db-0".into(), "db-1".into()].into());
        assert_eq!((found["app/more"].len(), found.len()), (1, 2));
        let before = store.state();
        store.put(read("db-1", "9", json!([claim("data")])).trimmed());
        assert_eq!(store.state(), before);
        store.remove(&read("db-1", "10", json!([])));
        assert_eq!(by_claim(&store)["app/data"], ["db-0".into()].into());
        assert_ne!(store.state(), before);
    }
}
