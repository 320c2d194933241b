//! Performs what a pass decided about the members of the pool, one action after the other. What it decided about disks
//! that are nobody's is performed by `claim` and `wipe`.
//!
//! Takes in actions and the snapshot that they were decided on; gives out what came of them. What hangs or fails stands
//! against its own disk, and the others go on.

use std::sync::Arc;

use super::again::Again;
use super::array::members_below;
use super::decide::Action;
use super::pass_state::PassState;
use super::reconciler::Reconciler;
use crate::claim::Rule;
use crate::device::{DiskId, Snapshot, label::SetRef};
use crate::host::{SHORT_DEVICE_LOCK_TIMEOUT, chain, timeout::TimeoutError};
use crate::pool::{ApplyError, Carrier, LabelledDisk, Member, OpeningError, PoolError, StoreError};

/// Why the record of a member does not say of which set it is.
#[derive(Debug, thiserror::Error)]
enum RenameError {
    #[error(transparent)]
    Hangs(#[from] TimeoutError),
    #[error(transparent)]
    Label(#[from] ApplyError),
    #[error(transparent)]
    Claim(#[from] OpeningError),
    #[error(transparent)]
    Journal(#[from] StoreError),
}

impl RenameError {
    /// Whether the next pass may write it. No event says when.
    fn retryable(&self) -> bool {
        match self {
            Self::Hangs(_) => true,
            Self::Label(error) => error.retryable(),
            Self::Claim(error) => error.retryable(),
            Self::Journal(error) => error.retryable(),
        }
    }
}

impl Reconciler {
    pub(super) fn perform(&mut self, actions: Vec<Action>, snapshot: &Snapshot, pass: &mut PassState) {
        for action in actions {
            match action {
                Action::Leave { id } => {
                    let is_left = self.leave(&id, snapshot);
                    pass.again.add(Again::Member, !is_left);
                }
                Action::Refuse { at, why } => {
                    let refused = self.withhold(&snapshot.devices[at], why);
                    self.meet(pass, &snapshot.devices[at], refused);
                }
                Action::Withhold { id, at, why } => self.withhold_unread(pass, &id, &snapshot.devices[at], &why),
                Action::Open { at } => {
                    if let Err(problem) = self.open(&snapshot.devices[at], members_below(snapshot, at)) {
                        self.meet(pass, &snapshot.devices[at], problem);
                    }
                }
                Action::OpenBare { id, at } => {
                    let device = &snapshot.devices[at];
                    if let Err(problem) = self.open_bare(&id, &device.raw, snapshot.whole_disk(device)) {
                        pass.again.add(Again::Member, problem.retryable());
                        pass.problems.insert(device.raw.name.clone(), chain(&problem));
                    }
                }
                Action::LeaveBare { id } => {
                    let left = self.bare(&id).leave();
                    pass.again.add(Again::Member, left.is_err());
                }
                Action::Rename { id, set } => self.rename(&id, set, pass),
                Action::Offer { id, rule } => self.offer(&id, rule, pass),
                Action::Release { id } => self.release_disk(&id, pass),
            }
        }
    }

    fn rename(&mut self, id: &DiskId, set: SetRef, pass: &mut PassState) {
        let Some(member) = self.pool.member(id) else { return };
        let renamed = match (&member, member.labelled()) {
            (_, Some(disk)) => {
                let disk = Arc::clone(disk);
                let written = self.errands.errand(id, move || disk.relabel(set));
                written.map_err(RenameError::from).and_then(|done| Ok(done?))
            }
            (Member::Filesystem(filesystem), None) => {
                let filesystem = Arc::clone(filesystem);
                let written = self.errands.errand(id, move || filesystem.rename_set(set));
                written.map_err(RenameError::from).and_then(|done| Ok(done?))
            }
            (Member::Labelled(_) | Member::Bare(_), None) => {
                self.pool.journal().change_bare(id, |claim| claim.set = set).map_err(RenameError::from)
            }
        };
        // Members of one array must not seem to be of two sets until the next hour.
        member.kernel_name().iter().for_each(|name| self.memory.discovery.changed(name));
        if let Err(error) = renamed {
            pass.again.add(Again::Record, error.retryable());
            pass.problems.extend(member.kernel_name().map(|name| (name, chain(&error))));
        }
    }

    fn offer(&self, id: &DiskId, rule: Option<Arc<Rule>>, pass: &mut PassState) {
        let Some(member) = self.pool.member(id) else { return };
        let offered = match &member {
            Member::Labelled(disk) => offer_on(disk, rule),
            Member::Filesystem(filesystem) => match &filesystem.carrier {
                Carrier::Disk(disk) => offer_on(disk, rule),
                Carrier::Mount(mount) => {
                    mount.change(|shown| shown.rule = rule);
                    Ok(())
                }
            },
            Member::Bare(device) => {
                let locked = device.lock_within(SHORT_DEVICE_LOCK_TIMEOUT);
                locked.map(|mut state| state.rule = rule).map_err(PoolError::from)
            }
        };
        if let Err(busy) = offered {
            pass.again.add(Again::Record, true);
            pass.problems.extend(member.kernel_name().map(|name| (name, chain(&busy))));
        }
    }

    fn release_disk(&mut self, id: &DiskId, pass: &mut PassState) {
        let Some(member) = self.pool.member(id) else { return };
        match self.give_up(&member) {
            Ok(()) => pass.released += 1,
            Err(error) => {
                tracing::error!(disk = id.as_str(), error = %chain(&error), "the disk could not be released")
            }
        }
    }

    /// Releases a disk; the next scan reads it again.
    pub fn give_up(&mut self, member: &Member) -> Result<(), PoolError> {
        let name = member.kernel_name();
        let (pool, given) = (Arc::clone(&self.pool), member.clone());
        let released = self.errands.done_in_time(member.id(), move || pool.release(&given));
        if let Some(name) = name {
            self.memory.discovery.changed(&name);
        }
        released
    }
}

fn offer_on(disk: &LabelledDisk, rule: Option<Arc<Rule>>) -> Result<(), PoolError> {
    disk.lock_within(SHORT_DEVICE_LOCK_TIMEOUT).map(|mut state| state.rule = rule).map_err(PoolError::from)
}
