//! PersistentVolumes that are marked and that nobody has bound are kept from being bound, those of this driver and local
//! ones of others: their `spec.claimRef` names a claim that does not exist. Only if the administrator wants that.

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume};
use serde_json::{Value, json};

/// What nobody else names a claim.
const STEM: &str = "localpool-marked-";

/// Whether PersistentVolumes are reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservePolicy {
    Never,
    /// With claims of this namespace.
    In(String),
}

/// What changes in one PersistentVolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    Begins,
    Ends,
}

impl ReservePolicy {
    /// `is_marked` says whether it is marked from now on.
    pub fn decide(&self, volume: &PersistentVolume, is_marked: bool) -> Option<Reservation> {
        let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        match (claim, self) {
            (Some(claim), _) if !is_reservation(claim) => None,
            (Some(_), Self::In(_)) if is_marked => None,
            (Some(_), _) => Some(Reservation::Ends),
            (None, Self::In(_)) if is_marked && phase == Some("Available") => Some(Reservation::Begins),
            (None, _) => None,
        }
    }

    /// The `spec` of a merge patch.
    pub fn spec(&self, volume: &PersistentVolume, reservation: Reservation) -> Value {
        let uid = volume.metadata.uid.as_deref().unwrap_or_default();
        match (reservation, self) {
            (Reservation::Begins, Self::In(namespace)) => json!({"claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": format!("{STEM}{uid}"),
            }}),
            (Reservation::Ends, _) | (Reservation::Begins, Self::Never) => json!({"claimRef": null}),
        }
    }
}

/// A claim that exists has a UID, and is somebody's.
pub fn is_reservation(claim: &ObjectReference) -> bool {
    claim.uid.is_none() && claim.name.as_deref().is_some_and(|name| name.starts_with(STEM))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(phase: &str, claim: Value) -> PersistentVolume {
        let value = json!({
            "metadata": {"name": "v", "uid": "u"},
            "spec": {"local": {"path": "/x"}, "claimRef": claim},
            "status": {"phase": phase},
        });
        serde_json::from_value(value).expect("a PersistentVolume")
    }

    #[test]
    fn only_a_volume_that_is_marked_and_that_nobody_has_is_reserved_and_only_if_it_is_wanted() {
        let wanted = ReservePolicy::In("n".to_owned());
        let free = volume("Available", Value::Null);
        assert_eq!(wanted.decide(&free, true), Some(Reservation::Begins));
        assert_eq!(wanted.decide(&free, false), None);
        assert_eq!(ReservePolicy::Never.decide(&free, true), None);
        for phase in ["Pending", "Bound", "Released", "Failed"] {
            assert_eq!(wanted.decide(&volume(phase, Value::Null), true), None, "{phase}");
        }
        let somebodys = json!({"namespace": "a", "name": "data", "uid": "c"});
        assert_eq!(wanted.decide(&volume("Bound", somebodys.clone()), true), None);
        assert_eq!(wanted.decide(&volume("Bound", somebodys), false), None, "nobody loses a volume");
    }

    #[test]
    fn a_reservation_ends_with_the_last_mark_or_when_it_is_not_wanted_any_more() {
        let wanted = ReservePolicy::In("n".to_owned());
        let spec = wanted.spec(&volume("Available", Value::Null), Reservation::Begins);
        let reserved = volume("Available", spec["claimRef"].clone());
        assert_eq!(wanted.decide(&reserved, true), None, "once");
        assert_eq!(wanted.decide(&reserved, false), Some(Reservation::Ends));
        assert_eq!(ReservePolicy::Never.decide(&reserved, true), Some(Reservation::Ends));
        assert_eq!(wanted.spec(&reserved, Reservation::Ends), json!({"claimRef": null}));
        let mut theirs = spec["claimRef"].clone();
        theirs["uid"] = json!("c");
        assert_eq!(wanted.decide(&volume("Bound", theirs), false), None, "such a claim exists after all");
    }
}
