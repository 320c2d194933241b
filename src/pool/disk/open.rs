//! Opening a disk of the pool: chooses the good copies, mends the others, and ends what was begun.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::perform::{lock, wipe};
use super::{Opened, PoolDisk};
use crate::device::{
    Owner,
    label::{Label, OURS},
    record::{self, OurRecord, Record},
};
use crate::host::{
    Disk, HostError, chain,
    table::{self, Choice, Table},
};
use crate::pool::{
    content::Content,
    earlier::{LastSeen, earlier},
    error::ApplyError,
    plan::{LABEL_NUMBER, Plan, Step, relabel},
};

impl PoolDisk {
    /// Opens a disk with localpool's record: chooses the good copies, mends the others, ends what was begun,
    /// has the kernel map just the label and the volumes, and holds the disk.
    /// Another disk than `id` is refused, and an earlier state of it than what was `last_seen`.
    pub fn open(disk: Arc<dyn Disk>, id: Uuid, owner: &Owner, last_seen: &LastSeen) -> Result<Opened, ApplyError> {
        let found = record::read_record(&*disk);
        if let Some(why) = found.label().and_then(|label| is_another(label, id, owner)) {
            return Err(ApplyError::not_ours(disk.path(), &why));
        }
        let own = match found {
            Record::Ours(own) | Record::UnfinishedClaim(own) => own,
            Record::TornClaim { table, label: _ } => return undo_claim(&*disk, &table).map(|()| Opened::Blank),
            Record::UnfinishedRelease { table, label: _ } => {
                return end_release(&*disk, &table).map(|()| Opened::Blank);
            }
            Record::Nothing | Record::OtherTable(_) | Record::Unreadable(_) | Record::Broken(_) | Record::Newer(_) => {
                return Err(ApplyError::not_ours(disk.path(), &found));
            }
        };
        if let Some(earlier) = earlier(&own, last_seen) {
            return Err(ApplyError::Earlier { disk: disk.path(), earlier });
        }
        // Before the first write: what another agent changes is not mended under its hands.
        prove_unheld(&*disk)?;
        // A process that was killed may have written it, and not synced it: from here on callers hear that it is there.
        disk.sync().map_err(|e| ApplyError::step(disk.path(), "sync what is found", e.into()))?;
        mend_tables(&*disk, &own.choice)?;
        Self::take_up(disk, *own).map(Opened::Ours)
    }

    /// A disk whose tables are whole.
    fn take_up(disk: Arc<dyn Disk>, own: OurRecord) -> Result<Self, ApplyError> {
        let OurRecord { choice, label, newest, copies } = own;
        let content = Content {
            geometry: disk.geometry(),
            table: Arc::new(choice.table),
            label: Arc::new(label),
            written: newest.sequence,
            busy: BTreeMap::new(),
        };
        let other = copies.get(newest.half.other());
        let is_mirrored = other.as_ref().is_ok_and(|copy| copy.label == *content.label);
        let mut this = Self { disk, content, newest: Some(newest), is_mirrored, outnumbered: 0, lost: None };
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
        Ok(this)
    }

    /// A disk that has grown gets its backup table where it belongs: at the end. Carved volumes may use the room;
    /// slots stay as they are.
    fn follow_growth(&mut self) -> Result<(), ApplyError> {
        let grown = self.content.table.grown(self.content.geometry.size);
        let grown = grown.map_err(|e| ApplyError::Plan { disk: self.disk.path(), source: e.into() })?;
        if grown.size() == self.content.table.size() {
            return Ok(());
        }
        tracing::info!(disk = %self.disk.path().display(), from = self.content.table.size(), to = grown.size(), "the disk has grown");
        self.perform(&Plan(vec![Step::Table(Arc::new(grown))]))
    }

    /// What a label calls clean and may not be any more is dirty from now on, whatever becomes of what uses it.
    fn forget_unclean(&mut self) -> Result<(), ApplyError> {
        let label = self.content.pruned_label();
        if label.clean == self.content.label.clean {
            return Ok(());
        }
        self.perform(&relabel(label))
    }
}

/// Why a disk with that label is not the one that is to be opened.
fn is_another(label: &Label, id: Uuid, owner: &Owner) -> Option<String> {
    // One of another disk was copied over it since.
    if label.disk != id {
        return Some(format!("it now has the label of disk {}, not of {id}", label.disk));
    }
    // Of two nodes that claim a disk which both see, the label that was written last is the one that is there.
    let is_other = (&label.cluster, &label.node) != (&owner.cluster, &owner.node);
    is_other.then(|| format!("it now has the label of node {}, cluster {}", label.node, label.cluster))
}

fn undo_claim(disk: &dyn Disk, table: &Table) -> Result<(), ApplyError> {
    prove_unheld(disk)?;
    let _guard = lock(disk)?;
    let wiped = table::wipe_backup(disk, &OURS, table);
    wiped.map_err(|e| ApplyError::step(disk.path(), "undo a torn claim", e.into()))
}

fn end_release(disk: &dyn Disk, table: &Table) -> Result<(), ApplyError> {
    prove_unheld(disk)?;
    let _guard = lock(disk)?;
    wipe(disk, table).map_err(|source| ApplyError::step(disk.path(), "end the release", source))
}

fn mend_tables(disk: &dyn Disk, choice: &Choice) -> Result<(), ApplyError> {
    if choice.stale.is_empty() {
        return Ok(());
    }
    tracing::info!(disk = %disk.path().display(), good = %choice.good, "rewriting partition table copies");
    let _guard = lock(disk)?;
    let mended = table::repair(disk, &OURS, &choice.table);
    mended.map_err(|e| ApplyError::step(disk.path(), "repair the partition table", e.into()))
}

/// Whoever changes a disk of the pool holds the partition of its label, see [`PoolDisk::hold`]. One that is not mapped
/// is held by nobody.
fn prove_unheld(disk: &dyn Disk) -> Result<(), ApplyError> {
    match disk.hold(LABEL_NUMBER) {
        Err(source @ HostError::Busy { .. }) => Err(held(disk, source)),
        // Where it cannot be held it is said once the partition should be mapped.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn held(disk: &dyn Disk, source: HostError) -> ApplyError {
    ApplyError::Held { disk: disk.path(), source }
}
