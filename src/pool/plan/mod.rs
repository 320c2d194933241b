//! Plans: what has to happen on one disk, step by step. Pure; `pool/disk` performs them.
//!
//! Every plan may be stopped after any step (and inside one) and leaves a disk from which `recover` and
//! a repeated request converge. One file per verb.

mod array;
mod claim;
mod create;
mod erase;
mod expand;
mod format;
mod recover;
mod release;
mod step;

pub use array::{clear_member, ends, member_unmade, member_used};
pub use claim::{LABEL_NUMBER, NewLabel, claim};
pub use create::{PlannedVolume, Site, create};
pub use erase::{ERASE_CHUNK, EraseWork, delete, erase_advanced, erase_finished, next_erase};
pub use expand::expand;
pub use format::{Adoption, describe_volume, formatted, give_other_id, grown, prepared, relabel, set_found};
pub use recover::{may_stay, recover_mappings};
pub use release::release;
pub use step::{Plan, PlanError, Step};
