//! What of a node's health is otherwise after a checkup: whoever shows health looks at that, and at nothing else.

use std::collections::BTreeSet;

use crate::device::{DiskId, VolumeId};

/// What one checkup changed that people see. What is not in it is shown as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthChange {
    /// Disks that have other findings, or of which more is known than before.
    pub disks: BTreeSet<DiskId>,
    /// The same of volumes. A volume has what is wrong with its disk.
    pub volumes: BTreeSet<VolumeId>,
    /// Something else that the node shows: a watched path, a disk's cordon, or that there was a checkup at all.
    pub is_of_node: bool,
}

impl HealthChange {
    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty() && !self.is_of_pool()
    }

    /// Whether what the node shows of its pool is otherwise.
    pub fn is_of_pool(&self) -> bool {
        self.is_of_node || !self.disks.is_empty()
    }
}
