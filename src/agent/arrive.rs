//! Disks of the pool that are here, or not any more: with a label, or bare with a claim in the journal.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Reconciler, is_same_device};
use crate::device::discovery::Snapshot;
use crate::device::duplicate::hardware;
use crate::device::label::{Hardware, Label};
use crate::device::{self, Device};
use crate::host::patience::PatienceError;
use crate::host::{Access, Host, RawDisk, chain};
use crate::pool::bare::BareDevice;
use crate::pool::device_pool::Pool;
use crate::pool::disk::{ApplyError, Opened, PoolDisk};
use crate::pool::labelled::{LabelledDisk, SHORT_PATIENCE, Standing};
use crate::pool::member::Member;
use crate::pool::plan::relabel;

/// Why a disk with our label cannot be used now.
#[derive(Debug)]
pub(super) enum Problem {
    /// Until an event of a disk says that something has changed.
    Stays(String),
    /// It failed, or somebody holds it, and no event tells when that is over.
    Passes(String),
}

impl Problem {
    fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Passes(chain(error))
    }

    fn of_opening(error: &ApplyError) -> Self {
        match error {
            ApplyError::Earlier { .. } => Self::Stays(error.to_string()),
            _ => Self::of(error),
        }
    }

    pub(super) fn words(&self) -> &str {
        let (Self::Stays(why) | Self::Passes(why)) = self;
        why
    }
}

impl Reconciler {
    /// Members whose disk is not there any more let go of it; what they held is remembered. False: one is busy with an
    /// operation that does not end, and is left for later.
    pub(super) fn depart(&self, set: &Snapshot) -> bool {
        // One whose claim has just ended is seen by the next pass.
        let is_here = |id: &str, raw: &RawDisk| {
            self.is_being_claimed(&raw.name) || set.devices.iter().any(|device| is_same_device(device, id, raw))
        };
        let mut all = true;
        for member in self.pool.labelled_disks() {
            let shown = member.shown();
            if shown.standing == Standing::Missing || is_here(&member.id, &shown.raw) {
                continue;
            }
            match member.lock_within(SHORT_PATIENCE) {
                Ok(mut state) if !is_here(&member.id, &state.raw) => {
                    tracing::warn!(disk = %member.id, path = %state.raw.path.display(), "a disk of the pool is gone");
                    // What was deleted there since the last pass is not waited for.
                    self.know(&member);
                    state.leave(Standing::Missing);
                }
                Ok(_) => {}
                Err(stuck) => {
                    tracing::warn!(disk = %member.id, error = %chain(&stuck), "a disk of the pool is gone, and in use");
                    all = false;
                }
            }
        }
        all
    }

    /// A disk with our label joins, or comes back, perhaps under another name.
    pub(super) fn arrive(&mut self, device: &Device) -> Result<(), Problem> {
        let known = self.pool.labelled_disk(&device.id.text);
        if let device::Standing::NotReady(why) = &device.standing {
            if let Some(member) = known {
                let mut state = member.lock_within(SHORT_PATIENCE).map_err(|e| Problem::of(&e))?;
                if is_same_device(device, &member.id, &state.raw) {
                    state.leave(Standing::NotReady(why.clone()));
                }
            }
            return Err(Problem::Stays(why.clone()));
        }
        if let Some(member) = &known {
            let shown = member.shown();
            let same_size = shown.content.geometry.size == device.raw.size;
            if shown.is_usable() && same_size && is_same_device(device, &member.id, &shown.raw) {
                return Ok(());
            }
        }
        let (pool, host, device) = (Arc::clone(&self.pool), Arc::clone(&self.host), device.clone());
        let name = device.raw.name.clone();
        let opened = self.errand(&device.id.text.clone(), move || open(&pool, &*host, &device));
        // Its label may be another one now.
        self.discovery.changed(&name);
        opened.unwrap_or_else(|hangs| Err(Problem::of(&hangs)))
    }

