//! Which claims consent to a benchmark in their volume: with an annotation, by whoever makes the claim. Pure.
//!
//! Nothing else says that its pod waits: one that does not may be at work, and its disk is written to.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;

use crate::operator::api_server::object_key::Uid;
use crate::operator::kube_volume::PvcReference;

/// The annotation of a PersistentVolumeClaim; its value is `true`.
const ANNOTATION: &str = "localpool.dev/benchmark";

/// Whether the claim of a volume consents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    Given,
    NotGiven,
    /// The claim is not seen yet: a watch may be behind.
    Unknown,
}

/// The claims of a cluster, by UID.
#[derive(Clone, Debug, Default)]
pub struct Consents(BTreeMap<Uid<PersistentVolumeClaim>, Consent>);

impl Consents {
    pub fn of(claims: &[Arc<PersistentVolumeClaim>]) -> Self {
        let consent = |claim: &Arc<PersistentVolumeClaim>| {
            let is_given = claim.annotations().get(ANNOTATION).is_some_and(|value| value == "true");
            Some((Uid::of(&**claim)?, if is_given { Consent::Given } else { Consent::NotGiven }))
        };
        Self(claims.iter().filter_map(consent).collect())
    }

    /// Of the claim that a PersistentVolume names: exactly that one.
    pub fn of_claim(&self, pvc: Option<&PvcReference>) -> Consent {
        let uid = pvc.and_then(|pvc| pvc.uid.as_ref());
        uid.and_then(|uid| self.0.get(uid)).copied().unwrap_or(Consent::Unknown)
    }
}

/// The parts of a claim that are read: there are as many as volumes in the cluster, of all drivers.
pub fn for_store(claim: PersistentVolumeClaim) -> PersistentVolumeClaim {
    let ObjectMeta { name, namespace, uid, resource_version, annotations, .. } = claim.metadata;
    let annotations = annotations.map(|mut all| {
        all.retain(|key, _| key == ANNOTATION);
        all
    });
    let metadata = ObjectMeta { name, namespace, uid, resource_version, annotations, ..ObjectMeta::default() };
    PersistentVolumeClaim { metadata, ..PersistentVolumeClaim::default() }
}

/// Whether two states of a claim are the same to whoever waits for changes.
pub fn is_same(a: &PersistentVolumeClaim, b: &PersistentVolumeClaim) -> bool {
    let read = |claim: &PersistentVolumeClaim| (claim.uid(), claim.annotations().get(ANNOTATION).cloned());
    read(a) == read(b)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(uid: &str, annotations: Value) -> PersistentVolumeClaim {
        let metadata = json!({"name": "c", "namespace": "s", "uid": uid, "annotations": annotations});
        let claim = json!({"metadata": metadata, "spec": {"volumeName": "pvc-1"}});
        serde_json::from_value(claim).expect("a claim")
    }

    #[test]
    fn only_the_word_true_of_exactly_that_claim_consents() {
        let said = |word: &str| json!({ANNOTATION: word});
        let claims = [claim("a", said("true")), claim("b", said("yes")), claim("c", json!({"other": "true"}))];
        let consents = Consents::of(&claims.map(for_store).map(Arc::new));
        let of = |uid: Option<&str>| {
            let pvc = PvcReference { uid: uid.map(Uid::from), name: Some("c".into()), ..PvcReference::default() };
            consents.of_claim(Some(&pvc))
        };
        assert_eq!(of(Some("a")), Consent::Given);
        assert_eq!([of(Some("b")), of(Some("c"))], [Consent::NotGiven; 2]);
        assert_eq!([of(Some("d")), of(None), consents.of_claim(None)], [Consent::Unknown; 3]);
    }

    #[test]
    fn what_is_kept_of_a_claim_differs_by_its_word_and_by_nothing_else() {
        let kept = for_store(claim("a", json!({"other": "x", ANNOTATION: "true"})));
        assert_eq!(kept.annotations().len(), 1);
        assert!(kept.spec.is_none() && kept.namespace().is_some());
        assert!(is_same(&kept, &claim("a", json!({ANNOTATION: "true", "other": "y"}))));
        assert!(!is_same(&kept, &claim("a", json!({}))) && !is_same(&kept, &claim("b", json!({ANNOTATION: "true"}))));
    }
}
