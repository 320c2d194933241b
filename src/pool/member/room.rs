//! Room for a volume on a member: it is offered, the volume is made there, or grows.
//!
//! Takes in a place and a request; gives out whether it was done, or why another place must serve. Long zeroing comes
//! first, in pieces, and others have their turn in between.

use std::time::Duration;

use super::Member;
use crate::device::{VolumeId, label::VolumeUsage};
use crate::host::{DEVICE_LOCK_TIMEOUT, DeviceLockGuard, ZeroingBudget};
use crate::pool::{
    choose::{DiskOffer, offer},
    content::Content,
    erase::{GIVE_WAY, zeroed_in_call},
    error::{ApplyError, BareError, FailedOn, PoolError},
    extents::Extents,
    filesystem_error::FilesystemError,
    journal_store::{JournalStore, disks::Begun},
    labelled::{LabelledDisk, LabelledState},
    plan::{PlanError, PlannedVolume, Site, create, expand},
    view::VolumeView,
};

/// Who got a place.
#[derive(Debug)]
pub enum Attempt {
    ByUs,
    ByOther,
    /// The disk failed, or others kept its lock, before anything of the volume was there.
    Failed(PoolError),
}

impl Member {
    /// What it has to give for `usage`, where its set exists and allows that. `place` is the caller's name for it.
    pub fn offer(&self, place: usize, usage: VolumeUsage) -> Option<DiskOffer<usize>> {
        match self {
            Self::Labelled(member) => {
                let shown = member.shown();
                let rule = shown.rule.as_ref()?;
                (rule.allows(usage) && shown.is_usable()).then(|| offer(place, &shown.content, usage))
            }
            Self::Filesystem(member) => member.offer(place, usage),
            Self::Bare(member) => member.offer(place, usage),
        }
    }

    /// Makes the volume, or says why another place must serve. The journal has it on the disk before the disk has.
    /// Waits for others on this disk with `timeout`. Long zeroing comes first, in pieces, and others have their turn in
    /// between: until it is done there is nothing of the volume.
    pub fn create(
        &self,
        site: Site,
        volume: &PlannedVolume,
        journal: &JournalStore,
        timeout: Duration,
    ) -> Result<Attempt, PoolError> {
        let made = match self {
            Self::Labelled(member) => {
                let plan = |content: &Content| create(content, site, volume);
                let to_zero = |state: &mut LabelledState| state.disk()?.to_zero(plan);
                // It is in the making until others can see what came of it.
                let (begun, made) = {
                    let mut state = match zeroed(member, volume.id, timeout, to_zero) {
                        Ok(state) => state,
                        Err(error @ PoolError::BeingZeroed { .. }) => return Err(error),
                        Err(error) if is_taken(&error) => return Ok(Attempt::ByOther),
                        Err(error) => return Ok(Attempt::Failed(error)),
                    };
                    // It has just left or failed: nothing is written down of it.
                    if !state.is_usable() {
                        return Ok(Attempt::ByOther);
                    }
                    let begun: Begun<'_> = journal.begin(volume.id, &member.id, state.known())?;
                    (begun, state.disk().and_then(|disk| disk.change(plan)).map_err(PoolError::from))
                };
                if made.as_ref().is_err_and(left_no_trace) {
                    begun.withdraw()?;
                }
                made
            }
            Self::Filesystem(member) => member.create(site, volume, journal, timeout),
            Self::Bare(member) => match member.create(volume, timeout) {
                Err(BareError::BeingZeroed { remaining }) => {
                    return Err(PoolError::BeingZeroed { id: volume.id, disk: member.id.clone(), remaining });
                }
                made => made.map_err(PoolError::from),
            },
        };
        match made {
            Ok(()) => Ok(Attempt::ByUs),
            Err(error) if is_taken(&error) => Ok(Attempt::ByOther),
            Err(error) if left_no_trace(&error) => Ok(Attempt::Failed(error)),
            Err(error) => Err(error),
        }
    }

    pub fn expand(&self, view: &VolumeView, required: u64) -> Result<(), PoolError> {
        let id = view.id;
        match self {
            Self::Labelled(member) => {
                let plan = |content: &Content| expand(content, id, required);
                let to_zero = |state: &mut LabelledState| state.disk()?.to_zero(plan);
                let grown = zeroed(member, id, DEVICE_LOCK_TIMEOUT, to_zero)
                    .and_then(|mut state| Ok(state.disk()?.change(plan)?));
                match grown {
                    Err(PoolError::Apply(ApplyError::Plan {
                        source: PlanError::CannotGrow { id, wanted, growable_to },
                        ..
                    })) => Err(PoolError::CannotGrow { id, wanted, growable_to }),
                    done => done,
                }
            }
            Self::Filesystem(member) => member.expand(id, required),
            Self::Bare(_) if required <= view.size => Ok(()),
            Self::Bare(_) => Err(PoolError::CannotGrow { id, wanted: required, growable_to: view.size }),
        }
    }
}

/// Zeroes what must be zero for the next step, and gives the lock of the disk. If more is left to zero than one call
/// waits for, the error says how much, and the worker goes on.
fn zeroed<'m>(
    member: &'m LabelledDisk,
    id: VolumeId,
    timeout: Duration,
    to_zero: impl Fn(&mut LabelledState) -> Result<Extents, ApplyError>,
) -> Result<DeviceLockGuard<'m, LabelledState>, PoolError> {
    let mut budget = ZeroingBudget::begin();
    loop {
        let mut state = member.lock_within(timeout)?;
        if !state.is_usable() {
            return Ok(state);
        }
        let dirty = to_zero(&mut state)?;
        if dirty.is_empty() {
            return Ok(state);
        }
        let bytes = dirty.total();
        if !zeroed_in_call(&mut state, dirty, &mut budget)? {
            return Err(PoolError::BeingZeroed { id, disk: member.id.clone(), remaining: bytes });
        }
        drop(state);
        std::thread::sleep(GIVE_WAY);
    }
}

fn is_taken(error: &PoolError) -> bool {
    match error.failed_on() {
        Some(FailedOn::Labelled(ApplyError::Plan { source, .. })) => {
            matches!(source, PlanError::Taken { .. } | PlanError::TableFull)
        }
        Some(FailedOn::Bare(error)) => matches!(error, BareError::Taken(_)),
        Some(FailedOn::Filesystem(error)) => matches!(error, FilesystemError::Taken { .. }),
        Some(FailedOn::Labelled(_)) | None => false,
    }
}

/// Nothing of what was asked for can be on the disk.
fn left_no_trace(error: &PoolError) -> bool {
    is_taken(error)
        || match error.failed_on() {
            Some(FailedOn::Labelled(error)) => error.left_no_trace(),
            Some(FailedOn::Bare(error)) => error.left_no_trace(),
            Some(FailedOn::Filesystem(error)) => error.left_no_trace(),
            None => false,
        }
}
