//! The volumes that PoolVolumes have on this node's disks, compared with the journal.
//!
//! Takes in what they say, in words of the pool, which does not know the API. What the journal has no claim for goes
//! into its `lost`: the claim was in a journal that was lost. An entry there for a device that has a claim is a
//! *contradiction*: the journal is older than the volume, or the objects are older than the journal, and a person says
//! which.

use std::sync::atomic::Ordering;

use super::JournalStore;
use crate::claim::NoAnswer;
use crate::device::{DiskId, VolumeId, may_be_hardware};
use crate::pool::{
    error::StoreError,
    journal::{BareClaim, Journal, LostClaim, LostVolume},
};

/// A disk of this node that a volume is on, as a PoolVolume says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedVolume {
    /// Labelled or bare.
    pub disk: DiskId,
    /// `None`: localpool did not make the object: its name is no id.
    pub id: Option<VolumeId>,
    /// `None`: this version cannot read what it is.
    pub volume: Option<LostVolume>,
    /// Somebody may have used it; else it was only to be made.
    pub is_made: bool,
}

/// Asks for all of them. It may take a while.
pub type AskVolumes = Box<dyn FnMut() -> Result<Vec<ReportedVolume>, NoAnswer> + Send>;

/// Whether an answer is compared with claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claims {
    /// The first answer: the journal may be of another day.
    Compare,
    /// The journal has every change since, and an answer that was on its way may not.
    KnowBetter,
}

impl JournalStore {
    /// The PoolVolumes were heard once since the process began, or there is nobody to ask. Until then a device that is
    /// free by the journal may have a volume: one that was made after the journal was written.
    pub fn knows_volumes(&self) -> bool {
        self.knows_volumes.load(Ordering::SeqCst)
    }

    /// The volumes that PoolVolumes have on a device with another claim.
    pub fn contradiction(&self, disk: &DiskId) -> Option<LostClaim> {
        let journal = self.document.journal();
        journal.lost.get(disk).filter(|_| journal.bare.contains_key(disk)).cloned()
    }

    /// Nobody contradicts the journal about it, and the PoolVolumes were heard: asked in this order, as a
    /// contradiction is written down first.
    pub fn is_undisputed(&self, disk: &DiskId) -> bool {
        self.knows_volumes() && self.contradiction(disk).is_none()
    }

    /// Volumes are on these devices. Those without a claim had one that was lost, unless a person has given up what was
    /// there. True: there is one more.
    pub fn learn(&self, reported: Vec<ReportedVolume>) -> Result<bool, StoreError> {
        let claims = if self.knows_volumes() { Claims::KnowBetter } else { Claims::Compare };
        let hold = |journal: &mut Journal| hold_against(journal, &reported, claims);
        let is_changed = match self.sound() {
            Ok(()) => self.document.change(|journal| Ok(hold(journal)))?,
            // It counts in this process, and from when there is a document again.
            Err(_) => self.document.remember(&self.document.turn(), hold),
        };
        self.knows_volumes.store(true, Ordering::SeqCst);
        Ok(is_changed)
    }

    /// Which of the two is on the device: the volume of its claim, and not the one of the PoolVolume.
    pub fn keep_claimed(&self, disk: &DiskId) -> Result<(), StoreError> {
        self.document.change(|journal| {
            let lost = journal.lost.remove(disk).unwrap_or_default();
            lost.volumes().for_each(|volume| journal.part(disk, volume.id));
            Ok(())
        })
    }
}

impl ReportedVolume {
    fn is_of(&self, claim: &BareClaim) -> bool {
        self.id.is_some() && self.id == claim.volume.as_ref().map(|volume| volume.id)
    }

    /// It contradicts the journal about the device.
    fn contradicts(&self, claim: &BareClaim) -> bool {
        let erasing = claim.erasing.as_ref().map(|one| one.was);
        self.is_made && self.id.is_some() && !self.is_of(claim) && self.id != erasing
    }
}

/// A contradiction of an earlier start stays, though its object be gone: a person may have deleted it by hand, which
/// erases nothing, and what the journal says would erase it.
fn hold_against(journal: &mut Journal, reported: &[ReportedVolume], claims: Claims) -> bool {
    let before = journal.lost.clone();
    // What was only to be made counts where nothing else was.
    for one in reported.iter().filter(|one| one.is_made).chain(reported.iter().filter(|one| !one.is_made)) {
        let disk = &one.disk;
        // A labelled disk says itself what is on it.
        if !may_be_hardware(disk.as_str()) || is_gone(journal, one) {
            continue;
        }
        let is_lost = match journal.bare.get(disk) {
            None => true,
            // Where both records have one volume in common, the other object is the one that is behind.
            Some(claim) => {
                let is_shared = || reported.iter().any(|other| other.disk == *disk && other.is_of(claim));
                claims == Claims::Compare && one.contradicts(claim) && !is_shared()
            }
        };
        if is_lost {
            note(journal.lost.entry(disk.clone()).or_default(), one);
        }
    }
    before != journal.lost
}

/// If several volumes are said to be on one device, a person says which is there.
fn note(lost: &mut LostClaim, reported: &ReportedVolume) {
    let Some(volume) = &reported.volume else { return };
    if lost.volume.is_none() {
        lost.volume = Some(volume.clone());
    } else if reported.is_made && lost.volumes().all(|known| known.id != volume.id) {
        lost.others.push(volume.clone());
    }
}

/// It is known that the volume is not there, though its object still names the device. A device that was released or
/// given up may have another one since, of which an older journal knows nothing.
fn is_gone(journal: &Journal, reported: &ReportedVolume) -> bool {
    let former = journal.former.get(&reported.disk);
    let is_former = former.zip(reported.id).is_some_and(|(former, id)| former.contains(&id));
    // One that was only to be made there has nothing to say after that.
    let is_past = !reported.is_made && journal.released.contains(&reported.disk);
    // An earlier version did not write down which volume was given up.
    is_former || is_past || former.is_none() && journal.given_up.contains(&reported.disk)
}
