//! Disks of the pool that are here, or not any more: with a label, or bare with a claim in the journal.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Agent, is_same_device};
use crate::device::discovery::DeviceSet;
use crate::device::{self, Device};
use crate::host::{Access, HostError, chain};
use crate::pool::apply::disk::{Opened, PoolDisk};
use crate::pool::apply::member::{Member, Standing};
use crate::pool::apply::raw::RawMember;
use crate::pool::apply::seat::Seat;

/// Why a disk with our label cannot be used now.
#[derive(Debug)]
pub(super) enum Problem {
    /// Until an event of a disk says that something has changed.
    Stays(String),
    /// Somebody holds it, and no event tells when that is over.
    Passes(String),
}

impl Problem {
    fn of(error: &(dyn std::error::Error + 'static), passes: bool) -> Self {
        let why = chain(error);
        if passes { Self::Passes(why) } else { Self::Stays(why) }
    }

    pub(super) fn words(&self) -> &str {
        let (Self::Stays(why) | Self::Passes(why)) = self;
        why
    }
}

impl Agent {
    /// Members whose disk is not there any more let go of it; what they held is remembered.
    pub(super) fn depart(&self, set: &DeviceSet) {
        for member in self.pool.members() {
            let state = member.lock();
            let here = set.devices.iter().any(|device| is_same_device(device, &member.id, &state.raw));
            if !here && state.standing() != Standing::Missing {
                tracing::warn!(disk = %member.id, path = %state.raw.path.display(), "a disk of the pool is gone");
                drop(state);
                // What was deleted there since the last pass is not waited for.
                self.know(&member);
                member.lock().leave(Standing::Missing);
            }
        }
    }

    /// A disk with our label joins, or comes back, perhaps under another name.
    pub(super) fn arrive(&self, device: &Device) -> Result<(), Problem> {
        let known = self.pool.member(&device.id.text);
        if let device::Standing::NotReady(why) = &device.standing {
            if let Some(member) = known {
                let mut state = member.lock();
                if is_same_device(device, &member.id, &state.raw) {
                    state.leave(Standing::NotReady(why.clone()));
                }
            }
            return Err(Problem::Stays(why.clone()));
        }
        if let Some(member) = &known {
            let mut state = member.lock();
            let same_size = state.content().geometry.size == device.raw.size;
            if state.is_usable() && same_size && is_same_device(device, &member.id, &state.raw) {
                return Ok(());
            }
            // The old handle's flock would keep the new one from mending the tables.
            state.leave(Standing::NotReady("it is being opened again".to_owned()));
        }
        let opened = self.host.open(&device.raw, Access::Own);
        let opened = opened.map_err(|e| Problem::of(&e, matches!(e, HostError::Busy { .. })));
        let opened = opened.and_then(|disk| {
            PoolDisk::open(disk, self.pool.owner()).map_err(|e| Problem::of(&e, e.is_locked() || e.is_busy()))
        });
        let opened = match opened.inspect_err(|problem| not_ready(known.as_deref(), problem.words()))? {
            Opened::Ours(opened) => opened,
            Opened::Blank => {
                tracing::info!(disk = %device.raw.path.display(), "ended a claim or release that was stopped half way");
                return Ok(());
            }
        };
        match known {
            Some(member) => member.lock().arrive(device.raw.clone(), opened),
            None => {
                let member = Member::new(device.id.text.clone(), device.raw.clone(), opened, None);
                self.pool.join(Seat::Labelled(Arc::new(member)));
            }
        }
        tracing::info!(disk = %device.id, path = %device.raw.path.display(), "a disk of the pool is here");
        Ok(())
    }

    /// Bare devices of the journal that are here, and those that are not.
    pub(super) fn arrive_raw(&self, set: &DeviceSet, problems: &mut BTreeMap<String, String>) {
        for (id, _) in self.pool.journal().raw_claims() {
            let is_it = |device: &&Device| self.pool.bare_claim_of(set, device).is_some_and(|(bare, _)| bare == id);
            let mut here = set.devices.iter().filter(is_it);
            let (device, twin) = (here.next(), here.next());
            let seat = match self.pool.seat(&id) {
                Some(Seat::Raw(member)) => member,
                // A volume whose device is away since the start is missed, too.
                _ => {
                    let journal = Arc::clone(self.pool.journal());
                    let member = Arc::new(RawMember::new(id.clone(), Arc::clone(&self.host), journal));
                    self.pool.join(Seat::Raw(Arc::clone(&member)));
                    member
                }
            };
            match (device, twin) {
                (Some(device), None) => seat.arrive(&device.raw),
                (Some(_), Some(_)) | (None, _) => seat.leave(),
            }
            if let (Some(device), Standing::NotReady(why)) = (device, &seat.lock().standing) {
                problems.insert(device.raw.name.clone(), why.clone());
            }
        }
    }
}

/// A member whose disk is here but could not be opened says why.
fn not_ready(member: Option<&Member>, why: &str) {
    if let Some(member) = member {
        member.lock().leave(Standing::NotReady(why.to_owned()));
    }
}
