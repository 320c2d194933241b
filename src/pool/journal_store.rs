//! The journal in the state directory, one writer at a time. A change counts when it is durable; who reads sees what
//! is, and waits for no writer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::error::StoreError;
use super::journal::{BareClaim, JOURNAL, Journal, LostClaim};
use crate::device::duplicate::Identities;
use crate::device::{DiskId, HardwareId, VolumeId};
use crate::host::{Host, chain};

/// The journal, in memory and in its document.
pub struct JournalStore {
    host: Arc<dyn Host>,
    journal: RwLock<Arc<Journal>>,
    /// Held by whoever changes it.
    writing: Mutex<()>,
    making: Mutex<Making>,
    /// The document lacks something that is known here.
    is_behind: AtomicBool,
    /// What is wrong with the document: it is not written over, and what it may say is neither known nor denied.
    damage: Mutex<Option<String>>,
    /// There was no document when the process began.
    is_new: bool,
    /// The PoolVolumes were heard once, or there is nobody to ask.
    knows_volumes: AtomicBool,
}

/// The volumes that are being made now: a look at their disk may not show them yet.
#[derive(Default)]
struct Making {
    /// Each with its disk.
    now: BTreeSet<(DiskId, VolumeId)>,
    /// How many were begun since the process began.
    begun: u64,
}

impl JournalStore {
    /// Reads the document. A damaged one stays as it is until somebody sets it aside.
    pub fn open(host: Arc<dyn Host>) -> Result<Self, StoreError> {
        let damaged = |journal: Journal, error: &dyn std::error::Error| {
            let why = chain(error);
            tracing::error!("{}", StoreError::Damaged(why.clone()));
            (journal, Some(why))
        };
        let loaded = host.state().load(JOURNAL);
        let is_new = matches!(loaded, Ok(None));
        let (journal, damage) = match loaded {
            Ok(text) => match Journal::parse(text.as_deref()) {
                Ok(journal) => (journal, None),
                Err(error) => damaged(Journal::glean(text.as_deref().unwrap_or_default()), &error),
            },
            Err(error) if error.is_no_text() => damaged(Journal::default(), &error),
            Err(error) => return Err(StoreError::State(error)),
        };
        Ok(Self {
            host,
            journal: RwLock::new(Arc::new(journal)),
            writing: Mutex::default(),
            making: Mutex::default(),
            is_behind: AtomicBool::new(false),
            damage: Mutex::new(damage),
            is_new,
            knows_volumes: AtomicBool::new(false),
        })
    }

    /// An error, as long as the document cannot be used.
    pub fn sound(&self) -> Result<(), StoreError> {
        let damage = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        damage.clone().map_or(Ok(()), |why| Err(StoreError::Damaged(why)))
    }

    /// Begins a new document with what could be gleaned from a damaged one, which is kept beside it. Gives the name
    /// that it has then.
    pub fn set_aside(&self) -> Result<String, StoreError> {
        let _turn = self.turn();
        if self.sound().is_ok() {
            return Err(StoreError::Sound);
        }
        let state = self.host.state();
        let kept = state.keep_copy(JOURNAL, "journal.damaged").map_err(StoreError::State)?;
        state.store(JOURNAL, &self.journal().to_text()).map_err(StoreError::State)?;
        *self.damage.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(kept)
    }

    /// Devices that had, or may have had, a claim in a journal that was lost.
    pub fn lost(&self) -> BTreeMap<DiskId, LostClaim> {
        self.journal().lost.clone()
    }

    /// There was no document when the process began.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The document does not say all: there was none, or it cannot be used.
    pub fn is_in_doubt(&self) -> bool {
        self.is_new || self.sound().is_err()
    }

    /// A lost claim is one again.
    pub fn take_up(&self, disk: &DiskId, claim: BareClaim) -> Result<(), StoreError> {
        self.change(|journal| {
            if let Some(volume) = &claim.volume {
                journal.take_from_disks(volume.id);
            }
            let (was, lost) = (journal.bare.remove(disk), journal.lost.remove(disk));
            let kept = claim.volume.as_ref().map(|volume| volume.id);
            for gone in had(was.as_ref(), lost.as_ref()).filter(|id| Some(*id) != kept) {
                journal.part(disk, gone);
            }
            if let Some(former) = journal.former.get_mut(disk) {
                former.retain(|id| Some(*id) != kept);
            }
            journal.let_go.remove(disk);
            journal.bare.insert(disk.clone(), claim);
            Ok(())
        })
    }

    /// Such a device is not ours any more: what is on it says whose it is. False: it was none.
    pub fn give_up_lost(&self, disk: &DiskId) -> Result<bool, StoreError> {
        self.change(|journal| Ok(journal.lost.remove(disk).is_some()))
    }

