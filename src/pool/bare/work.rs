//! The background work of a bare device: the erasure of a deleted volume, and zeroing for a block volume.

use std::sync::Arc;

use super::{BareDevice, BareState, unmap_all, whole};
use crate::device::label::VolumeUsage;
use crate::host::{DeviceLockGuard, Disk, Extent, zero_for_a_moment};
use crate::pool::{
    disk::zero,
    erase::{GIVE_WAY, Progress, prove_erased},
    error::BareError,
    journal::BareClaim,
    plan::ERASE_CHUNK,
};

impl BareDevice {
    /// One chunk of erasing or cleaning.
    pub fn work(&self) -> Result<Progress, BareError> {
        let (disk, _alone, claim, erasing) = {
            let mut state = self.lock();
            // Under the lock: who writes something down of it after this read finds no worker, and starts one.
            let claim = self.claim()?;
            // What it would erase may be a volume that was made after the journal was written. Asked in this order: who
            // answers writes down a contradiction first.
            let knows = self.journal.knows_volumes();
            let disk = self.disk(&state).ok().filter(|_| knows);
            let wants_clean = state.rule.as_ref().is_some_and(|rule| rule.allows(VolumeUsage::Block))
                && disk.as_ref().is_some_and(|disk| !disk.geometry().offloads_zeroes);
            let is_dirty = claim.volume.is_none() && !claim.clean;
            match (disk, claim.erasing.clone()) {
                (Some(disk), Some(erasing)) => match self.may_erase(&mut state, &claim)? {
                    Some(alone) => (disk, alone, claim, erasing),
                    None => {
                        self.worker.end();
                        return Ok(Progress::Idle);
                    }
                },
                (Some(disk), None) if is_dirty && (wants_clean || state.is_wanted) => {
                    self.prove_blank(&mut state, &claim)?;
                    self.clean(&*disk, &claim)?;
                    drop(state);
                    std::thread::sleep(GIVE_WAY);
                    return Ok(Progress::Worked);
                }
                (None, _) | (Some(_), None) => {
                    self.worker.end();
                    return Ok(Progress::Idle);
                }
            }
        };
        let from = erasing.cursor;
        // As it is now: the tenant had all of it, also what it gained since it was claimed.
        let size = disk.geometry().size.max(claim.size);
        let chunk = Extent { start: from, end: size.min(from.saturating_add(ERASE_CHUNK)) };
        if chunk.is_empty() {
            // Made since the deletion: it would lead into the next tenant's volume.
            unmap_all(&*disk)?;
            prove_erased(&*disk, whole(size), erasing.policy)?;
            let Some(_state) = self.lock_while_open_as(&disk) else { return Ok(Progress::Worked) };
            self.journal.part_bare(&self.id, Some(erasing.was), |claim| {
                (claim.erasing, claim.erasing_usage) = (None, None);
                (claim.clean, claim.size) = (true, size);
            })?;
            self.erased.volume();
        } else {
            self.erased.timed(chunk.len(), || zero(&*disk, chunk))?;
            let Some(_state) = self.lock_while_open_as(&disk) else { return Ok(Progress::Worked) };
            self.journal.change_bare(&self.id, |claim| {
                if let Some(erasing) = claim.erasing.as_mut() {
                    erasing.cursor = chunk.end;
                }
            })?;
        }
        Ok(Progress::Worked)
    }

    /// `None`: the device was opened again since, as it is larger or another one. What was done to it under the old handle
    /// says nothing of it now.
    fn lock_while_open_as(&self, disk: &Arc<dyn Disk>) -> Option<DeviceLockGuard<'_, BareState>> {
        let state = self.lock();
        state.disk.as_ref().is_some_and(|now| Arc::ptr_eq(now, disk)).then_some(state)
    }

    /// Zeroes the free device for a moment; the journal then says how far. Gives how much. Under the lock, as a volume
    /// may be made on it at any time.
    pub(super) fn clean(&self, disk: &dyn Disk, claim: &BareClaim) -> Result<u64, BareError> {
        let done = zero_for_a_moment(disk, Extent { start: claim.cleaned.min(claim.size), end: claim.size })?;
        self.journal.change_bare(&self.id, |claim| {
            claim.cleaned = done.end;
            claim.clean = done.end == claim.size;
        })?;
        Ok(done.len())
    }
}
