//! One open disk of ours, and what it holds. Performs plans step by step.
//!
//! What is held here always was read from or written to the disk: a step that fails half way is followed
//! by a fresh look, and where even that fails the disk is *lost* until somebody opens it again.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::content::{Content, Held};
use super::device_pool::Owner;
use super::earlier::{Earlier, Seen, earlier};
use super::extents::{ExtentSet, MIB};
use super::plan::{
    Claim, ERASE_CHUNK, EraseWork, LABEL_NUMBER, Plan, PlanError, Step, claim, erase_finished, may_stay,
    recover_mappings, relabel, release,
};
use crate::device::label::{Label, MARK};
use crate::device::record::{self, LabelError, Own, Place, Record};
use crate::host::table::{self, Table, TableWriteError};
use crate::host::turn::Stuck;
use crate::host::{BlockDevice, Disk, Extent, HostError, IoError, chain};

/// As much is zeroed in one go with the change that it is for.
const AT_ONCE: u64 = 64 * MIB;
/// More labels than are ever written to a disk between two looks.
const NOT_SEEN: u64 = 1 << 32;

/// An open disk with our label.
pub struct PoolDisk {
    disk: Arc<dyn Disk>,
    content: Content,
    /// Which label copy is the newest; the next one goes over the other.
    place: Option<Place>,
    /// Both label copies say the same.
    is_mirrored: bool,
    /// The next label's number is higher than this.
    outnumbered: u64,
    /// A write failed: nothing more is written before the disk is opened again.
    lost: Option<String>,
}

/// What stopped a plan, or an opening.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("could not {step} of {disk}")]
    Step {
        step: String,
        disk: String,
        /// Whether a table may have been written: until then nothing of what was asked for exists.
        is_begun: bool,
        #[source]
        source: Box<StepError>,
    },
    /// Nothing has changed, and the caller may come back.
    #[error("{disk} was not changed, as others keep its lock")]
    Locked {
        disk: String,
        #[source]
        source: HostError,
    },
    /// Nothing has changed, and the caller may come back: the disk is slow, or hangs.
    #[error("{disk} was not changed: {stuck}")]
    Stuck { disk: String, stuck: Stuck },
    #[error("{disk} is not used, as another process, perhaps another agent, holds it")]
    Held {
        disk: String,
        #[source]
        source: HostError,
    },
    #[error(
        "{disk} is as it was at an earlier time: {earlier}. Bring back what was there last, or take the disk as it is with \
         `localpool disk adopt {disk}`"
    )]
    Earlier { disk: String, earlier: Earlier },
    #[error("{disk} is not a disk of this pool: {why}")]
    NotOurs { disk: String, why: String },
    #[error("{disk} is not blank any more, and was not written: {found}")]
    NotBlank { disk: String, found: String },
    #[error("could not plan a change of {disk}")]
    Plan {
        disk: String,
        #[source]
        source: PlanError,
    },
}

