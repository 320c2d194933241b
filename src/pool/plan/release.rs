//! The release of a disk: it becomes as blank as it was found.
//!
//! The label says *releasing* first, so that a stop anywhere is recognised and carried on: as long as the
//! backup table is there, it and the label prove the disk ours. A label alone means nothing, so it goes last.

use std::sync::Arc;

use super::step::{Plan, PlanError, Step};
use crate::pool::content::Content;

pub fn release(content: &Content) -> Result<Plan, PlanError> {
    let (volumes, erasing) = (content.volumes().count(), content.erasing().count());
    if volumes + erasing > 0 {
        return Err(PlanError::NotEmpty { volumes, erasing });
    }
    // What is on an array is on all of its members, and one of them alone does not say that nothing is.
    if let Some(place) = content.label.layout.member().filter(|_| content.label.used) {
        return Err(PlanError::Member { place });
    }
    if let Some(busy) = content.busy.values().next() {
        return Err(PlanError::Busy { why: busy.why.clone() });
    }
    let unknown = content.entries_of_others().count();
    if unknown > 0 {
        return Err(PlanError::EntriesOfOthers { count: unknown });
    }
    let mut label = content.pruned_label();
    label.releasing = true;
    let unmap = content.table.entries().keys().map(|number| Step::Unmap(*number));
    let wipe = [Step::Label(Arc::new(label)), Step::WipeAll];
    Ok(Plan(unmap.chain(wipe).collect()))
}
