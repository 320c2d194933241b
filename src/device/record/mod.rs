//! What a disk itself says of localpool: table and label, read together and judged.
//!
//! Takes in a disk's bytes, gives out a [`Record`]; the one place that decides whether a disk carries our claim. Writes
//! only labels; `frame` has their bytes.

mod display;
mod frame;

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::sync::Arc;

use uuid::Uuid;

use super::label::{Label, OURS};
use super::ownership::Evidence;
use crate::host::table::{Choice, Mbr, Part, Table, TableCopies, TableError, TableRefusal, choose, read_copies};
use crate::host::{BlockDevice, chain};
pub use frame::{
    Half, LabelCopies, LabelError, NewestCopy, ROOM, Sequenced, is_as_new_as, newest, read_label, write_label,
};

/// The record of localpool on a disk.
#[derive(Debug)]
pub enum Record {
    /// No table, no MBR, no label that matters. What else is on the disk was not looked at.
    Nothing,
    /// Somebody else's table, or one that is damaged; the text says which.
    OtherTable(String),
    /// It could not be read: as untouchable as one with another table.
    Unreadable(String),
    /// A table copy has our label entry and a label copy verifies. `choice.stale` is for `repair`.
    Ours(Box<OurRecord>),
    /// Ours, with a lone backup or without an MBR, as a stopped claim leaves it: `repair` completes it. There can be
    /// volumes all the same, if a person took the primary away.
    UnfinishedClaim(Box<OurRecord>),
    /// The backup, which a claim writes first, was torn. `wipe_backup` with this empty table, then the
    /// disk is as it was before the claim.
    TornClaim { table: Table, label: Box<Label> },
    /// A release has begun: `wipe_primary`, `wipe_backup`, `wipe_labels`, whichever were done already.
    /// If only a torn backup remains, the table has no entries, and only the places of the copies count.
    UnfinishedRelease { table: Table, label: Box<Label> },
    /// Ours, but it contradicts itself: kept, not used, not erased.
    Broken(String),
    /// A later version's label: not touched, and never taken as blank.
    Newer(u32),
}

/// One of our disks.
#[derive(Debug)]
pub struct OurRecord {
    pub choice: Choice,
    pub label: Label,
    pub newest: NewestCopy,
    /// Both copies as they were read: if one does not verify, the disk's health reports it.
    pub copies: LabelCopies,
}

impl Record {
    /// The label that counts, if there is one.
    pub fn label(&self) -> Option<&Label> {
        match self {
            Self::Ours(own) | Self::UnfinishedClaim(own) => Some(&own.label),
            Self::TornClaim { label, .. } | Self::UnfinishedRelease { label, .. } => Some(label),
            Self::Nothing | Self::OtherTable(_) | Self::Unreadable(_) | Self::Broken(_) | Self::Newer(_) => None,
        }
    }
}

/// Reads table and label and judges them.
pub fn read_record(dev: &dyn BlockDevice) -> Record {
    let copies = read_copies(dev);
    let labels = read_label(dev);
    match choose(&copies, &OURS) {
        Ok(choice) => with_table(choice, &copies, labels),
        Err(TableRefusal::Absent) => without_table(&labels),
        Err(TableRefusal::OfOthers(message)) => torn_backup(&copies, &labels).unwrap_or(Record::OtherTable(message)),
        Err(TableRefusal::Broken(message)) => Record::Broken(message),
        Err(TableRefusal::Unreadable(message)) => torn_backup(&copies, &labels).unwrap_or(Record::Unreadable(message)),
    }
}

/// The record of a disk, as far as the judgement of its owner needs it.
pub fn judged_record(disk: &dyn BlockDevice) -> Evidence {
    match read_record(disk) {
        Record::Nothing => Evidence::None,
        Record::OtherTable(message) => Evidence::OtherTable(message),
        Record::Unreadable(message) => Evidence::Failed(message),
        Record::Ours(own) | Record::UnfinishedClaim(own) => Evidence::Valid(Arc::new(own.label)),
        Record::TornClaim { label, .. } | Record::UnfinishedRelease { label, .. } => Evidence::Valid(Arc::from(label)),
        found @ (Record::Broken(_) | Record::Newer(_)) => Evidence::Unreadable(found.to_string()),
    }
}