/// The cause of a failed step.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error("the disk failed")]
    Io(#[from] IoError),
    #[error("the system refused")]
    Host(#[from] HostError),
    #[error("the partition table was not written")]
    Table(#[from] TableWriteError),
    #[error("the label was not written")]
    Label(#[from] LabelError),
    #[error("an earlier state of the disk was put back meanwhile")]
    Earlier,
    #[error("somebody else wrote a label there meanwhile, for node {0}")]
    Relabelled(String),
}

impl ApplyError {
    /// Somebody has the partition open: nothing has changed, and the caller may come back.
    pub fn is_busy(&self) -> bool {
        let Self::Step { source, .. } = self else { return false };
        matches!(**source, StepError::Host(HostError::Busy { .. }))
    }

    /// Who has it, in words.
    pub fn busy(&self) -> Option<String> {
        let Self::Step { source, .. } = self else { return None };
        match &**source {
            StepError::Host(busy @ HostError::Busy { .. }) => Some(busy.to_string()),
            _ => None,
        }
    }

    /// It ended before anything of what was asked for could exist on the disk.
    pub fn left_nothing(&self) -> bool {
        matches!(self, Self::Step { is_begun: false, .. }) || self.is_locked()
    }

    /// The disk failed to read or write.
    pub fn is_io(&self) -> bool {
        matches!(self, Self::Step { source, .. } if matches!(**source, StepError::Io(_)))
    }

    /// What of it the disk failed to read or write.
    pub fn failed_on(&self) -> Option<Extent> {
        let Self::Step { source, .. } = self else { return None };
        match &**source {
            StepError::Io(error) => Some(error.range),
            _ => None,
        }
    }

    /// Others had the disk: a look would find nothing changed.
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Locked { .. } | Self::Stuck { .. })
    }
}

/// What an opening found.
pub enum Opened {
    /// A disk of ours, mended and mapped.
    Ours(PoolDisk),
    /// A claim or a release had been stopped half way; the disk is blank again.
    Blank,
}

impl PoolDisk {
    /// Opens a disk with a record of ours: chooses the good copies, mends the others, ends what was begun,
    /// has the kernel map just the label and the volumes, and holds the disk.
    /// Another disk than `id` is refused, and an earlier state of it than what was `seen`.
    pub fn open(disk: Arc<dyn Disk>, id: Uuid, owner: &Owner, seen: &Seen) -> Result<Opened, ApplyError> {
        let found = record::read_record(&*disk);
        // One of another disk was copied over it since.
        if let Some(label) = found.label().filter(|label| label.disk != id) {
            return Err(not_ours(
                &*disk,
                &format!("it carries the label of disk {}, and not of {id}, by now", label.disk),
            ));
        }
        // Of two nodes that claim a disk which both see, the label that was written last is the one that is there.
        if let Some(label) =
            found.label().filter(|label| (&label.cluster, &label.node) != (&owner.cluster, &owner.node))
        {
            let why = format!("it carries the label of node {}, cluster {}, by now", label.node, label.cluster);
            return Err(not_ours(&*disk, &why));
        }
        let own = match found {
            Record::Ours(own) | Record::UnfinishedClaim(own) => own,
            Record::TornClaim { table, label: _ } => {
                prove_unheld(&*disk)?;
                let _guard = lock(&*disk)?;
                let wiped = table::wipe_backup(&*disk, &MARK, &table);
                wiped.map_err(|e| step_error(&*disk, "undo a torn claim".to_owned(), e.into()))?;
                return Ok(Opened::Blank);
            }
            Record::UnfinishedRelease { table, label: _ } => {
                prove_unheld(&*disk)?;
                let _guard = lock(&*disk)?;
                wipe(&*disk, &table).map_err(|source| step_error(&*disk, "end the release".to_owned(), source))?;
                return Ok(Opened::Blank);
            }
            other => return Err(not_ours(&*disk, &other)),
        };
        if let Some(earlier) = earlier(&own, seen) {
            return Err(ApplyError::Earlier { disk: disk.path().display().to_string(), earlier });
        }
        let Own { choice, label, place, copies } = *own;
        // Before the first write: what another agent works on is not mended under its hands.
        prove_unheld(&*disk)?;
        // A process that was killed may have written it, and not synced it: from here on callers are told that it is there.
        disk.sync().map_err(|e| step_error(&*disk, "sync what is found".to_owned(), e.into()))?;
        if !choice.stale.is_empty() {
            tracing::info!(disk = %disk.path().display(), good = %choice.good, "rewriting partition table copies");
            let _guard = lock(&*disk)?;
            let mended = table::repair(&*disk, &MARK, &choice.table);
            mended.map_err(|e| step_error(&*disk, "mend the partition table".to_owned(), e.into()))?;
        }
        let content = Content {
            geometry: disk.geometry(),
            table: Arc::new(choice.table),
            label: Arc::new(label),
            written: place.sequence,
            held: BTreeMap::new(),
        };
        let other = copies.get(place.half.other());
        let is_mirrored = other.as_ref().is_ok_and(|copy| copy.label == *content.label);
        let mut this = Self { disk, content, place: Some(place), is_mirrored, outnumbered: 0, lost: None };
        if let Err(damage) = other {
            tracing::info!(disk = %this.disk.path().display(), damage = %chain(damage), "rewriting a label copy");
            this.mirror()?;
        }
        this.follow_growth()?;
        this.recover_mappings()?;
        this.forget_unclean()?;
        match this.hold() {
            Err(source @ HostError::Busy { .. }) => return Err(held(&*this.disk, source)),
            held => this.warn_unless(held),
        }
        Ok(Opened::Ours(this))
    }

    /// A disk that has grown gets its backup table where it belongs: at the end. Carved volumes may use the room;
    /// slots stay as they are.
    fn follow_growth(&mut self) -> Result<(), ApplyError> {
        let grown = self.content.table.grown(self.content.geometry.size);
        let grown = grown.map_err(|e| plan_error(&*self.disk, e.into()))?;
        if grown.size() == self.content.table.size() {
            return Ok(());
        }
        tracing::info!(disk = %self.disk.path().display(), from = self.content.table.size(), to = grown.size(), "the disk has grown");
        self.perform(&Plan(vec![Step::Table(Arc::new(grown))]))
    }

    /// Claims a blank disk, held exclusively. That nothing else is on it has been seen by the caller; that it has neither
    /// table nor label is looked at here, before the first write.
    pub fn claim(disk: Arc<dyn Disk>, wanted: &Claim) -> Result<Self, ApplyError> {
        match record::read_record(&*disk) {
            Record::Nothing => {}
            found => {
                return Err(ApplyError::NotBlank { disk: disk.path().display().to_string(), found: found.to_string() });
            }
        }
        let (plan, content) = claim(wanted, Uuid::new_v4).map_err(|source| plan_error(&*disk, source))?;
        let mut this = Self { disk, content, place: None, is_mirrored: false, outnumbered: 0, lost: None };
        this.perform(&plan)?;
        this.warn_unless(this.hold());
        Ok(this)
    }

    /// Keeps the label's partition open exclusively. The kernel then refuses the whole disk to everybody who asks for it
    /// alone, as mkfs, wipefs, pvcreate, mdadm and other operators do, whether volumes are mounted or not.
    fn hold(&self) -> Result<(), HostError> {
        self.content.label_entry().map_or(Ok(()), |(number, _)| self.disk.hold(number))
    }

    /// The pool works without a hold, as it does where no agent runs.
    fn warn_unless(&self, held: Result<(), HostError>) {
        if let Err(error) = held {
            tracing::warn!(disk = %self.disk.path().display(), error = %chain(&error), "the disk is not held against others");
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
            return Err(not_ours(&*self.disk, found));
        }
        let plan = make(&self.content).map_err(|source| plan_error(&*self.disk, source))?;
        self.perform(&plan)
    }

    /// What must be zeroed before that change: in pieces, each of them durable, as it takes longer than others want to
    /// wait. What is little is a part of the change itself.
    pub fn to_zero(&self, make: impl FnOnce(&Content) -> Result<Plan, PlanError>) -> Result<ExtentSet, ApplyError> {
        let plan = make(&self.content).map_err(|source| plan_error(&*self.disk, source))?;
        let zeroed = plan.zeroed();
        Ok(if zeroed.total() > AT_ONCE { zeroed } else { ExtentSet::default() })
    }

    /// Makes the kernel's mapping match the table. What somebody uses who should not stays as it is: it is neither given
    /// away nor erased before it could be unmapped.
    pub fn recover_mappings(&mut self) -> Result<(), ApplyError> {
        let mapped = self.disk.mapped();
        let mapped = mapped.map_err(|e| step_error(&*self.disk, "list the mapped partitions".to_owned(), e.into()))?;
        for step in recover_mappings(&self.content, &mapped).0 {
            let stale = match &step {
                Step::Unmap(number) => mapped.iter().find(|m| m.number == *number),
                _ => None,
            };
            match (self.perform(&Plan(vec![step.clone()])), stale) {
                (Ok(()), stale) => drop(stale.and_then(|m| self.content.held.remove(&m.number))),
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
        if self.content.held.get(&number).is_none_or(|known| known.why != why) {
            tracing::warn!(disk = %self.disk.path().display(), why, "a partition without a volume is left alone");
        }
        self.content.held.insert(number, Held { extent, why });
    }

    /// What a label calls clean and may not be any more is dirty from now on, whatever becomes of what uses it.
    fn forget_unclean(&mut self) -> Result<(), ApplyError> {
        let label = self.content.pruned_label();
        if label.clean == self.content.label.clean {
            return Ok(());
        }
        self.perform(&relabel(label))
    }

    /// Unmaps what somebody held and holds no longer; gives whether there was any.
    pub fn take_back(&mut self) -> Result<bool, ApplyError> {
        let before = self.content.held.len();
        self.recover_mappings()?;
        Ok(self.content.held.len() < before)
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

    /// Whether the disk could be given back.
    pub fn can_release(&self) -> Result<(), ApplyError> {
        release(&self.content).map(drop).map_err(|source| plan_error(&*self.disk, source))
    }

    /// Gives the disk back, blank. It must hold no volume.
    pub fn release(&mut self) -> Result<(), ApplyError> {
        let released = self.change(release);
        match released {
            // Whoever still has this disk at hand must not write a label on it again.
            Ok(()) => self.lost = Some("it was given back".to_owned()),
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

    /// From the next label on this is a newer state of the disk than any that has, or had, the number `seen`, and than those that
    /// came of that one since: as a person takes the disk as it is, and what it was later may come back.
    pub fn outnumber(&mut self, seen: u64) {
        self.outnumbered = self.content.written.max(seen).saturating_add(NOT_SEEN);
    }

    /// A plan that writes a table waits for the lock before its first change, so that who waited in vain has changed
    /// nothing.
    fn perform(&mut self, plan: &Plan) -> Result<(), ApplyError> {
        let disk = Arc::clone(&self.disk);
        let last = plan.0.iter().rposition(writes_table);
        let first = plan.0.iter().position(writes_table);
        let mut guard = None;
        let is_claim = plan.0.iter().any(|step| matches!(step, Step::FirstTable(_)));
        let mut is_looked_at = is_claim;
        for (index, step) in plan.0.iter().enumerate() {
            let is_under_lock = last.is_some_and(|last| index <= last) && changes_disk(step);
            match (is_under_lock, &guard) {
                (true, None) => {
                    guard = Some(lock(&*disk)?);
                    // Others may have come while this waited.
                    is_looked_at = is_claim;
                }
                // udev shall see a partition that is mapped now.
                (false, Some(_)) => guard = None,
                (true, Some(_)) | (false, None) => {}
            }
            if !is_looked_at && relies_on_record(step) {
                self.prove_unchanged()?;
                is_looked_at = true;
            }
            if let Err(source) = self.step(step) {
                let disk = self.disk.path().display().to_string();
                let is_begun = first.is_some_and(|first| index >= first);
                let error = ApplyError::Step { step: step.to_string(), disk, is_begun, source: Box::new(source) };
                if changes_record(step) {
                    self.look_again(format!("it failed to {step}"));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// The disk is as it is held here. Nothing keeps tools from writing over a table or all of a disk that is in use, nor
    /// another node that sees the disk from adopting it: asked before anything is written by what table and label said.
    pub fn prove_unchanged(&mut self) -> Result<(), ApplyError> {
        if let Some(found) = &self.lost {
            return Err(not_ours(&*self.disk, found));
        }
        let Err(source) = self.unchanged() else { return Ok(()) };
        self.look_again(chain(&source));
        let (step, disk) = ("find the disk as it was".to_owned(), self.disk.path().display().to_string());
        Err(ApplyError::Step { step, disk, is_begun: false, source: Box::new(source) })
    }

    fn unchanged(&self) -> Result<(), StepError> {
        let Content { table, label, .. } = &self.content;
        table::unchanged(self.device(), &MARK, table)?;
        let copies = record::read_label(self.device());
        let last = self.place.map_or(0, |place| place.sequence);
        match record::newest(&copies, table.disk()) {
            Some((_, place)) if !record::is_as_new_as(&copies, place, last) => Err(StepError::Earlier),
            Some((found, place)) if place.sequence >= last && *found != **label => {
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
            Step::FirstTable(new) => Ok(table::write_first(self.device(), &MARK, new)?),
            Step::WipeAll => wipe(self.device(), &self.content.table),
        }
    }

    /// A primary that can no longer be read, or has rotted, is mended on the way.
    fn write_table(&self, new: &Table) -> Result<(), TableWriteError> {
        let old = &self.content.table;
        match table::write_table(self.device(), &MARK, old, new) {
            Err(TableWriteError::Damaged) => {
                table::repair(self.device(), &MARK, old)?;
                table::write_table(self.device(), &MARK, old, new)
            }
            done => done,
        }
    }

    fn write_label(&mut self, label: &Arc<Label>) -> Result<(), LabelError> {
        self.is_mirrored = false;
        let last = self.place.map(|last| Place { sequence: last.sequence.max(self.outnumbered), ..last });
        let place = record::write_label(self.device(), label, last)?;
        self.place = Some(place);
        self.content.written = place.sequence;
        self.content.label = Arc::clone(label);
        Ok(())
    }

    /// After a failed write nobody knows what is there: the disk says. It is not worked on before it was opened
    /// again, which mends what is torn: no disk of ours runs on one copy of its table.
    fn look_again(&mut self, why: String) {
        self.lost = Some(why);
        match record::read_record(&*self.disk) {
            // What was copied over this disk says nothing of what is or was on it.
            Record::Ours(own) | Record::UnfinishedClaim(own) if own.label.disk != self.content.label.disk => {
                tracing::error!(disk = %self.disk.path().display(), found = %own.label.disk, "another disk was copied over it");
            }
            Record::Ours(own) | Record::UnfinishedClaim(own) => {
                self.content.table = Arc::new(own.choice.table);
                self.content.label = Arc::new(own.label);
                self.content.written = own.place.sequence;
                self.place = Some(own.place);
            }
            other => {
                tracing::error!(disk = %self.disk.path().display(), found = %other, "the disk cannot be read back");
                self.lost = Some(other.to_string());
            }
        }
    }

    fn device(&self) -> &dyn BlockDevice {
        &*self.disk
    }
}

/// Whoever works on a disk of ours holds the partition of its label, see [`PoolDisk::hold`]. One that is not mapped is held by
/// nobody.
fn prove_unheld(disk: &dyn Disk) -> Result<(), ApplyError> {
    match disk.hold(LABEL_NUMBER) {
        Err(source @ HostError::Busy { .. }) => Err(held(disk, source)),
        // Where it cannot be held it is said once the partition should be mapped.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn held(disk: &dyn Disk, source: HostError) -> ApplyError {
    ApplyError::Held { disk: disk.path().display().to_string(), source }
}

/// flock LOCK_EX, so that udev neither reads nor probes a table in between.
fn lock(disk: &dyn Disk) -> Result<Box<dyn Send + '_>, ApplyError> {
    disk.exclusive().map_err(|source| match source {
        HostError::Busy { .. } => ApplyError::Locked { disk: disk.path().display().to_string(), source },
        failed => step_error(disk, "lock the node".to_owned(), failed.into()),
    })
}

/// Primary table, backup table, label: whichever are still there.
fn wipe(device: &dyn BlockDevice, table: &Table) -> Result<(), StepError> {
    table::wipe_primary(device, &MARK, table)?;
    table::wipe_backup(device, &MARK, table)?;
    Ok(record::wipe_labels(device, table.disk())?)
}

fn step_error(disk: &dyn Disk, step: String, source: StepError) -> ApplyError {
    ApplyError::Step { step, disk: disk.path().display().to_string(), is_begun: true, source: Box::new(source) }
}

fn writes_table(step: &Step) -> bool {
    match step {
        Step::Table(_) | Step::FirstTable(_) | Step::WipeAll => true,
        Step::ProveUnused(_) | Step::Unmap(_) | Step::Map(..) | Step::Resize(..) | Step::Zero(_) | Step::Label(_) => {
            false
        }
    }
}

/// What others would see; zeros go only where nothing is, and may take long.
fn changes_disk(step: &Step) -> bool {
    match step {
        Step::Unmap(_) | Step::Label(_) | Step::Table(_) | Step::FirstTable(_) | Step::WipeAll => true,
        Step::Map(..) | Step::Resize(..) => true,
        Step::ProveUnused(_) | Step::Zero(_) => false,
    }
}

/// What would hit others where table and label are not what they were.
fn relies_on_record(step: &Step) -> bool {
    match step {
        Step::Unmap(_) | Step::Zero(_) | Step::Label(_) | Step::Table(_) | Step::WipeAll => true,
        Step::FirstTable(_) | Step::ProveUnused(_) | Step::Map(..) | Step::Resize(..) => false,
    }
}

fn changes_record(step: &Step) -> bool {
    match step {
        Step::Label(_) | Step::Table(_) | Step::FirstTable(_) => true,
        Step::WipeAll => true,
        Step::ProveUnused(_) | Step::Unmap(_) | Step::Map(..) | Step::Resize(..) | Step::Zero(_) => false,
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

fn plan_error(disk: &dyn Disk, source: PlanError) -> ApplyError {
    ApplyError::Plan { disk: disk.path().display().to_string(), source }
}

fn not_ours(disk: &dyn Disk, why: &dyn std::fmt::Display) -> ApplyError {
    ApplyError::NotOurs { disk: disk.path().display().to_string(), why: why.to_string() }
}
