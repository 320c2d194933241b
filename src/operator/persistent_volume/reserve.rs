//! PersistentVolumes that are marked and that nobody has bound are kept from being bound, those of this driver and
//! local ones of others: their `spec.claimRef` names a claim that does not exist. Only if the administrator wants that.

use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use crate::operator::api_server::object_key::ObjectName;
use crate::operator::kube_volume::{BindingPhase, PersistentVolume, PvcReference};

/// What nobody else names a claim.
const STEM: &str = "localpool-marked-";

/// Whether PersistentVolumes are reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservePolicy {
    Never,
    /// With claims of this namespace.
    In(ObjectName<Namespace>),
}

/// What changes in one PersistentVolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    Begins,
    Ends,
}

/// Whether a PersistentVolume is marked from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marking {
    Marked,
    Unmarked,
}

impl ReservePolicy {
    pub fn decide(&self, volume: &PersistentVolume, marking: Marking) -> Option<Reservation> {
        match (&volume.pvc, self) {
            (Some(pvc), _) if !is_reservation(pvc) => None,
            (Some(_), Self::In(_)) if marking == Marking::Marked => None,
            (Some(_), _) => Some(Reservation::Ends),
            (None, Self::In(_)) if marking == Marking::Marked && volume.phase == BindingPhase::Available => {
                Some(Reservation::Begins)
            }
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
pub fn is_reservation(pvc: &PvcReference) -> bool {
    pvc.uid.is_none() && pvc.name.as_ref().is_some_and(|name| name.as_str().starts_with(STEM))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(phase: &str, pvc: Value) -> PersistentVolume {
        let value = json!({
            "metadata": {"name": "v", "uid": "u"},
            "spec": {"local": {"path": "/x"}, "claimRef": pvc},
            "status": {"phase": phase},
        });
        serde_json::from_value(value).expect("a PersistentVolume")
    }

    #[test]
    fn only_a_volume_that_is_marked_and_that_nobody_has_is_reserved_and_only_if_it_is_wanted() {
        let wanted = ReservePolicy::In("n".into());
        let free = volume("Available", Value::Null);
        assert_eq!(wanted.decide(&free, Marking::Marked), Some(Reservation::Begins));
        assert_eq!(wanted.decide(&free, Marking::Unmarked), None);
        assert_eq!(ReservePolicy::Never.decide(&free, Marking::Marked), None);
        for phase in ["Pending", "Bound", "Released", "Failed"] {
            assert_eq!(wanted.decide(&volume(phase, Value::Null), Marking::Marked), None, "{phase}");
        }
        let somebodys = json!({"namespace": "a", "name": "data", "uid": "c"});
        assert_eq!(wanted.decide(&volume("Bound", somebodys.clone()), Marking::Marked), None);
        assert_eq!(wanted.decide(&volume("Bound", somebodys), Marking::Unmarked), None, "nobody loses a volume");
    }

    #[test]
    fn a_reservation_ends_with_the_last_mark_or_when_it_is_not_wanted_any_more() {
        let wanted = ReservePolicy::In("n".into());
        let spec = wanted.spec(&volume("Available", Value::Null), Reservation::Begins);
        let reserved = volume("Available", spec["claimRef"].clone());
        assert_eq!(wanted.decide(&reserved, Marking::Marked), None, "once");
        assert_eq!(wanted.decide(&reserved, Marking::Unmarked), Some(Reservation::Ends));
        assert_eq!(ReservePolicy::Never.decide(&reserved, Marking::Marked), Some(Reservation::Ends));
        assert_eq!(wanted.spec(&reserved, Reservation::Ends), json!({"claimRef": null}));
        let mut theirs = spec["claimRef"].clone();
        theirs["uid"] = json!("c");
        assert_eq!(wanted.decide(&volume("Bound", theirs), Marking::Unmarked), None, "such a claim exists after all");
    }
}
