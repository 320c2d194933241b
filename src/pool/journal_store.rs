//! The journal of a node: which disks and devices are of the pool, and what may be on them. Its `document` is in the
//! state directory, and beside it are the `lists` of volumes of disks that may have thousands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use self::document::{JournalDocument, ReadJournal};
use self::lists::VolumeLists;
use self::making::InMaking;
use super::error::StoreError;
use super::journal::{BareClaim, LostClaim};
use crate::device::duplicate::Identities;
use crate::device::{DiskId, HardwareId, VolumeId};
use crate::host::Host;

/// The journal of this node's pool, and the lists of volumes beside it.
pub struct JournalStore {
    document: Arc<JournalDocument>,
    making: InMaking,
    /// Which volumes may be on disks with a filesystem of the pool.
    lists: VolumeLists,
    /// There was no document when the process began.
    is_new: bool,
    /// The PoolVolumes were heard once, or there is nobody to ask.
    knows_volumes: AtomicBool,
}

impl JournalStore {
    /// Reads the document. A damaged one stays as it is until somebody sets it aside.
    pub fn open(host: Arc<dyn Host>) -> Result<Self, StoreError> {
        let ReadJournal { mut journal, damage, is_new } = ReadJournal::of(host.state())?;
        let lists = kept_lists::load(host.state(), &mut journal);
        let document = Arc::new(JournalDocument::new(host, journal, damage));
        let lists = VolumeLists::new(Arc::clone(&document), lists);
        Ok(Self { document, lists, making: InMaking::default(), is_new, knows_volumes: AtomicBool::new(false) })
    }

    /// An error, as long as the document cannot be used.
    pub fn sound(&self) -> Result<(), StoreError> {
        self.document.sound()
    }

    /// Begins a new document with what could be gleaned from a damaged one, which is kept beside it. Gives the name
    /// that it has then.
    pub fn set_aside(&self) -> Result<String, StoreError> {
        self.document.set_aside()
    }

    /// Whether it is known which volumes may be on that disk.
    pub fn has_list(&self, disk: &DiskId) -> bool {
        self.lists.has(disk)
    }

    /// Devices that had, or may have had, a claim in a journal that was lost.
    pub fn lost(&self) -> BTreeMap<DiskId, LostClaim> {
        self.document.journal().lost.clone()
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
        let (turn, volume) = (self.document.turn(), claim.volume.as_ref().map(|volume| volume.id));
        self.document.change_in(&turn, |journal| {
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
        })?;
        volume.map_or(Ok(()), |volume| self.lists.nowhere_else(&turn, volume, None))
    }

    /// Such a device is not ours any more: what is on it says whose it is. False: it was none.
    pub fn give_up_lost(&self, disk: &DiskId) -> Result<bool, StoreError> {
        self.document.change(|journal| Ok(journal.lost.remove(disk).is_some()))
    }

    /// Blank disks that are not claimed again until somebody adopts them, by id.
    pub fn released(&self) -> BTreeSet<DiskId> {
        self.document.journal().released.clone()
    }

    /// Remembers not to claim a disk again; its bare claim, if it had one or lost one, ends with the same write.
    pub fn release(&self, disk: &DiskId) -> Result<(), StoreError> {
        self.document.change(|journal| {
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

    /// The release of a disk with our label, before that is wiped: stopped in between, nobody misses it, and one that
    /// is still there is known again with the next scan.
    pub fn release_labelled(&self, hardware: HardwareId, id: &DiskId) -> Result<(), StoreError> {
        self.release_as(hardware.into(), id)
    }

    /// The release of a named filesystem, before the pool's folder there goes: no set takes it until a person adopts it.
    pub fn release_filesystem(&self, id: &DiskId) -> Result<(), StoreError> {
        self.release_as(id.clone(), id)
    }

    /// `released` is what it is called from then on, while nobody adopts it.
    fn release_as(&self, released: DiskId, id: &DiskId) -> Result<(), StoreError> {
        let turn = self.document.turn();
        self.document.change_in(&turn, |journal| {
            journal.released.insert(released);
            journal.disks.remove(id);
            journal.let_go.insert(id.clone());
            Ok(())
        })?;
        self.lists.forget(&turn, id);
        Ok(())
    }

    /// Whether a person gave up that disk, labelled or bare: nobody waits for what was on it. That holds also when a
    /// bare device is back, and free for anybody.
    pub fn has_given_up(&self, id: &DiskId) -> bool {
        let journal = self.document.journal();
        journal.let_go.contains(id) || journal.given_up.contains(id)
    }

    /// Which hardware was a disk of the pool, and which a copy.
    pub fn identities(&self) -> Identities {
        self.document.journal().identities.clone()
    }

    /// The same, as it is known now. It counts in this process even where it could not be written down.
    pub fn identify(&self, change: impl FnOnce(&mut Identities)) -> Result<(), StoreError> {
        self.document.change_anyway(|journal| change(&mut journal.identities))
    }

    /// A released disk may be claimed again; false: it may already.
    pub fn readmit(&self, disk: &DiskId) -> Result<bool, StoreError> {
        self.document.change(|journal| {
            let was_given_up = journal.given_up.remove(disk);
            Ok(journal.released.remove(disk) || was_given_up)
        })
    }

    /// Bare devices that were given up with what a tenant wrote on them.
    pub fn given_up(&self) -> BTreeSet<DiskId> {
        self.document.journal().given_up.clone()
    }

    /// Claims of bare devices, by disk id.
    pub fn bare_claims(&self) -> Vec<(DiskId, BareClaim)> {
        self.document.journal().bare.iter().map(|(disk, claim)| (disk.clone(), claim.clone())).collect()
    }

    /// Hardware ids of the devices that are claimed bare, or were as far as anybody knows.
    pub fn bare_ids(&self) -> BTreeSet<DiskId> {
        let journal = self.document.journal();
        journal.bare.keys().chain(journal.lost.keys()).cloned().collect()
    }

    pub fn bare_claim(&self, disk: &DiskId) -> Option<BareClaim> {
        self.document.journal().bare.get(disk).cloned()
    }

    pub fn claim_bare(&self, disk: &DiskId, claim: BareClaim) -> Result<(), StoreError> {
        self.document.change(|journal| {
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
        let turn = self.document.turn();
        let (result, made) = self.document.change_in(&turn, |journal| {
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
            Ok((result, made))
        })?;
        made.map_or(Ok(()), |made| self.lists.nowhere_else(&turn, made, None))?;
        Ok(result)
    }
}

/// The volumes that a device had, as its claim says and others do.
fn had(claim: Option<&BareClaim>, lost: Option<&LostClaim>) -> impl Iterator<Item = VolumeId> + use<> {
    let of_claim = claim.and_then(|claim| Some(claim.volume.as_ref()?.id));
    let erasing = claim.and_then(|claim| Some(claim.erasing.as_ref()?.was));
    let reported: Vec<VolumeId> = lost.iter().flat_map(|lost| lost.volumes()).map(|volume| volume.id).collect();
    of_claim.into_iter().chain(erasing).chain(reported)
}

pub mod disks;
mod document;
mod kept_lists;
mod lists;
mod making;
pub mod reported;
#[cfg(test)]
mod tests;
