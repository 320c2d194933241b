//! What the journal knows of the disks with our label, here or away: how they were last, and which volumes may be on
//! them.
//!
//! A volume is listed before its disk has it, and goes from the list when a look that began later does not find it.

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

use super::{JournalStore, Making};
use crate::device::{DiskId, VolumeId};
use crate::pool::earlier::LastSeen;
use crate::pool::error::StoreError;
use crate::pool::journal::{Journal, KnownDisk};

/// A volume that is being made: the journal keeps it on its disk at least until this is dropped. What a look at the
/// disk finds must be as new as the disk by then.
pub struct Begun<'j> {
    store: &'j JournalStore,
    disk: DiskId,
    volume: VolumeId,
    before: Before,
}

/// What the journal said before a volume was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Nothing of the disk.
    NoDisk,
    NotListed,
    /// The volume might have been on the disk already.
    Listed,
}

/// What was being made before a disk was looked at.
pub struct BeforeLook {
    now: BTreeSet<(DiskId, VolumeId)>,
    begun: u64,
}

impl JournalStore {
    /// Disks with our label, here or away, by id: those that `wanted` selects.
    pub fn known(&self, wanted: impl Fn(&DiskId) -> bool) -> Vec<(DiskId, KnownDisk)> {
        let journal = self.journal();
        let disks = journal.disks.iter().filter(|(id, _)| wanted(id));
        disks.map(|(id, disk)| (id.clone(), disk.clone())).collect()
    }

    fn making(&self) -> MutexGuard<'_, Making> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be asked before a disk is looked at for [`Self::know`].
    pub fn before_look(&self) -> BeforeLook {
        let Making { now, begun } = &*self.making();
        BeforeLook { now: now.clone(), begun: *begun }
    }

    /// A disk with our label is here, and a look that began after `before` found `disk`. What was being made meanwhile
    /// stays on it. Written only where it is not known just so.
    pub fn know(&self, id: &DiskId, disk: KnownDisk, before: &BeforeLook) -> Result<(), StoreError> {
        self.know_in(&self.turn(), id, disk, before)
    }

    /// Records that a known disk was changed, and that its label has this number now. The change is answered only after
    /// that, so that an earlier state of the disk does not pass for the disk later. Changes at one time share a write.
    pub fn note(&self, id: &DiskId, number: u64, look: impl FnOnce() -> Option<KnownDisk>) -> Result<(), StoreError> {
        if self.last_seen(id).written >= number {
            return Ok(());
        }
        let turn = self.turn();
        // Whoever had the turn before may have seen this change. A disk that was released meanwhile is not missed.
        if self.last_seen(id).written >= number || !self.journal().disks.contains_key(id) {
            return Ok(());
        }
        let before = self.before_look();
        look().map_or(Ok(()), |disk| self.know_in(&turn, id, disk, &before))
    }

    fn know_in(
        &self,
        turn: &MutexGuard<'_, ()>,
        id: &DiskId,
        disk: KnownDisk,
        before: &BeforeLook,
    ) -> Result<(), StoreError> {
        // A change that was noted since this look: an open disk never has less than the journal says.
        let is_older = |journal: &Journal| journal.disks.get(id).is_some_and(|known| known.written > disk.written);
        if self.sound().is_err() {
            // It is missed in this process, and from when there is a document again.
            self.remember(turn, |journal| {
                if !is_older(journal) {
                    journal.disks.insert(id.clone(), disk.clone());
                }
            });
            return Ok(());
        }
        self.change_in(turn, |journal| {
            journal.let_go.remove(id);
            if is_older(journal) {
                return Ok(());
            }
            let mut disk = disk.clone();
            if disk.volumes.is_some() {
                disk.list(before.now.iter().filter(|(on, _)| on == id).map(|(_, volume)| *volume));
                // One that was begun since may have ended, too: the next look tells.
                if self.making().begun != before.begun {
                    let listed = journal.disks.get(id).and_then(|known| known.volumes.as_ref());
                    disk.list(listed.into_iter().flatten().copied());
                }
            }
            journal.disks.insert(id.clone(), disk);
            Ok(())
        })
    }

