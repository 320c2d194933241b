//! What the DevicePool orders for a disk. Each order does one of the things that a verb does, and only where nothing can
//! be lost that the order does not name: an order may wait for days, and nobody reads what a dry run says.

use super::AdminError;
use crate::agent::reconciler::Reconciler;
use crate::agent::verb::{DiskErrand, Run};
use crate::device::{Believed, DiskId, Verdict};
use crate::pool::{DiskView, PoolError, Standing};

impl Reconciler {
    pub(super) fn carry_out(&mut self, disk: &DiskId, errand: DiskErrand) -> Result<Vec<String>, AdminError> {
        self.pool().journal().sound().map_err(PoolError::from)?;
        match errand {
            DiskErrand::Release => self.release_here(disk),
            DiskErrand::GiveUp => self.give_up_missing(disk),
            DiskErrand::Adopt => self.adopt_known(disk),
        }
    }

    /// Never gives up a disk that is missing: that is another order.
    fn release_here(&mut self, disk: &DiskId) -> Result<Vec<String>, AdminError> {
        let found = self.find(disk.as_str());
        if self.is_missing(disk.as_str()) {
            return Err(AdminError::Missing(disk.clone()));
        }
        if self.pool().journal().released().contains(disk) {
            return Ok(vec![format!("{disk} is released; no set claims it again until it is adopted")]);
        }
        self.release_found(disk.as_str(), found?, Run::Real)
    }

    /// Never releases a disk that is here, and does not wait until it is missing.
    fn give_up_missing(&mut self, disk: &DiskId) -> Result<Vec<String>, AdminError> {
        self.look()?;
        match self.view(disk).filter(|view| view.standing == Standing::Ready) {
            Some(view) => {
                Err(AdminError::Here { disk: disk.clone(), at: view.path, why: "its volumes can be used".to_owned() })
            }
            None => self.forget(disk, Run::Real),
        }
    }

    fn view(&self, disk: &DiskId) -> Option<DiskView> {
        self.pool().disk_views().into_iter().find(|view| view.id == *disk)
    }

    /// A disk of another node, or one that was released. Whatever else a person can adopt gives up something else.
    fn adopt_known(&mut self, disk: &DiskId) -> Result<Vec<String>, AdminError> {
        let (_, device, _) = self.find(disk.as_str())?;
        if self.view(disk).is_some_and(|view| view.standing == Standing::Ready) {
            return Ok(vec![format!("{disk} is in this node's pool")]);
        }
        let is_foreign = matches!(device.verdict, Verdict::Foreign { .. }) && device.believed == Believed::Yes;
        let is_released = device.verdict == Verdict::Unclaimed && self.pool().journal().released().contains(disk);
        if is_foreign || is_released {
            return self.adopt(&device.raw.path.display().to_string(), Run::Real);
        }
        let why = "it is neither another node's nor released; `localpool disk adopt --dry-run` in the agent's pod says \
                   what taking it over would mean";
        Err(AdminError::NotAdoptable { disk: disk.to_string(), why: why.to_owned() })
    }
}
