//! All disks of this node's pool: they join and part, and are looked at. The verbs of volumes are in `create` and
//! `change`, where a volume is in `whereabouts`. Every call blocks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::arrays::ArrayProblems;
use super::background::{Background, Workers};
use super::bare::BareDevice;
use super::cordon::{Cordon, Cordons};
use super::error::PoolError;
use super::filesystem::PoolFilesystem;
use super::journal::{BareClaim, KnownDisk};
use super::journal_store::JournalStore;
use super::labelled::LabelledDisk;
use super::member::Member;
use super::view::{DiskView, Standing, Unasked};
use crate::device::{Device, DiskId, Owner, Reason, Snapshot, Verdict, id};
use crate::host::{Host, RawDisk, chain};

/// The pool of one node.
pub struct Pool {
    owner: Owner,
    members: RwLock<BTreeMap<DiskId, Member>>,
    journal: Arc<JournalStore>,
    background: Background,
    cordons: Cordons,
    array_problems: ArrayProblems,
    /// What persons reserve of disks, in bytes.
    reserved: RwLock<BTreeMap<DiskId, u64>>,
    /// A pass has looked at the machine, and what it could not open.
    scanned: AtomicBool,
    unread: RwLock<Vec<Unasked>>,
}

impl Pool {
    /// Reads the journal. Of a damaged one all is refused that only it could tell.
    pub fn open(host: Arc<dyn Host>, owner: Owner, workers: Workers) -> Result<Self, PoolError> {
        let journal = Arc::new(JournalStore::open(host)?);
        Ok(Self {
            owner,
            members: RwLock::default(),
            journal,
            background: Background::new(workers),
            cordons: Cordons::default(),
            array_problems: ArrayProblems::default(),
            reserved: RwLock::default(),
            scanned: AtomicBool::default(),
            unread: RwLock::default(),
        })
    }

    pub fn journal(&self) -> &Arc<JournalStore> {
        &self.journal
    }

    /// Which disks take no new volumes.
    pub fn cordons(&self) -> &Cordons {
        &self.cordons
    }

    pub fn array_problems(&self) -> &ArrayProblems {
        &self.array_problems
    }

    /// Why a member takes no new volumes; `None`: it takes some.
    pub fn cordon(&self, member: &Member) -> Option<Cordon> {
        member.cordon().or_else(|| self.cordons.of(member.id()))
    }

    /// All that persons reserve of disks, in bytes: of other disks their sets say it. Gives whether anything is another
    /// one now.
    pub fn reserve(&self, chosen: BTreeMap<DiskId, u64>) -> bool {
        let mut reserved = self.reserved.write().unwrap_or_else(PoisonError::into_inner);
        let is_other = *reserved != chosen;
        *reserved = chosen;
        for member in self.members() {
            // The entry of a named filesystem has its own.
            if let Member::Filesystem(filesystem) = member
                && filesystem.carrier.mount().is_none()
            {
                filesystem.reserve(reserved.get(&filesystem.id).copied());
            }
        }
        is_other
    }

    pub(super) fn background(&self) -> &Background {
        &self.background
    }

    /// Who keeps the pool wants to know when background work has ended or a disk has failed.
    pub fn on_nudge(&self, nudge: impl Fn() + Send + Sync + 'static) {
        self.background.on_nudge(nudge);
    }

    /// A pass is due: something changed without a device event.
    pub fn nudge(&self) {
        self.background.nudge();
    }

    /// Starts a worker on each disk that has background work and none at it.
    pub fn kick(&self) {
        self.members().iter().for_each(|member| self.background.give(member));
    }

    /// Whether background work failed on a disk that is here.
    pub fn has_failed_work(&self) -> bool {
        self.background.has_failed(|disk| self.member(disk).is_some_and(|member| member.is_usable()))
    }

    /// Whether a filesystem that has to be mounted for the node is not. No event says when it can be.
    pub fn lacks_host_mount(&self) -> bool {
        self.members().iter().any(|member| match member {
            Member::Filesystem(filesystem) => filesystem.lacks_host_mount(),
            Member::Labelled(_) | Member::Bare(_) => false,
        })
    }

