//! Devices that may be bare ones of the pool under another identity: a firmware or a hypervisor renames a disk, and
//! nothing on a bare device says whose it is (ADR 3).
//!
//! Takes in the journal and a look, gives out whether a device is in doubt: a volume's device is away, and this one has
//! its size.

use std::collections::BTreeSet;

use super::reconciler::Reconciler;
use crate::claim::{Spared, may_wipe};
use crate::device::Device;
use crate::device::discovery::Snapshot;
use crate::host::RawDisk;

/// The sizes of what is away, in bytes.
pub(super) struct RenamedBare(BTreeSet<u64>);

impl Reconciler {
    pub(super) fn doubts(&self, set: &Snapshot) -> RenamedBare {
        let claims = self.pool.journal().bare_claims();
        let here: BTreeSet<String> =
            set.devices.iter().filter_map(|device| self.pool.bare_claim_of(set, device)).map(|(id, _)| id).collect();
        let away = claims.into_iter().filter(|(id, claim)| claim.volume.is_some() && !here.contains(id));
        RenamedBare(away.map(|(_, claim)| claim.size).collect())
    }
}

impl RenamedBare {
    pub fn are_of(&self, raw: &RawDisk) -> bool {
        self.0.contains(&raw.whole_sectors())
    }

    /// Whether what is on a device may go, where somebody orders it.
    pub fn may_wipe(&self, device: &Device, set: &Snapshot) -> Result<(), Spared> {
        may_wipe(device, &set.devices)?;
        if self.are_of(&device.raw) { Err(Spared::MayBeOurs) } else { Ok(()) }
    }
}
