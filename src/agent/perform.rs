//! Performs what a pass decided, one action after the other.
//!
//! Takes in actions and the snapshot that they were decided on; gives out what came of them. What hangs or fails stands against its
//! own disk, and the others go on.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Reconciler;
use super::decide::Action;
use super::wipe::not_wiped;
use crate::claim::rule::Rule;
use crate::device::discovery::Snapshot;
use crate::device::label::SetRef;
use crate::host::chain;
use crate::pool::labelled::SHORT_PATIENCE;
use crate::pool::member::Member;
use crate::pool::whereabouts::Unasked;

/// What came of a pass so far.
#[derive(Debug, Default)]
pub(super) struct Met {
    /// What stands against a disk, in words, by kernel name.
    pub problems: BTreeMap<String, String>,
    /// Disks of ours that cannot be asked what is on them.
    pub unread: Vec<Unasked>,
    /// What the log was told of disks that cannot be used, by kernel name.
    pub unusable: BTreeMap<String, String>,
    /// Something may be over soon that no event tells of.
    pub again: bool,
    /// Kernel names of the disks that were claimed.
    pub claimed: Vec<String>,
    pub wiped: usize,
    pub gave_back: usize,
}

impl Met {
    /// What was just claimed, wiped or given back is another disk now than the one that this pass saw.
    pub fn is_stale(&self) -> bool {
        !self.claimed.is_empty() || self.wiped > 0 || self.gave_back > 0
    }
}

impl Reconciler {
    pub(super) fn perform(&mut self, actions: Vec<Action>, snapshot: &Snapshot, met: &mut Met) {
        for action in actions {
            match action {
                Action::Leave { id } => met.again |= !self.leave(&id, snapshot),
                Action::Refuse { at, why } => {
                    let refused = self.withhold(&snapshot.devices[at], why);
                    self.meet(met, &snapshot.devices[at], refused);
                }
                Action::Withhold { id, at, why } => self.withhold_unread(met, &id, &snapshot.devices[at], &why),
                Action::Open { at } => {
                    if let Err(problem) = self.open(&snapshot.devices[at]) {
                        self.meet(met, &snapshot.devices[at], problem);
                    }
                }
                Action::OpenBare { id, at } => {
                    let device = &snapshot.devices[at];
                    if let Err(why) = self.open_bare(&id, &device.raw, snapshot.whole_disk(device)) {
                        met.again = true;
                        met.problems.insert(device.raw.name.clone(), why);
                    }
                }
                Action::LeaveBare { id } => met.again |= self.bare(&id).leave().is_err(),
                Action::Rename { id, set } => self.rename(&id, set, met),
                Action::Offer { id, rule } => self.offer(&id, rule, met),
                Action::Claim(claim) => match self.claim_one(&snapshot.devices, &claim) {
                    Ok(()) => met.claimed.push(claim.name),
                    Err(problem) => {
                        tracing::warn!(disk = claim.name, problem, "a disk was not claimed");
                        met.problems.insert(claim.name, problem);
                    }
                },
                Action::Wipe { at, wipe } => self.wipe(snapshot, at, &wipe, met),
                Action::Spare { wipe, why } => {
                    tracing::warn!(disk = wipe.name, problem = why, "a disk was not wiped");
                    met.problems.insert(wipe.name.clone(), not_wiped(&wipe, &why));
                }
                Action::GiveBack { id } => self.give_back(&id, met),
            }
        }
    }

    fn rename(&mut self, id: &str, set: SetRef, met: &mut Met) {
        let Some(member) = self.pool.member(id) else { return };
        let renamed = match &member {
            Member::Labelled(disk) => {
                let disk = Arc::clone(disk);
                let written = self.errand(id, move || disk.relabel(set).map_err(|e| chain(&e)));
                written.unwrap_or_else(|hangs| Err(chain(&hangs)))
            }
            Member::Bare(_) => self.pool.journal().change_bare(id, |claim| claim.set = set).map_err(|e| chain(&e)),
        };
        if let Err(why) = renamed {
            met.problems.extend(kernel_name(&member).map(|name| (name, why)));
        }
    }

    fn offer(&self, id: &str, rule: Option<Arc<Rule>>, met: &mut Met) {
        let Some(member) = self.pool.member(id) else { return };
        let offered = match &member {
            Member::Labelled(disk) => {
                disk.lock_within(SHORT_PATIENCE).map(|mut state| state.rule = rule).map_err(|e| chain(&e))
            }
            Member::Bare(device) => {
                device.lock_within(SHORT_PATIENCE).map(|mut state| state.rule = rule).map_err(|e| chain(&e))
            }
        };
        if let Err(busy) = offered {
            met.again = true;
            met.problems.extend(kernel_name(&member).map(|name| (name, busy)));
        }
    }

    fn give_back(&mut self, id: &str, met: &mut Met) {
        let Some(member) = self.pool.member(id) else { return };
        match self.give_up(&member) {
            Ok(()) => met.gave_back += 1,
            Err(error) => tracing::error!(disk = id, error = %chain(&error), "the disk could not be given back"),
        }
    }
}

/// As which device it is or was here.
pub(super) fn kernel_name(member: &Member) -> Option<String> {
    match member {
        Member::Labelled(disk) => Some(disk.shown().raw.name.clone()),
        Member::Bare(device) => device.shown().raw.as_ref().map(|raw| raw.name.clone()),
    }
}