    /// What background work failed in when it was last tried on a disk.
    pub fn failure(&self, disk: &DiskId) -> Option<String> {
        self.background.failure(disk)
    }

    /// Ends background work, see [`Background::stop`].
    pub fn stop(&self) {
        self.background.stop(|| self.members());
    }

    /// Does all background work here and now.
    #[cfg(any(test, feature = "testing"))]
    pub fn work_until_idle(&self) -> Result<(), PoolError> {
        self.members().iter().try_for_each(super::background::work_until_idle)
    }

    /// Gives a disk without volumes back: it is blank afterwards, and stays unclaimed.
    pub fn release(&self, member: &Member) -> Result<(), PoolError> {
        if let Member::Filesystem(filesystem) = member {
            match filesystem.carrier.mount() {
                Some(_) => filesystem.release_mounted(&self.journal)?,
                None => filesystem.prepare_release()?,
            }
        }
        match member.labelled() {
            Some(member) => {
                let mut state = member.lock_in_time()?;
                // As it is called when it is blank: another bus or firmware than it was claimed on may call it
                // otherwise.
                let hardware = id::hardware_id(&state.raw, None);
                let disk = state.disk()?;
                disk.can_release()?;
                self.journal.release_labelled(hardware, &member.id)?;
                disk.release()?;
                // A scan may have come in between.
                if let Err(error) = self.journal.forget(&member.id) {
                    tracing::warn!(disk = %member.id, error = %chain(&error), "the disk was released, but will be reported as missing after a restart");
                }
            }
            None => {
                if let Member::Bare(member) = member {
                    member.release()?;
                }
            }
        }
        self.part(member.id());
        Ok(())
    }

    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// All members, in the order of their ids.
    pub fn members(&self) -> Vec<Member> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub fn member(&self, id: &DiskId) -> Option<Member> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// The disks with our label, those with a filesystem of the pool as well.
    pub fn labelled_disks(&self) -> Vec<Arc<LabelledDisk>> {
        self.members().iter().filter_map(Member::labelled).cloned().collect()
    }

    /// The filesystems that an administrator mounted and named.
    pub fn mounted_filesystems(&self) -> Vec<Arc<PoolFilesystem>> {
        let mounted = |member| match member {
            Member::Filesystem(filesystem) => filesystem.carrier.mount().is_some().then_some(filesystem),
            Member::Labelled(_) | Member::Bare(_) => None,
        };
        self.members().into_iter().filter_map(mounted).collect()
    }

    /// The bare devices.
    pub fn bare_devices(&self) -> Vec<Arc<BareDevice>> {
        let bare = |member| match member {
            Member::Labelled(_) | Member::Filesystem(_) => None,
            Member::Bare(member) => Some(member),
        };
        self.members().into_iter().filter_map(bare).collect()
    }

    pub fn labelled_disk(&self, id: &DiskId) -> Option<Arc<LabelledDisk>> {
        self.member(id)?.labelled().cloned()
    }

    /// The claim of a bare device of the pool, with its id, whatever it shows: the one way to ask for it. What a tenant
    /// built on our disks has no claim, though he may have given it the id of one.
    pub fn bare_claim_of(&self, snapshot: &Snapshot, device: &Device) -> Option<(DiskId, BareClaim)> {
        if matches!(device.verdict, Verdict::Theirs(Reason::OnPoolVolume { .. } | Reason::OnGivenUp { .. })) {
            return None;
        }
        let id = snapshot.bare_id(device);
        self.journal.bare_claim(&id).map(|claim| (id, claim))
    }

    /// The same, as the member that it is.
    pub fn bare_member_of(&self, snapshot: &Snapshot, device: &Device) -> Option<Arc<BareDevice>> {
        match self.member(&self.bare_claim_of(snapshot, device)?.0) {
            Some(Member::Bare(member)) => Some(member),
            Some(Member::Labelled(_) | Member::Filesystem(_)) | None => None,
        }
    }

    /// Disks with our label that were not here since this process began, by id.
    pub fn absent(&self) -> Vec<(DiskId, KnownDisk)> {
        self.journal.known(|id| self.member(id).is_none())
    }

