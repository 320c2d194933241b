//! What came of a pass so far: filled by what performs, read at its end.

use std::collections::BTreeMap;

use crate::host::KernelName;
use crate::pool::Unasked;

/// It becomes the report of the pass.
#[derive(Debug, Default)]
pub(super) struct PassState {
    /// What stands against a disk, in words, by kernel name.
    pub problems: BTreeMap<KernelName, String>,
    /// Disks of the pool that cannot be asked what is on them.
    pub unread: Vec<Unasked>,
    /// What the log was told of disks that cannot be used, by kernel name.
    pub unusable: BTreeMap<KernelName, String>,
    /// Something may be over soon that no event tells of.
    pub again: bool,
    /// Kernel names of the disks that were claimed.
    pub claimed: Vec<KernelName>,
    pub wiped: usize,
    pub released: usize,
}

impl PassState {
    /// What was just claimed, wiped or released is another disk now than the one that this pass saw.
    pub fn is_stale(&self) -> bool {
        !self.claimed.is_empty() || self.wiped > 0 || self.released > 0
    }
}
