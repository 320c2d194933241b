//! Every write of a table. Each copy is one write, followed by a sync; each function looks again before it
//! writes, compares after, and may be called again from wherever it stopped.
//!
//! | stopped in | leaves | what [`choose`](super::choose) says then |
//! |---|---|---|
//! | [`write_table`], backup | old primary, torn or new backup | the old table; backup stale |
//! | [`write_table`], primary | torn or new primary, new backup | the new table; primary stale if torn |
//! | [`write_first`], backup | a torn or whole backup alone | absent, a damaged GPT, or the table with primary and MBR stale |
//! | [`write_first`], primary or MBR | a whole backup, torn or new primary | the table, with what is missing |
//! | [`repair`] | the copy that was good is never written | the same choice |
//! | [`wipe_primary`] | MBR or primary, in part; the whole backup | the table; it names what is missing |
//! | [`wipe_backup`] | no primary; a torn backup | absent, or a damaged GPT with this disk's GUID |

use uuid::Uuid;

use super::codec::{backup_bytes, mbr_bytes, primary_bytes};
use super::copies::{Choice, Mbr, Part, TableRefusal, choose, read_copies, read_copy};
use super::error::TableError;
use super::lba::Lba;
use super::partitions::{Ours, Table};
use crate::host::block::{BlockDevice, IoError};

