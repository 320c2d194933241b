//! One operation at a time per volume. A second one gets the answer to come back; it never waits.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::Error;
use crate::device::VolumeId;

/// The volumes with an operation under way.
#[derive(Clone, Default)]
pub struct VolumeLocks(Arc<Mutex<HashSet<VolumeId>>>);

/// Holds one volume until it is dropped. It moves into the blocking work, so that a cancelled call keeps
/// holding it until the work has really ended.
#[must_use]
pub struct VolumeGuard {
    locks: VolumeLocks,
    id: VolumeId,
}

impl VolumeLocks {
    pub fn hold(&self, id: VolumeId) -> Result<VolumeGuard, Error> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match held.insert(id) {
            true => Ok(VolumeGuard { locks: self.clone(), id }),
            false => Err(Error::Aborted(format!("another operation on volume {id} is under way; try again"))),
        }
    }
}

impl Drop for VolumeGuard {
    fn drop(&mut self) {
        self.locks.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_held_by_one_until_the_guard_goes_and_others_are_free() {
        let locks = VolumeLocks::default();
        let (a, b) = (VolumeId::of_name("a"), VolumeId::of_name("b"));
        let held = locks.hold(a).expect("nobody has it");
        assert!(matches!(locks.hold(a), Err(Error::Aborted(_))));
        assert!(locks.hold(b).is_ok());
        drop(held);
        assert!(locks.hold(a).is_ok());
    }
}
