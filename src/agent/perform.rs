//! Performs what a pass decided, one action after the other.
//!
//! Takes in actions and the snapshot that they were decided on; gives out what came of them. What hangs or fails stands
//! against its own disk, and the others go on.

use std::sync::Arc;

use super::decide::Action;
use super::pass_state::PassState;
use super::reconciler::Reconciler;
use super::wipe::not_wiped;
use crate::claim::Rule;
use crate::device::{DiskId, Snapshot, label::SetRef};
use crate::host::{KernelName, SHORT_DEVICE_LOCK_TIMEOUT, chain, timeout::TimeoutError};
use crate::pool::{ApplyError, LabelledDisk, Member, PoolError, StoreError};

/// Why the record of a member does not say of which set it is.
#[derive(Debug, thiserror::Error)]
enum RenameError {
    #[error(transparent)]
    Hangs(#[from] TimeoutError),
    #[error(transparent)]
    Label(#[from] ApplyError),
    #[error(transparent)]
    Journal(#[from] StoreError),
}

impl RenameError {
    /// Whether the next pass may write it. No event says when.
    fn retryable(&self) -> bool {
        match self {
            Self::Hangs(_) => true,
            Self::Label(error) => error.retryable(),
            Self::Journal(error) => error.retryable(),
        }
    }
}

impl Reconciler {
    pub(super) fn perform(&mut self, actions: Vec<Action>, snapshot: &Snapshot, pass: &mut PassState) {
        for action in actions {
            match action {
                Action::Leave { id } => pass.again |= !self.leave(&id, snapshot),
                Action::Refuse { at, why } => {
                    let refused = self.withhold(&snapshot.devices[at], why);
                    self.meet(pass, &snapshot.devices[at], refused);
                }
                Action::Withhold { id, at, why } => self.withhold_unread(pass, &id, &snapshot.devices[at], &why),
                Action::Open { at } => {
                    if let Err(problem) = self.open(&snapshot.devices[at]) {
                        self.meet(pass, &snapshot.devices[at], problem);
                    }
                }
                Action::OpenBare { id, at } => {
                    let device = &snapshot.devices[at];
                    if let Err(problem) = self.open_bare(&id, &device.raw, snapshot.whole_disk(device)) {
                        pass.again |= problem.retryable();
                        pass.problems.insert(device.raw.name.clone(), chain(&problem));
                    }
                }
                Action::LeaveBare { id } => pass.again |= self.bare(&id).leave().is_err(),
                Action::Rename { id, set } => self.rename(&id, set, pass),
                Action::Offer { id, rule } => self.offer(&id, rule, pass),
                Action::Claim(claim) => match self.claim_one(&snapshot.devices, &claim) {
                    Ok(()) => pass.claimed.push(claim.name),
                    Err(error) => {
                        let problem = chain(&error);
                        tracing::warn!(disk = claim.name.as_str(), problem, "a disk was not claimed");
                        pass.again |= error.retryable() || self.is_first_refusal(snapshot, &claim.name);
                        pass.problems.insert(claim.name, problem);
                    }
                },
                Action::Wipe { at, wipe } => self.wipe(snapshot, at, &wipe, pass),
                Action::Spare { wipe, why } => {
                    tracing::warn!(disk = wipe.name.as_str(), problem = %why, "a disk was not wiped");
                    pass.again |= why.may_pass();
                    pass.problems.insert(wipe.name.clone(), not_wiped(&wipe, &why.to_string()));
                }
                Action::Release { id } => self.release_disk(&id, pass),
            }
        }
    }

    /// Whether a disk that cannot be claimed is worth one more look: this pass saw it otherwise, and the next one may
    /// take another disk in its place. After that only an event of the disk says more.
    fn is_first_refusal(&mut self, snapshot: &Snapshot, name: &KernelName) -> bool {
        let Some(device) = snapshot.devices.iter().find(|device| device.raw.name == *name) else { return false };
        let is_first = self.memory.refused.get(&device.raw).is_none();
        self.memory.refused.keep(&device.raw, snapshot.at, ());
        is_first
    }

    fn rename(&mut self, id: &DiskId, set: SetRef, pass: &mut PassState) {
        let Some(member) = self.pool.member(id) else { return };
        let renamed = match member.labelled() {
            Some(disk) => {
                let disk = Arc::clone(disk);
                let written = self.errand(id, move || disk.relabel(set));
                written.map_err(RenameError::from).and_then(|done| Ok(done?))
            }
            None => self.pool.journal().change_bare(id, |claim| claim.set = set).map_err(RenameError::from),
        };
        if let Err(error) = renamed {
            pass.again |= error.retryable();
            pass.problems.extend(member.kernel_name().map(|name| (name, chain(&error))));
        }
    }

    fn offer(&self, id: &DiskId, rule: Option<Arc<Rule>>, pass: &mut PassState) {
        let Some(member) = self.pool.member(id) else { return };
        let offered = match &member {
            Member::Labelled(disk) => offer_on(disk, rule),
            Member::Filesystem(filesystem) => offer_on(&filesystem.carrier, rule),
            Member::Bare(device) => {
                let locked = device.lock_within(SHORT_DEVICE_LOCK_TIMEOUT);
                locked.map(|mut state| state.rule = rule).map_err(PoolError::from)
            }
        };
        if let Err(busy) = offered {
            pass.again = true;
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
}

fn offer_on(disk: &LabelledDisk, rule: Option<Arc<Rule>>) -> Result<(), PoolError> {
    disk.lock_within(SHORT_DEVICE_LOCK_TIMEOUT).map(|mut state| state.rule = rule).map_err(PoolError::from)
}
