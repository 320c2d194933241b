//! Deleting a volume, and erasing what it leaves.
//!
//! Delete: prove it unused, unmap (busy: nothing has changed), describe the erasure, flip the entry to
//! *erasing* under a fresh GUID. From then on the volume does not exist. Its space is erased in chunks
//! with a durable cursor, and only then becomes free.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use super::step::{Plan, PlanError, Step};
use crate::device::VolumeId;
use crate::device::label::{ERASING_TYPE, ErasePolicy, EraseRecord, FREE_SLOT_TYPE};
use crate::host::Extent;
use crate::host::table::{Entry, Name};
use crate::pool::content::Content;

/// The most that one BLKZEROOUT covers, so that a cursor is never far behind.
pub const ERASE_CHUNK: u64 = 1 << 30;

/// The next chunk of an erasure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EraseWork {
    pub number: u32,
    /// GUID of the erasing entry.
    pub guid: Uuid,
    /// The whole extent of the entry.
    pub extent: Extent,
    pub policy: ErasePolicy,
    /// What to zero now; `None`: all is done, and the entry can go.
    pub chunk: Option<Extent>,
}

/// Plans the deletion; `guid` is fresh and random.
pub fn delete(content: &Content, id: VolumeId, policy: ErasePolicy, guid: Uuid) -> Result<Plan, PlanError> {
    let volume = content.volume(id).ok_or(PlanError::NoSuchVolume { id })?;
    let extent = volume.entry.extent;
    let name = Name::tail("localpool erasing");
    let entry = Entry { kind: ERASING_TYPE, guid, extent, attributes: 0, name };
    let mut label = content.pruned_label();
    label.erasing.insert(guid, EraseRecord { was: id, policy, cursor: extent.start });
    let mut clean = content.clean();
    clean.remove(extent);
    label.clean = clean.as_slice().to_vec();
    let table = content.table.with(volume.number, Some(entry))?;
    Ok(Plan(vec![
        Step::ProveUnused(volume.number),
        Step::Unmap(volume.number),
        Step::Label(Arc::new(label)),
        Step::Table(Arc::new(table)),
    ]))
}

/// What to erase next: nothing that somebody holds, and none of `failed`, by GUID. An erasing entry without a record is
/// erased from its start, the safe way.
pub fn next_erase(content: &Content, failed: &BTreeSet<Uuid>) -> Option<EraseWork> {
    let may_be = |number: u32, entry: &Entry| !content.busy.contains_key(&number) && !failed.contains(&entry.guid);
    let (number, entry, record) = content.erasing().find(|(number, entry, _)| may_be(*number, entry))?;
    let policy = record.map_or(ErasePolicy::Discard, |r| r.policy);
    let extent = entry.extent;
    let start = record.map_or(extent.start, |r| r.cursor.clamp(extent.start, extent.end));
    let end = extent.end.min(start.saturating_add(ERASE_CHUNK));
    let done = policy == ErasePolicy::None || start == extent.end;
    Some(EraseWork { number, guid: entry.guid, extent, policy, chunk: (!done).then_some(Extent { start, end }) })
}

/// After a chunk was zeroed and synced: the cursor follows.
pub fn erase_advanced(content: &Content, work: &EraseWork, done: Extent) -> Plan {
    let mut label = content.pruned_label();
    let was = label.erasing.get(&work.guid).map_or(Uuid::nil().into(), |r| r.was);
    label.erasing.insert(work.guid, EraseRecord { was, policy: work.policy, cursor: done.end });
    Plan(vec![Step::Label(Arc::new(label))])
}

/// After the last chunk: the space is known to be clean (unless nothing was erased), then the entry goes.
pub fn erase_finished(content: &Content, work: &EraseWork) -> Result<Plan, PlanError> {
    let mut label = content.pruned_label();
    let mut clean = content.clean();
    if work.policy != ErasePolicy::None {
        clean.insert(work.extent);
    }
    label.clean = clean.as_slice().to_vec();
    let slot = (!content.carves()).then(|| Entry {
        kind: FREE_SLOT_TYPE,
        guid: work.guid,
        extent: work.extent,
        attributes: 0,
        name: Name::tail("localpool free"),
    });
    let table = content.table.with(work.number, slot)?;
    Ok(Plan(vec![Step::Unmap(work.number), Step::Label(Arc::new(label)), Step::Table(Arc::new(table))]))
}
