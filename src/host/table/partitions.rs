//! A partition table as a value: it holds together, or it is not made.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::error::TableError;
use super::name::Name;
use crate::host::block::Geometry;
use crate::host::extent::Extent;

/// Bytes of an entry.
pub(super) const ENTRY: u32 = 128;
/// Entries of a table that we make. A plan of more partitions is refused.
pub const SLOTS: u32 = 128;

/// Logical sectors that we know.
pub(super) const SECTORS: [u32; 2] = [512, 4096];

/// What makes a table ours. The values live with the label; this module only compares.
#[derive(Clone, Copy, Debug)]
pub struct Ours {
    /// Type and place of entry 1 of our tables.
    pub label: Uuid,
    pub extent: Extent,
    /// All of our partition types. An entry of any other type is unknown, and never changed.
    pub types: &'static [Uuid],
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Type GUID.
    pub kind: Uuid,
    pub guid: Uuid,
    /// Bytes, in whole sectors.
    pub extent: Extent,
    pub attributes: u64,
    pub name: Name,
}

/// A partition table that holds together: entries inside the usable space, no overlap, no GUID twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub(super) disk: Uuid,
    pub(super) sector: u32,
    pub(super) size: u64,
    pub(super) slots: u32,
    pub(super) usable: Extent,
    pub(super) entries: BTreeMap<u32, Entry>,
}

impl Table {
    /// An empty table of 128 entries for a disk.
    pub fn new(disk: Uuid, geometry: Geometry) -> Result<Self, TableError> {
        let Geometry { size, sector, offloads_zeroes: _ } = geometry;
        if !SECTORS.contains(&sector) {
            return Err(TableError::Sector { sector });
        }
        let size = size - size % u64::from(sector);
        let usable = usable(size, sector, SLOTS)?;
        let table = Self { disk, sector, size, slots: SLOTS, usable, entries: BTreeMap::new() };
        table.check()?;
        Ok(table)
    }

    /// The disk GUID.
    pub fn disk(&self) -> Uuid {
        self.disk
    }

    /// Bytes of a logical sector.
    pub fn sector(&self) -> u32 {
        self.sector
    }

    /// Size of the disk in bytes according to the table; smaller than the real size if the disk has grown since.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// How many entries the array has room for.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Where partitions may be.
    pub fn usable(&self) -> Extent {
        self.usable
    }

    /// By number, from 1.
    pub fn entries(&self) -> &BTreeMap<u32, Entry> {
        &self.entries
    }

    pub fn get(&self, number: u32) -> Option<&Entry> {
        self.entries.get(&number)
    }

    /// The partition with that GUID, and its number.
    pub fn find(&self, guid: Uuid) -> Option<(u32, &Entry)> {
        self.entries.iter().find(|(_, entry)| entry.guid == guid).map(|(number, entry)| (*number, entry))
    }

    /// The same table with exactly one entry set or taken out.
    pub fn with(&self, number: u32, entry: Option<Entry>) -> Result<Self, TableError> {
        let mut table = self.clone();
        match entry {
            Some(entry) => table.entries.insert(number, entry),
            None => table.entries.remove(&number),
        };
        if number == 0 || number > self.slots {
            return Err(TableError::Number { number, slots: self.slots });
        }
        table.check()?;
        Ok(table)
    }

    /// The same partitions on a disk that has grown to `size`: the backup moves to the new end.
    pub fn grown(&self, size: u64) -> Result<Self, TableError> {
        let size = size - size % u64::from(self.sector);
        if size < self.size {
            return Err(TableError::Shrunk { table: self.size, disk: size });
        }
        let usable = Extent { end: usable(size, self.sector, self.slots)?.end, ..self.usable };
        let table = Self { size, usable, ..self.clone() };
        table.check()?;
        Ok(table)
    }

    /// Entry 1 is our label, in its place.
    pub fn is_ours(&self, ours: &Ours) -> bool {
        self.get(1).is_some_and(|entry| entry.kind == ours.label && entry.extent == ours.extent)
    }

    /// Partitions of types that are not ours.
    pub fn entries_of_others<'a>(&'a self, ours: &'a Ours) -> impl Iterator<Item = (u32, &'a Entry)> {
        self.entries.iter().filter(|(_, entry)| !ours.types.contains(&entry.kind)).map(|(n, entry)| (*n, entry))
    }

    /// The gate for every table, read or made.
    pub(super) fn check(&self) -> Result<(), TableError> {
        if self.disk.is_nil() {
            return Err(TableError::NilDisk);
        }
        let room = usable(self.size, self.sector, self.slots)?;
        if self.usable.is_empty() || !room.contains(&self.usable) {
            return Err(TableError::Usable { usable: self.usable, room });
        }
        for (&number, entry) in &self.entries {
            self.check_entry(number, entry)?;
        }
        self.check_pairs()
    }

    fn check_entry(&self, number: u32, entry: &Entry) -> Result<(), TableError> {
        let Entry { kind, guid, extent, attributes: _, name: _ } = entry;
        let sector = u64::from(self.sector);
        if number == 0 || number > self.slots {
            return Err(TableError::Number { number, slots: self.slots });
        }
        if kind.is_nil() || guid.is_nil() {
            return Err(TableError::NilGuid { number });
        }
        if extent.start >= extent.end || extent.start % sector != 0 || extent.end % sector != 0 {
            return Err(TableError::Bounds { number, extent: *extent, sector: self.sector });
        }
        if !self.usable.contains(extent) {
            return Err(TableError::Outside { number, extent: *extent, usable: self.usable });
        }
        Ok(())
    }

    fn check_pairs(&self) -> Result<(), TableError> {
        let mut by_place: Vec<(u32, &Entry)> = self.entries.iter().map(|(n, entry)| (*n, entry)).collect();
        by_place.sort_by_key(|(_, entry)| entry.extent);
        for pair in by_place.windows(2) {
            if let [(one, a), (other, b)] = pair
                && a.extent.overlaps(&b.extent)
            {
                return Err(TableError::Overlap { one: *one, other: *other });
            }
        }
        let mut by_guid = by_place;
        by_guid.sort_by_key(|(_, entry)| entry.guid);
        for pair in by_guid.windows(2) {
            if let [(one, a), (other, b)] = pair
                && a.guid == b.guid
            {
                return Err(TableError::Twice { one: *one, other: *other, guid: a.guid });
            }
        }
        Ok(())
    }
}

/// Sectors of an entry array.
pub(super) fn array_sectors(slots: u32, sector: u32) -> u64 {
    (u64::from(slots) * u64::from(ENTRY)).div_ceil(u64::from(sector))
}

/// All the space that is not table, on a disk of `size` bytes, a multiple of `sector`.
pub(super) fn usable(size: u64, sector: u32, slots: u32) -> Result<Extent, TableError> {
    let bytes = u64::from(sector);
    let around = array_sectors(slots, sector) + 1;
    let start = (1 + around) * bytes;
    let end = size.checked_sub(around * bytes).filter(|end| *end > start).ok_or(TableError::TooSmall { size })?;
    Ok(Extent { start, end })
}
