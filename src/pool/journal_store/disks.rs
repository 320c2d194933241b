//! The disks with our label in the journal, here or away: how they were last, and which volumes may be on
//! them.
//!
//! A volume is listed before its disk has it, and goes from the list when a scan that began later does not find it.

use std::collections::{BTreeMap, BTreeSet};

use super::JournalStore;
use super::document::JournalTurn;
use super::making::BeforeScan;
use crate::device::{DiskId, HardwareId, VolumeId};
use crate::pool::earlier::LastSeen;
use crate::pool::error::StoreError;
use crate::pool::journal::{GivenUpMember, Journal, KnownDisk};
use crate::pool::volume_list::Others;

/// A volume that is being made: the journal keeps it on its disk at least until this is dropped. What a scan of the
/// disk finds must be as new as the disk by then.
pub struct Begun<'j> {
    store: &'j JournalStore,
    disk: DiskId,
    volume: VolumeId,
    before: Before,
}

/// The state of the journal before a volume was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Nothing of the disk.
    NoDisk,
    NotListed,
    /// The volume might have been on the disk already.
    Listed,
}

impl JournalStore {
    /// Disks with our label, here or away, by id: those that `wanted` selects.
    pub fn known(&self, wanted: impl Fn(&DiskId) -> bool) -> Vec<(DiskId, KnownDisk)> {
        let journal = self.document.journal();
        let disks = journal.disks.iter().filter(|(id, _)| wanted(id));
        disks.map(|(id, disk)| (id.clone(), self.lists.add_to(id, disk.clone()))).collect()
    }

    /// The hardware that each of them was last on. Where nothing tells it from others that is its path.
    pub fn last_hardware(&self) -> BTreeMap<DiskId, HardwareId> {
        let hardware = |disk: &KnownDisk| disk.hardware.clone().unwrap_or_else(|| HardwareId::of_path(&disk.path));
        self.document.journal().disks.iter().map(|(id, disk)| (id.clone(), hardware(disk))).collect()
    }

    /// To be asked before the scan that [`Self::know`] takes in.
    pub fn before_scan(&self) -> BeforeScan {
        self.making.now()
    }

    /// A disk with our label is here, and a scan that began after `before` found `disk`. What was being made meanwhile
    /// stays on it. Written only where it is not known just so.
    pub fn know(&self, id: &DiskId, disk: KnownDisk, before: &BeforeScan) -> Result<(), StoreError> {
        self.know_in(&self.document.turn(), id, disk, before)
    }

    /// Records that a known disk was changed, and that its label has this number now. The change is answered only after
    /// that, so that an earlier state of the disk does not pass for the disk later. Changes at one time share a write.
    pub fn note(&self, id: &DiskId, number: u64, scan: impl FnOnce() -> Option<KnownDisk>) -> Result<(), StoreError> {
        if self.number(id) >= number {
            return Ok(());
        }
        let turn = self.document.turn();
        // Whoever had the turn before may have seen this change. A disk that was released meanwhile is not missed.
        if self.number(id) >= number || !self.document.journal().disks.contains_key(id) {
            return Ok(());
        }
        let before = self.before_scan();
        scan().map_or(Ok(()), |disk| self.know_in(&turn, id, disk, &before))
    }

    fn know_in(
        &self,
        turn: &JournalTurn<'_>,
        id: &DiskId,
        mut disk: KnownDisk,
        before: &BeforeScan,
    ) -> Result<(), StoreError> {
        let written = disk.written;
        // A change that was noted since this scan: an open disk never has less than the journal says.
        let is_older = |journal: &Journal| journal.disks.get(id).is_some_and(|known| known.written > written);
        // The list first: a disk that the journal knows has no list of another day.
        if disk.layout.is_directory()
            && let Some(found) = disk.volumes.take().filter(|_| !is_older(&self.document.journal()))
        {
            let begun = before.begun_on(id).collect();
            let others = if self.making.has_begun_since(before) { Others::May } else { Others::AreNot };
            self.lists.found(turn, id, &found, &begun, others)?;
        }
        if self.sound().is_err() {
            // It is missed in this process, and from when there is a document again.
            self.document.remember(turn, |journal| {
                if !is_older(journal) {
                    journal.disks.insert(id.clone(), disk.clone());
                }
            });
            return Ok(());
        }
        self.document.change_in(turn, |journal| {
            journal.let_go.remove(id);
            journal.given_up_members.remove(id);
            if is_older(journal) {
                return Ok(());
            }
            let mut disk = disk.clone();
            if disk.volumes.is_some() {
                disk.list(before.begun_on(id));
                // One that was begun since may have ended, too: the next scan tells.
                if self.making.has_begun_since(before) {
                    let listed = journal.disks.get(id).and_then(|known| known.volumes.as_ref());
                    disk.list(listed.into_iter().flatten().copied());
                }
            }
            journal.disks.insert(id.clone(), disk);
            Ok(())
        })
    }

