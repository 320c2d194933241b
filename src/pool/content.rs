//! One disk of the pool as plans see it: its table, its label, and the space that follows from both.
//! Pure. The table's entries decide what exists; the label describes. What of it somebody uses who should not, only
//! the kernel knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::extents::{Extents, MIB};
use super::layout::{MAX_VOLUMES, data_area};
use crate::device::VolumeId;
use crate::device::label::{
    ARRAY_MEMBER_TYPE, ERASING_TYPE, ErasePolicy, EraseRecord, FORMATTED, FREE_SLOT_TYPE, LABEL_TYPE, Label, Layout,
    OURS, POOL_FILESYSTEM_TYPE, VOLUME_TYPE, VolumeRecord,
};
use crate::host::table::{Entry, Table};
use crate::host::{Extent, Geometry};

/// What one of our disks holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub geometry: Geometry,
    /// Shared with whoever looks, as is the label: a change makes another one.
    pub table: Arc<Table>,
    pub label: Arc<Label>,
    /// The number of the label's newest copy; it grows with each write.
    pub written: u64,
    /// Partitions that should not be mapped and cannot be unmapped, by number: they keep out nothing but themselves.
    pub busy: BTreeMap<u32, BusyPartition>,
}

/// A partition that is no volume, and that somebody uses: the host's own LVM or md found a last tenant's bytes in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyPartition {
    pub extent: Extent,
    /// Which partition, and who has it.
    pub why: String,
}

/// A volume on a disk: its entry, and its description where the label has one.
#[derive(Clone, Copy, Debug)]
pub struct VolumeEntry<'a> {
    pub number: u32,
    pub entry: &'a Entry,
    pub record: Option<&'a VolumeRecord>,
}

impl VolumeEntry<'_> {
    pub fn id(&self) -> VolumeId {
        self.entry.guid.into()
    }

    pub fn size(&self) -> u64 {
        self.entry.extent.len()
    }

    pub fn formatted(&self) -> bool {
        self.entry.attributes & FORMATTED != 0
    }
}

impl Content {
    fn entries(&self, kind: Uuid) -> impl Iterator<Item = (u32, &Entry)> {
        self.table.entries().iter().filter(move |(_, entry)| entry.kind == kind).map(|(number, entry)| (*number, entry))
    }

    /// The partition that the label is in.
    pub fn label_entry(&self) -> Option<(u32, &Entry)> {
        self.entries(LABEL_TYPE).next()
    }

    /// The partition of the pool filesystem, where volumes are folders.
    pub fn pool_filesystem(&self) -> Option<(u32, &Entry)> {
        self.entries(POOL_FILESYSTEM_TYPE).next()
    }

    /// The partition that is a member of an array.
    pub fn array_member(&self) -> Option<(u32, &Entry)> {
        self.entries(ARRAY_MEMBER_TYPE).next()
    }

