//! Performing a plan on an open disk, step by step. After a step that failed half way the disk says what is there.

use std::sync::Arc;

use super::{PoolDisk, zero};
use crate::device::label::{Label, OURS};
use crate::device::record::{self, LabelError, NewestCopy, Record};
use crate::host::table::{self, Table, TableWriteError};
use crate::host::{BlockDevice, Disk, HostError, chain};
use crate::pool::content::Content;
use crate::pool::error::{ApplyError, StepError, Trace};
use crate::pool::plan::{Plan, Step};

impl PoolDisk {
    /// A plan that writes a table waits for the lock before its first change, so that who waited in vain has changed
    /// nothing.
    pub(super) fn perform(&mut self, plan: &Plan) -> Result<(), ApplyError> {
        let disk = Arc::clone(&self.disk);
        let last = plan.0.iter().rposition(Step::writes_table);
        let first = plan.0.iter().position(Step::writes_table);
        let mut guard = None;
        let is_claim = plan.0.iter().any(|step| matches!(step, Step::FirstTable(_)));
        let mut is_proven = is_claim;
        for (index, step) in plan.0.iter().enumerate() {
            let is_under_lock = last.is_some_and(|last| index <= last) && step.changes_disk();
            match (is_under_lock, &guard) {
                (true, None) => {
                    guard = Some(lock(&*disk)?);
                    // Others may have come while this waited.
                    is_proven = is_claim;
                }
                // udev shall see a partition that is mapped now.
                (false, Some(_)) => guard = None,
                (true, Some(_)) | (false, None) => {}
            }
            if !is_proven && step.relies_on_record() {
                self.prove_unchanged()?;
                is_proven = true;
            }
            if let Err(source) = self.step(step) {
                let disk = self.disk.path();
                let is_begun = first.is_some_and(|first| index >= first);
                let trace = if is_begun { Trace::Possible } else { Trace::None };
                let error = ApplyError::Step { step: step.to_string(), disk, trace, source: Box::new(source) };
                if step.changes_record() {
                    self.read_again(format!("it failed to {step}"));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// The disk is as it is held here. Nothing keeps tools from writing over a table or all of a disk that is in use,
    /// nor another node that sees the disk from adopting it: asked before anything is written by what table and label
    /// said.
    pub fn prove_unchanged(&mut self) -> Result<(), ApplyError> {
        if let Some(found) = &self.lost {
            return Err(ApplyError::not_ours(self.disk.path(), found));
        }
        let Err(source) = self.unchanged() else { return Ok(()) };
        self.read_again(chain(&source));
        let (step, disk) = ("find the disk as it was".to_owned(), self.disk.path());
        Err(ApplyError::Step { step, disk, trace: Trace::None, source: Box::new(source) })
    }

    fn unchanged(&self) -> Result<(), StepError> {
        let Content { table, label, .. } = &self.content;
        table::unchanged(self.device(), &OURS, table)?;
        let copies = record::read_label(self.device());
        let last = self.newest.map_or(0, |newest| newest.sequence);
        match record::newest(&copies, table.disk()) {
            Some((_, newest)) if !record::is_as_new_as(&copies, newest, last) => Err(StepError::Earlier),
            Some((found, newest)) if newest.sequence >= last && *found != **label => {
                Err(StepError::Relabelled(found.node.clone()))
            }
            Some(_) | None => Ok(()),
        }
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
                self.write_table(new)?;
                self.content.table = Arc::clone(new);
                Ok(())
            }
            Step::FirstTable(new) => Ok(table::write_first(self.device(), &OURS, new)?),
            Step::WipeAll => wipe(self.device(), &self.content.table),
        }
    }

    /// A primary that can no longer be read, or has rotted, is mended on the way.
    fn write_table(&self, new: &Table) -> Result<(), TableWriteError> {
        let old = &self.content.table;
        match table::write_table(self.device(), &OURS, old, new) {
            Err(TableWriteError::Damaged) => {
                table::repair(self.device(), &OURS, old)?;
                table::write_table(self.device(), &OURS, old, new)
            }
            done => done,
        }
    }

    fn write_label(&mut self, label: &Arc<Label>) -> Result<(), LabelError> {
        self.is_mirrored = false;
        let last = self.newest.map(|last| NewestCopy { sequence: last.sequence.max(self.outnumbered), ..last });
        let newest = record::write_label(self.device(), label, last)?;
        self.newest = Some(newest);
        self.content.written = newest.sequence;
        self.content.label = Arc::clone(label);
        Ok(())
    }

    /// After a failed write nobody knows what is there: the disk says. It is not worked on before it was opened
    /// again, which mends what is torn: no disk of the pool runs on one copy of its table.
    fn read_again(&mut self, why: String) {
        self.lost = Some(why);
        match record::read_record(&*self.disk) {
            // What was copied over this disk says nothing of what is or was on it.
            Record::Ours(own) | Record::UnfinishedClaim(own) if own.label.disk != self.content.label.disk => {
                tracing::error!(disk = %self.disk.path().display(), found = %own.label.disk, "another disk was copied over it");
            }
            Record::Ours(own) | Record::UnfinishedClaim(own) => {
                self.content.table = Arc::new(own.choice.table);
                self.content.label = Arc::new(own.label);
                self.content.written = own.newest.sequence;
                self.newest = Some(own.newest);
            }
            other @ (Record::Nothing
            | Record::OtherTable(_)
            | Record::Unreadable(_)
            | Record::TornClaim { .. }
            | Record::UnfinishedRelease { .. }
            | Record::Broken(_)
            | Record::Newer(_)) => {
                tracing::error!(disk = %self.disk.path().display(), found = %other, "the disk cannot be read back");
                self.lost = Some(other.to_string());
            }
        }
    }

    fn device(&self) -> &dyn BlockDevice {
        &*self.disk
    }
}

/// flock LOCK_EX, so that udev neither reads nor probes a table in between.
pub(super) fn lock(disk: &dyn Disk) -> Result<Box<dyn Send + '_>, ApplyError> {
    disk.exclusive().map_err(|source| match source {
        HostError::Busy { .. } => ApplyError::Locked { disk: disk.path(), source },
        failed => ApplyError::step(disk.path(), "lock the node", failed.into()),
    })
}

/// Primary table, backup table, label: whichever are still there.
pub(super) fn wipe(device: &dyn BlockDevice, table: &Table) -> Result<(), StepError> {
    table::wipe_primary(device, &OURS, table)?;
    table::wipe_backup(device, &OURS, table)?;
    Ok(record::wipe_labels(device, table.disk())?)
}
