//! What becomes of a bare device's volume. The journal says it; the device is proven unused, and blank before it is
//! given out.

use std::time::Duration;

use super::{BareDevice, BareState, unmap_all};
use crate::device::VolumeId;
use crate::device::label::{ErasePolicy, EraseRecord, VolumeUsage};
use crate::host::{Access, DEVICE_LOCK_TIMEOUT, Openers, ZeroingBudget};
use crate::pool::{
    erase::GIVE_WAY,
    error::BareError,
    journal::{BareClaim, BareVolume},
    plan::PlannedVolume,
};

impl BareDevice {
    /// A block volume's device is zeroed before, in pieces between which others have their turn; the journal says how
    /// far, and the worker goes on where the caller does not wait.
    pub fn create(&self, volume: &PlannedVolume, timeout: Duration) -> Result<(), BareError> {
        let mut budget = ZeroingBudget::begin();
        let _state = loop {
            let mut state = self.lock_within(timeout)?;
            let disk = self.disk(&state)?;
            let claim = self.claim()?;
            if claim.volume.is_some() || claim.erasing.is_some() {
                return Err(BareError::Taken(self.id.to_string()));
            }
            self.has_its_size(&state, &claim)?;
            let is_zero = volume.record.usage != VolumeUsage::Block || claim.clean;
            if !is_zero && budget.is_over() {
                state.is_wanted = true;
                return Err(BareError::BeingZeroed { remaining: claim.size.saturating_sub(claim.cleaned) });
            }
            self.prove_blank(&mut state, &claim)?;
            if is_zero {
                // Nobody else can have it alone, and whoever only writes to it has found nothing to change yet.
                disk.prove_unopened(Openers::Writers).map_err(BareError::opening)?;
                break state;
            }
            budget.has_zeroed(self.clean(&*disk, &claim)?);
            drop(state);
            std::thread::sleep(GIVE_WAY);
        };
        self.journal.change_bare(&self.id, |claim| {
            (claim.clean, claim.cleaned) = (false, 0);
            claim.used = true;
            claim.volume =
                Some(BareVolume { id: volume.id, record: volume.record.clone(), formatting: false, formatted: false });
        })?;
        Ok(())
    }

    /// What it has gained since it was opened is not known to be zeros; the next pass opens it again.
    fn has_its_size(&self, state: &BareState, claim: &BareClaim) -> Result<(), BareError> {
        let size = self.host.open(self.here(state)?, Access::ReadOnly).map_err(BareError::Open)?.geometry().size;
        let why = || format!("now has {size} bytes, not {}: call again", claim.size);
        if size == claim.size { Ok(()) } else { Err(BareError::Away { disk: self.id.clone(), why: why() }) }
    }

    /// From the journal's write on the volume does not exist; the device is erased in the background.
    pub fn delete(&self, id: VolumeId, policy: ErasePolicy) -> Result<(), BareError> {
        let state = self.lock_within(DEVICE_LOCK_TIMEOUT)?;
        let disk = self.disk(&state)?;
        self.has(id)?;
        self.prove_unused(&state)?;
        disk.prove_unopened(Openers::All).map_err(BareError::opening)?;
        unmap_all(&*disk)?;
        self.journal.change_bare(&self.id, |claim| {
            if let Some(volume) = claim.volume.take() {
                // Without erasure a bare device could not be told from somebody else's afterwards.
                let policy = if policy == ErasePolicy::None { ErasePolicy::Zero } else { policy };
                claim.erasing = Some(EraseRecord { was: volume.id, policy, cursor: 0 });
                claim.erasing_usage = Some(volume.record.usage);
            }
        })?;
        Ok(())
    }

    /// Whoever waited for the device may find another volume there.
    fn has(&self, id: VolumeId) -> Result<(), BareError> {
        match self.claim()?.volume {
            Some(volume) if volume.id == id => Ok(()),
            Some(_) | None => {
                Err(BareError::Away { disk: self.id.clone(), why: format!("does not have volume {id} any more") })
            }
        }
    }

    /// A filesystem is about to be made for the volume. Durable before the first byte of it, as what was begun may be
    /// done again; what nobody began here is somebody's data.
    pub fn begin_format(&self, id: VolumeId) -> Result<(), BareError> {
        let mut state = self.lock_within(DEVICE_LOCK_TIMEOUT)?;
        self.disk(&state)?;
        let claim = self.claim()?;
        if !claim.should_be_blank() {
            return Ok(());
        }
        self.prove_blank(&mut state, &claim)?;
        self.change_volume(id, |volume| volume.formatting = true)
    }

    /// Changes the volume's own record.
    pub fn change_volume(&self, id: VolumeId, change: impl FnOnce(&mut BareVolume)) -> Result<(), BareError> {
        self.has(id)?;
        self.journal
            .change_bare(&self.id, |claim| claim.volume.as_mut().filter(|volume| volume.id == id).map(change))?;
        Ok(())
    }

    /// Its volume becomes another one, found, its data as it is.
    pub fn give_other_id(&self, id: VolumeId, fresh: VolumeId, name: &str) -> Result<(), BareError> {
        let state = self.lock_within(DEVICE_LOCK_TIMEOUT)?;
        self.disk(&state)?;
        self.prove_unused(&state)?;
        self.has(id)?;
        self.journal.part_bare(&self.id, Some(id), |claim| {
            if let Some(volume) = claim.volume.as_mut() {
                volume.id = fresh;
                volume.record.name = name.to_owned();
                volume.record.found = true;
            }
        })?;
        Ok(())
    }
}
