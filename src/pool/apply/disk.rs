//! One open disk of ours, and what it holds. Performs plans step by step.
//!
//! What is held here always was read from or written to the disk: a step that fails half way is followed
//! by a fresh look, and where even that fails the disk is *lost* until somebody opens it again.

use std::sync::Arc;

use uuid::Uuid;

use crate::device::label::{Label, MARK};
use crate::device::record::{self, LabelError, Record};
use crate::host::table::{self, Refusal, TableWriteError};
use crate::host::{BlockDevice, Disk, Extent, HostError, IoError};
use crate::pool::content::Content;
use crate::pool::plan::{Claim, Plan, PlanError, Step, claim, recover_mappings, release};

/// The most that one BLKZEROOUT covers.
const ZERO_CHUNK: u64 = 1 << 30;

/// An open disk with our label.
pub struct PoolDisk {
    disk: Arc<dyn Disk>,
    content: Content,
}

/// What stopped a plan, or an opening.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("could not {step} of {disk}")]
    Step {
        step: String,
        disk: String,
        #[source]
        source: StepError,
    },
    #[error("{disk} is not a disk of this pool: {why}")]
    NotOurs { disk: String, why: String },
    #[error("planning a change of {disk}")]
    Plan {
        disk: String,
        #[source]
        source: PlanError,
    },
}

