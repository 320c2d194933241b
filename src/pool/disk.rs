//! One open disk of the pool, and what it holds. Performs plans step by step.
//!
//! What is held here always was read from or written to the disk: a step that fails half way is followed
//! by reading it again, and where even that fails the disk is *lost* until somebody opens it again.

use std::sync::Arc;

use uuid::Uuid;

use super::content::{BusyPartition, Content};
use super::error::ApplyError;
use super::extents::{Extents, MIB};
use super::plan::{
    ERASE_CHUNK, EraseWork, NewLabel, Plan, PlanError, Step, claim, ends, erase_finished, may_stay, recover_mappings,
    relabel, release,
};
use crate::device::record::{self, NewestCopy, Record};
use crate::host::{BlockDevice, Disk, Extent, HostError, IoError, chain};

mod open;
mod perform;

/// As much is zeroed in one go with the change that it is for.
const AT_ONCE: u64 = 64 * MIB;
/// More labels than are ever written to a disk between two scans.
const NOT_SEEN: u64 = 1 << 32;

/// An open disk with our label.
pub struct PoolDisk {
    disk: Arc<dyn Disk>,
    content: Content,
    /// Which label copy is the newest; the next one goes over the other.
    newest: Option<NewestCopy>,
    /// Both label copies say the same.
    is_mirrored: bool,
    /// The next label's number is higher than this.
    outnumbered: u64,
    /// A write failed: nothing more is written before the disk is opened again.
    lost: Option<String>,
}

/// What an opening found.
pub enum Opened {
    /// A disk of the pool, mended and mapped.
    Ours(PoolDisk),
    /// A claim or a release had been stopped half way; the disk is blank again.
    Blank,
}

impl PoolDisk {
    /// Claims a blank disk, held exclusively. That nothing else is on it has been seen by the caller; that it has
    /// neither table nor label is looked at here, before the first write.
    pub fn claim(disk: Arc<dyn Disk>, wanted: &NewLabel) -> Result<Self, ApplyError> {
        Self::claim_with(disk, wanted, Uuid::new_v4)
    }

    /// The same with GUIDs that the caller chooses: a test compares all that is written.
    pub fn claim_with(disk: Arc<dyn Disk>, wanted: &NewLabel, guid: impl FnMut() -> Uuid) -> Result<Self, ApplyError> {
        match record::read_record(&*disk) {
            Record::Nothing => {}
            found => {
                return Err(ApplyError::NotBlank { disk: disk.path(), found: found.to_string() });
            }
        }
        let (plan, content) = claim(wanted, guid).map_err(|source| ApplyError::Plan { disk: disk.path(), source })?;
        let mut this = Self { disk, content, newest: None, is_mirrored: false, outnumbered: 0, lost: None };
        this.perform(&plan)?;
        this.warn_unless(this.hold());
        Ok(this)
    }

    /// Keeps the label's partition open exclusively. The kernel then refuses the whole disk to everybody who asks for
    /// it alone, as mkfs, wipefs, pvcreate, mdadm and other operators do, whether volumes are mounted or not.
    fn hold(&self) -> Result<(), HostError> {
        self.content.label_entry().map_or(Ok(()), |(number, _)| self.disk.hold(number))
    }

    /// The pool works without a hold, as it does where no agent runs.
    fn warn_unless(&self, held: Result<(), HostError>) {
        if let Err(error) = held {
            tracing::warn!(disk = %self.disk.path().display(), error = %chain(&error), "the disk is not locked against other programs");
        }
    }

    pub fn content(&self) -> &Content {
        &self.content
    }

    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Why the disk cannot be worked on until it is opened again.
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Makes a plan from what the disk holds, and performs it.
    pub fn change(&mut self, make: impl FnOnce(&Content) -> Result<Plan, PlanError>) -> Result<(), ApplyError> {
        if let Some(found) = &self.lost {
            return Err(ApplyError::not_ours(self.disk.path(), found));
        }
        let plan = make(&self.content).map_err(|source| ApplyError::Plan { disk: self.disk.path(), source })?;
        self.perform(&plan)
    }

    /// What must be zeroed before that change: in pieces, each of them durable, as it takes longer than others want to
    /// wait. What is little is a part of the change itself.
    pub fn to_zero(&self, make: impl FnOnce(&Content) -> Result<Plan, PlanError>) -> Result<Extents, ApplyError> {
        let plan = make(&self.content).map_err(|source| ApplyError::Plan { disk: self.disk.path(), source })?;
        let zeroed = plan.zeroed();
        Ok(if zeroed.total() > AT_ONCE { zeroed } else { Extents::default() })
    }

