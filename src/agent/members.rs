//! Disks of the pool that come and go, with a label or bare: performs what was decided on them (`decide`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::decide::{Labelled, Members, OF_BARE, Owned, is_same_device, is_same_node, places_of};
use super::pass_state::PassState;
use super::reconciler::Reconciler;
use crate::device::{
    Device, DiskId, Snapshot,
    duplicate::stable_hardware_id,
    label::{Hardware, Label},
};
use crate::host::{
    Access, Host, RawDisk, SHORT_DEVICE_LOCK_TIMEOUT, chain,
    timeout::{Late, TimeoutError},
};
use crate::pool::{
    ApplyError, BareClaim, BareDevice, BareError, ErrandKey, Knowledge, LabelledDisk, Member, Opened, Pool, PoolDisk,
    Standing, Unasked, relabel,
};

/// Why a disk with our label cannot be used now.
#[derive(Debug)]
pub(super) enum MemberProblem {
    /// Until an event of a disk says that something has changed.
    Stays(String),
    /// It failed, or somebody holds it, and no event tells when that is over.
    Passes(String),
}

/// Why a bare device cannot be used now.
#[derive(Debug, thiserror::Error)]
pub(super) enum BareProblem {
    #[error("opening or reading it hangs")]
    LookHangs,
    #[error(transparent)]
    Hangs(#[from] TimeoutError),
    #[error(transparent)]
    Device(#[from] BareError),
}

impl BareProblem {
    /// Whether the next pass may open it. No event says when.
    pub(super) fn retryable(&self) -> bool {
        match self {
            Self::LookHangs | Self::Hangs(_) => true,
            Self::Device(error) => error.retryable(),
        }
    }
}

impl MemberProblem {
    fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Passes(chain(error))
    }

    fn of_opening(error: &ApplyError) -> Self {
        match error.retryable() {
            true => Self::of(error),
            false => Self::Stays(chain(error)),
        }
    }

    pub(super) fn words(&self) -> &str {
        let (Self::Stays(why) | Self::Passes(why)) = self;
        why
    }
}

impl Reconciler {
    /// What is decided on.
    pub(super) fn members(&self) -> Members {
        let labelled = |member: Arc<LabelledDisk>| {
            let shown = member.shown();
            Labelled {
                id: member.id.clone(),
                raw: shown.raw.clone(),
                size: shown.content.geometry.size,
                is_usable: shown.is_usable(),
                is_missing: shown.standing == Standing::Missing,
            }
        };
        let bare = |(id, _): (DiskId, BareClaim)| {
            let open_as = match self.pool.member(&id) {
                Some(Member::Bare(device)) => device.open_as(),
                Some(Member::Labelled(_)) | None => None,
            };
            (id, open_as)
        };
        Members {
            labelled: self.pool.labelled_disks().into_iter().map(labelled).collect(),
            bare: self.pool.journal().bare_claims().into_iter().map(bare).collect(),
            hardware: self.last_on(),
        }
    }

    /// What it matters of them whose they are.
    pub(super) fn owned(&self) -> Vec<Owned> {
        let labelled = |member: Arc<LabelledDisk>| {
            let shown = member.shown();
            let (label, content) = (&shown.content.label, &shown.content);
            let is_empty = content.volumes().next().is_none() && content.erasing().next().is_none();
            Owned {
                id: member.id.clone(),
                set: label.set.clone(),
                layouts: vec![label.layout.clone()],
                is_ready: shown.is_usable(),
                is_writable: shown.is_usable(),
                // What becomes of one that was given up is for a person to say.
                is_done_with: label.used && is_empty && !label.given_up,
                rule: shown.rule.clone(),
            }
        };
        let bare = |member: Arc<BareDevice>| {
            let claim = self.pool.journal().bare_claim(&member.id)?;
            let shown = member.shown();
            Some(Owned {
                id: member.id.clone(),
                set: claim.set,
                layouts: OF_BARE.to_vec(),
                is_ready: shown.standing == Standing::Ready && self.pool.journal().is_undisputed(&member.id),
                is_writable: true,
                is_done_with: claim.used && claim.volume.is_none() && claim.erasing.is_none(),
                rule: shown.rule.clone(),
            })
        };
        let labelled = self.pool.labelled_disks().into_iter().map(labelled);
        labelled.chain(self.pool.bare_devices().into_iter().filter_map(bare)).collect()
    }

