//! Background work on one disk: erasing what was deleted, and cleaning dirty space for raw block volumes.
//!
//! Erasing runs without the disk's lock: an erasing entry belongs to nobody else meanwhile. The cursor is durable
//! after each chunk, so a stop repeats one chunk at most. Cleaning holds the lock for a moment at a time: the
//! space stays on offer, to filesystems as it is and to block volumes as far as it is clean. Where the device zeroes by
//! itself only what a volume waits for is cleaned: see [`zeroed_in_call`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::disk::zero;
use super::error::{ApplyError, StepError, Trace};
use super::extents::{Extents, MIB};
use super::labelled::{FailedWork, LabelledDisk, LabelledState};
use super::plan::{EraseWork, Plan, Step, erase_advanced, next_erase};
use crate::device::label::{ErasePolicy, VolumeUsage};
use crate::host::{BlockDevice, Disk, Extent, HostError, IoError, ZeroingBudget, chain, zero_for_a_moment};

/// The most that is cleaned while others wait for the disk, and how long they then have to get it.
const CLEAN_CHUNK: u64 = 64 * MIB;
pub(super) const GIVE_WAY: Duration = Duration::from_millis(2);
/// How many places of an erased range are read back, and how much of each.
const SAMPLES: u64 = 16;
const SAMPLE_BYTES: u64 = 4096;

/// Whether there is more to do on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Worked,
    /// Nothing but the label's older copy, which says less than the newest.
    Unmirrored,
    Idle,
}

/// Does one chunk of work on a disk.
pub fn work(member: &LabelledDisk) -> Result<Progress, ApplyError> {
    if take_back(member)? {
        return Ok(Progress::Worked);
    }
    let (job, is_last_try) = {
        let mut state = member.lock();
        let failed = member.failed().clone();
        let (job, is_last_try) = match next_job(&state, &failed) {
            Some(job) => (job, false),
            None if state.is_unmirrored() => return Ok(Progress::Unmirrored),
            // All else is done.
            None => match next_job(&state, &FailedWork::default()) {
                Some(job) => (job, true),
                // Under the lock: who gives work from now on finds no worker, and starts one.
                None => {
                    member.worker.end();
                    return Ok(Progress::Idle);
                }
            },
        };
        match job {
            Job::Clean(extent) => (Done::Cleaned(extent, clean(&mut state, extent)), is_last_try),
            Job::Erase(disk, work) => (Done::ToErase(disk, work), is_last_try),
        }
    };
    let (what, done) = match job {
        Done::Cleaned(extent, done) => {
            std::thread::sleep(GIVE_WAY);
            (Job::Clean(extent), done.map(drop))
        }
        Done::ToErase(disk, work) => {
            let done = erase(member, &disk, &work);
            (Job::Erase(disk, work), done)
        }
    };
    match done {
        // A bad sector keeps nothing else waiting: it is tried again when all else is done, and told then.
        Err(error) if error.is_io() && !is_last_try => {
            tracing::warn!(disk = member.id.as_str(), error = %chain(&error), "background work on a disk failed");
            let mut failed = member.failed();
            match what {
                Job::Erase(_, work) => drop(failed.erasures.insert(work.guid)),
                Job::Clean(extent) => failed.free.insert(error.failed_on().unwrap_or(extent)),
            }
            Ok(Progress::Worked)
        }
        done => {
            if is_last_try {
                *member.failed() = FailedWork::default();
            }
            done.map(|()| Progress::Worked)
        }
    }
}

/// What is to be done next.
enum Job {
    Erase(Arc<dyn Disk>, EraseWork),
    Clean(Extent),
}

/// What was done under the lock, or is to be done without it.
enum Done {
    Cleaned(Extent, Result<u64, ApplyError>),
    ToErase(Arc<dyn Disk>, EraseWork),
}

/// None of what has `failed`. Without a disk nothing is asked for: what it still has to erase waits until it is back.
fn next_job(state: &LabelledState, failed: &FailedWork) -> Option<Job> {
    let erase = || Some(Job::Erase(state.handle()?, next_erase(state.content(), &failed.erasures)?));
    erase().or_else(|| next_to_clean(state, &failed.free).map(Job::Clean))
}

/// Tries once again what was busy at the last attempt; gives whether anything came free.
fn take_back(member: &LabelledDisk) -> Result<bool, ApplyError> {
    let (disk, busy) = {
        let state = member.lock();
        let busy: Vec<u32> = state.content().busy.keys().copied().collect();
        match (member.take_retry(), state.handle()) {
            (true, Some(disk)) => (disk, busy),
            (true, None) | (false, _) => return Ok(false),
        }
    };
    // Asked without the lock: of one that is in use for long the disk's other volumes notice nothing.
    if busy.iter().all(|number| matches!(disk.prove_unused(*number), Err(HostError::Busy { .. }))) {
        return Ok(false);
    }
    member.lock().disk()?.take_back()
}

