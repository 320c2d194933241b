//! What is on a pool filesystem, as it is known in memory: its volumes, what is to be removed, and the sums of both, so
//! that no question costs more where there are more volumes. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::directory::{DirectoryRecord, DirectoryRecords, FIRST_PROJECT, LAST_PROJECT, trash_size};
use super::extents::MIB;
use crate::claim::Provisioning;
use crate::device::VolumeId;
use crate::host::{Extent, ProjectId};

#[derive(Debug, Default)]
pub struct DirectoryTable {
    volumes: DirectoryRecords,
    trash: Trash,
    /// Bytes that volumes may take.
    capacity: u64,
    /// Bytes that others than the pool use.
    others: u64,
    /// Of all volumes. Nobody keeps a record from naming any number.
    sizes: u128,
    /// Volumes of which nobody knows what they may take.
    undescribed: usize,
    /// The projects that records name, and how many name each.
    projects: BTreeMap<ProjectId, usize>,
}

/// What may still be promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryRoom {
    /// Bytes that no volume has, nor one that is being removed.
    pub free: u64,
    /// The largest size of one volume: with more it could not be filled if it were alone.
    pub largest: u64,
}

impl DirectoryRoom {
    /// What a volume of that size may grow to.
    pub fn growable(&self, size: u64) -> u64 {
        size.saturating_add(self.free).min(self.largest).max(size)
    }

    /// The pieces in which it is offered: all of it, and none larger than one volume may be.
    pub fn pieces(&self) -> impl Iterator<Item = Extent> {
        let (piece, free) = (self.largest / MIB * MIB, self.free / MIB * MIB);
        let whole = free.checked_div(piece).unwrap_or(0);
        // They do not touch: as one they would be too large.
        (0..=whole).filter_map(move |number| {
            let len = piece.min(free - number * piece);
            let start = number.checked_mul(piece + MIB)?;
            (len > 0).then_some(Extent { start, end: start.checked_add(len)? })
        })
    }
}

/// What is to be removed, by name.
#[derive(Debug, Default)]
pub struct Trash {
    /// With their bytes.
    names: BTreeMap<String, u64>,
    bytes: u128,
    /// Those that can be tried, the next one first, and how often that was tried in turn.
    waiting: VecDeque<String>,
    turns: u32,
    /// Those that are empty, and whose space is not free yet.
    unfreed: BTreeMap<String, Unfreed>,
    /// Those that could not be removed when that was last tried, and why.
    stuck: BTreeMap<String, String>,
}

/// Since when a folder is empty, in monotonic time, and how often it was looked whether its space is free.
#[derive(Debug)]
struct Unfreed {
    since: Duration,
    looks: u32,
}

/// How often one is tried before others have their turn: somebody may put more into it than is removed.
const MOST_TURNS: u32 = 100;
/// The kernel frees what was removed a moment later. What it has not freed within this time, or this many looks, is open
/// still.
const FREED_WITHIN: Duration = Duration::from_secs(1);
const MOST_LOOKS: u32 = 500;

impl DirectoryTable {
    /// `trash`: names that the pool has made.
    pub fn new(volumes: DirectoryRecords, trash: Vec<String>, capacity: u64) -> Self {
        let mut table = Self { capacity, ..Self::default() };
        volumes.into_iter().for_each(|(id, record)| table.put(id, record));
        trash.into_iter().for_each(|name| table.trash.add(name));
        table
    }

    /// By id. `None`: there is no record that can be read.
    pub fn volumes(&self) -> &DirectoryRecords {
        &self.volumes
    }

    /// The record of a volume that is there and has one.
    pub fn record(&self, id: VolumeId) -> Option<&DirectoryRecord> {
        self.volumes.get(&id)?.as_deref()
    }

    /// A volume is there, with this record from now on.
    pub fn insert(&mut self, id: VolumeId, record: Option<DirectoryRecord>) {
        self.put(id, record.map(Arc::new));
    }

    fn put(&mut self, id: VolumeId, record: Option<Arc<DirectoryRecord>>) {
        self.remove(id);
        self.sizes += record.as_ref().map_or(0, |record| u128::from(record.size));
        self.undescribed += usize::from(record.is_none());
        if let Some(project) = record.as_ref().and_then(|record| record.project) {
            *self.projects.entry(project).or_default() += 1;
        }
        self.volumes.insert(id, record);
    }