    pub fn volumes(&self) -> impl Iterator<Item = VolumeEntry<'_>> {
        self.entries(VOLUME_TYPE).map(|(number, entry)| VolumeEntry {
            number,
            entry,
            record: self.label.volumes.get(&entry.guid.into()),
        })
    }

    pub fn volume(&self, id: VolumeId) -> Option<VolumeEntry<'_>> {
        self.volumes().find(|volume| volume.id() == id)
    }

    /// Entries that wait for their erasure, with the record that says how; by number.
    pub fn erasing(&self) -> impl Iterator<Item = (u32, &Entry, Option<&EraseRecord>)> {
        self.entries(ERASING_TYPE).map(|(number, entry)| (number, entry, self.label.erasing.get(&entry.guid)))
    }

    /// Bytes of deleted volumes that are still to be zeroed.
    pub fn to_erase(&self) -> u64 {
        let left = |(_, entry, record): (u32, &Entry, Option<&EraseRecord>)| match record {
            Some(record) if record.policy == ErasePolicy::None => 0,
            Some(record) => entry.extent.end.saturating_sub(record.cursor.max(entry.extent.start)),
            None => entry.extent.len(),
        };
        self.erasing().map(left).sum()
    }

    /// Those that somebody holds are none.
    pub fn free_slots(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.entries(FREE_SLOT_TYPE).filter(|(number, _)| !self.busy.contains_key(number))
    }

    /// The lowest number that neither the table nor the kernel has a partition of.
    pub fn free_number(&self) -> Option<u32> {
        (1..=self.table.slots()).find(|n| self.table.get(*n).is_none() && !self.busy.contains_key(n))
    }

    /// Entries of types that are not ours: occupied, and never changed.
    pub fn entries_of_others(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.table
            .entries()
            .iter()
            .filter(move |(_, e)| !OURS.types.contains(&e.kind))
            .map(|(number, entry)| (*number, entry))
    }

    /// Space that no entry has, in whole MiB; only a carved disk gives it away.
    pub fn unpartitioned(&self) -> Extents {
        // The table's own end: a disk that has grown since has room behind it that no entry may use yet.
        let area = data_area(&Geometry { size: self.table.size(), ..self.geometry });
        let mut free: Extents = area.into_iter().collect();
        let busy = self.busy.values().map(|partition| partition.extent);
        for extent in self.table.entries().values().map(|entry| entry.extent).chain(busy) {
            free.remove(extent);
        }
        free.aligned(MIB)
    }

    /// Free space that reads as zeros. Where a label copy has rotted and the one before it speaks, that may
    /// still call clean what a volume has got since: the entries decide.
    pub fn clean(&self) -> Extents {
        let mut clean: Extents = self.label.clean.iter().copied().collect();
        let used = self.table.entries().values().filter(|entry| entry.kind != FREE_SLOT_TYPE);
        for extent in used.map(|entry| entry.extent).chain(self.busy.values().map(|partition| partition.extent)) {
            clean.remove(extent);
        }
        clean
    }

    /// Space that can be given to a volume, clean or dirty.
    pub fn free(&self) -> Extents {
        match self.label.layout {
            Layout::Carved {} if self.table.entries().len() <= MAX_VOLUMES => self.unpartitioned(),
            Layout::Carved {} | Layout::Directory { .. } | Layout::Member(_) => Extents::default(),
            Layout::Whole {} | Layout::Slots { .. } | Layout::RawDevice {} => {
                self.free_slots().map(|(_, entry)| entry.extent).collect()
            }
        }
    }

    /// The free places of a disk with slots, one by one (neighbours must not melt together).
    pub fn free_places(&self) -> Vec<(u32, Extent)> {
        self.free_slots().map(|(number, entry)| (number, entry.extent)).collect()
    }

    /// Free space that is not known to read as zeros.
    pub fn dirty(&self) -> Extents {
        self.free().minus(&self.clean())
    }

    pub fn carves(&self) -> bool {
        self.label.layout.carves()
    }

    /// The size that a volume could have if it grew now.
    pub fn growable_to(&self, id: VolumeId, into: &Extents) -> Option<u64> {
        let volume = self.volume(id)?;
        if !self.carves() {
            return Some(volume.size());
        }
        let behind = into.iter().find(|e| e.start <= volume.entry.extent.end && volume.entry.extent.end < e.end);
        Some(behind.map_or(volume.size(), |e| e.end - volume.entry.extent.start))
    }

    /// The label without descriptions of what does not exist, and with no clean space but free one.
    pub fn pruned_label(&self) -> Label {
        let mut label = Label::clone(&self.label);
        let exists = |id: Uuid, kind: Uuid| self.table.entries().values().any(|e| e.kind == kind && e.guid == id);
        label.volumes.retain(|id, _| exists(id.uuid(), VOLUME_TYPE));
        label.erasing.retain(|id, _| exists(*id, ERASING_TYPE));
        label.clean = self.clean().as_slice().to_vec();
        label
    }
}
