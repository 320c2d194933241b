//! The PersistentVolumes whose volumes were reported as deleted: the provisioner asks again as long as it sees one.
//!
//! Takes in a deletion that was answered; gives out the PersistentVolume that it was for. Without this, the second
//! request finds no object, and writes one to order a deletion that is done.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::operator::api_server::object_key::{ObjectName, Uid};
use crate::operator::kube_volume::PersistentVolume;
use crate::volume::VolumeId;

/// How many are remembered: the deletion of a forgotten one is ordered again.
const MOST: usize = 1024;

#[derive(Clone, Default)]
pub struct Erased(Arc<Mutex<VecDeque<(VolumeId, PersistentVolumeId)>>>);

/// A PersistentVolume: a later one of the same name, for another volume, has another uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistentVolumeId {
    pub name: ObjectName<PersistentVolume>,
    pub uid: Uid<PersistentVolume>,
}

impl Erased {
    pub fn note(&self, id: VolumeId, of: PersistentVolumeId) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(known, _)| *known != id);
        all.push_back((id, of));
        if all.len() > MOST {
            all.pop_front();
        }
    }

    pub fn of(&self, id: VolumeId) -> Option<PersistentVolumeId> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(known, _)| *known == id).map(|(_, of)| of.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_deletions_are_remembered_each_once() {
        let erased = Erased::default();
        let persistent = |n: usize| PersistentVolumeId { name: format!("pvc-{n}").into(), uid: n.to_string().into() };
        let id = |n: usize| VolumeId::of_name(&format!("pvc-{n}"));
        (0..MOST).for_each(|n| erased.note(id(n), persistent(n)));
        erased.note(id(0), persistent(7));
        assert_eq!((erased.of(id(0)), erased.of(id(1))), (Some(persistent(7)), Some(persistent(1))));
        erased.note(id(MOST), persistent(MOST));
        assert_eq!((erased.of(id(1)), erased.of(id(2))), (None, Some(persistent(2))));
        assert_eq!(erased.of(id(MOST)), Some(persistent(MOST)));
    }
}