    /// A volume is not there any more.
    pub fn remove(&mut self, id: VolumeId) {
        let Some(record) = self.volumes.remove(&id) else { return };
        self.sizes -= record.as_ref().map_or(0, |record| u128::from(record.size));
        self.undescribed -= usize::from(record.is_none());
        if let Some(project) = record.and_then(|record| record.project)
            && let Some(count) = self.projects.get_mut(&project)
        {
            *count -= 1;
            if *count == 0 {
                self.projects.remove(&project);
            }
        }
    }

    pub fn trash(&self) -> &Trash {
        &self.trash
    }

    pub fn trash_mut(&mut self) -> &mut Trash {
        &mut self.trash
    }

    /// What new volumes may have, and those that grow.
    pub fn room(&self, provisioning: Provisioning) -> DirectoryRoom {
        let Provisioning { reserved, percent } = provisioning;
        let largest = self.capacity.saturating_sub(reserved).saturating_sub(self.others);
        if self.undescribed > 0 {
            return DirectoryRoom { free: 0, largest };
        }
        let promised = u128::from(largest) * u128::from(percent) / 100;
        let free = promised.saturating_sub(self.promised());
        DirectoryRoom { free: u64::try_from(free).unwrap_or(u64::MAX), largest }
    }

    /// Others than the pool use that many bytes of it.
    pub fn set_others(&mut self, bytes: u64) {
        self.others = bytes;
    }

    /// Bytes of all volumes, and of what is being removed.
    pub fn promised(&self) -> u128 {
        self.sizes + self.trash.bytes
    }

    /// All that records name.
    pub fn projects(&self) -> Vec<ProjectId> {
        self.projects.keys().copied().collect()
    }

    pub fn names_project(&self, project: ProjectId) -> bool {
        self.projects.contains_key(&project)
    }

    /// Projects that no record names, in the order in which they are given to new volumes: first those behind all that
    /// records name. What was deleted may still be using one.
    pub fn free_projects(&self) -> impl Iterator<Item = ProjectId> {
        let (first, last) = (FIRST_PROJECT.number(), LAST_PROJECT.number());
        let highest = self.projects.range(FIRST_PROJECT..=LAST_PROJECT).next_back();
        let begin = highest.map_or(first, |(highest, _)| highest.number() + 1);
        (begin..=last).chain(first..begin).map(ProjectId::new).filter(|project| !self.names_project(*project))
    }
}

impl Trash {
    pub fn add(&mut self, name: String) {
        let bytes = trash_size(&name).unwrap_or(0);
        if self.names.insert(name.clone(), bytes).is_none() {
            self.bytes += u128::from(bytes);
            self.waiting.push_back(name);
        }
    }

    /// It is gone.
    pub fn remove(&mut self, name: &str) {
        self.take(name);
        self.stuck.remove(name);
        self.bytes -= self.names.remove(name).map_or(0, u128::from);
    }

    pub fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(u64::MAX)
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// What is to be removed next; `None`: nothing, or nothing else than what could not be removed.
    pub fn next(&self) -> Option<&str> {
        self.waiting.front().map(String::as_str)
    }

    /// A part of the next one is removed.
    pub fn end_turn(&mut self) {
        self.turns += 1;
        if self.turns >= MOST_TURNS {
            self.turns = 0;
            self.waiting.rotate_left(usize::from(!self.waiting.is_empty()));
        }
    }

    /// It is empty, and its space is not free `now`: the others have their turn meanwhile. False: it has had its time.
    pub fn await_freed(&mut self, name: &str, now: Duration) -> bool {
        let unfreed = self.unfreed.entry(name.to_owned()).or_insert(Unfreed { since: now, looks: 0 });
        unfreed.looks += 1;
        if unfreed.looks >= MOST_LOOKS || now.saturating_sub(unfreed.since) >= FREED_WITHIN {
            return false;
        }
        if self.next() == Some(name) {
            self.turns = 0;
            self.waiting.rotate_left(1);
        }
        true
    }