/// Why a table was not written, or not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum TableWriteError {
    #[error("writing the {part}")]
    Io {
        part: Part,
        #[source]
        source: IoError,
    },
    #[error("the disk has no partition table of localpool to change")]
    Refused(#[source] TableRefusal),
    #[error("the primary table is damaged and has to be repaired first")]
    Damaged,
    #[error("another program has changed the table: {what}")]
    ChangedUnderneath { what: String },
    #[error("partition {number} does not belong to localpool")]
    EntryOfOthers { number: u32 },
    #[error("partition {guid} would change its number from {from} to {to}")]
    Renumbered { guid: Uuid, from: u32, to: u32 },
    #[error("the new table {why}")]
    Shape { why: &'static str },
    #[error("the disk already holds {what}")]
    Occupied { what: String },
    #[error("the {part} does not read back as it was written")]
    Mismatch { part: Part },
}

/// Changes the table from `expected`, which the disk must hold now, to `new`. Grows the table if `new`
/// is for a larger disk; then the partitions must be the same.
pub fn write_table(dev: &dyn BlockDevice, ours: &Ours, expected: &Table, new: &Table) -> Result<(), TableWriteError> {
    check_change(dev, ours, expected, new)?;
    let now = unchanged(dev, ours, expected)?;
    if now.good != Part::Primary {
        return Err(TableWriteError::Damaged);
    }
    put(dev, Part::Backup, new)?;
    put(dev, Part::Primary, new)?;
    verify(dev, ours, new)?;
    if new.size() != expected.size() {
        // The old backup is in free space now. Left there, it would come back if the disk ever shrank.
        zero(dev, Part::Backup, expected)?;
    }
    Ok(())
}

/// The first table of a disk that was proved unclaimed; also rolls an unfinished claim forward.
pub fn write_first(dev: &dyn BlockDevice, ours: &Ours, table: &Table) -> Result<(), TableWriteError> {
    if !table.is_ours(ours) {
        return Err(TableWriteError::Shape { why: "does not have localpool's label" });
    }
    let copies = read_copies(dev);
    if dev.geometry().size / u64::from(table.sector()) * u64::from(table.sector()) != table.size() {
        return Err(TableWriteError::Shape { why: "is for a disk of another size" });
    }
    let occupied = |what: String| Err(TableWriteError::Occupied { what });
    match choose(&copies, ours) {
        Ok(found) if found.table != *table => return occupied(format!("a table of disk {}", found.table.disk())),
        Ok(_) | Err(TableRefusal::Absent) => {}
        Err(_) if is_torn(&copies.primary, &copies.backup, table.disk()) && matches!(copies.mbr, Ok(Mbr::None)) => {}
        Err(refusal) => return occupied(refusal.to_string()),
    }
    put(dev, Part::Backup, table)?;
    put(dev, Part::Primary, table)?;
    put(dev, Part::Mbr, table)?;
    verify(dev, ours, table)
}

/// What the disk has of `expected`, which must be its table now. Other writes that rely on it check this first, too.
pub fn unchanged(dev: &dyn BlockDevice, ours: &Ours, expected: &Table) -> Result<Choice, TableWriteError> {
    let now = choose(&read_copies(dev), ours).map_err(TableWriteError::Refused)?;
    match difference(expected, &now.table) {
        Some(what) => Err(TableWriteError::ChangedUnderneath { what }),
        None => Ok(now),
    }
}

/// Rewrites whatever is stale beside `table`, which [`choose`] found in its good copy.
pub fn repair(dev: &dyn BlockDevice, ours: &Ours, table: &Table) -> Result<(), TableWriteError> {
    let now = unchanged(dev, ours, table)?;
    for part in now.stale {
        put(dev, part, &now.table)?;
    }
    verify(dev, ours, &now.table)
}

/// First half of a release: MBR and primary become zeros by one write. Refused while an unknown partition
/// is there, and for a disk that holds another table.
pub fn wipe_primary(dev: &dyn BlockDevice, ours: &Ours, table: &Table) -> Result<(), TableWriteError> {
    let copies = read_copies(dev);
    let speaks = match (&copies.primary, &copies.backup) {
        (Err(TableError::Unreadable { disk: None, .. }), Ok(_)) => &copies.backup,
        (primary, _) => primary,
    };
    check_wipe(ours, table, speaks)?;
    if let Ok(mbr @ (Mbr::Hybrid | Mbr::Dos { .. })) = copies.mbr {
        return Err(TableWriteError::Occupied { what: mbr.to_string() });
    }
    if let (Ok(primary), Err(TableError::Unreadable { .. })) = (&copies.primary, &copies.backup) {
        // Without the primary nothing shows that unreadable bytes there are ours to wipe.
        put(dev, Part::Backup, primary)?;
    }
    zero(dev, Part::Primary, table)
}

/// Second half of a release, after [`wipe_primary`]: the backup becomes zeros.
pub fn wipe_backup(dev: &dyn BlockDevice, ours: &Ours, table: &Table) -> Result<(), TableWriteError> {
    match read_copy(dev, Lba::PRIMARY) {
        Err(TableError::NoSignature { .. }) => {}
        Err(e @ TableError::Unreadable { .. }) => return Err(occupied_by(&e)),
        Ok(_) | Err(_) => return Err(TableWriteError::Occupied { what: "a primary table".into() }),
    }
    check_wipe(ours, table, &read_copy(dev, Lba::last_of(table.size(), table.sector())))?;
    zero(dev, Part::Backup, table)
}

fn check_wipe(ours: &Ours, table: &Table, found: &Result<Table, TableError>) -> Result<(), TableWriteError> {
    let unknown = |table: &Table| table.entries_of_others(ours).next().map(|(number, _)| number);
    if let Some(number) = unknown(table).or_else(|| found.as_ref().ok().and_then(unknown)) {
        return Err(TableWriteError::EntryOfOthers { number });
    }
    let other = |disk: Uuid| Err(TableWriteError::Occupied { what: format!("a table of disk {disk}") });
    let of = found.as_ref().map_or_else(TableError::disk, |found| Some(found.disk()));
    match (of, found) {
        (Some(disk), _) if disk != table.disk() => other(disk),
        (None, Err(e)) if !e.is_damage() => Err(occupied_by(e)),
        (Some(_) | None, _) => Ok(()),
    }
}

fn occupied_by(error: &TableError) -> TableWriteError {
    TableWriteError::Occupied { what: error.to_string() }
}

/// Copies that our own first write of this very disk may have left: its GUID is in each header that is sound.
fn is_torn(primary: &Result<Table, TableError>, backup: &Result<Table, TableError>, disk: Uuid) -> bool {
    let ours = |copy: &Result<Table, TableError>| match copy {
        Err(TableError::EntriesCrc { disk: found, .. }) => *found == disk,
        Err(TableError::NoSignature { .. }) => true,
        Ok(_) | Err(_) => false,
    };
    ours(primary) && ours(backup)
}

/// What must hold between the two tables whatever the disk says.
fn check_change(dev: &dyn BlockDevice, ours: &Ours, old: &Table, new: &Table) -> Result<(), TableWriteError> {
    let shape = |why| Err(TableWriteError::Shape { why });
    if !new.is_ours(ours) {
        return shape("does not have localpool's label");
    }
    if (old.disk(), old.sector(), old.slots()) != (new.disk(), new.sector(), new.slots()) {
        return shape("is of another disk");
    }
    if new.sector() != dev.geometry().sector || new.size() > dev.geometry().size || new.size() < old.size() {
        return shape("does not fit the disk");
    }
    if new.size() != old.size() && new.entries() != old.entries() {
        return shape("grows and changes partitions at once");
    }
    if new.size() == old.size() && new.usable() != old.usable() {
        return shape("has another usable space");
    }
    for (number, entry) in old.entries_of_others(ours).chain(new.entries_of_others(ours)) {
        if old.get(number) != Some(entry) || new.get(number) != Some(entry) {
            return Err(TableWriteError::EntryOfOthers { number });
        }
    }
    for (&to, entry) in new.entries() {
        match old.find(entry.guid) {
            Some((from, _)) if from != to => return Err(TableWriteError::Renumbered { guid: entry.guid, from, to }),
            Some(_) | None => {}
        }
    }
    Ok(())
}

/// The first thing in which two tables differ, as text.
fn difference(expected: &Table, found: &Table) -> Option<String> {
    if expected.disk() != found.disk() {
        return Some(format!("it is of disk {}, not {}", found.disk(), expected.disk()));
    }
    let numbers = 1..=expected.slots().max(found.slots());
    for number in numbers {
        match (expected.get(number), found.get(number)) {
            (None, Some(_)) => return Some(format!("partition {number} is new")),
            (Some(_), None) => return Some(format!("partition {number} is gone")),
            (one, other) if one != other => return Some(format!("partition {number} is a different one")),
            _ => {}
        }
    }
    (expected != found).then(|| format!("its usable space is {}, not {}", found.usable(), expected.usable()))
}

/// One write of one part, and a sync.
fn put(dev: &dyn BlockDevice, part: Part, table: &Table) -> Result<(), TableWriteError> {
    let (at, bytes) = match part {
        Part::Mbr => (0, mbr_bytes(table)),
        Part::Primary => (u64::from(table.sector()), primary_bytes(table)),
        Part::Backup => {
            let bytes = backup_bytes(table);
            (table.size() - bytes.len() as u64, bytes)
        }
    };
    write_and_sync(dev, part, at, &bytes)
}

/// Zeros over one part and a sync. The primary takes the MBR with it.
fn zero(dev: &dyn BlockDevice, part: Part, table: &Table) -> Result<(), TableWriteError> {
    let length = primary_bytes(table).len();
    match part {
        Part::Primary | Part::Mbr => write_and_sync(dev, part, 0, &vec![0; table.sector() as usize + length]),
        Part::Backup => write_and_sync(dev, part, table.size() - length as u64, &vec![0; length]),
    }
}

fn write_and_sync(dev: &dyn BlockDevice, part: Part, at: u64, bytes: &[u8]) -> Result<(), TableWriteError> {
    dev.write_at(at, bytes).and_then(|()| dev.sync()).map_err(|source| TableWriteError::Io { part, source })
}

fn verify(dev: &dyn BlockDevice, ours: &Ours, table: &Table) -> Result<(), TableWriteError> {
    let copies = read_copies(dev);
    for (part, copy) in [(Part::Backup, &copies.backup), (Part::Primary, &copies.primary)] {
        if copy.as_ref().ok() != Some(table) {
            return Err(TableWriteError::Mismatch { part });
        }
    }
    choose(&copies, ours).map(drop).map_err(TableWriteError::Refused)
}
