//! Devices that may be bare ones of the pool under another identity: a firmware or a hypervisor renames a disk, and
//! nothing on a bare device says whose it is (ADR 3).
//!
//! Takes in the journal and a scan, gives out whether a device is in doubt: a volume's device is away, and this one has
//! its size. Of a claim that the journal lost the size is not known: then it is each device that the volume fits on.

use std::collections::BTreeSet;

use super::reconciler::Reconciler;
use crate::claim::{NotWiped, may_wipe};
use crate::device::{Device, DiskId, Snapshot};
use crate::host::RawDisk;

/// A bare device that is away, by its bytes.
pub(super) struct RenamedBare {
    sizes: BTreeSet<u64>,
    /// The size that the smallest volume asked for whose claim was lost.
    at_least: Option<u64>,
}

impl Reconciler {
    pub(super) fn doubts(&self, snapshot: &Snapshot) -> RenamedBare {
        let claims = self.pool.journal().bare_claims();
        let here: BTreeSet<DiskId> = snapshot
            .devices
            .iter()
            .filter_map(|device| self.pool.bare_claim_of(snapshot, device))
            .map(|(id, _)| id)
            .collect();
        let away = claims.into_iter().filter(|(id, claim)| claim.volume.is_some() && !here.contains(id));
        let sizes = away.map(|(_, claim)| claim.size).collect();
        let is_here = |id: &DiskId| snapshot.devices.iter().any(|device| snapshot.bare_id(device) == *id);
        let lost = self.pool.journal().lost().into_iter().filter(|(id, _)| !is_here(id));
        let at_least = lost.flat_map(|(_, claim)| claim.volumes().map(|one| one.record.required).min()).min();
        RenamedBare { sizes, at_least }
    }
}

impl RenamedBare {
    pub fn are_of(&self, raw: &RawDisk) -> bool {
        let size = raw.whole_sectors();
        self.sizes.contains(&size) || self.at_least.is_some_and(|at_least| size >= at_least)
    }

    /// Whether what is on a device may go, where somebody orders it.
    pub fn may_wipe(&self, device: &Device, snapshot: &Snapshot) -> Result<(), NotWiped> {
        may_wipe(device, &snapshot.devices)?;
        if self.are_of(&device.raw) { Err(NotWiped::MayBeOurs) } else { Ok(()) }
    }
}