    /// A disk that is away is not missed any more; false: there is none of that id that is away. A bare device is not
    /// ours any more, should it come back; one with a label is.
    pub fn forget(&self, id: &DiskId) -> Result<bool, PoolError> {
        match self.member(id) {
            Some(Member::Labelled(member)) if member.shown().standing != Standing::Missing => return Ok(false),
            Some(Member::Filesystem(member)) if member.standing() != Standing::Missing => return Ok(false),
            Some(Member::Bare(member)) => {
                if member.shown().standing != Standing::Missing {
                    return Ok(false);
                }
                member.forget()?;
                self.part(id);
                return Ok(true);
            }
            Some(Member::Labelled(_) | Member::Filesystem(_)) => self.part(id),
            None if self.unread_of(id).is_some() => return Ok(false),
            None => {}
        }
        Ok(self.journal.let_go(id)?)
    }

    /// The disks that can be used now, as the kernel has them.
    pub fn usable_disks(&self) -> Vec<(DiskId, RawDisk)> {
        self.members().iter().filter_map(|member| Some((member.id().clone(), member.usable_raw()?))).collect()
    }

    /// All disks of the pool, those that are away too.
    pub fn disk_views(&self) -> Vec<DiskView> {
        let absent = self.absent();
        let here = self.members().into_iter().filter_map(|member| member.disk_view());
        let here = here.map(|view| DiskView { failing: self.failure(&view.id), ..view });
        let absent = absent.into_iter().map(|(id, disk)| {
            let why = self.unread_of(&id).map(|unread| unread.why);
            DiskView { standing: why.map_or(Standing::Missing, Standing::NotReady), ..DiskView::absent(id, disk) }
        });
        let told = |view: DiskView| DiskView {
            cordon: view.cordon.clone().or_else(|| self.cordons.of(&view.id)),
            array_problem: self.array_problems.of(&view),
            ..view
        };
        here.chain(absent).map(told).collect()
    }

    /// Whether the array of a member may hold data, and is not in the pool, though no person released it or gave it up.
    pub fn lacks_array_of(&self, member: &DiskId) -> bool {
        let member = self.labelled_disk(member).and_then(|disk| disk.shown().array_member());
        member.is_some_and(|member| {
            let array = member.place.array;
            let is_here = || self.disk_views().iter().any(|view| view.array == Some(array));
            let array_id = DiskId::of_array(array);
            let is_ended = || self.journal().released().contains(&array_id) || self.journal().has_given_up(&array_id);
            member.is_used && !is_here() && !is_ended()
        })
    }

    /// Disks of an array that are away are not missed any more, nor is the array; false: one of them is not away.
    pub fn forget_array(&self, array: &DiskId, away: &[DiskId]) -> Result<bool, PoolError> {
        let is_away = |id: &DiskId| match self.member(id).and_then(|member| member.disk_view()) {
            Some(view) => view.standing == Standing::Missing,
            None => self.unread_of(id).is_none(),
        };
        if !away.iter().all(is_away) {
            return Ok(false);
        }
        away.iter().for_each(|id| self.part(id));
        self.journal.let_go_array(array, away)?;
        Ok(true)
    }

    /// A pass has looked at all disks, and could not open these, which carry our label.
    pub fn scanned(&self, unread: Vec<Unasked>) {
        *self.unread.write().unwrap_or_else(PoisonError::into_inner) = unread;
        self.scanned.store(true, Ordering::Release);
    }

    pub fn is_scanned(&self) -> bool {
        self.scanned.load(Ordering::Acquire)
    }

    pub(super) fn unread(&self) -> Vec<Unasked> {
        self.unread.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why a disk of that id, which is here, could not be asked at the last scan.
    pub(super) fn unread_of(&self, id: &DiskId) -> Option<Unasked> {
        self.unread().into_iter().find(|unread| unread.disk == *id)
    }

    pub fn join(&self, member: Member) {
        // Held until it is one of the members: what is chosen meanwhile comes after.
        let reserved = self.reserved.read().unwrap_or_else(PoisonError::into_inner);
        if let Member::Filesystem(filesystem) = &member
            && filesystem.carrier.mount().is_none()
        {
            filesystem.reserve(reserved.get(&filesystem.id).copied());
        }
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        members.insert(member.id().clone(), member);
    }

    pub(super) fn part(&self, id: &DiskId) {
        self.members.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}