    /// Bare devices of the journal that are here, and those that are not. One that hangs or fails is left for later; gives
    /// whether there is one.
    pub(super) fn arrive_bare(&mut self, set: &Snapshot, problems: &mut BTreeMap<String, String>) -> bool {
        let mut again = false;
        for (id, _) in self.pool.journal().bare_claims() {
            let is_it = |device: &&Device| self.pool.bare_claim_of(set, device).is_some_and(|(bare, _)| bare == id);
            let mut here = set.devices.iter().filter(is_it);
            let (device, twin) = (here.next(), here.next());
            let member = match self.pool.member(&id) {
                Some(Member::Bare(member)) => member,
                // A volume whose device is away since the start is missed, too.
                _ => {
                    let journal = Arc::clone(self.pool.journal());
                    let member = Arc::new(BareDevice::new(id.clone(), Arc::clone(&self.host), journal));
                    self.pool.join(Member::Bare(Arc::clone(&member)));
                    member
                }
            };
            match (device, twin) {
                (Some(device), None) if member.is_open_as(&device.raw) => {}
                (Some(device), None) => {
                    // A look that hangs says so sooner.
                    let arrived = match self.discovery.is_waiting_for(&device.raw) {
                        true => Err("opening or reading it hangs".to_owned()),
                        false => {
                            let (member, raw) = (Arc::clone(&member), device.raw.clone());
                            let arrived = self.errand(&id, move || member.arrive(&raw).map_err(|e| chain(&e)));
                            arrived.unwrap_or_else(|hangs| Err(chain(&hangs)))
                        }
                    };
                    if let Err(why) = arrived {
                        again = true;
                        problems.insert(device.raw.name.clone(), why);
                    }
                }
                (Some(_), Some(_)) | (None, _) => again |= member.leave().is_err(),
            }
            if let (Some(device), Standing::NotReady(why)) = (device, &member.shown().standing) {
                // It could not be opened or read, and no event tells when it can. A dispute waits for a person.
                again |= !member.is_disputed();
                problems.insert(device.raw.name.clone(), why.clone());
            }
        }
        again
    }

    /// Work on one disk of the pool: what hangs there is left behind, goes on when it can, and makes a pass due then.
    pub(in crate::agent) fn errand<T: Send + 'static>(
        &mut self,
        disk: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PatienceError> {
        let pool = Arc::clone(&self.pool);
        self.errands.errand(&disk.to_owned(), work, move || pool.nudge())
    }
}

/// The label names the hardware that the disk is on, from its first day there: that which it was copied from may come
/// back, as it was then, and would be believed where both labels name it.
fn with_its_hardware(opened: Opened, raw: &RawDisk) -> Result<Opened, ApplyError> {
    let Opened::Ours(mut disk) = opened else { return Ok(opened) };
    if let Some(id) = hardware(raw).filter(|id| *id != disk.content().label.hardware.id) {
        tracing::info!(disk = %raw.path.display(), was = disk.content().label.hardware.id, hardware = id, "the disk is on other hardware");
        let hardware = Hardware { id, model: raw.model.clone(), serial: raw.serial.clone() };
        disk.change(|content| Ok(relabel(Label { hardware, ..content.pruned_label() })))?;
    }
    Ok(Opened::Ours(disk))
}

/// Opens a disk with our label, and lets it join.
fn open(pool: &Pool, host: &dyn Host, device: &Device) -> Result<(), Problem> {
    let known = pool.labelled_disk(&device.id.text);
    let lock = |member: &'_ LabelledDisk, standing| {
        let locked = member.lock_within(SHORT_PATIENCE).map_err(|e| Problem::of(&e));
        locked.map(|mut state| state.leave(standing))
    };
    if let Some(member) = &known {
        // The old handle's flock would keep the new one from mending the tables.
        lock(member, Standing::NotReady("it is being opened again".to_owned()))?;
    }
    let opened = host.open(&device.raw, Access::Own);
    let opened = opened.map_err(|e| Problem::of(&e));
    let seen = pool.journal().seen(&device.id.text);
    let opened = opened.and_then(|disk| PoolDisk::open(disk, pool.owner(), &seen).map_err(|e| Problem::of_opening(&e)));
    let opened = opened.and_then(|opened| with_its_hardware(opened, &device.raw).map_err(|e| Problem::of(&e)));
    let opened = match opened {
        Ok(Opened::Ours(opened)) => opened,
        Ok(Opened::Blank) => {
            tracing::info!(disk = %device.raw.path.display(), "ended a claim or release that was stopped half way");
            return Ok(());
        }
        Err(problem) => {
            if let Some(member) = &known {
                lock(member, Standing::NotReady(problem.words().to_owned()))?;
            }
            return Err(problem);
        }
    };
    match known {
        Some(member) => member.lock().arrive(device.raw.clone(), opened),
        None => {
            let member = LabelledDisk::new(device.id.text.clone(), device.raw.clone(), opened, None);
            pool.join(Member::Labelled(Arc::new(member)));
        }
    }
    tracing::info!(disk = %device.id, path = %device.raw.path.display(), "a disk of the pool is here");
    Ok(())
}
