//! Facts that are written down about an existing volume or disk.

use std::sync::Arc;

use super::step::{Plan, PlanError, Step};
use crate::device::VolumeId;
use crate::device::label::{FORMATTED, Label, VolumeRecord};
use crate::host::table::{Entry, Name};
use crate::pool::content::Content;

/// After mkfs and its sync: the attribute bit that says never again.
pub fn formatted(content: &Content, id: VolumeId) -> Result<Plan, PlanError> {
    let volume = content.volume(id).ok_or(PlanError::NoSuchVolume { id })?;
    if volume.formatted() {
        return Ok(Plan::default());
    }
    let mut entry = volume.entry.clone();
    entry.attributes |= FORMATTED;
    let table = content.table.with(volume.number, Some(entry))?;
    let Plan(mut steps) = grown(content, id, volume.size())?;
    steps.push(Step::Table(Arc::new(table)));
    Ok(Plan(steps))
}

/// The pool filesystem, or the array that the disk is a member of, is made, with all that it begins with.
pub fn prepared(content: &Content) -> Plan {
    let made = content.pool_filesystem().or_else(|| content.array_member());
    let Some((number, entry)) = made.filter(|(_, entry)| entry.attributes & FORMATTED == 0) else {
        return Plan::default();
    };
    let entry = Entry { attributes: entry.attributes | FORMATTED, ..entry.clone() };
    let table = content.table.with(number, Some(entry));
    table.map_or_else(|_| Plan::default(), |table| Plan(vec![Step::Table(Arc::new(table))]))
}

/// After mkfs or a growth: the filesystem fills a device of `size` bytes.
pub fn grown(content: &Content, id: VolumeId, size: u64) -> Result<Plan, PlanError> {
    content.volume(id).ok_or(PlanError::NoSuchVolume { id })?;
    let mut label = content.pruned_label();
    match label.volumes.get_mut(&id) {
        Some(record) if record.fs_size != size => {
            record.fs_size = size;
            Ok(relabel(label))
        }
        _ => Ok(Plan::default()),
    }
}

/// A volume whose description the label has lost gets it again.
pub fn describe_volume(content: &Content, id: VolumeId, record: &VolumeRecord) -> Result<Plan, PlanError> {
    let volume = content.volume(id).ok_or(PlanError::NoSuchVolume { id })?;
    if volume.record.is_some() {
        return Ok(Plan::default());
    }
    let mut label = content.pruned_label();
    label.volumes.insert(id, record.clone());
    Ok(relabel(label))
}

/// The adoption of a volume that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// The volume is not usable before.
    Waits,
    Done,
}

impl Adoption {
    /// As the record of a volume says it: the volume is a found one.
    pub fn waits(self) -> bool {
        match self {
            Self::Waits => true,
            Self::Done => false,
        }
    }
}

/// Whether the volume waits for its adoption.
pub fn set_found(content: &Content, id: VolumeId, adoption: Adoption) -> Result<Plan, PlanError> {
    content.volume(id).ok_or(PlanError::NoSuchVolume { id })?;
    let mut label = content.pruned_label();
    if let Some(record) = label.volumes.get_mut(&id) {
        record.found = adoption.waits();
    }
    Ok(relabel(label))
}

/// One of several volumes of an id becomes another one: with a fresh id and name, found, its data as it is. Its
/// partition is mapped again, so that its links have the new id; in use: nothing has changed.
pub fn give_other_id(content: &Content, id: VolumeId, fresh: VolumeId, name: &str) -> Result<Plan, PlanError> {
    let volume = content.volume(id).ok_or(PlanError::NoSuchVolume { id })?;
    let mut label = content.pruned_label();
    if let Some(record) = volume.record {
        // The old description stays until no entry has its id: stopped in between, the volume is still described.
        label.volumes.insert(fresh, VolumeRecord { name: name.to_owned(), found: true, ..record.clone() });
    }
    let entry = Entry { guid: fresh.uuid(), name: Name::tail(name), ..volume.entry.clone() };
    let table = content.table.with(volume.number, Some(entry))?;
    Ok(Plan(vec![
        Step::ProveUnused(volume.number),
        Step::Unmap(volume.number),
        Step::Label(Arc::new(label)),
        Step::Table(Arc::new(table)),
        Step::Map(volume.number, volume.entry.extent),
    ]))
}

/// Another description of the same disk: an adopted disk's new owner, a set that was made again.
pub fn relabel(label: impl Into<Arc<Label>>) -> Plan {
    Plan(vec![Step::Label(label.into())])
}
