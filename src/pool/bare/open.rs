//! A bare device that is here: opened, and held against what the journal says of it. And the end of a dispute, as a
//! person says.

use std::sync::Arc;

use uuid::Uuid;

use super::disputed::{contradicted, disputed, on_another_disk, too_small};
use super::{BareDevice, NotReady, unmap_all};
use crate::device::label::{ErasePolicy, EraseRecord, Hardware};
use crate::host::{Access, DEVICE_LOCK_TIMEOUT, Disk, RawDisk, SHORT_DEVICE_LOCK_TIMEOUT, chain, is_unchanged};
use crate::pool::{error::BareError, journal::BareClaim, view::Standing};

impl BareDevice {
    /// The device is here: opened, and held against what the journal says of it.
    pub fn arrive(&self, raw: &RawDisk, whole: Option<Hardware>) -> Result<(), BareError> {
        if self.is_open_as(raw) {
            return Ok(());
        }
        {
            // Its old handle goes, and with it the name that it had: nobody may be sent there while it is opened.
            let mut state = self.lock_within(SHORT_DEVICE_LOCK_TIMEOUT)?;
            state.raw = Some(raw.clone());
            state.disk = None;
            if state.standing == Standing::Ready {
                state.standing = Standing::NotReady("it is being opened again".to_owned());
            }
        }
        let mut state = self.lock_within(SHORT_DEVICE_LOCK_TIMEOUT)?;
        match self.open(raw, whole.as_ref()) {
            Ok(disk) => state.becomes_ready(disk),
            Err(why) => state.becomes_not_ready(why),
        }
        state.whole = whole;
        Ok(())
    }

    /// The device that it is open as; `None`: it is not, or it is in dispute since.
    pub fn open_as(&self) -> Option<RawDisk> {
        if self.journal.contradiction(&self.id).is_some() {
            return None;
        }
        let shown = self.shown();
        shown.offloads_zeroes.is_some().then(|| shown.raw.clone()).flatten()
    }

    fn is_open_as(&self, raw: &RawDisk) -> bool {
        self.open_as().is_some_and(|was| is_unchanged(&was, raw))
    }

    fn open(&self, raw: &RawDisk, whole: Option<&Hardware>) -> Result<Arc<dyn Disk>, NotReady> {
        let failed = |e: &dyn std::error::Error| NotReady::Failed(chain(e));
        let claim = self.claim().map_err(|e| failed(&e))?;
        if let Some(reported) = self.journal.contradiction(&self.id) {
            return Err(NotReady::Disputed(contradicted(&self.id, &claim, &reported)));
        }
        if let Some(why) = on_another_disk(&claim, whole) {
            return Err(NotReady::Disputed(why));
        }
        let disk = self.host.open(raw, Access::Own).map_err(|e| failed(&e))?;
        // A tenant's, mapped while nobody held the device. One in use costs nobody his volume, and is nobody else's
        // either.
        if let Err(error) = unmap_all(&*disk) {
            tracing::warn!(disk = %self.id, error = %chain(&error), "a partition on a bare device stays mapped");
        }
        let size = disk.geometry().size;
        if size < claim.size {
            return Err(NotReady::Disputed(too_small(&claim, size)));
        }
        if claim.should_be_blank()
            && let Some(found) = self.found_on(raw, &*disk, &claim).map_err(|e| failed(&e))?
        {
            return Err(NotReady::Disputed(disputed(&claim, &found)));
        }
        if let Some(why) = self.put_there(raw, &*disk, &claim).map_err(|e| failed(&e))? {
            return Err(NotReady::Disputed(why));
        }
        self.follow_growth(&claim, size).map_err(|e| failed(&e))?;
        if claim.hardware.is_none() && whole.is_some() {
            let written = self.journal.change_bare(&self.id, |claim| claim.hardware = whole.cloned());
            written.map_err(|e| failed(&e))?;
        }
        Ok(disk)
    }

    /// A free device that has grown is given out whole, so that what it gained is dirty. A volume keeps its size,
    /// though its tenant has all of the device: what he had is erased with it.
    fn follow_growth(&self, claim: &BareClaim, size: u64) -> Result<(), BareError> {
        if size <= claim.size || claim.volume.is_some() {
            return Ok(());
        }
        tracing::info!(disk = %self.id, from = claim.size, to = size, "a bare device has grown");
        self.journal.change_bare(&self.id, |claim| {
            claim.cleaned = if claim.clean { claim.size } else { claim.cleaned };
            (claim.clean, claim.size) = (false, size);
        })?;
        Ok(())
    }

    /// Ends a dispute, as a person said that the device is ours: a free one is erased and offered again, one
    /// with a volume is taken as it is.
    pub fn settle(&self) -> Result<(), BareError> {
        let mut state = self.lock_within(DEVICE_LOCK_TIMEOUT)?;
        let disk = self.host.open(self.here(&state)?, Access::Alone).map_err(BareError::opening)?;
        let size = disk.geometry().size;
        drop(disk);
        let identified = self.host.filesystems().identify(&self.here(&state)?.path).map_err(BareError::Open)?;
        let found = identified.and_then(|found| found.uuid);
        self.journal.change_bare(&self.id, |claim| {
            claim.size = size;
            claim.hardware = state.whole.clone();
            let disputed = claim.should_be_blank();
            match &mut claim.volume {
                // The journal was behind: the filesystem is the volume's own. Anything else is formatted over.
                Some(volume) if disputed && found == Some(volume.id.uuid()) => volume.formatted = true,
                Some(volume) if disputed => volume.formatting = true,
                Some(_) => {}
                None => {
                    (claim.clean, claim.cleaned) = (false, 0);
                    claim.erasing = Some(EraseRecord { was: Uuid::nil().into(), policy: ErasePolicy::Zero, cursor: 0 });
                    claim.erasing_usage = None;
                }
            }
        })?;
        let disk = self.host.open(self.here(&state)?, Access::Own).map_err(BareError::Open)?;
        state.becomes_ready(disk);
        Ok(())
    }
}
