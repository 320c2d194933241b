//! A labelled disk as a member of an array: what is written there of the array.

use super::LabelledDisk;
use crate::pool::error::ApplyError;
use crate::pool::plan::{clear_member, member_unmade, member_used, prepared};

impl LabelledDisk {
    /// Nobody uses its partition, and nothing is found in it any more. One that may hold data is refused.
    pub fn clear_member(&self) -> Result<(), ApplyError> {
        self.change(clear_member)
    }

    /// The array has its superblock there.
    pub fn member_is_made(&self) -> Result<(), ApplyError> {
        self.change(|content| Ok(prepared(content)))
    }

    /// The array may hold data from here on.
    pub fn member_is_used(&self) -> Result<(), ApplyError> {
        self.change(member_used)
    }

    /// The array held nothing, and is none any more.
    pub fn member_is_unmade(&self) -> Result<(), ApplyError> {
        self.change(member_unmade)
    }
}
