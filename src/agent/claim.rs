//! Claiming: which set takes which blank disk, the last look, and the first writes.

use std::collections::BTreeSet;
use std::sync::Arc;

use self::error::{ClaimError, TakeError};
use self::first_writes::Taking;
use super::blank::NotBlank;
use super::decide;
use super::pass_state::PassState;
use super::question::{Answers, OwnError, Wanted};
use super::reconciler::Reconciler;
use super::wipe::not_wiped;
use crate::claim::{ElectedClaim, Election, Promise, Rule, SetOutcome};
use crate::device::{Device, Snapshot, Verdict, disk_of, id, label::Hardware};
use crate::host::{KernelName, chain};

mod election;
mod error;
mod first_writes;

impl Reconciler {
    /// One election for all: blank disks are claimed, and where none is, content goes that a LocalVolume orders to go.
    /// Gives what each set takes and does not take, and whether one chose a disk that it must not have.
    pub(super) fn take(&mut self, snapshot: &mut Snapshot, pass: &mut PassState) -> (Vec<SetOutcome>, ChosenWrong) {
        let rules: Vec<Rule> = self.rules.iter().map(|rule| (**rule).clone()).collect();
        self.watch_content(snapshot, &rules);
        let mut election = self.elect(snapshot, &rules);
        if !takes_some(&election) {
            return (election.outcomes, ChosenWrong(false));
        }
        let promises = match self.leave_promised(snapshot, pass) {
            Ok(Promised { all, snapshot: None }) => all,
            Ok(Promised { all, snapshot: Some(judged) }) => {
                *snapshot = judged;
                election = self.elect(snapshot, &rules);
                all
            }
            Err(error) => {
                let Election { claims, wipes, outcomes } = election;
                let why = chain(&error);
                tracing::warn!(why, "nothing is claimed");
                pass.again |= error.retryable();
                pass.problems.extend(claims.into_iter().map(|claim| (claim.name, why.clone())));
                pass.problems.extend(wipes.into_iter().map(|wipe| (wipe.name.clone(), not_wiped(&wipe, &why))));
                return (outcomes, ChosenWrong(false));
            }
        };
        let Election { claims, wipes, outcomes } = election;
        let read = self.read_zeros(&snapshot.devices, &claims, pass);
        let claims = decide::claims(claims, &read, &rules, &self.counts(&rules));
        self.perform(claims, snapshot, pass);
        // What was just claimed is another disk than the one that was elected on.
        if pass.claimed.is_empty() {
            self.perform(decide::wipes(wipes, &promises, snapshot), snapshot, pass);
        }
        (outcomes, ChosenWrong(!read.wrong.is_empty()))
    }

    /// Disks that other provisioners promise are theirs in this pass; the next one asks again, as no event of this
    /// machine tells of promises.
    pub(super) fn leave_promised(&mut self, snapshot: &Snapshot, pass: &mut PassState) -> Result<Promised, TakeError> {
        let all = self.promises()?;
        let judged = decide::with_promises(snapshot, &all);
        let mut is_other = false;
        for (before, now) in snapshot.devices.iter().zip(&judged.devices) {
            let (true, Verdict::Theirs(reason)) = (before.verdict != now.verdict, &now.verdict) else { continue };
            pass.again |= reason.may_pass();
            pass.problems.insert(now.raw.name.clone(), reason.to_string());
            is_other = true;
        }
        Ok(Promised { all, snapshot: is_other.then_some(judged) })
    }

    /// What others promise of this node's disks, asked for by this pass or the one before. Nothing is taken where the
    /// journal cannot say what is ours.
    pub(super) fn promises(&mut self) -> Result<Vec<Promise>, TakeError> {
        self.pool.journal().sound().map_err(TakeError::Journal)?;
        let Answers { own, promises } = self.ask(Wanted::All).map_err(OwnError::from)?;
        match self.learn_own(own)? {
            true => Err(TakeError::Learnt),
            false => Ok(promises?),
        }
    }

    /// Forgets the claims that have ended, and what was read of their disks before. Gives the kernel names of those
    /// that are under way.
    pub(super) fn end_claims(&mut self) -> BTreeSet<KernelName> {
        let (errands, discovery) = (&self.errands, &mut self.memory.discovery);
        self.claims_under_way.retain(|id, (name, _)| {
            let is_under_way = errands.is_waiting_for(&id.into());
            if !is_under_way {
                discovery.changed(name);
            }
            is_under_way
        });
        self.claims_under_way.values().map(|(name, _)| name.clone()).collect()
    }

    /// Reads the disks that must hold zeros.
    fn read_zeros(&mut self, devices: &[Device], claims: &[ElectedClaim], pass: &mut PassState) -> decide::ZeroCheck {
        self.memory.blanks.begin_pass();
        let mut read = decide::ZeroCheck::default();
        for elected in claims {
            let device = devices.iter().find(|device| device.raw.name == elected.name);
            let Some(device) = device.filter(|_| elected.zeros) else { continue };
            match self.memory.blanks.prove(&self.host, &device.raw) {
                Ok(()) => {}
                Err(NotBlank::Holds(problem)) => {
                    tracing::warn!(disk = elected.name.as_str(), %problem, "a disk is not blank");
                    read.wrong.insert(elected.set.clone());
                }
                Err(unread) => {
                    pass.again |= unread.retryable();
                    pass.problems.insert(elected.name.clone(), chain(&unread));
                    read.unread.insert(elected.name.clone());
                }
            }
        }
        read
    }

    /// The last look, then label, tables, protective MBR; the exclusive handle goes only when a shared one is open. A
    /// bare device gets nothing written: its exclusive handle goes before the journal has its claim.
    pub(super) fn claim_one(&mut self, devices: &[Device], elected: &ElectedClaim) -> Result<(), ClaimError> {
        let was = devices.iter().find(|device| device.raw.name == elected.name);
        let was = was.ok_or(ClaimError::Gone)?;
        self.inform();
        let now = self.memory.discovery.confirm(&self.host, was)?;
        let rule = self.rules.iter().find(|rule| rule.set == elected.set).cloned();
        let (id, name) = (now.id.clone(), now.raw.name.clone());
        let disk = disk_of(devices, &now.raw);
        let (own, whole) = (Hardware::of(id::hardware_id(&now.raw, disk), &now.raw), id::whole_disk(&now.raw, disk));
        let taking = Taking { pool: Arc::clone(&self.pool), host: Arc::clone(&self.host), now, own, whole, rule };
        let (set, layout) = (elected.set.clone(), elected.layout.clone());
        self.claims_under_way.insert(id.clone(), (name.clone(), elected.set.clone()));
        let claimed = self.errand_now(&id, move |late| taking.take(set, layout, late));
        if claimed.is_ok() {
            self.claims_under_way.remove(&id);
        }
        self.memory.discovery.changed(&name);
        claimed?
    }
}

/// Whether a set chose a disk that holds bytes which nothing recognises: it gives way, and the set chooses again.
pub(super) struct ChosenWrong(pub bool);

/// What others promise of this node's disks.
pub(super) struct Promised {
    pub all: Vec<Promise>,
    /// What is elected on instead, if a device that looked free is promised.
    pub snapshot: Option<Snapshot>,
}

/// Whether there is something that a set takes, would take, or has wiped.
fn takes_some(election: &Election) -> bool {
    let Election { claims, wipes, outcomes } = election;
    !claims.is_empty() || !wipes.is_empty() || outcomes.iter().any(|outcome| !outcome.would_take.is_empty())
}

#[cfg(test)]
mod tests;
