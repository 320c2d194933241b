//! Growing a carved volume into the free space right behind it.

use std::sync::Arc;

use super::create::zeroing;
use super::step::{Plan, PlanError, Step};
use crate::device::{VolumeId, label::VOLUME_TYPE};
use crate::host::Extent;
use crate::pool::content::Content;
use crate::pool::extents::MIB;

/// Plans the growth to at least `required` bytes; an empty plan where the volume is large enough.
pub fn expand(content: &Content, id: VolumeId, required: u64) -> Result<Plan, PlanError> {
    let volume = content.volume(id).ok_or(PlanError::NoSuchVolume { id })?;
    if required <= volume.size() {
        return Ok(Plan::default());
    }
    let extent = volume.entry.extent;
    let cannot = || {
        let growable_to = content.growable_to(id, &content.unpartitioned()).unwrap_or(volume.size());
        PlanError::CannotGrow { id, wanted: required, growable_to }
    };
    let size = required.checked_next_multiple_of(MIB).ok_or_else(cannot)?;
    let grown = Extent::sized(extent.start, size).ok_or_else(cannot)?;
    let added = Extent { start: extent.end, end: grown.end };
    if !content.carves() || !content.unpartitioned().contains(&added) {
        return Err(cannot());
    }
    debug_assert_eq!(volume.entry.kind, VOLUME_TYPE);
    let mut entry = volume.entry.clone();
    entry.extent = grown;
    let table = content.table.with(volume.number, Some(entry))?;
    let mut clean = content.clean();
    let mut steps = volume.record.map_or_else(Vec::new, |record| zeroing(record, added, &clean));
    clean.remove(added);
    let mut label = content.pruned_label();
    label.clean = clean.as_slice().to_vec();
    if let Some(record) = label.volumes.get_mut(&id) {
        record.required = required;
    }
    steps.extend([Step::Label(Arc::new(label)), Step::Table(Arc::new(table)), Step::Resize(volume.number, grown)]);
    Ok(Plan(steps))
}
