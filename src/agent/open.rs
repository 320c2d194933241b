//! A disk with our label is opened, and joins the pool or comes back to it, perhaps under another name.
//!
//! Takes in the device as the scan has it; what its label must say from now on is written before anybody uses the disk.

use std::sync::Arc;

use super::member_problem::MemberProblem;
use crate::device::{
    Device, DiskId,
    duplicate::stable_hardware_id,
    label::{Hardware, Label},
};
use crate::host::{Access, Host, RawDisk, SHORT_DEVICE_LOCK_TIMEOUT, chain};
use crate::pool::{ApplyError, Carrier, LabelledDisk, Member, Opened, Pool, PoolDisk, PoolFilesystem, relabel};

/// Opens a disk with our label and the filesystem that it may carry, and lets it join.
pub(super) fn open(pool: &Pool, host: &Arc<dyn Host>, device: &Device) -> Result<(), MemberProblem> {
    let Some(label) = &device.label else { return Err(MemberProblem::Stays("it has no label".to_owned())) };
    let known = pool.labelled_disk(&device.id);
    let lock = |member: &'_ LabelledDisk, why: &str| {
        let locked = member.lock_within(SHORT_DEVICE_LOCK_TIMEOUT).map_err(|e| MemberProblem::of(&e));
        locked.map(|mut state| state.arrive_unusable(device.raw.clone(), why.to_owned()))
    };
    if let Some(member) = &known {
        // The old handle's flock would keep the new one from mending the tables.
        lock(member, "it is being opened again")?;
    }
    let opened = host.open(&device.raw, Access::Own);
    let opened = opened.map_err(|e| MemberProblem::of(&e));
    let last_seen = pool.journal().last_seen(&device.id);
    let opened = opened.and_then(|disk| {
        PoolDisk::open(disk, label.disk, pool.owner(), &last_seen).map_err(|e| MemberProblem::of_opening(&e))
    });
    let opened = opened.and_then(|opened| with_its_hardware(opened, &device.raw).map_err(|e| MemberProblem::of(&e)));
    let opened = opened.and_then(|opened| mark_given_up(opened, pool, &device.id).map_err(|e| MemberProblem::of(&e)));
    let opened = match opened {
        Ok(Opened::Ours(opened)) => opened,
        Ok(Opened::Blank) => {
            tracing::info!(disk = %device.raw.path.display(), "ended a claim or release that was interrupted");
            return Ok(());
        }
        Err(problem) => {
            if let Some(member) = &known {
                lock(member, problem.message())?;
            }
            return Err(problem);
        }
    };
    match known {
        Some(member) => member.lock().arrive(device.raw.clone(), opened),
        None => {
            let disk = LabelledDisk::new(device.id.clone(), device.raw.clone(), opened, None);
            pool.join(member(disk, host));
        }
    }
    if let Some(Member::Filesystem(filesystem)) = pool.member(&device.id) {
        filesystem.arrive(pool.owner(), &last_seen).map_err(|error| match error.retryable() {
            true => MemberProblem::of(&error),
            false => MemberProblem::Stays(chain(&error)),
        })?;
    }
    tracing::info!(disk = %device.id, path = %device.raw.path.display(), "a disk of the pool is here");
    Ok(())
}

/// A disk with our label as the member that its layout says. A filesystem on it is not open yet.
pub(super) fn member(disk: LabelledDisk, host: &Arc<dyn Host>) -> Member {
    let is_directory = disk.shown().content.label.layout.is_directory();
    let disk = Arc::new(disk);
    match is_directory {
        true => Member::Filesystem(Arc::new(PoolFilesystem::new(Carrier::Disk(disk), Arc::clone(host)))),
        false => Member::Labelled(disk),
    }
}

/// The label names the hardware that the disk is on, from its first day there: that which it was copied from may come
/// back, as it was then, and would be believed where both labels name it.
fn with_its_hardware(opened: Opened, raw: &RawDisk) -> Result<Opened, ApplyError> {
    let Opened::Ours(mut disk) = opened else { return Ok(opened) };
    if let Some(id) = stable_hardware_id(raw).filter(|id| *id != disk.content().label.hardware.id) {
        tracing::info!(disk = %raw.path.display(), was = disk.content().label.hardware.id.as_str(), hardware = id.as_str(), "the disk is on other hardware");
        let hardware = Hardware::of(id, raw);
        disk.change(|content| Ok(relabel(Label { hardware, ..content.pruned_label() })))?;
    }
    Ok(Opened::Ours(disk))
}

/// From here on the label of a disk that was given up says so: that outlasts the journal.
fn mark_given_up(opened: Opened, pool: &Pool, id: &DiskId) -> Result<Opened, ApplyError> {
    let Opened::Ours(mut disk) = opened else { return Ok(opened) };
    if pool.journal().is_to_be_held(id) && !disk.content().label.given_up {
        tracing::warn!(disk = %id, "a disk that was given up is back: it is held until a person adopts it");
        disk.change(|content| Ok(relabel(Label { given_up: true, ..content.pruned_label() })))?;
    }
    Ok(Opened::Ours(disk))
}