    /// A volume may be on that disk from now on, and is on no other one that can be asked. `known` is what the disk was
    /// before; what the journal has there besides is kept until a scan.
    pub fn begin(&self, volume: VolumeId, disk: &DiskId, known: KnownDisk) -> Result<Begun<'_>, StoreError> {
        self.making.begin(disk, volume);
        // From here on it ends by itself, also where the journal is not written.
        let mut begun = Begun { store: self, disk: disk.clone(), volume, before: Before::Listed };
        let turn = self.document.turn();
        let mut known = known;
        let is_listed_apart = known.layout.is_directory();
        begun.before = self.before(volume, disk);
        if is_listed_apart {
            self.sound()?;
            let lists = (known.volumes.take(), std::mem::take(&mut known.unseen));
            self.lists.begun(&turn, disk, volume, lists)?;
        }
        self.document.change_in(&turn, |journal| {
            let listed = journal.disks.get(disk).and_then(|known| known.volumes.clone()).unwrap_or_default();
            journal.take_from_disks(volume);
            if !is_listed_apart {
                known.list(listed.into_iter().chain([volume]));
            }
            journal.disks.insert(disk.clone(), known);
            Ok(())
        })?;
        self.lists.nowhere_else(&turn, volume, Some(disk))?;
        Ok(begun)
    }

    fn before(&self, volume: VolumeId, disk: &DiskId) -> Before {
        let journal = self.document.journal();
        let Some(known) = journal.disks.get(disk) else { return Before::NoDisk };
        let is_listed = known.volumes.as_ref().is_some_and(|listed| listed.contains(&volume));
        if is_listed || self.lists.has_volume(disk, volume) { Before::Listed } else { Before::NotListed }
    }

    /// A disk with our label is not missed any more; false: it was not known.
    pub fn forget(&self, id: &DiskId) -> Result<bool, StoreError> {
        let turn = self.document.turn();
        let was_known = self.document.change_in(&turn, |journal| Ok(journal.disks.remove(id).is_some()))?;
        self.lists.forget(&turn, id);
        Ok(was_known)
    }

    /// The state in which a disk with our label was last seen.
    pub fn last_seen(&self, id: &DiskId) -> LastSeen {
        let known = self.document.journal().disks.get(id).cloned();
        known.map(|known| self.lists.add_to(id, known).last_seen()).unwrap_or_default()
    }

    /// The number of its label then; 0: not known.
    fn number(&self, id: &DiskId) -> u64 {
        self.document.journal().disks.get(id).map_or(0, |known| known.written)
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
            Ok(()) => self.document.change(|journal| {
                take(journal);
                Ok(())
            }),
            Err(_) => {
                self.document.remember(&self.document.turn(), take);
                Ok(())
            }
        }
    }

    /// A disk that is away is not missed any more, as a person says so; false: it was not known.
    pub fn let_go(&self, id: &DiskId) -> Result<bool, StoreError> {
        let turn = self.document.turn();
        let was_known = self.document.change_in(&turn, |journal| Ok(let_go(journal, id)))?;
        self.lists.forget(&turn, id);
        Ok(was_known)
    }

    /// The same for these disks of an array, and for the array: from here on its other members may be released.
    pub fn let_go_array(&self, array: &DiskId, away: &[DiskId]) -> Result<(), StoreError> {
        let turn = self.document.turn();
        self.document.change_in(&turn, |journal| {
            journal.let_go.insert(array.clone());
            away.iter().for_each(|disk| {
                let_go(journal, disk);
            });
            Ok(())
        })?;
        away.iter().for_each(|disk| self.lists.forget(&turn, disk));
        Ok(())
    }

    /// An array that was given up runs again, with all of its members.
    pub fn array_is_back(&self, array: &DiskId) -> Result<(), StoreError> {
        self.document.change(|journal| {
            journal.let_go.remove(array);
            Ok(())
        })
    }

    /// Gives up a disk that the journal does not know, and others do.
    pub fn let_go_unknown(&self, id: &DiskId) -> Result<(), StoreError> {
        self.document.change(|journal| {
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
        self.document.change(|journal| {
            journal.hold.remove(id);
            Ok(())
        })
    }

    /// The members of arrays that were given up, and are not in the pool again, by disk id.
    pub fn given_up_members(&self) -> BTreeMap<DiskId, GivenUpMember> {
        self.document.journal().given_up_members.clone()
    }

    /// Whether a disk with our label was given up while it was away, and its label has not said so since.
    pub fn is_to_be_held(&self, id: &DiskId) -> bool {
        self.document.journal().hold.contains(id)
    }
}

/// False: it was not known.
fn let_go(journal: &mut Journal, id: &DiskId) -> bool {
    let Some(known) = journal.disks.remove(id) else { return false };
    journal.let_go.insert(id.clone());
    journal.hold.insert(id.clone());
    if let Some(place) = known.layout.member() {
        journal.given_up_members.insert(id.clone(), GivenUpMember { place, hardware: known.hardware });
    }
    true
}

impl Begun<'_> {
    /// Nothing of the volume is on that disk after all, by this.
    pub fn withdraw(self) -> Result<(), StoreError> {
        if self.before == Before::Listed {
            return Ok(());
        }
        let store = self.store;
        let turn = store.document.turn();
        store.lists.nowhere(&turn, self.volume, &self.disk)?;
        let is_gone = store.document.change_in(&turn, |journal| {
            let Some(known) = journal.disks.get_mut(&self.disk) else { return Ok(false) };
            known.strike(self.volume);
            // A disk that was released meanwhile is not missed.
            let is_empty = known.volumes.as_ref().is_none_or(BTreeSet::is_empty) && store.lists.is_empty(&self.disk);
            let is_gone = self.before == Before::NoDisk && is_empty;
            if is_gone {
                journal.disks.remove(&self.disk);
            }
            Ok(is_gone)
        })?;
        if is_gone {
            store.lists.forget(&turn, &self.disk);
        }
        Ok(())
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.store.making.end(&self.disk, self.volume);
    }
}