    /// Makes the kernel's mapping match the table. What somebody uses who should not stays as it is: it is neither
    /// given away nor erased before it could be unmapped.
    pub fn recover_mappings(&mut self) -> Result<(), ApplyError> {
        let mapped = self.disk.mapped();
        let mapped = mapped.map_err(|e| ApplyError::step(self.disk.path(), "list the mapped partitions", e.into()))?;
        for step in recover_mappings(&self.content, &mapped).0 {
            let stale = match &step {
                Step::Unmap(number) => mapped.iter().find(|m| m.number == *number),
                Step::ProveUnused(_) | Step::Map(..) | Step::Resize(..) | Step::Zero(_) => None,
                Step::Label(_) | Step::Table(_) | Step::FirstTable(_) | Step::WipeAll => None,
            };
            match (self.perform(&Plan(vec![step.clone()])), stale) {
                (Ok(()), stale) => drop(stale.and_then(|m| self.content.busy.remove(&m.number))),
                (Err(error), Some(m)) if error.is_busy() && may_stay(&self.content, m.number, m.extent) => {
                    self.keep_out(m.number, m.extent, &error);
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok(())
    }

    fn keep_out(&mut self, number: u32, extent: Extent, error: &ApplyError) {
        let why = error.busy().unwrap_or_default();
        if self.content.busy.get(&number).is_none_or(|known| known.why != why) {
            tracing::warn!(disk = %self.disk.path().display(), why, "a partition without a volume is not touched");
        }
        self.content.busy.insert(number, BusyPartition { extent, why });
    }

    /// Unmaps what was busy and is busy no longer; gives whether there was any.
    pub fn take_back(&mut self) -> Result<bool, ApplyError> {
        let before = self.content.busy.len();
        self.recover_mappings()?;
        Ok(self.content.busy.len() < before)
    }

    /// The end of an erasure, or none as long as somebody has the partition.
    pub fn finish_erase(&mut self, work: &EraseWork) -> Result<(), ApplyError> {
        match self.change(|content| erase_finished(content, work)) {
            Err(error) if error.is_busy() => {
                self.keep_out(work.number, work.extent, &error);
                Ok(())
            }
            done => done,
        }
    }

    /// Whether the disk could be released.
    pub fn can_release(&self) -> Result<(), ApplyError> {
        release(&self.content).map(drop).map_err(|source| ApplyError::Plan { disk: self.disk.path(), source })
    }

    /// Releases the disk, blank. It must hold no volume.
    pub fn release(&mut self) -> Result<(), ApplyError> {
        let released = self.change(release);
        match released {
            // Whoever still has this disk at hand must not write a label on it again.
            Ok(()) => self.lost = Some("it was released".to_owned()),
            Err(_) => self.warn_unless(self.hold()),
        }
        released
    }

    /// Whether both copies of the label say the same. Where they do not, and the newest becomes unreadable, volumes
    /// made since would have no description.
    pub fn is_mirrored(&self) -> bool {
        self.is_mirrored
    }

    /// Writes the label over its older copy, too.
    pub fn mirror(&mut self) -> Result<(), ApplyError> {
        self.change(|content| Ok(relabel(Arc::clone(&content.label))))?;
        self.is_mirrored = true;
        Ok(())
    }

    /// From the next label on this is a newer state of the disk than any that has, or had, the number `last_seen`, and
    /// than those that came of that one since: as a person takes the disk as it is, and what it was later may come
    /// back.
    pub fn outnumber(&mut self, last_seen: u64) {
        self.outnumbered = self.content.written.max(last_seen).saturating_add(NOT_SEEN);
    }
}

/// Zeroes and syncs, in chunks.
pub fn zero(disk: &dyn BlockDevice, extent: Extent) -> Result<(), IoError> {
    let mut start = extent.start;
    while start < extent.end {
        let end = extent.end.min(start.saturating_add(ERASE_CHUNK));
        disk.zero(Extent { start, end })?;
        start = end;
    }
    disk.sync()
}

/// A new array looks blank: what was on its members may be seen at its ends.
pub fn clear_array(array: &dyn BlockDevice) -> Result<(), IoError> {
    let whole = Extent { start: 0, end: array.geometry().size };
    ends(whole).try_for_each(|extent| zero(array, extent))
}
