//! Why another pass follows soon, though no event of the machine asks for one.

use std::collections::BTreeSet;

/// An obstacle that may be over soon, without an event that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Again {
    /// Somebody has a partition of the pool open that is to go.
    BusyPartition,
    /// A worker of the pool failed.
    FailedWork,
    /// A filesystem cannot be mounted for the node.
    HostMount,
    /// A disk of the pool could not be opened, left or read.
    Member,
    /// The record of a disk could not be given its new set, or the disk its rule.
    Record,
    /// A disk was not claimed, or was not proved to be blank.
    Claim,
    /// A disk was not wiped.
    Wipe,
    /// It is not known what other provisioners promise, or what they promise may be over.
    Promise,
    ClaimUnderWay,
    /// An array is being made or started, or could not be.
    Array,
    /// The PoolVolumes of this node were not heard.
    VolumesUnread,
    /// A blank disk is in use, or the scan could not read a disk.
    Rescan,
}

/// The reasons that a pass has met.
#[derive(Clone, Debug, Default)]
pub(super) struct Reasons(BTreeSet<Again>);

impl Reasons {
    /// Another pass follows for this reason, if it is one.
    pub fn add(&mut self, why: Again, is_so: bool) {
        if is_so {
            self.0.insert(why);
        }
    }

    /// Whether another pass follows; the log says why.
    pub fn any(&self) -> bool {
        if !self.0.is_empty() {
            tracing::debug!(reasons = ?self.0, "another pass follows without an event");
        }
        !self.0.is_empty()
    }
}
