//! Volumes that no PersistentVolume names: they keep their space, and no deletion of a claim ever frees it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use crate::api::crd::{Phase, PoolVolume};
use crate::operator::pool_volume::{UNCLAIMED, is_unclaimed, phase};
use crate::operator::status::condition::condition;

/// Whether somebody should have it: one that is being made, deleted, or was found without an owner need not have one.
pub fn needs_claim(volume: &PoolVolume) -> bool {
    phase(volume) == Phase::Ready && volume.metadata.deletion_timestamp.is_none()
}

/// Whether a PersistentVolume has named a volume in the last ten minutes, or none needs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    Named,
    Unclaimed,
}

/// The conditions of a PoolVolume that change; `None`: they are right.
pub fn conditions(volume: &PoolVolume, naming: Naming) -> Option<Vec<Condition>> {
    let before = volume.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
    let unclaimed = naming == Naming::Unclaimed;
    if is_unclaimed(volume) == unclaimed {
        return None;
    }
    let others = before.iter().filter(|condition| condition.type_ != UNCLAIMED).cloned();
    let message = format!(
        "no PersistentVolume has named it for ten minutes; it keeps its space. `localpool volume pv {}` prints a new \
         PersistentVolume for it, and spec.order Erase erases it",
        volume.name_any()
    );
    let next = || condition(before, UNCLAIMED, true, "NoPersistentVolume", message, volume.metadata.generation);
    Some(others.chain(unclaimed.then(next)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::volume::sample::{in_phase, status_condition};

    #[test]
    fn only_a_volume_that_is_ready_needs_somebody_who_has_it() {
        let needing = [Phase::Pending, Phase::Accepted, Phase::Ready, Phase::Found, Phase::Deleting];
        let needing: Vec<Phase> = needing.into_iter().filter(|phase| needs_claim(&in_phase(*phase))).collect();
        assert_eq!(needing, [Phase::Ready]);
    }

    #[test]
    fn it_is_said_once_and_taken_back_once_beside_what_others_say() {
        let mut volume = in_phase(Phase::Ready);
        let other = status_condition("Healthy", "True", "Fine", "");
        volume.status.as_mut().expect("set").conditions = vec![other.clone()];
        assert_eq!(conditions(&volume, Naming::Named), None);
        let with = conditions(&volume, Naming::Unclaimed).expect("a change");
        assert_eq!((with.len(), with[1].type_.as_str(), with[1].status.as_str()), (2, UNCLAIMED, "True"));
        assert!(with[1].message.contains("volume pv"), "{}", with[1].message);
        volume.status.as_mut().expect("set").conditions = with;
        assert_eq!(conditions(&volume, Naming::Unclaimed), None);
        assert_eq!(conditions(&volume, Naming::Named), Some(vec![other]));
    }
}
