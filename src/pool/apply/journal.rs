//! The journal in the state directory, one writer at a time. A change counts when it is durable.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::host::{Host, HostError};
use crate::pool::journal::{JOURNAL, Journal, JournalError, KnownDisk, RawClaim};

/// The journal, in memory and in its document.
pub struct JournalStore {
    host: Arc<dyn Host>,
    journal: Mutex<Journal>,
}

/// Why the journal was not read or not written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("could not use the state directory")]
    State(#[source] HostError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("the journal has no claim of {0} any more")]
    NoClaim(String),
}

impl JournalStore {
    /// Reads the document; a damaged one is an error, as going on would forget what it says.
    pub fn open(host: Arc<dyn Host>) -> Result<Self, StoreError> {
        let text = host.state().load(JOURNAL).map_err(StoreError::State)?;
        Ok(Self { host, journal: Mutex::new(Journal::parse(text.as_deref())?) })
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Journal) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut journal = self.journal();
        let mut next = journal.clone();
        let result = change(&mut next)?;
        if next != *journal {
            self.host.state().store(JOURNAL, &next.to_text()).map_err(StoreError::State)?;
            *journal = next;
        }
        Ok(result)
    }

    /// Blank disks that are not claimed again until somebody adopts them, by id.
    pub fn released(&self) -> BTreeSet<String> {
        self.journal().released.clone()
    }

    /// Remembers not to claim a disk again; its raw claim, if it had one, ends with the same write.
    pub fn release(&self, disk: &str) -> Result<(), StoreError> {
        self.change(|journal| {
            journal.raw.remove(disk);
            journal.released.insert(disk.to_owned());
            Ok(())
        })
    }

    /// Disks with our label, here or away, by id.
    pub fn known(&self) -> Vec<(String, KnownDisk)> {
        self.journal().disks.iter().map(|(id, disk)| (id.clone(), disk.clone())).collect()
    }

    /// A disk with our label is here. Written only where it is not known just so.
    pub fn know(&self, id: &str, disk: &KnownDisk) -> Result<(), StoreError> {
        if self.journal().disks.get(id) == Some(disk) {
            return Ok(());
        }
        self.change(|journal| {
            journal.disks.insert(id.to_owned(), disk.clone());
            Ok(())
        })
    }

    /// A disk with our label is not missed any more; false: it was not known.
    pub fn forget(&self, id: &str) -> Result<bool, StoreError> {
        self.change(|journal| Ok(journal.disks.remove(id).is_some()))
    }

    /// A released disk may be claimed again; false: it may already.
    pub fn readmit(&self, disk: &str) -> Result<bool, StoreError> {
        self.change(|journal| Ok(journal.released.remove(disk)))
    }

    /// Raw claims, by disk id.
    pub fn raw_claims(&self) -> Vec<(String, RawClaim)> {
        self.journal().raw.iter().map(|(disk, claim)| (disk.clone(), claim.clone())).collect()
    }

    /// Hardware ids of the devices that are claimed bare.
    pub fn raw_ids(&self) -> BTreeSet<String> {
        self.journal().raw.keys().cloned().collect()
    }

    pub fn raw_claim(&self, disk: &str) -> Option<RawClaim> {
        self.journal().raw.get(disk).cloned()
    }

    pub fn claim_raw(&self, disk: &str, claim: RawClaim) -> Result<(), StoreError> {
        self.change(|journal| {
            journal.raw.insert(disk.to_owned(), claim);
            Ok(())
        })
    }

    /// Changes a raw claim; its generation grows with each change.
    pub fn change_raw<T>(&self, disk: &str, change: impl FnOnce(&mut RawClaim) -> T) -> Result<T, StoreError> {
        self.change(|journal| {
            let claim = journal.raw.get_mut(disk).ok_or_else(|| StoreError::NoClaim(disk.to_owned()))?;
            let before = claim.clone();
            let result = change(claim);
            if *claim != before {
                claim.generation = before.generation + 1;
            }
            Ok(result)
        })
    }
}