/// The last step of a release: wipes both labels of a disk whose tables are gone. Nothing there: success.
pub fn wipe_labels(dev: &dyn BlockDevice, disk: Uuid) -> Result<(), LabelError> {
    let in_use = |why: &str| Err(LabelError::InUse { why: why.to_owned() });
    match choose(&read_copies(dev), &OURS) {
        Err(TableRefusal::Absent) => {}
        Err(refusal) => return in_use(&refusal.to_string()),
        Ok(_) => return in_use("its partition table is still there"),
    }
    let labels = read_label(dev);
    match newest(&labels, disk) {
        None => Ok(()),
        Some((label, _)) if !label.releasing => in_use("it does not say that the disk is being released"),
        Some(_) if labels.newer_format(None).is_some() => in_use("one copy was written by a later version"),
        Some((_, last)) => frame::zero_labels(dev, last.half.other()),
    }
}

fn with_table(choice: Choice, copies: &TableCopies, labels: LabelCopies) -> Record {
    let disk = choice.table.disk();
    if let Some(format) = labels.newer_format(Some(disk)) {
        return Record::Newer(format);
    }
    let Some((label, newest)) = newest(&labels, disk).map(|(label, newest)| (label.clone(), newest)) else {
        return match &copies.primary {
            // The backup alone does not say whose the disk is now.
            Err(e @ TableError::Unreadable { .. }) => Record::Unreadable(chain(e)),
            Ok(_) | Err(_) => without_label(&labels),
        };
    };
    if label.releasing {
        return Record::UnfinishedRelease { table: choice.table, label: Box::new(label) };
    }
    let lone = choice.good == Part::Backup && matches!(copies.primary, Err(TableError::NoSignature { .. }));
    let unfinished = lone || choice.stale.contains(&Part::Mbr);
    let own = Box::new(OurRecord { choice, label, newest, copies: labels });
    if unfinished { Record::UnfinishedClaim(own) } else { Record::Ours(own) }
}

/// Our entry is there, but no label of that disk.
fn without_label(labels: &LabelCopies) -> Record {
    let mut message = "localpool's partition table without a label that verifies".to_owned();
    for half in [Half::A, Half::B] {
        match labels.get(half) {
            Err(e @ LabelError::Unreadable { .. }) => return Record::Unreadable(e.to_string()),
            Err(e) => write!(message, "; {half:?}: {e}"),
            Ok(copy) => write!(message, "; {half:?} is of disk {}", copy.label.disk),
        }
        .expect("a string takes all words");
    }
    Record::Broken(message)
}

/// No table at all. A label alone is a claim that had only begun, or the rest of a release. If it lists volumes, a
/// person took the table away, and the disk waits for a person.
fn without_table(labels: &LabelCopies) -> Record {
    if let Some(format) = labels.newer_format(None) {
        return Record::Newer(format);
    }
    for half in [Half::A, Half::B] {
        match labels.get(half) {
            Err(e @ LabelError::Unreadable { .. }) => return Record::Unreadable(e.to_string()),
            Err(_) => continue,
            Ok(copy) => {
                if let Some(message) = newest(labels, copy.label.disk).and_then(|(label, _)| bereft(label)) {
                    return Record::Broken(message);
                }
            }
        }
    }
    Record::Nothing
}

/// A label with space in use, and without a release.
fn bereft(label: &Label) -> Option<String> {
    let (volumes, erasing) = (label.volumes.len(), label.erasing.len());
    (!label.releasing && volumes + erasing > 0).then(|| {
        format!("a label of localpool with {volumes} volumes and {erasing} being erased, but no partition table")
    })
}

/// A lone backup whose header is sound and names the disk of our label, but whose entries are torn or cannot be read: a
/// claim or a release was stopped while it wrote this copy.
fn torn_backup(copies: &TableCopies, labels: &LabelCopies) -> Option<Record> {
    let (Err(TableError::NoSignature { .. }), Err(torn), Ok(Mbr::None)) =
        (&copies.primary, &copies.backup, &copies.mbr)
    else {
        return None;
    };
    // If somebody has made something there since, the end of the disk is theirs as well.
    if copies.over.is_some() {
        return None;
    }
    let disk = torn.disk()?;
    let (label, _) = newest(labels, disk)?;
    let table = Table::new(disk, copies.geometry).ok()?;
    Some(match bereft(label) {
        Some(message) => Record::Broken(message),
        None if label.releasing => Record::UnfinishedRelease { table, label: Box::new(label.clone()) },
        None => Record::TornClaim { table, label: Box::new(label.clone()) },
    })
}
