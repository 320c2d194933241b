//! All disks of this node's pool: they join and part, and are looked at. The verbs of volumes are in `create` and
//! `change`, where a volume is in `whereabouts`. Every call blocks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::background::{Background, Workers};
use super::bare::BareDevice;
use super::cordon::{Cordon, Cordons};
use super::error::PoolError;
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
    /// A pass has looked at the machine, and what it could not open.
    looked_at: AtomicBool,
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
            looked_at: AtomicBool::default(),
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

    /// Why a member takes no new volumes; `None`: it takes some.
    pub fn cordon(&self, member: &Member) -> Option<Cordon> {
        member.cordon().or_else(|| self.cordons.of(member.id()))
    }

    pub(super) fn background(&self) -> &Background {
        &self.background
    }

    /// Who keeps the pool wants to know when background work has ended or a disk has failed.
    pub fn on_nudge(&self, nudge: impl Fn() + Send + Sync + 'static) {
        self.background.on_nudge(nudge);
    }

    /// A pass is due: something changed that no device event tells of.
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
            filesystem.prepare_release()?;
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
                // A look may have come in between.
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
    pub fn bare_claim_of(&self, set: &Snapshot, device: &Device) -> Option<(DiskId, BareClaim)> {
        if matches!(device.verdict, Verdict::Theirs(Reason::OnPoolVolume { .. } | Reason::OnGivenUp { .. })) {
            return None;
        }
        let id = set.bare_id(device);
        self.journal.bare_claim(&id).map(|claim| (id, claim))
    }

    /// The same, as the member that it is.
    pub fn bare_member_of(&self, set: &Snapshot, device: &Device) -> Option<Arc<BareDevice>> {
        match self.member(&self.bare_claim_of(set, device)?.0) {
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
        let all = here.chain(absent);
        all.map(|view| DiskView { cordon: view.cordon.clone().or_else(|| self.cordons.of(&view.id)), ..view }).collect()
    }

    /// A pass has looked at all disks, and could not open these, which carry our label.
    pub fn looked_at(&self, unread: Vec<Unasked>) {
        *self.unread.write().unwrap_or_else(PoisonError::into_inner) = unread;
        self.looked_at.store(true, Ordering::Release);
    }

    pub fn is_looked_at(&self) -> bool {
        self.looked_at.load(Ordering::Acquire)
    }

    pub(super) fn unread(&self) -> Vec<Unasked> {
        self.unread.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why a disk of that id, which is here, could not be asked at the last look.
    pub(super) fn unread_of(&self, id: &DiskId) -> Option<Unasked> {
        self.unread().into_iter().find(|unread| unread.disk == *id)
    }

    pub fn join(&self, member: Member) {
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        members.insert(member.id().clone(), member);
    }

    pub(super) fn part(&self, id: &DiskId) {
        self.members.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}
