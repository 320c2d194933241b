//! A disk that is a member of an array: made ready for it, and what its record says of that.
//!
//! The bit of its partition says that the array has its superblock there. That the disk was used says more: that the
//! array may hold data. As long as no member of an array was used, the array holds nothing, and may be made again.

use std::sync::Arc;

use super::step::{Plan, PlanError, Step};
use crate::device::label::{FORMATTED, Label};
use crate::host::Extent;
use crate::host::table::Entry;
use crate::pool::content::Content;
use crate::pool::extents::MIB;

/// Zeroed at each end of the members before an array is made, and of the array after that: where md, libblkid and
/// localpool look for what was there before.
const END: u64 = 4 * MIB;

/// Both ends of a member, or of an array.
pub fn ends(extent: Extent) -> impl Iterator<Item = Extent> {
    let Extent { start, end } = extent;
    let head = Extent { start, end: end.min(start.saturating_add(END)) };
    let tail = Extent { start: head.end.max(end.saturating_sub(END)), end };
    [head, tail].into_iter().filter(|extent| !extent.is_empty())
}

/// The ends of a member become zeros.
pub fn clear_ends(extent: Extent) -> impl Iterator<Item = Step> {
    ends(extent).map(Step::Zero)
}

/// Nobody uses the partition, and nothing is found in it any more.
pub fn clear_member(content: &Content) -> Result<Plan, PlanError> {
    let (number, entry) = member(content)?;
    if content.label.used {
        return Err(PlanError::MayHoldData);
    }
    Ok(Plan([Step::ProveUnused(number)].into_iter().chain(clear_ends(entry.extent)).collect()))
}

/// The array may hold data from here on.
pub fn member_used(content: &Content) -> Result<Plan, PlanError> {
    member(content)?;
    Ok(match content.label.used {
        true => Plan::default(),
        false => Plan(vec![Step::Label(Arc::new(Label { used: true, ..content.pruned_label() }))]),
    })
}

/// The array held nothing, and is none any more.
pub fn member_unmade(content: &Content) -> Result<Plan, PlanError> {
    let (number, entry) = member(content)?;
    let mut steps = Vec::new();
    if content.label.used {
        steps.push(Step::Label(Arc::new(Label { used: false, ..content.pruned_label() })));
    }
    if entry.attributes & FORMATTED != 0 {
        let entry = Entry { attributes: entry.attributes & !FORMATTED, ..entry.clone() };
        steps.push(Step::Table(Arc::new(content.table.with(number, Some(entry))?)));
    }
    Ok(Plan(steps))
}

fn member(content: &Content) -> Result<(u32, &Entry), PlanError> {
    content.array_member().filter(|_| content.label.layout.member().is_some()).ok_or(PlanError::NoMember)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_member_or_an_array_are_told_once_however_small_it_is() {
        let of = |start, end| ends(Extent { start, end }).map(|one| (one.start, one.end)).collect::<Vec<_>>();
        assert_eq!(of(MIB, 100 * MIB), [(MIB, 5 * MIB), (96 * MIB, 100 * MIB)]);
        assert_eq!(of(0, 6 * MIB), [(0, 4 * MIB), (4 * MIB, 6 * MIB)]);
        assert_eq!(of(0, 3 * MIB), [(0, 3 * MIB)]);
    }
}
