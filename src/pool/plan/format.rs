//! Facts that are written down about an existing volume or disk.

use uuid::Uuid;

use super::{Plan, PlanError, Step};
use crate::device::label::{FORMATTED, Label};
use crate::pool::content::Content;

/// After mkfs and its sync: the attribute bit that says never again.
pub fn formatted(content: &Content, id: Uuid) -> Result<Plan, PlanError> {
    let volume = content.volume(id).ok_or(PlanError::NoSuchVolume { id })?;
    if volume.formatted() {
        return Ok(Plan::default());
    }
    let mut entry = volume.entry.clone();
    entry.attributes |= FORMATTED;
    let table = content.table.with(volume.number, Some(entry))?;
    let Plan(mut steps) = grown(content, id, volume.size())?;
    steps.push(Step::Table(Box::new(table)));
    Ok(Plan(steps))
}

/// After mkfs or a growth: the filesystem fills a device of `size` bytes.
pub fn grown(content: &Content, id: Uuid, size: u64) -> Result<Plan, PlanError> {
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

/// A volume that came with an adopted disk becomes one like any other.
pub fn adopt_volume(content: &Content, id: Uuid) -> Result<Plan, PlanError> {
    content.volume(id).ok_or(PlanError::NoSuchVolume { id })?;
    let mut label = content.pruned_label();
    if let Some(record) = label.volumes.get_mut(&id) {
        record.found = false;
    }
    Ok(relabel(label))
}

/// The volume waits for its adoption from now on.
pub fn disown_volume(content: &Content, id: Uuid) -> Result<Plan, PlanError> {
    content.volume(id).ok_or(PlanError::NoSuchVolume { id })?;
    let mut label = content.pruned_label();
    if let Some(record) = label.volumes.get_mut(&id) {
        record.found = true;
    }
    Ok(relabel(label))
}

/// Another description of the same disk: an adopted disk's new owner, a set made anew.
pub fn relabel(label: Label) -> Plan {
    Plan(vec![Step::Label(Box::new(label))])
}