    /// As it is now.
    fn journal(&self) -> Arc<Journal> {
        Arc::clone(&self.journal.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whoever has its turn to change the journal keeps nobody from reading it, however long a write takes.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, next: Journal) {
        *self.journal.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
    }

    fn change<T>(&self, change: impl FnOnce(&mut Journal) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.change_in(&self.turn(), change)
    }

    fn change_in<T>(
        &self,
        _turn: &MutexGuard<'_, ()>,
        change: impl FnOnce(&mut Journal) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.sound()?;
        let was = self.journal();
        let mut next = Journal::clone(&was);
        let result = change(&mut next)?;
        if next != *was {
            self.host.state().store(JOURNAL, &next.to_text()).map_err(StoreError::State)?;
            self.show(next);
        }
        Ok(result)
    }

    /// A change that counts in this process, and from when a document is written next.
    fn remember<T>(&self, _turn: &MutexGuard<'_, ()>, change: impl FnOnce(&mut Journal) -> T) -> T {
        let mut next = Journal::clone(&self.journal());
        let result = change(&mut next);
        self.show(next);
        result
    }

    /// Blank disks that are not claimed again until somebody adopts them, by id.
    pub fn released(&self) -> BTreeSet<DiskId> {
        self.journal().released.clone()
    }

    /// Remembers not to claim a disk again; its bare claim, if it had one or lost one, ends with the same write.
    pub fn release(&self, disk: &DiskId) -> Result<(), StoreError> {
        self.change(|journal| {
            let (claim, lost) = (journal.bare.remove(disk), journal.lost.remove(disk));
            if lost.is_some() || claim.as_ref().is_some_and(|claim| claim.volume.is_some() || claim.erasing.is_some()) {
                journal.given_up.insert(disk.clone());
                // From here on it is known which volumes are meant by that.
                journal.former.entry(disk.clone()).or_default();
            }
            had(claim.as_ref(), lost.as_ref()).for_each(|volume| journal.part(disk, volume));
            journal.let_go.insert(disk.clone());
            journal.released.insert(disk.clone());
            Ok(())
        })
    }

    /// The same of a disk with our label, before that is wiped: stopped in between, nobody misses it, and one that is
    /// still there is known again with the next look.
    pub fn release_labelled(&self, hardware: HardwareId, id: &DiskId) -> Result<(), StoreError> {
        self.change(|journal| {
            journal.released.insert(hardware.into());
            journal.disks.remove(id);
            journal.let_go.insert(id.clone());
            Ok(())
        })
    }

    /// Whether a person gave up that disk, labelled or bare: nobody waits for what was on it. That holds also when a
    /// bare device is back, and free for anybody.
    pub fn has_given_up(&self, id: &DiskId) -> bool {
        let journal = self.journal();
        journal.let_go.contains(id) || journal.given_up.contains(id)
    }

    /// Which hardware was a disk of the pool, and which a copy.
    pub fn identities(&self) -> Identities {
        self.journal().identities.clone()
    }

    /// The same, as it is known now. It counts in this process even where it could not be written down.
    pub fn identify(&self, change: impl FnOnce(&mut Identities)) -> Result<(), StoreError> {
        let _turn = self.turn();
        let was = self.journal();
        let mut next = Journal::clone(&was);
        change(&mut next.identities);
        let is_changed = next != *was;
        if is_changed {
            self.show(next);
        }
        if self.sound().is_err() || !is_changed && !self.is_behind.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.is_behind.store(true, Ordering::Relaxed);
        self.host.state().store(JOURNAL, &self.journal().to_text()).map_err(StoreError::State)?;
        self.is_behind.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// A released disk may be claimed again; false: it may already.
    pub fn readmit(&self, disk: &DiskId) -> Result<bool, StoreError> {
        self.change(|journal| {
            let was_given_up = journal.given_up.remove(disk);
            Ok(journal.released.remove(disk) || was_given_up)
        })
    }

    /// Bare devices that were given up with what a tenant wrote on them.
    pub fn given_up(&self) -> BTreeSet<DiskId> {
        self.journal().given_up.clone()
    }

    /// Claims of bare devices, by disk id.
    pub fn bare_claims(&self) -> Vec<(DiskId, BareClaim)> {
        self.journal().bare.iter().map(|(disk, claim)| (disk.clone(), claim.clone())).collect()
    }

    /// Hardware ids of the devices that are claimed bare, or were as far as anybody knows.
    pub fn bare_ids(&self) -> BTreeSet<DiskId> {
        let journal = self.journal();
        journal.bare.keys().chain(journal.lost.keys()).cloned().collect()
    }

    pub fn bare_claim(&self, disk: &DiskId) -> Option<BareClaim> {
        self.journal().bare.get(disk).cloned()
    }

    pub fn claim_bare(&self, disk: &DiskId, claim: BareClaim) -> Result<(), StoreError> {
        self.change(|journal| {
            journal.let_go.remove(disk);
            journal.bare.insert(disk.clone(), claim);
            Ok(())
        })
    }

    /// Changes a bare claim; its generation grows with each change.
    pub fn change_bare<T>(&self, disk: &DiskId, change: impl FnOnce(&mut BareClaim) -> T) -> Result<T, StoreError> {
        self.part_bare(disk, None, change)
    }

    /// The same, and a volume is not on the device any more.
    pub fn part_bare<T>(
        &self,
        disk: &DiskId,
        volume: Option<VolumeId>,
        change: impl FnOnce(&mut BareClaim) -> T,
    ) -> Result<T, StoreError> {
        self.change(|journal| {
            if let Some(volume) = volume {
                journal.part(disk, volume);
            }
            let claim = journal.bare.get_mut(disk).ok_or_else(|| StoreError::NoClaim(disk.clone()))?;
            let before = claim.clone();
            let result = change(claim);
            if *claim != before {
                claim.generation = before.generation + 1;
            }
            let made = claim.volume.as_ref().filter(|_| before.volume.is_none()).map(|volume| volume.id);
            // It was on no disk that can be asked.
            if let Some(volume) = made {
                journal.take_from_disks(volume);
            }
            Ok(result)
        })
    }
}

/// The volumes that a device had, as its claim says and others do.
fn had(claim: Option<&BareClaim>, lost: Option<&LostClaim>) -> impl Iterator<Item = VolumeId> + use<> {
    let of_claim = claim.and_then(|claim| Some(claim.volume.as_ref()?.id));
    let erasing = claim.and_then(|claim| Some(claim.erasing.as_ref()?.was));
    let reported: Vec<VolumeId> = lost.iter().flat_map(|lost| lost.volumes()).map(|volume| volume.id).collect();
    of_claim.into_iter().chain(erasing).chain(reported)
}

mod disks;
pub mod reported;
#[cfg(test)]
mod tests;