    /// A volume may be on that disk from now on, and is on no other one that can be asked. `known` is what the disk was
    /// before; what the journal has there besides is kept until a look at it.
    pub fn begin(&self, volume: VolumeId, disk: &DiskId, known: KnownDisk) -> Result<Begun<'_>, StoreError> {
        {
            let mut making = self.making();
            making.now.insert((disk.clone(), volume));
            making.begun += 1;
        }
        // From here on it ends by itself, also where the journal is not written.
        let mut begun = Begun { store: self, disk: disk.clone(), volume, before: Before::Listed };
        begun.before = self.change(|journal| {
            let was = journal.disks.get(disk);
            let listed = was.and_then(|known| known.volumes.clone()).unwrap_or_default();
            let before = match was {
                None => Before::NoDisk,
                Some(_) if listed.contains(&volume) => Before::Listed,
                Some(_) => Before::NotListed,
            };
            journal.take_from_disks(volume);
            let mut known = known;
            known.list(listed.into_iter().chain([volume]));
            journal.disks.insert(disk.clone(), known);
            Ok(before)
        })?;
        Ok(begun)
    }

    /// A disk with our label is not missed any more; false: it was not known.
    pub fn forget(&self, id: &DiskId) -> Result<bool, StoreError> {
        self.change(|journal| Ok(journal.disks.remove(id).is_some()))
    }

    /// What was last seen of a disk with our label.
    pub fn last_seen(&self, id: &DiskId) -> LastSeen {
        self.journal().disks.get(id).map(KnownDisk::last_seen).unwrap_or_default()
    }

    /// A disk is taken as it is, whatever was seen of it before, and its label has that number since: in this process
    /// also where the document cannot be used.
    pub fn take_as_it_is(&self, id: &DiskId, number: u64) -> Result<(), StoreError> {
        let take = |journal: &mut Journal| {
            journal.hold.remove(id);
            if let Some(known) = journal.disks.get_mut(id) {
                known.written = number;
            }
        };
        match self.sound() {
            Ok(()) => self.change(|journal| {
                take(journal);
                Ok(())
            }),
            Err(_) => {
                self.remember(&self.turn(), take);
                Ok(())
            }
        }
    }

    /// A disk that is away is not missed any more, as a person says so; false: it was not known.
    pub fn let_go(&self, id: &DiskId) -> Result<bool, StoreError> {
        self.change(|journal| {
            let was_known = journal.disks.remove(id).is_some();
            if was_known {
                journal.let_go.insert(id.clone());
                journal.hold.insert(id.clone());
            }
            Ok(was_known)
        })
    }

    /// The same of one that the journal does not know, and others do.
    pub fn let_go_unknown(&self, id: &DiskId) -> Result<(), StoreError> {
        self.change(|journal| {
            journal.let_go.insert(id.clone());
            journal.hold.insert(id.clone());
            Ok(())
        })
    }

    /// The label of a disk that was given up says so by now. Until then the journal does, also where the disk was being
    /// opened while it was given up.
    pub fn is_held(&self, id: &DiskId) -> Result<(), StoreError> {
        if !self.is_to_be_held(id) {
            return Ok(());
        }
        self.change(|journal| {
            journal.hold.remove(id);
            Ok(())
        })
    }

    /// Whether a disk with our label was given up while it was away, and its label has not said so since.
    pub fn is_to_be_held(&self, id: &DiskId) -> bool {
        self.journal().hold.contains(id)
    }
}

impl Begun<'_> {
    /// Nothing of the volume is on that disk after all, by this.
    pub fn withdraw(self) -> Result<(), StoreError> {
        if self.before == Before::Listed {
            return Ok(());
        }
        self.store.change(|journal| {
            let Some(known) = journal.disks.get_mut(&self.disk) else { return Ok(()) };
            known.strike(self.volume);
            // A disk that was released meanwhile is not missed.
            if self.before == Before::NoDisk && known.volumes.as_ref().is_none_or(BTreeSet::is_empty) {
                journal.disks.remove(&self.disk);
            }
            Ok(())
        })
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.store.making().now.remove(&(self.disk.clone(), self.volume));
    }
}
