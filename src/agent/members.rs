//! Disks of the pool that come and go, with a label or bare: performs what was decided on them (`decide`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::again::Again;
use super::decide::{Labelled, Members, OF_BARE, Owned, indices_of, is_same_device, is_same_node};
use super::known_disks::{know, last_on};
use super::member_problem::{BareProblem, MemberProblem};
use super::open::open;
use super::pass_state::PassState;
use super::reconciler::Reconciler;
use crate::device::{Device, DiskId, Snapshot, label::Hardware};
use crate::host::{RawDisk, SHORT_DEVICE_LOCK_TIMEOUT, chain};
use crate::pool::{ApplyError, BareClaim, BareDevice, Knowledge, Member, Standing, Unasked};

impl Reconciler {
    /// The members, as values to decide on.
    pub(super) fn members(&self) -> Members {
        let labelled = |member: Member| {
            let shown = member.labelled()?.shown();
            Some(Labelled {
                id: member.id().clone(),
                raw: shown.raw.clone(),
                size: shown.content.geometry.size,
                is_usable: member.is_usable(),
                is_missing: shown.standing == Standing::Missing,
            })
        };
        let bare = |(id, _): (DiskId, BareClaim)| {
            let open_as = match self.pool.member(&id) {
                Some(Member::Bare(device)) => device.open_as(),
                Some(Member::Labelled(_) | Member::Filesystem(_)) | None => None,
            };
            (id, open_as)
        };
        Members {
            labelled: self.pool.members().into_iter().filter_map(labelled).collect(),
            bare: self.pool.journal().bare_claims().into_iter().map(bare).collect(),
            hardware: last_on(&self.pool),
        }
    }

    /// The facts that decide to which set each member belongs.
    pub(super) fn owned(&self) -> Vec<Owned> {
        let labelled = |member: Member| {
            let shown = member.labelled()?.shown();
            let (label, content) = (&shown.content.label, &shown.content);
            let is_empty = match &member {
                Member::Filesystem(filesystem) => filesystem.is_empty(),
                Member::Labelled(_) | Member::Bare(_) => {
                    content.volumes().next().is_none() && content.erasing().next().is_none()
                }
            };
            Some(Owned {
                id: member.id().clone(),
                set: label.set.clone(),
                layouts: vec![label.layout.clone()],
                is_ready: member.is_usable(),
                is_writable: shown.is_usable(),
                // What becomes of one that was given up is for a person to say; volumes of an array are on its members.
                is_done_with: label.used && is_empty && !label.given_up && label.layout.member().is_none(),
                rule: shown.rule.clone(),
            })
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
        let labelled = self.pool.members().into_iter().filter_map(labelled);
        let bare = self.pool.bare_devices().into_iter().filter_map(bare);
        labelled.chain(bare).chain(self.owned_filesystems()).collect()
    }

    pub(super) fn meet(&self, pass: &mut PassState, device: &Device, problem: MemberProblem) {
        let unasked = Unasked {
            disk: device.id.clone(),
            why: format!("cannot be opened: {}", problem.message()),
            listed: device.label.iter().flat_map(|label| label.volumes.keys().copied()).collect(),
            knowledge: Knowledge::Part,
        };
        self.meet_as(pass, device, unasked, &problem);
    }

    fn meet_as(&self, pass: &mut PassState, device: &Device, unasked: Unasked, problem: &MemberProblem) {
        let message = problem.message();
        if self.unusable.get(&device.raw.name).is_none_or(|logged| logged != message) {
            tracing::warn!(disk = %device.raw.path.display(), problem = message, "a disk of the pool cannot be used");
        }
        pass.unusable.insert(device.raw.name.clone(), message.to_owned());
        pass.unread.push(unasked);
        pass.problems.insert(device.raw.name.clone(), message.to_owned());
        pass.again.add(Again::Member, matches!(problem, MemberProblem::Passes(_)));
    }

    /// A member whose disk is not there any more lets go of it; what was on it is remembered. False: it is busy with an
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
                self.pool.member(id).iter().for_each(|member| know(&self.pool, member));
                state.leave(Standing::Missing);
                drop(state);
                if let Some(Member::Filesystem(filesystem)) = self.pool.member(id) {
                    filesystem.leave();
                }
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

    /// A disk of the pool is here, and cannot be read: it is not gone, and nobody is sent to what was on it.
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

    /// A disk with our label joins, or comes back, perhaps under another name. `below`: the disks that it is an array of,
    /// which must all be here and in order: md does not know which state of them belongs together.
    pub(super) fn open(&mut self, device: &Device, below: Vec<DiskId>) -> Result<(), MemberProblem> {
        let is_usable = |id: &&DiskId| self.pool.member(id).is_some_and(|member| member.is_usable());
        if let Some(member) = below.iter().find(|id| !is_usable(id)) {
            return Err(MemberProblem::Passes(format!("it is an array, and its member {member} cannot be used")));
        }
        let (pool, host, device) = (Arc::clone(&self.pool), Arc::clone(&self.host), device.clone());
        let name = device.raw.name.clone();
        let opened = self.errands.errand(&device.id.clone(), move || open(&pool, &host, &device));
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
        // A scan that hangs says so sooner.
        if self.memory.discovery.is_waiting_for(raw) {
            return Err(BareProblem::ScanHangs);
        }
        let raw = raw.clone();
        Ok(self.errands.errand(id, move || device.arrive(&raw, whole))??)
    }

    /// Objections to the bare devices that are here.
    pub(super) fn report_bare(&self, snapshot: &Snapshot, pass: &mut PassState) {
        for (id, _) in self.pool.journal().bare_claims() {
            let (Some(at), Some(Member::Bare(bare))) =
                (indices_of(snapshot, &id).first().copied(), self.pool.member(&id))
            else {
                continue;
            };
            if let Standing::NotReady(why) = &bare.shown().standing {
                // It could not be opened or read, and no event announces when it can. A dispute waits for a person.
                pass.again.add(Again::Member, !bare.is_disputed());
                pass.problems.insert(snapshot.devices[at].raw.name.clone(), why.clone());
            }
        }
    }
}
