//! The results of a pass so far: filled by the steps that perform, and read at its end.

use std::collections::BTreeMap;

use super::again::Reasons;
use crate::host::KernelName;
use crate::pool::Unasked;

/// It becomes the report of the pass.
#[derive(Debug, Default)]
pub(super) struct PassState {
    /// Objections to disks, as text, by kernel name.
    pub problems: BTreeMap<KernelName, String>,
    /// Disks of the pool that cannot be asked what is on them.
    pub unread: Vec<Unasked>,
    /// The last log line about each disk that cannot be used, by kernel name.
    pub unusable: BTreeMap<KernelName, String>,
    /// Why another pass follows soon, without an event.
    pub again: Reasons,
    /// Kernel names of the disks that were claimed.
    pub claimed: Vec<KernelName>,
    pub wiped: usize,
    pub released: usize,
}

impl PassState {
    /// A disk that was just claimed, wiped or released is another one now than this pass saw.
    pub fn is_stale(&self) -> bool {
        !self.claimed.is_empty() || self.wiped > 0 || self.released > 0
    }
}
