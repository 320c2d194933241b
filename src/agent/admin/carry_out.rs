//! The orders of the DevicePool for a disk. Each order does one of the things that a verb does, and only where nothing
//! can be lost that the order does not name: an order may wait for days, and nobody reads what a dry run says.
//!
//! Takes in the id of the disk, and never a path: that may be another disk's after a reboot.

use super::error::AdminError;
use super::find::{FoundDevice, is_called};
use crate::agent::reconciler::Reconciler;
use crate::agent::verb::{DiskTask, Run};
use crate::device::{Believed, DiskId, Verdict, id::hardware_id};
use crate::pool::{Cordon, DiskView, PoolError, Standing};

impl Reconciler {
    pub(super) fn carry_out(&mut self, disk: &DiskId, task: DiskTask) -> Result<Vec<String>, AdminError> {
        self.pool().journal().sound().map_err(PoolError::from)?;
        match task {
            DiskTask::Release => self.release_here(disk),
            DiskTask::GiveUp => self.give_up_missing(disk, Run::Real),
            DiskTask::Adopt => self.adopt_known(disk),
        }
    }

    /// Never gives up a disk that is missing: that is another order.
    fn release_here(&mut self, disk: &DiskId) -> Result<Vec<String>, AdminError> {
        let found = self.find_by_id(disk);
        if self.is_missing(disk.as_str()) {
            return Err(AdminError::Missing(disk.clone()));
        }
        // This was done, and nobody could write it down. A blank disk is called by its hardware.
        let is_absent = self.pool().member(disk).is_none() && matches!(found, Err(AdminError::NoSuchDisk(_)));
        if is_absent && self.pool().journal().has_given_up(disk) {
            return Ok(vec![format!("{disk} is released")]);
        }
        if disk.is_filesystem() {
            return self.release_mounted(disk, Run::Real);
        }
        let found = found?;
        if let Some(DiskView { standing: Standing::NotReady(why), .. }) = self.view(disk) {
            return Err(AdminError::NotYet { disk: disk.clone(), why });
        }
        let blank = hardware_id(&found.device.raw, None);
        let plan = self.release_of(disk.as_str(), found)?;
        let mut lines = self.run(&plan, Run::Real)?;
        lines.push(
            "it can be removed; a set that selects the disk in its place claims that when it is blank".to_owned(),
        );
        lines.push(format!("to use it here again, order Adopt for {blank}"));
        Ok(lines)
    }

    /// A disk of another node, one that was given up and is back, or one that was released. Everything else that a
    /// person can take over costs something, and needs a dry run.
    fn adopt_known(&mut self, disk: &DiskId) -> Result<Vec<String>, AdminError> {
        if disk.is_filesystem() {
            return self.adopt_mounted(disk, Run::Real);
        }
        let FoundDevice { device, .. } = self.find_by_id(disk)?;
        let view = self.view(disk);
        let is_held = view.as_ref().is_some_and(|view| view.cordon == Some(Cordon::GivenUp));
        if is_held && device.believed == Believed::Yes {
            return self.adopt(disk.as_str(), Run::Real);
        }
        if view.is_some_and(|view| view.standing == Standing::Ready) {
            return Ok(vec![format!("{disk} is in this node's pool")]);
        }
        let is_believed = device.believed == Believed::Yes;
        match &device.verdict {
            Verdict::Foreign { .. } if is_believed => self.adopt(disk.as_str(), Run::Real),
            Verdict::Unclaimed if self.pool().journal().released().contains(disk) => {
                self.adopt(disk.as_str(), Run::Real)
            }
            // It was plugged in a moment ago, or somebody has it open.
            Verdict::Unknown(why) => Err(AdminError::NotYet { disk: disk.clone(), why: why.clone() }),
            Verdict::Theirs(reason) => Err(AdminError::NotYet { disk: disk.clone(), why: reason.to_string() }),
            Verdict::Foreign { .. } | Verdict::Unclaimed | Verdict::Ours => {
                let why = "it is neither another node's, nor released, nor given up and back; `localpool disk adopt --dry-run` in the agent's pod \
                           says what taking it over would mean";
                Err(AdminError::NotAdoptable { disk: disk.to_string(), why: why.to_owned() })
            }
        }
    }

    fn find_by_id(&mut self, disk: &DiskId) -> Result<FoundDevice, AdminError> {
        let found = self.find(disk.as_str())?;
        match is_called(&found.snapshot, &found.device, disk) {
            true => Ok(found),
            false => Err(AdminError::NoSuchDisk(disk.to_string())),
        }
    }

    fn view(&self, disk: &DiskId) -> Option<DiskView> {
        self.pool().disk_views().into_iter().find(|view| view.id == *disk)
    }
}