    pub(super) fn meet(&self, pass: &mut PassState, device: &Device, problem: MemberProblem) {
        let unasked = Unasked {
            disk: device.id.clone(),
            why: format!("cannot be opened: {}", problem.words()),
            listed: device.label.iter().flat_map(|label| label.volumes.keys().copied()).collect(),
            knowledge: Knowledge::Part,
        };
        self.meet_as(pass, device, unasked, &problem);
    }

    fn meet_as(&self, pass: &mut PassState, device: &Device, unasked: Unasked, problem: &MemberProblem) {
        let words = problem.words();
        if self.unusable.get(&device.raw.name).is_none_or(|logged| logged != words) {
            tracing::warn!(disk = %device.raw.path.display(), problem = words, "a disk of the pool cannot be used");
        }
        pass.unusable.insert(device.raw.name.clone(), words.to_owned());
        pass.unread.push(unasked);
        pass.problems.insert(device.raw.name.clone(), words.to_owned());
        pass.again |= matches!(problem, MemberProblem::Passes(_));
    }

    /// A member whose disk is not there any more lets go of it; what it held is remembered. False: it is busy with an
    /// operation that does not end, and is left for later.
    pub(super) fn leave(&self, id: &DiskId, snapshot: &Snapshot) -> bool {
        let Some(member) = self.pool.labelled_disk(id) else { return true };
        let is_it = |device: &Device, raw: &RawDisk| {
            is_same_device(device, id, raw) || device.unread.is_some() && is_same_node(device, raw)
        };
        let is_here = |raw: &RawDisk| snapshot.devices.iter().any(|device| is_it(device, raw));
        match member.lock_within(SHORT_DEVICE_LOCK_TIMEOUT) {
            Ok(mut state) if !is_here(&state.raw) => {
                tracing::warn!(disk = %member.id, path = %state.raw.path.display(), "a disk of the pool is gone");
                // What was deleted there since the last pass is not waited for.
                self.know(&member);
                state.leave(Standing::Missing);
                true
            }
            Ok(_) => true,
            Err(stuck) => {
                tracing::warn!(disk = %member.id, error = %chain(&stuck), "a disk of the pool is gone, and in use");
                false
            }
        }
    }

    /// A disk with our label that must not be used: if it is open, it is not any more.
    pub(super) fn withhold(&self, device: &Device, why: String) -> MemberProblem {
        if let Some(member) = self.pool.labelled_disk(&device.id) {
            let mut state = match member.lock_within(SHORT_DEVICE_LOCK_TIMEOUT) {
                Ok(state) => state,
                Err(stuck) => return MemberProblem::of(&stuck),
            };
            if is_same_device(device, &member.id, &state.raw) {
                state.leave(Standing::NotReady(why.clone()));
            }
        }
        MemberProblem::Stays(why)
    }

    /// A disk of the pool is here, and cannot be read: it is not gone, and nobody is sent to what it held.
    pub(super) fn withhold_unread(&mut self, pass: &mut PassState, id: &DiskId, device: &Device, why: &str) {
        let member = self.pool.labelled_disk(id);
        let withheld = member.as_ref().map(|member| {
            let mut state = member.lock_within(SHORT_DEVICE_LOCK_TIMEOUT)?;
            state.arrive_unusable(device.raw.clone(), why.to_owned());
            Ok::<(), ApplyError>(())
        });
        let unasked = Unasked {
            disk: id.clone(),
            why: format!("is here, as {}, and {why}", device.raw.path.display()),
            listed: BTreeSet::new(),
            knowledge: Knowledge::Part,
        };
        let problem = match withheld {
            Some(Err(stuck)) => MemberProblem::of(&stuck),
            Some(Ok(())) | None => MemberProblem::Passes(why.to_owned()),
        };
        self.meet_as(pass, device, unasked, &problem);
    }

    /// A disk with our label joins, or comes back, perhaps under another name.
    pub(super) fn open(&mut self, device: &Device) -> Result<(), MemberProblem> {
        let (pool, host, device) = (Arc::clone(&self.pool), Arc::clone(&self.host), device.clone());
        let name = device.raw.name.clone();
        let opened = self.errand(&device.id.clone(), move || open(&pool, &*host, &device));
        // Its label may be another one now.
        self.memory.discovery.changed(&name);
        opened.unwrap_or_else(|hangs| Err(MemberProblem::of(&hangs)))
    }

