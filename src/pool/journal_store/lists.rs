//! Which volumes may be on the disks with a filesystem of the pool: each disk has a document of its own, beside the
//! journal, and a change is a line that is added to it.
//!
//! An earlier version knows nothing of these documents, and the journal has nothing of them. A list that is there has
//! all volumes that may be on its disk; a disk without one may hold anything until it is scanned.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::document::{JournalDocument, JournalTurn};
use super::kept_lists::{KeptList, Lists, sighted};
use crate::device::{DiskId, VolumeId};
use crate::host::chain;
use crate::pool::error::StoreError;
use crate::pool::journal::KnownDisk;
use crate::pool::volume_list::{ListChange, ListedVolumes, Others, Sighting, document, lines};

/// The lists, in memory and in their documents.
pub(super) struct VolumeLists {
    /// Where the journal cannot be used, no list is written.
    journal: Arc<JournalDocument>,
    lists: Mutex<Lists>,
}

impl VolumeLists {
    pub fn new(journal: Arc<JournalDocument>, lists: Lists) -> Self {
        Self { journal, lists: Mutex::new(lists) }
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is known which volumes may be on that disk.
    pub fn has(&self, disk: &DiskId) -> bool {
        self.lists().contains_key(disk)
    }

    pub fn has_volume(&self, disk: &DiskId, volume: VolumeId) -> bool {
        self.lists().get(disk).is_some_and(|kept| kept.list.contains(volume))
    }

    /// With the volumes that may be on the disk, where the journal itself does not have them.
    pub fn add_to(&self, id: &DiskId, mut disk: KnownDisk) -> KnownDisk {
        if let Some(kept) = self.lists().get(id).filter(|_| disk.layout.is_directory()) {
            (disk.volumes, disk.unseen) = (Some(kept.list.all()), kept.list.unseen());
        }
        disk
    }

    /// A volume may be on that disk from now on, as those that are `unseen`; `volumes`: all that are there, where there
    /// is no list yet. If it does not know either, there is none: the disk may hold anything.
    pub fn begun(
        &self,
        turn: &JournalTurn<'_>,
        disk: &DiskId,
        volume: VolumeId,
        (volumes, unseen): (Option<BTreeSet<VolumeId>>, BTreeSet<VolumeId>),
    ) -> Result<(), StoreError> {
        if !self.has(disk) {
            let Some(mut all) = volumes else { return Ok(()) };
            all.extend(&unseen);
            let list = ListedVolumes::new(sighted(all, &unseen));
            self.lists().insert(disk.clone(), KeptList { list, is_behind: true });
        }
        let begun = (!self.has_volume(disk, volume)).then_some(volume);
        let changes = unseen.into_iter().chain(begun).map(|id| (id, Some(Sighting::Begun)));
        self.change_list(turn, disk, |list| list.news(changes))
    }

    /// A scan found these volumes on the disk, and no others; `begun`: those that were being made there before it began.
    pub fn found(
        &self,
        turn: &JournalTurn<'_>,
        disk: &DiskId,
        found: &BTreeSet<VolumeId>,
        begun: &BTreeSet<VolumeId>,
        others: Others,
    ) -> Result<(), StoreError> {
        // What is there is known, also where it cannot be written down.
        let seen = || found.iter().map(|id| (*id, Sighting::Seen)).collect();
        let new = || KeptList { list: ListedVolumes::new(seen()), is_behind: true };
        self.lists().entry(disk.clone()).or_insert_with(new);
        self.change_list(turn, disk, |list| list.difference(found, begun, others))
    }

    /// A volume is on none of these disks but that one.
    pub fn nowhere_else(
        &self,
        turn: &JournalTurn<'_>,
        volume: VolumeId,
        but: Option<&DiskId>,
    ) -> Result<(), StoreError> {
        let on = |(disk, kept): (&DiskId, &KeptList)| {
            (Some(disk) != but && kept.list.contains(volume)).then(|| disk.clone())
        };
        let others: Vec<DiskId> = self.lists().iter().filter_map(on).collect();
        others.iter().try_for_each(|disk| self.change_list(turn, disk, |list| list.news([(volume, None)])))
    }

    /// A volume is not on that disk.
    pub fn nowhere(&self, turn: &JournalTurn<'_>, volume: VolumeId, disk: &DiskId) -> Result<(), StoreError> {
        self.change_list(turn, disk, |list| list.news([(volume, None)]))
    }

    pub fn is_empty(&self, disk: &DiskId) -> bool {
        self.lists().get(disk).is_none_or(|kept| kept.list.is_empty())
    }

    /// Nothing is known of that disk any more. A document that stays is read by nobody: its disk is not in the journal.
    pub fn forget(&self, _turn: &JournalTurn<'_>, disk: &DiskId) {
        if self.lists().remove(disk).is_some()
            && let Err(error) = self.journal.state().remove(&document(disk))
        {
            tracing::warn!(disk = %disk, error = %chain(&error), "the list of its volumes stays in the state directory");
        }
    }

    /// A change is in the document first, but where the journal cannot be used: then it counts in this process, and
    /// is written when there is a journal again.
    fn change_list(
        &self,
        _turn: &JournalTurn<'_>,
        disk: &DiskId,
        changes: impl FnOnce(&ListedVolumes) -> Vec<ListChange>,
    ) -> Result<(), StoreError> {
        let (changes, whole) = {
            let lists = self.lists();
            let Some(kept) = lists.get(disk) else { return Ok(()) };
            let changes = changes(&kept.list);
            if changes.is_empty() && !kept.is_behind {
                return Ok(());
            }
            let whole = (kept.is_behind || kept.list.is_long()).then(|| {
                let mut next = kept.list.clone();
                changes.iter().for_each(|change| next.take_in(*change));
                next.text()
            });
            (changes, whole)
        };
        let is_usable = self.journal.sound().is_ok();
        let written = match (&whole, is_usable) {
            (_, false) => Ok(()),
            (Some(text), true) => self.journal.state().store(&document(disk), text),
            (None, true) => self.journal.state().append(&document(disk), &lines(changes.iter().copied())),
        };
        if let Some(kept) = self.lists().get_mut(disk) {
            // A part of what failed may be there.
            kept.is_behind = written.is_err() || !is_usable;
            if written.is_ok() {
                changes.into_iter().for_each(|change| kept.list.take_in(change));
                if whole.is_some() && is_usable {
                    kept.list.was_written_whole();
                }
            }
        }
        written.map_err(StoreError::State)
    }
}

#[cfg(test)]
mod tests;
