//! The verbs of a journal that was damaged, in words: beginning a new one, and taking up what it forgot.

use super::AdminError;
use crate::agent::reconciler::Reconciler;
use crate::agent::verb::Run;
use crate::device::label::VolumeUsage;
use crate::device::{Device, DiskId};
use crate::host::Access;
use crate::pool::{BareClaim, BareVolume, JOURNAL, LostClaim, LostVolume, PoolError, StoreError};

impl Reconciler {
    pub(super) fn set_aside_journal(&mut self, run: Run) -> Result<Vec<String>, AdminError> {
        let journal = std::sync::Arc::clone(self.pool().journal());
        if journal.sound().is_ok() {
            return Err(PoolError::from(StoreError::Sound).into());
        }
        let lost = journal.lost();
        let first = match run {
            Run::Dry => format!("would keep {JOURNAL} as journal.damaged-TIME beside it, and begin a new one"),
            Run::Real => {
                let kept = journal.set_aside().map_err(PoolError::from)?;
                format!("kept {JOURNAL} as {kept} beside it, and began a new one")
            }
        };
        let mut lines = vec![first];
        match lost.is_empty() {
            true => lines.push(
                "forgotten: which bare devices the pool had, if it had any, because their ids cannot be read; a device \
                 with a filesystem or data is not touched, and a blank one may be claimed again"
                    .to_owned(),
            ),
            false => lines.push(
                "forgotten: the claims of these bare devices, and their volumes; each device is not touched and not \
                 read until `localpool disk adopt ID` lets its content decide who owns it:"
                    .to_owned(),
            ),
        }
        lines.extend(lost.keys().map(|id| format!("  {id}")));
        lines.push(
            "forgotten: disks that are missing, and the volumes on them: they are not reported as missing, and such a \
             volume may be made a second time, which is a conflict when the disk comes back"
                .to_owned(),
        );
        lines.push(
            "forgotten: disks that were released, if their ids cannot be read, and which disks are known copies of \
             others; what is in the labels of disks is not forgotten"
                .to_owned(),
        );
        Ok(lines)
    }

    /// A device of a claim that is not known any more.
    pub(super) fn adopt_lost(
        &mut self,
        device: &Device,
        id: &DiskId,
        lost: LostClaim,
        run: Run,
    ) -> Result<Vec<String>, AdminError> {
        let path = device.raw.path.display();
        let journal = std::sync::Arc::clone(self.pool().journal());
        let Some(LostVolume { id: volume, set, record }) = lost.volume else {
            if run == Run::Real {
                journal.give_up_lost(id).map_err(PoolError::from)?;
            }
            return Ok(vec![
                format!("{} the content of {path} ({id}) decide who owns it", run.tense("let", "let")),
                "a set claims it only if it is blank; its content stays unchanged".to_owned(),
            ]);
        };
        let (host, raw) = (std::sync::Arc::clone(&self.host), device.raw.clone());
        let looked = self.errand(id, move || {
            let found = host.filesystems().identify(&raw.path)?.and_then(|found| found.uuid);
            Ok((found, host.open(&raw, Access::Look)?.geometry().size))
        });
        let hangs = |hangs| PoolError::Hangs { on: id.into(), hangs };
        let (found, size) = looked.map_err(hangs)?.map_err(AdminError::Open)?;
        let formatted = found == Some(volume.uuid());
        let is = match (record.usage, formatted) {
            (VolumeUsage::Block, _) => "its data as it is",
            (VolumeUsage::Mount(_), true) => "with its own filesystem",
            (VolumeUsage::Mount(_), false) => {
                "without a filesystem of its own: a new, empty one is made if the device is blank"
            }
        };
        let was = journal.bare_claim(id);
        let erased = was.as_ref().and_then(|claim| claim.erasing.as_ref()).map(|erasing| erasing.cursor);
        if run == Run::Real {
            let volume = BareVolume { id: volume, record, formatting: false, formatted };
            // What it is on is written down when it is opened.
            let claim = BareClaim { used: true, volume: Some(volume), ..BareClaim::new(set, size) };
            journal.take_up(id, claim).map_err(PoolError::from)?;
        }
        let mut lines = vec![format!("{} {path} ({id}) with volume {volume}, {is}", run.tense("take", "took"))];
        lines.extend(erased.map(|bytes| {
            format!("at least its first {bytes} bytes were erased already, together with the previous volume")
        }));
        Ok(lines)
    }
}
