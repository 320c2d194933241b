//! What others know of the volumes on this node's disks, held against the journal.
//!
//! Takes in what they tell; the journal has in `lost` what it does not know itself. A device without a claim had one then, in a journal
//! that was lost. One beside a claim contradicts it: the journal is older than the volume, or what they know is older than
//! the journal, and a person says which.

use std::sync::atomic::Ordering;

use super::JournalStore;
use crate::device::id::may_be_hardware;
use crate::pool::error::StoreError;
use crate::pool::journal::{BareClaim, Journal, LostClaim, LostVolume};

/// A disk of this node that a volume is on, as others know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldVolume {
    /// Its id, labelled or bare.
    pub disk: String,
    /// `None`: this version cannot read which one it is.
    pub volume: Option<LostVolume>,
    /// Somebody may have used it; else it was only to be made.
    pub is_made: bool,
}

/// Asks others for all of them; the words say why that cannot be told. It may take a while.
pub type AskOwn = Box<dyn FnMut() -> Result<Vec<ToldVolume>, String> + Send>;

impl ToldVolume {
    /// What it says is not what the journal says of the device.
    fn contradicts(&self, claim: &BareClaim) -> Option<&LostVolume> {
        let told = self.volume.as_ref().filter(|_| self.is_made)?;
        let known =
            [claim.volume.as_ref().map(|volume| volume.id), claim.erasing.as_ref().map(|one| one.was), claim.former];
        (!known.contains(&Some(told.id))).then_some(told)
    }
}

impl JournalStore {
    /// Others have told once since the process began, or there are none: until then, what the journal calls free may be a
    /// volume's that was made since it was written.
    pub fn is_compared(&self) -> bool {
        self.is_compared.load(Ordering::SeqCst)
    }

    /// The volume that others know on a device with another claim.
    pub fn contradiction(&self, disk: &str) -> Option<LostVolume> {
        let journal = self.journal();
        journal.lost.get(disk).filter(|_| journal.raw.contains_key(disk))?.volume.clone()
    }

    /// Volumes are on these devices, as others know. Those without a claim had one that was lost, unless a person has given
    /// them up. Claims are compared once in a process: from then on the journal knows better than an answer that is on its way.
    /// True: there is one more.
    pub fn learn(&self, told: Vec<ToldVolume>) -> Result<bool, StoreError> {
        let is_first = !self.is_compared();
        let learn = |journal: &mut Journal| learn(journal, told, is_first);
        let news = match self.sound() {
            Ok(()) => self.change(|journal| Ok(learn(journal)))?,
            // It counts in this process, and from when there is a document again.
            Err(_) => self.remember(&self.turn(), learn),
        };
        self.is_compared.store(true, Ordering::SeqCst);
        Ok(news)
    }

    /// Which of the two is on the device: the volume of its claim, and not the one that others know.
    pub fn keep_claimed(&self, disk: &str) -> Result<(), StoreError> {
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

fn learn(journal: &mut Journal, told: Vec<ToldVolume>, is_first: bool) -> bool {
    let before = journal.lost.clone();
    if is_first {
        // What contradicted a claim at an earlier start, and does not any more.
        let Journal { lost, raw, .. } = journal;
        lost.retain(|disk, _| !raw.contains_key(disk));
    }
    for one in told {
        // A labelled disk says itself what is on it.
        if !may_be_hardware(&one.disk) || journal.released.contains(&one.disk) {
            continue;
        }
        match journal.raw.get(&one.disk) {
            None => {
                let lost = journal.lost.entry(one.disk).or_default();
                lost.volume = lost.volume.take().or(one.volume);
            }
            Some(claim) if is_first => {
                if let Some(volume) = one.contradicts(claim).cloned() {
                    let volume = Some(volume);
                    journal.lost.entry(one.disk).or_insert(LostClaim { volume });
                }
            }
            Some(_) => {}
        }
    }
    before != journal.lost
}
