//! Making a volume: zero what must be clean, describe it, publish its entry, map it.
//!
//! Stopped before the entry is in the primary table, nothing exists but a description that the next
//! label drops; stopped after, the volume is there and recovery maps it.

use std::sync::Arc;

use super::step::{Plan, PlanError, Step};
use crate::device::VolumeId;
use crate::device::label::{FREE_SLOT_TYPE, VOLUME_TYPE, VolumeRecord, VolumeUsage};
use crate::host::Extent;
use crate::host::table::{Entry, Name};
use crate::pool::content::Content;
use crate::pool::extents::Extents;

/// A volume to be made.
#[derive(Clone, Debug)]
pub struct PlannedVolume {
    /// Becomes the partition's GUID.
    pub id: VolumeId,
    pub record: VolumeRecord,
}

/// The place that placement chose on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// A free slot, by partition number.
    Slot(u32),
    /// Free space of a carved disk.
    Space(Extent),
}

pub fn create(content: &Content, site: Site, volume: &PlannedVolume) -> Result<Plan, PlanError> {
    let (number, extent) = match site {
        Site::Slot(number) => {
            let slot = content.table.get(number).filter(|entry| entry.kind == FREE_SLOT_TYPE);
            let missing = PlanError::Taken { extent: Extent { start: 0, end: 0 } };
            (number, slot.ok_or(missing)?.extent)
        }
        Site::Space(extent) if content.unpartitioned().contains(&extent) => {
            (content.free_number().ok_or(PlanError::TableFull)?, extent)
        }
        Site::Space(extent) => return Err(PlanError::Taken { extent }),
    };
    let entry = Entry {
        kind: VOLUME_TYPE,
        guid: volume.id.uuid(),
        extent,
        attributes: 0,
        name: Name::tail(&volume.record.name),
    };
    let table = content.table.with(number, Some(entry))?;
    let mut clean = content.clean();
    let mut steps = zeroing(&volume.record, extent, &clean);
    clean.remove(extent);
    let mut label = content.pruned_label();
    label.clean = clean.as_slice().to_vec();
    label.used = true;
    label.volumes.insert(volume.id, volume.record.clone());
    steps.extend([Step::Label(Arc::new(label)), Step::Table(Arc::new(table)), Step::Map(number, extent)]);
    Ok(Plan(steps))
}

/// A raw block volume shows its tenant every byte, so all of them must be zero; a filesystem never
/// shows what it has not written.
pub(super) fn zeroing(record: &VolumeRecord, extent: Extent, clean: &Extents) -> Vec<Step> {
    match record.usage {
        VolumeUsage::Mount(_) => Vec::new(),
        VolumeUsage::Block => {
            let dirty = Extents::from_iter([extent]).minus(clean);
            dirty.iter().map(|e| Step::Zero(*e)).collect()
        }
    }
}