/// The cause of a failed step.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error("the disk did not do it")]
    Io(#[from] IoError),
    #[error("the machine did not do it")]
    Host(#[from] HostError),
    #[error("the partition table was not written")]
    Table(#[from] TableWriteError),
    #[error("the label was not written")]
    Label(#[from] LabelError),
}

impl ApplyError {
    /// Somebody has the partition open: nothing has changed, and the caller may come back.
    pub fn is_busy(&self) -> bool {
        matches!(self, ApplyError::Step { source: StepError::Host(HostError::Busy { .. }), .. })
    }
}

impl PoolDisk {
    /// Opens a disk with a label of ours: chooses the good copies, mends the others, ends what was begun,
    /// and has the kernel map just the volumes. `Ok(None)`: a release was under way and is done now.
    pub fn open(disk: Arc<dyn Disk>) -> Result<Option<Self>, ApplyError> {
        let content = read(&*disk)?;
        let mut this = Self { disk, content };
        if this.content.label.releasing {
            this.finish_release()?;
            return Ok(None);
        }
        this.mend()?;
        this.recover_mappings()?;
        Ok(Some(this))
    }

    /// Claims a blank disk. Every check that it is blank has been made by the caller.
    pub fn claim(disk: Arc<dyn Disk>, wanted: &Claim) -> Result<Self, ApplyError> {
        let (plan, content) = claim(wanted, Uuid::new_v4).map_err(|source| plan_error(&*disk, source))?;
        let mut this = Self { disk, content };
        this.perform(&plan)?;
        Ok(this)
    }

    pub fn content(&self) -> &Content {
        &self.content
    }

    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Makes a plan from what the disk holds, and performs it.
    pub fn change(&mut self, make: impl FnOnce(&Content) -> Result<Plan, PlanError>) -> Result<(), ApplyError> {
        let plan = make(&self.content).map_err(|source| plan_error(&*self.disk, source))?;
        self.perform(&plan)
    }

    /// Rewrites table copies that are torn, missing or behind. No disk of ours runs on one copy.
    fn mend(&mut self) -> Result<(), ApplyError> {
        let copies = table::read_copies(self.device());
        let choice = table::choose(&copies, &MARK).map_err(|refusal| not_ours(&*self.disk, &refusal))?;
        if choice.stale.is_empty() {
            return Ok(());
        }
        tracing::info!(disk = %self.disk.path().display(), good = %choice.good, "rewriting stale partition table copies");
        let mended = self.exclusively(|disk| Ok(table::repair(disk, &MARK, &choice)?));
        mended.map_err(|source| self.step_error("mend the partition table".to_owned(), source))
    }

    /// Makes the kernel's mapping match the table.
    pub fn recover_mappings(&mut self) -> Result<(), ApplyError> {
        let mapped = self.disk.mapped();
        let mapped = mapped.map_err(|e| self.step_error("list the mapped partitions".to_owned(), e.into()))?;
        self.perform(&recover_mappings(&self.content, &mapped))
    }

    /// Gives the disk back, blank. It must hold no volume.
    pub fn release(mut self) -> Result<(), ApplyError> {
        self.change(release)
    }

    fn finish_release(&mut self) -> Result<(), ApplyError> {
        self.change(release)
    }

    fn perform(&mut self, plan: &Plan) -> Result<(), ApplyError> {
        for step in &plan.0 {
            if let Err(source) = self.step(step) {
                let error = self.step_error(step.to_string(), source);
                if changes_record(step) {
                    self.look_again();
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), StepError> {
        match step {
            Step::ProveUnused(number) => Ok(self.disk.prove_unused(*number)?),
            Step::Unmap(number) => Ok(self.disk.unmap(*number)?),
            Step::Map(number, extent) => Ok(self.disk.map(*number, *extent)?),
            Step::Resize(number, extent) => Ok(self.disk.resize(*number, *extent)?),
            Step::Zero(extent) => Ok(zero(self.device(), *extent)?),
            Step::Label(label) => {
                self.write_label(label)?;
                Ok(())
            }
            Step::Table(new) => {
                self.exclusively(|disk| Ok(table::write_table(disk, &MARK, &self.content.table, new)?))?;
                self.content.table = (**new).clone();
                Ok(())
            }
            Step::FirstTable(new) => self.exclusively(|disk| Ok(table::write_first(disk, &MARK, new)?)),
            Step::WipePrimary => {
                self.exclusively(|disk| Ok(table::wipe_primary(disk, &MARK, &self.content.table)?))
            }
            Step::WipeBackup => self.exclusively(|disk| Ok(table::wipe_backup(disk, &MARK, &self.content.table)?)),
            Step::WipeLabel => Ok(zero(self.device(), crate::device::label::LABEL_EXTENT)?),
        }
    }

    fn write_label(&mut self, label: &Label) -> Result<(), LabelError> {
        record::write_label(self.device(), label)?;
        self.content.label = label.clone();
        Ok(())
    }

    /// Under flock LOCK_EX, so that udev neither reads nor probes a table in between.
    fn exclusively<T>(&self, act: impl FnOnce(&dyn BlockDevice) -> Result<T, StepError>) -> Result<T, StepError> {
        let _guard = self.disk.exclusive()?;
        act(self.device())
    }

    /// After a failed write nobody knows what is there: the disk says.
    fn look_again(&mut self) {
        match read(&*self.disk) {
            Ok(content) => self.content = content,
            Err(error) => {
                tracing::error!(disk = %self.disk.path().display(), error = %error, "the disk cannot be read back");
            }
        }
    }

    fn device(&self) -> &dyn BlockDevice {
        &*self.disk
    }

    fn step_error(&self, step: String, source: StepError) -> ApplyError {
        ApplyError::Step { step, disk: self.disk.path().display().to_string(), source }
    }
}

/// What the disk holds, where it is ours.
fn read(disk: &dyn Disk) -> Result<Content, ApplyError> {
    match record::read_record(disk) {
        Record::Ours(found) => Ok(Content { geometry: disk.geometry(), table: found.table, label: found.label }),
        other => Err(not_ours(disk, &other)),
    }
}

fn changes_record(step: &Step) -> bool {
    match step {
        Step::Label(_) | Step::Table(_) | Step::FirstTable(_) => true,
        Step::WipePrimary | Step::WipeBackup | Step::WipeLabel => true,
        Step::ProveUnused(_) | Step::Unmap(_) | Step::Map(..) | Step::Resize(..) | Step::Zero(_) => false,
    }
}

/// Zeroes and syncs, in chunks.
pub fn zero(disk: &dyn BlockDevice, extent: Extent) -> Result<(), IoError> {
    let mut start = extent.start;
    while start < extent.end {
        let end = extent.end.min(start.saturating_add(ZERO_CHUNK));
        disk.zero(Extent { start, end })?;
        start = end;
    }
    disk.sync()
}

fn plan_error(disk: &dyn Disk, source: PlanError) -> ApplyError {
    ApplyError::Plan { disk: disk.path().display().to_string(), source }
}

fn not_ours(disk: &dyn Disk, why: &dyn std::fmt::Display) -> ApplyError {
    ApplyError::NotOurs { disk: disk.path().display().to_string(), why: why.to_string() }
}
