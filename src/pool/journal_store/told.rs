//! What the PoolVolumes say of this node's disks, held against the journal.
//!
//! Takes in what they say, in words of the pool, which does not know the API. What the journal has no claim for goes into its
//! `lost`: the claim was in a journal that was lost. An entry there for a device that has a claim is a *contradiction*: the
//! journal is older than the volume, or the objects are older than the journal, and a person says which.

use std::sync::atomic::Ordering;

use super::JournalStore;
use crate::device::DiskId;
use crate::device::disk_id::may_be_hardware;
use crate::pool::error::StoreError;
use crate::pool::journal::{BareClaim, Journal, LostClaim, LostVolume};

/// A disk of this node that a volume is on, as a PoolVolume says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldVolume {
    /// Labelled or bare.
    pub disk: DiskId,
    /// `None`: this version cannot read which one it is.
    pub volume: Option<LostVolume>,
    /// Somebody may have used it; else it was only to be made.
    pub is_made: bool,
}

/// Asks for all of them; the words say why that cannot be told. It may take a while.
pub type AskOwn = Box<dyn FnMut() -> Result<Vec<ToldVolume>, String> + Send>;

/// Whether an answer is held against claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claims {
    /// The first answer: the journal may be of another day.
    Compare,
    /// The journal has every change since, and an answer that was on its way may not.
    KnowBetter,
}

impl JournalStore {
    /// The PoolVolumes were heard once since the process began, or there is nobody to ask. Until then a device that is free by
    /// the journal may have a volume: one that was made after the journal was written.
    pub fn is_told(&self) -> bool {
        self.is_told.load(Ordering::SeqCst)
    }

    /// The volume that a PoolVolume has on a device with another claim.
    pub fn contradiction(&self, disk: &DiskId) -> Option<LostVolume> {
        let journal = self.journal();
        journal.lost.get(disk).filter(|_| journal.raw.contains_key(disk))?.volume.clone()
    }

    /// What the journal says of it is not contradicted, and the PoolVolumes were heard: asked in this order, as a contradiction
    /// is written down first.
    pub fn is_undisputed(&self, disk: &DiskId) -> bool {
        self.is_told() && self.contradiction(disk).is_none()
    }

    /// Volumes are on these devices. Those without a claim had one that was lost, unless a person has given up what was there.
    /// True: there is one more.
    pub fn learn(&self, told: Vec<ToldVolume>) -> Result<bool, StoreError> {
        let claims = if self.is_told() { Claims::KnowBetter } else { Claims::Compare };
        let hold = |journal: &mut Journal| hold_against(journal, &told, claims);
        let news = match self.sound() {
            Ok(()) => self.change(|journal| Ok(hold(journal)))?,
            // It counts in this process, and from when there is a document again.
            Err(_) => self.remember(&self.turn(), hold),
        };
        self.is_told.store(true, Ordering::SeqCst);
        Ok(news)
    }

    /// Which of the two is on the device: the volume of its claim, and not the one of the PoolVolume.
    pub fn keep_claimed(&self, disk: &DiskId) -> Result<(), StoreError> {
        self.change(|journal| {
            let told = journal.lost.remove(disk).and_then(|lost| lost.volume);
            if let (Some(claim), Some(told)) = (journal.raw.get_mut(disk), told) {
                claim.former = Some(told.id);
                claim.generation += 1;
            }
            Ok(())
        })
    }
}

impl ToldVolume {
    fn is_of(&self, claim: &BareClaim) -> bool {
        let told = self.volume.as_ref().map(|volume| volume.id);
        told.is_some() && told == claim.volume.as_ref().map(|volume| volume.id)
    }

    /// What it says is not what the journal says of the device.
    fn contradicts(&self, claim: &BareClaim) -> Option<&LostVolume> {
        let told = self.volume.as_ref().filter(|_| self.is_made)?;
        let was = [claim.erasing.as_ref().map(|one| one.was), claim.former];
        (!self.is_of(claim) && !was.contains(&Some(told.id))).then_some(told)
    }
}

/// A contradiction of an earlier start stays, though its object be gone: a person may have deleted it by hand, which erases
/// nothing, and what the journal says would erase it.
fn hold_against(journal: &mut Journal, told: &[ToldVolume], claims: Claims) -> bool {
    let before = journal.lost.clone();
    for one in told {
        let disk = &one.disk;
        // A labelled disk says itself what is on it.
        if !may_be_hardware(disk.as_str()) || is_given_up(journal, one) {
            continue;
        }
        match journal.raw.get(disk) {
            None => {
                let lost = journal.lost.entry(disk.clone()).or_default();
                lost.volume = lost.volume.take().or_else(|| one.volume.clone());
            }
            // Where both records have one volume in common, the other object is the one that is behind.
            Some(claim)
                if claims == Claims::Compare && !told.iter().any(|one| one.disk == *disk && one.is_of(claim)) =>
            {
                if let Some(volume) = one.contradicts(claim).cloned() {
                    // A device has one volume: a second one that contradicts is seen when the first is settled.
                    journal.lost.entry(disk.clone()).or_insert(LostClaim { volume: Some(volume) });
                }
            }
            Some(_) => {}
        }
    }
    before != journal.lost
}

/// A device that was given back blank may have a volume since, of which an older journal knows nothing.
fn is_given_up(journal: &Journal, told: &ToldVolume) -> bool {
    journal.given_up.contains(&told.disk) || journal.released.contains(&told.disk) && !told.is_made
}