/// Dirty space to zero: what a block volume waits for, else for those to come, where the device cannot do that in no
/// time when they come.
fn next_to_clean(state: &LabelledState, failed: &Extents) -> Option<Extent> {
    if !state.is_usable() {
        return None;
    }
    let dirty = state.content().dirty().minus(failed);
    if let Some(first) = dirty.intersection(state.wanted()).iter().next() {
        return Some(*first);
    }
    let wanted = state.rule.as_ref().is_some_and(|rule| rule.allows(VolumeUsage::Block));
    if !wanted || state.content().geometry.offloads_zeroes {
        return None;
    }
    let first = dirty.iter().next()?;
    let end = first.end.min(first.start.saturating_add(CLEAN_CHUNK) / MIB * MIB);
    Some(Extent { start: first.start, end: if end > first.start { end } else { first.end } })
}

fn erase(member: &LabelledDisk, disk: &Arc<dyn Disk>, work: &EraseWork) -> Result<(), ApplyError> {
    // Once for each chunk, as it would hit what somebody made there since.
    member.lock().disk()?.prove_unchanged()?;
    if let Some(chunk) = work.chunk {
        let zeroed = member.erased.timed(chunk.len(), || zero(&**disk, chunk));
        zeroed.map_err(|e| failed(disk, "erase", chunk, Trace::Possible, e))?;
        let mut state = member.lock();
        // It may be another one by now, whose bytes these are not: the next piece is planned on what is there.
        if Arc::ptr_eq(state.disk()?.disk(), disk) {
            state.disk()?.change(|content| Ok(erase_advanced(content, work, chunk)))?;
        }
        return Ok(());
    }
    if work.policy != ErasePolicy::None {
        prove_erased(&**disk, work.extent, work.policy)
            .map_err(|e| failed(disk, "verify the erasure", work.extent, Trace::Possible, e))?;
    }
    let mut state = member.lock();
    if Arc::ptr_eq(state.disk()?.disk(), disk) {
        state.disk()?.finish_erase(work)?;
        if work.policy != ErasePolicy::None {
            member.erased.volume();
        }
    }
    Ok(())
}

/// The discard is only a hint, and may even bring bytes back on a poor device: samples tell, and then the
/// range is zeroed again and left undiscarded.
pub fn prove_erased(disk: &dyn BlockDevice, extent: Extent, policy: ErasePolicy) -> Result<(), IoError> {
    if policy == ErasePolicy::Discard {
        disk.discard(extent)?;
    }
    if !samples_are_zero(disk, extent)? {
        zero(disk, extent)?;
        if !samples_are_zero(disk, extent)? {
            let source = std::io::Error::other("the range does not read as zeros after it was zeroed");
            return Err(IoError { what: "verify", disk: PathBuf::new(), range: extent, source });
        }
    }
    Ok(())
}

/// Looks at every byte of a short range.
pub fn reads_all_zeros(disk: &dyn BlockDevice, extent: Extent) -> Result<bool, IoError> {
    let mut buf = vec![0; usize::try_from(extent.len()).unwrap_or(0)];
    disk.read_at(extent.start, &mut buf)?;
    Ok(buf.iter().all(|byte| *byte == 0))
}

/// Looks at places spread evenly over the range, its first and its last bytes among them.
pub fn samples_are_zero(disk: &dyn BlockDevice, extent: Extent) -> Result<bool, IoError> {
    let len = SAMPLE_BYTES.min(extent.len());
    let mut buf = vec![0; usize::try_from(len).unwrap_or(0)];
    let room = extent.len() - len;
    for index in 0..SAMPLES {
        let skip = u128::from(room) * u128::from(index) / u128::from(SAMPLES - 1);
        let skip = u64::try_from(skip).unwrap_or(room) / SAMPLE_BYTES * SAMPLE_BYTES;
        disk.read_at(extent.start + skip, &mut buf)?;
        if buf.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// One piece of the zeroing that a caller waits for; false: he has waited long enough, and the worker has the rest.
pub(super) fn zeroed_in_call(
    state: &mut LabelledState,
    dirty: Extents,
    budget: &mut ZeroingBudget,
) -> Result<bool, ApplyError> {
    let Some(first) = dirty.iter().next().copied().filter(|_| !budget.is_over()) else {
        state.want(&dirty);
        return Ok(false);
    };
    budget.has_zeroed(clean(state, first)?);
    Ok(true)
}

/// Zeroes free space for a moment; the label then says how far. Gives how much. Under the lock, as any volume may be
/// made of the space at any time.
pub(super) fn clean(state: &mut LabelledState, extent: Extent) -> Result<u64, ApplyError> {
    state.disk()?.prove_unchanged()?;
    let disk = Arc::clone(state.disk()?.disk());
    let done = zero_for_a_moment(&*disk, extent).map_err(|e| failed(&disk, "clean", extent, Trace::None, e))?;
    state.disk()?.change(|content| {
        let mut clean = content.clean();
        clean.insert(done);
        let mut label = content.pruned_label();
        label.clean = clean.as_slice().to_vec();
        Ok(Plan(vec![Step::Label(Arc::new(label))]))
    })?;
    Ok(done.len())
}

fn failed(disk: &Arc<dyn Disk>, what: &str, extent: Extent, trace: Trace, source: IoError) -> ApplyError {
    let source = Box::new(StepError::Io(source));
    ApplyError::Step { step: format!("{what} bytes {extent}"), disk: disk.path(), trace, source }
}