    /// It cannot be removed now: the others are first.
    pub fn set_aside(&mut self, name: &str, why: String) {
        self.take(name);
        if self.names.contains_key(name) {
            self.stuck.insert(name.to_owned(), why);
        }
    }

    pub fn has_stuck(&self) -> bool {
        !self.stuck.is_empty()
    }

    /// Why something could not be removed, and how many could not. They are tried again from now on.
    pub fn take_stuck(&mut self) -> Option<(String, usize)> {
        let stuck = std::mem::take(&mut self.stuck);
        let count = stuck.len();
        self.waiting.extend(stuck.keys().cloned());
        stuck.into_values().next().map(|why| (why, count))
    }

    /// It does not wait any more.
    fn take(&mut self, name: &str) {
        self.unfreed.remove(name);
        // It is the first one, as only that is tried.
        if let Some(at) = self.waiting.iter().position(|waits| waits == name) {
            self.waiting.remove(at);
            self.turns = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::pool::directory::trash_name;
    use crate::pool::sample::volume_record;

    fn record(size: u64, project: Option<u32>) -> Option<DirectoryRecord> {
        Some(DirectoryRecord::new(size, project.map(ProjectId::new), volume_record(size)))
    }

    fn table(volumes: &[(u128, Option<DirectoryRecord>)]) -> DirectoryTable {
        let volumes = volumes.iter().map(|(id, record)| (VolumeId::from_u128(*id), record.clone().map(Arc::new)));
        DirectoryTable::new(volumes.collect(), Vec::new(), 100)
    }

    fn free(table: &DirectoryTable) -> u64 {
        table.room(Provisioning::default()).free
    }

    fn given(table: &DirectoryTable, count: usize) -> Vec<u32> {
        table.free_projects().take(count).map(ProjectId::number).collect()
    }

    #[test]
    fn a_project_that_a_record_names_is_not_given_again() {
        let (first, last) = (FIRST_PROJECT.number(), LAST_PROJECT.number());
        let mut two = table(&[(1, record(5, Some(first))), (2, record(5, Some(first + 2))), (3, None)]);
        assert_eq!(given(&two, 2), [first + 3, first + 4]);
        two.insert(VolumeId::from_u128(4), record(5, Some(first + 2)));
        two.remove(VolumeId::from_u128(2));
        assert_eq!(given(&two, 1), [first + 3], "another record names it");
        two.remove(VolumeId::from_u128(4));
        assert_eq!(given(&two, 1), [first + 1]);
        let full = table(&[(1, record(5, Some(first))), (2, record(5, Some(last - 1)))]);
        assert_eq!(given(&full, 3), [last, first + 1, first + 2], "it begins again");
        let strange = table(&[(1, record(5, Some(u32::MAX))), (2, record(5, Some(0)))]);
        assert_eq!(given(&strange, 1), [first]);
    }

    #[test]
    fn what_is_deleted_counts_until_it_is_gone_and_an_unknown_size_counts_as_all() {
        let mut table = table(&[(1, record(50, None))]);
        let id = VolumeId::from_u128(7);
        let name = trash_name(id, 30, Uuid::nil());
        table.trash_mut().add(name.clone());
        table.trash_mut().add(Uuid::nil().simple().to_string());
        assert_eq!((free(&table), table.trash().bytes(), table.trash().len()), (20, 30, 2));
        table.trash_mut().remove(&name);
        assert_eq!((free(&table), table.trash().bytes()), (50, 0));
        table.insert(VolumeId::from_u128(1), record(70, None));
        assert_eq!(free(&table), 30, "it has grown");
        table.insert(id, None);
        assert_eq!(free(&table), 0);
        table.remove(id);
        assert_eq!(free(&table), 30);
        table.insert(id, record(u64::MAX, None));
        table.insert(VolumeId::from_u128(8), record(u64::MAX, None));
        assert_eq!(free(&table), 0, "no sum is too large");
    }

    #[test]
    fn more_is_promised_than_there_is_where_a_set_says_so_and_no_volume_is_larger_than_all_of_it() {
        let volumes = [(VolumeId::from_u128(1), record(60 * MIB, None).map(Arc::new))];
        let mut table = DirectoryTable::new(volumes.into(), Vec::new(), 100 * MIB);
        let room = |table: &DirectoryTable, reserved: u64, percent| {
            let room = table.room(Provisioning { reserved: reserved * MIB, percent });
            let pieces: Vec<u64> = room.pieces().map(|piece| piece.len() / MIB).collect();
            (room.free / MIB, room.largest / MIB, pieces, room.growable(60 * MIB) / MIB)
        };
        assert_eq!(room(&table, 0, 100), (40, 100, vec![40], 100));
        assert_eq!(room(&table, 30, 100), (10, 70, vec![10], 70));
        assert_eq!(room(&table, 0, 250), (190, 100, vec![100, 90], 100));
        assert_eq!(room(&table, 50, 300), (90, 50, vec![50, 40], 60), "what it has it keeps");
        for reserved in [100, 1000] {
            assert_eq!(room(&table, reserved, 10_000), (0, 0, vec![], 60));
        }
        let all = table.room(Provisioning { reserved: 0, percent: 250 });
        let touching = all.pieces().zip(all.pieces().skip(1)).any(|(a, b)| a.end >= b.start);
        assert!(!touching, "as one piece they would be too large");
        table.insert(VolumeId::from_u128(2), None);
        assert_eq!(room(&table, 0, 250), (0, 100, vec![], 60), "nobody knows what it may take");
    }

    #[test]
    fn what_cannot_be_removed_is_tried_again_when_all_else_is_gone() {
        let mut trash = Trash::default();
        let [a, b] = [1, 2].map(|n| trash_name(VolumeId::from_u128(n), 1, Uuid::nil()));
        [&a, &b].into_iter().for_each(|name| trash.add(name.clone()));
        trash.set_aside(&a, "mounted".to_owned());
        assert_eq!(trash.next(), Some(&*b));
        trash.remove(&b);
        assert_eq!((trash.next(), trash.is_empty()), (None, false));
        assert_eq!(trash.take_stuck(), Some(("mounted".to_owned(), 1)));
        assert_eq!(trash.take_stuck(), None);
        assert_eq!(trash.next(), Some(&*a));
    }

    #[test]
    fn what_is_empty_and_not_free_yet_has_its_time_and_keeps_no_other_waiting() {
        let mut trash = Trash::default();
        let [a, b] = [1, 2].map(|n| trash_name(VolumeId::from_u128(n), 1, Uuid::nil()));
        [&a, &b].into_iter().for_each(|name| trash.add(name.clone()));
        let at = Duration::from_millis;
        assert!(trash.await_freed(&a, at(0)));
        assert_eq!(trash.next(), Some(&*b));
        assert!(trash.await_freed(&b, at(900)) && trash.await_freed(&a, at(999)));
        assert_eq!(trash.next(), Some(&*b));
        assert!(!trash.await_freed(&a, at(1000)) && trash.await_freed(&b, at(1000)));
        trash.set_aside(&a, "open".to_owned());
        trash.take_stuck();
        assert!(trash.await_freed(&a, at(5000)), "it is tried again, and has its time again");
        assert_eq!((0..MOST_LOOKS).filter(|_| trash.await_freed(&a, at(5000))).count(), 498, "if the clock stands");
    }

    #[test]
    fn each_has_its_turns_and_what_is_gone_waits_no_more() {
        let mut trash = Trash::default();
        let [a, b] = [1, 2].map(|n| trash_name(VolumeId::from_u128(n), 1, Uuid::nil()));
        [&a, &b, &a].into_iter().for_each(|name| trash.add(name.clone()));
        for name in [&a, &b, &a] {
            for _ in 0..MOST_TURNS {
                assert_eq!(trash.next(), Some(&**name));
                trash.end_turn();
            }
        }
        trash.remove(&b);
        assert_eq!((trash.next(), trash.len(), trash.bytes()), (Some(&*a), 1, 1));
        trash.remove(&a);
        // As of a filesystem that was read again meanwhile.
        trash.set_aside(&a, "mounted".to_owned());
        trash.end_turn();
        assert!(trash.next().is_none() && trash.is_empty() && trash.take_stuck().is_none());
    }
}
