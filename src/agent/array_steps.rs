//! The arrays of the pool's disks: performs what was decided on each of them (`array`).
//!
//! Each step is taken by an errand of its own, as a disk may hang, and the next pass sees what came of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::again::Again;
use super::array::{ArrayStep, Permission, SeenArray, next};
use super::pass_state::PassState;
use super::reconciler::Reconciler;
use crate::device::{Device, DiskId, Snapshot, Verdict, label::ArrayPlace};
use crate::host::{Access, Host, HostError, IoError, NewArray, chain, timeout::TimeoutError};
use crate::pool::{ApplyError, ErrandKey, LabelledDisk, clear_array};

/// Why a step of an array was not done. The next pass decides again.
#[derive(Debug, thiserror::Error)]
enum ArrayError {
    #[error(transparent)]
    Hangs(#[from] TimeoutError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Io(#[from] IoError),
    #[error(transparent)]
    Member(#[from] ApplyError),
}

impl Reconciler {
    /// Takes the next step of each array.
    pub(super) fn settle_arrays(&mut self, snapshot: &Snapshot, pass: &mut PassState) {
        let mut problems = BTreeMap::new();
        for array in self.arrays(snapshot) {
            self.take_back_array(&array);
            let done = match next(&array, snapshot) {
                ArrayStep::Nothing => continue,
                ArrayStep::Stays(why) => Err((why, false)),
                ArrayStep::Waits(why) => Err((why, true)),
                ArrayStep::Claim { at } => self.claim_settled(&array, snapshot, at, pass),
                step => match self.take_step(&array, step, snapshot) {
                    Ok(()) => {
                        pass.again.add(Again::Array, true);
                        Ok(())
                    }
                    Err(error) => Err((chain(&error), true)),
                },
            };
            if let Err((why, may_pass)) = done {
                pass.again.add(Again::Array, may_pass);
                let names = array.members.iter().filter_map(|member| member.name.clone());
                for name in names {
                    pass.problems.entry(name).or_insert_with(|| why.clone());
                }
                problems.extend(array.members.first().map(|member| (member.place.array, why)));
            }
        }
        self.pool.array_problems().settle(problems);
    }

    /// One that was given up and runs again is as any other. Its own label says that it was given up.
    fn take_back_array(&self, array: &SeenArray<'_>) {
        let runs = matches!(array.built[..], [(_, device)] if device.verdict == Verdict::Ours);
        let Some(first) = array.members.first().filter(|_| runs && array.permission == Permission::GivenUp) else {
            return;
        };
        if let Err(error) = self.pool.journal().array_is_back(&DiskId::of_array(first.place.array)) {
            tracing::warn!(array = %first.place.array, error = %chain(&error), "it is not written down that an array which was given up is back");
        }
    }

    /// The array becomes a disk of its set.
    fn claim_settled(
        &mut self,
        array: &SeenArray<'_>,
        snapshot: &Snapshot,
        at: usize,
        pass: &mut PassState,
    ) -> Result<(), (String, bool)> {
        let set = array.members.first().map(|member| &member.set);
        let Some(rule) = self.rules.iter().find(|rule| Some(&rule.set) == set).cloned() else { return Ok(()) };
        let device = &snapshot.devices[at];
        match self.claim_array(snapshot, device, &rule) {
            Ok(()) => {
                pass.claimed.push(device.raw.name.clone());
                Ok(())
            }
            Err(error) => Err((format!("its array was not claimed: {}", chain(&error)), error.retryable())),
        }
    }

    fn take_step(&mut self, array: &SeenArray<'_>, step: ArrayStep, snapshot: &Snapshot) -> Result<(), ArrayError> {
        let Some(first) = array.members.first().map(|member| member.place) else { return Ok(()) };
        let members = array.members.iter().filter_map(|member| self.pool.labelled_disk(&member.id));
        let (members, host) = (members.collect::<Vec<_>>(), Arc::clone(&self.host));
        let key = ErrandKey::Disk(DiskId::of_array(first.array));
        let device = |at: usize| snapshot.devices[at].clone();
        tracing::info!(array = %first.array, ?step, "an array of the pool");
        match step {
            ArrayStep::Make(nodes) => self.errands.errand(key, move || make(&*host, &members, first, nodes))?,
            ArrayStep::Start(nodes) => {
                self.errands.errand(key, move || Ok::<_, ArrayError>(host.md().assemble(first.array, &nodes)?))?
            }
            ArrayStep::Stop { at } => {
                let array = device(at).raw;
                self.errands.errand(key, move || Ok::<_, ArrayError>(host.md().stop(&array)?))?
            }
            ArrayStep::Settle { at, is_fresh } => {
                let device = device(at);
                self.errands.errand(key, move || settle(&*host, &members, &device, is_fresh))?
            }
            ArrayStep::Nothing | ArrayStep::Stays(_) | ArrayStep::Waits(_) | ArrayStep::Claim { .. } => Ok(()),
        }
    }
}

/// Nothing is left of what was on the members, and then the array is there. Stopped anywhere, it is made again: no
/// member says that it was made.
fn make(
    host: &dyn Host,
    members: &[Arc<LabelledDisk>],
    place: ArrayPlace,
    nodes: Vec<PathBuf>,
) -> Result<(), ArrayError> {
    members.iter().try_for_each(|member| member.clear_member())?;
    let ArrayPlace { array: uuid, level, chunk, .. } = place;
    Ok(host.md().make(&NewArray { uuid, level: level.name(), chunk, members: nodes })?)
}

/// The array that runs is new, and looks blank; then its members say that it was made, and then that it may hold data:
/// it is claimed only after the last of them says that.
fn settle(host: &dyn Host, members: &[Arc<LabelledDisk>], device: &Device, is_fresh: bool) -> Result<(), ArrayError> {
    if is_fresh {
        clear_array(&*host.open(&device.raw, Access::Claim)?)?;
    }
    members.iter().try_for_each(|member| member.member_is_made())?;
    Ok(members.iter().try_for_each(|member| member.member_is_used())?)
}
