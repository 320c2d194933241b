//! After a start: what the kernel has mapped must be the label and what the table says volumes are.

use super::step::{Plan, Step};
use crate::host::{Extent, Mapping};
use crate::pool::content::Content;

/// Whether a partition that should not be mapped may stay so while somebody uses it: it is in the way of no volume.
pub fn may_stay(content: &Content, number: u32, extent: Extent) -> bool {
    expected_mappings(content).iter().all(|expected| expected.number != number && !expected.extent.overlaps(&extent))
}

/// The partitions that should be mapped: the label, by which the disk is held, volumes, a pool filesystem, and a member
/// of an array. What is not ours stays as the kernel found it.
pub fn expected_mappings(content: &Content) -> Vec<Mapping> {
    let label = content.label_entry().map(|(number, entry)| Mapping { number, extent: entry.extent });
    let volumes = content.volumes().map(|v| Mapping { number: v.number, extent: v.entry.extent });
    let filesystem = content.pool_filesystem().map(|(number, entry)| Mapping { number, extent: entry.extent });
    let member = content.array_member().map(|(number, entry)| Mapping { number, extent: entry.extent });
    label.into_iter().chain(volumes).chain(filesystem).chain(member).collect()
}

/// Unmaps what should not be (free slots, erasing) and maps what is missing. A volume that is mapped
/// shorter than its entry was growing when it stopped; it may be in use, so it is resized, not remapped.
pub fn recover_mappings(content: &Content, mapped: &[Mapping]) -> Plan {
    let expected = expected_mappings(content);
    let unknown: Vec<u32> = content.entries_of_others().map(|(number, _)| number).collect();
    let stale = mapped.iter().filter(|m| {
        let known = expected.iter().any(|e| e.number == m.number && e.extent.start == m.extent.start);
        !known && !unknown.contains(&m.number)
    });
    let unmap = stale.map(|m| Step::Unmap(m.number));
    let bring = expected.iter().filter_map(|e| {
        let now = mapped.iter().find(|m| m.number == e.number && m.extent.start == e.extent.start);
        match now {
            Some(m) if m.extent == e.extent => None,
            Some(_) => Some(Step::Resize(e.number, e.extent)),
            None => Some(Step::Map(e.number, e.extent)),
        }
    });
    Plan(unmap.chain(bring).collect())
}
