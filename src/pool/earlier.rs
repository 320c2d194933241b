//! Whether a disk of the pool is what was last seen of it, or an earlier state that somebody put back. Pure.
//!
//! Takes in what the disk says and what the journal remembers. The label's number grows with each change of the disk,
//! and a volume that was seen goes only after its erasure was written down.

use std::collections::BTreeSet;

use crate::device::VolumeId;
use crate::device::label::{ERASING_TYPE, VOLUME_TYPE};
use crate::device::record::{OurRecord, is_as_new_as};

/// What was last seen of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastSeen {
    /// The number of its label; 0: that is not known.
    pub written: u64,
    /// Volumes that it had then.
    pub volumes: BTreeSet<VolumeId>,
}

/// What shows that a disk is in an earlier state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Earlier {
    #[error(
        "its label has number {found}, but had number {last_seen} when the disk was last seen here: this is an older \
         copy of the disk, or a restored snapshot; volumes that were made, grown or deleted since then are not on it"
    )]
    Label { found: u64, last_seen: u64 },
    #[error(
        "its partition table lacks {}, which the label describes: an older table was restored, or somebody deleted \
         partitions; the data in their place is not touched",
        volumes(gone)
    )]
    Table { gone: BTreeSet<VolumeId> },
}

fn volumes(ids: &BTreeSet<VolumeId>) -> String {
    let ids: Vec<String> = ids.iter().map(VolumeId::to_string).collect();
    let plural = if ids.len() == 1 { "" } else { "s" };
    format!("the partition{plural} of volume{plural} {}", ids.join(", "))
}

/// What shows that the disk is in an earlier state than that which was `last_seen`; `None`: nothing does.
pub fn earlier(own: &OurRecord, last_seen: &LastSeen) -> Option<Earlier> {
    if !is_as_new_as(&own.copies, own.newest, last_seen.written) {
        return Some(Earlier::Label { found: own.newest.sequence, last_seen: last_seen.written });
    }
    let gone: BTreeSet<VolumeId> = last_seen.volumes.iter().copied().filter(|id| is_gone(own, *id)).collect();
    // Where the newest copy of the label has rotted, a deletion may have been written down in that alone.
    (gone.len() > undescribed(own)).then_some(Earlier::Table { gone })
}

/// Entries of deleted volumes that the label says nothing of.
fn undescribed(own: &OurRecord) -> usize {
    let entries = own.choice.table.entries().values();
    entries.filter(|entry| entry.kind == ERASING_TYPE && !own.label.erasing.contains_key(&entry.guid)).count()
}

/// It is described and nowhere. One that was deleted is described as being erased, until it is not described at all.
fn is_gone(own: &OurRecord, id: VolumeId) -> bool {
    let OurRecord { choice, label, .. } = own;
    let is_there = choice.table.entries().values().any(|entry| entry.kind == VOLUME_TYPE && entry.guid == id.uuid());
    let is_erasing = label.erasing.values().any(|erasing| erasing.was == id);
    label.volumes.contains_key(&id) && !is_there && !is_erasing
}