    /// The bare device of a claim; one whose device is away since the start is missed, too.
    pub(super) fn bare(&self, id: &DiskId) -> Arc<BareDevice> {
        if let Some(Member::Bare(device)) = self.pool.member(id) {
            return device;
        }
        let device = BareDevice::new(id.clone(), Arc::clone(&self.host), Arc::clone(self.pool.journal()));
        let device = Arc::new(device);
        self.pool.join(Member::Bare(Arc::clone(&device)));
        device
    }

    pub(super) fn open_bare(&mut self, id: &DiskId, raw: &RawDisk, whole: Option<Hardware>) -> Result<(), BareProblem> {
        let device = self.bare(id);
        // A look that hangs says so sooner.
        if self.memory.discovery.is_waiting_for(raw) {
            return Err(BareProblem::LookHangs);
        }
        let raw = raw.clone();
        Ok(self.errand(id, move || device.arrive(&raw, whole))??)
    }

    /// What stands against the bare devices that are here.
    pub(super) fn report_bare(&self, snapshot: &Snapshot, pass: &mut PassState) {
        for (id, _) in self.pool.journal().bare_claims() {
            let (Some(at), Some(Member::Bare(bare))) =
                (places_of(snapshot, &id).first().copied(), self.pool.member(&id))
            else {
                continue;
            };
            if let Standing::NotReady(why) = &bare.shown().standing {
                // It could not be opened or read, and no event tells when it can. A dispute waits for a person.
                pass.again |= !bare.is_disputed();
                pass.problems.insert(snapshot.devices[at].raw.name.clone(), why.clone());
            }
        }
    }

    /// Work on one disk of the pool: what hangs there is left behind, goes on when it can, and makes a pass due then.
    pub(in crate::agent) fn errand<T: Send + 'static>(
        &mut self,
        on: impl Into<ErrandKey>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TimeoutError> {
        let pool = Arc::clone(&self.pool);
        self.errands.errand(&on.into(), work, move || pool.nudge())
    }

    /// The same for what was decided for this pass alone: by the next one the order may be taken back, or the disk be
    /// somebody else's. It does not begin to write once it is late.
    pub(in crate::agent) fn errand_now<T: Send + 'static>(
        &mut self,
        on: impl Into<ErrandKey>,
        work: impl FnOnce(&Late) -> T + Send + 'static,
    ) -> Result<T, TimeoutError> {
        let late = Late::default();
        let shared = late.clone();
        let done = self.errand(on, move || work(&shared));
        if done.is_err() {
            late.set();
        }
        done
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
fn held(opened: Opened, pool: &Pool, id: &DiskId) -> Result<Opened, ApplyError> {
    let Opened::Ours(mut disk) = opened else { return Ok(opened) };
    if pool.journal().is_to_be_held(id) && !disk.content().label.given_up {
        tracing::warn!(disk = %id, "a disk that was given up is back: it is held until a person adopts it");
        disk.change(|content| Ok(relabel(Label { given_up: true, ..content.pruned_label() })))?;
    }
    Ok(Opened::Ours(disk))
}

/// Opens a disk with our label, and lets it join.
fn open(pool: &Pool, host: &dyn Host, device: &Device) -> Result<(), MemberProblem> {
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
    let opened = opened.and_then(|opened| held(opened, pool, &device.id).map_err(|e| MemberProblem::of(&e)));
    let opened = match opened {
        Ok(Opened::Ours(opened)) => opened,
        Ok(Opened::Blank) => {
            tracing::info!(disk = %device.raw.path.display(), "ended a claim or release that was interrupted");
            return Ok(());
        }
        Err(problem) => {
            if let Some(member) = &known {
                lock(member, problem.words())?;
            }
            return Err(problem);
        }
    };
    match known {
        Some(member) => member.lock().arrive(device.raw.clone(), opened),
        None => {
            let member = LabelledDisk::new(device.id.clone(), device.raw.clone(), opened, None);
            pool.join(Member::Labelled(Arc::new(member)));
        }
    }
    tracing::info!(disk = %device.id, path = %device.raw.path.display(), "a disk of the pool is here");
    Ok(())
}
