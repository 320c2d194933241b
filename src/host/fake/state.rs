//! Documents in memory that survive a power cut, as a synced file does.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::gate::Gate;
use super::{Power, locked};
use crate::host::error::HostError;
use crate::host::state::StateStore;

/// The state directory of the fake machine.
pub struct FakeState {
    power: Arc<Power>,
    documents: Mutex<BTreeMap<String, String>>,
    /// The gate of `store`, and of `load` of each document by its name.
    pub gate: Gate,
    is_full: AtomicBool,
    is_unreadable: AtomicBool,
    stored: Mutex<BTreeMap<String, usize>>,
}

impl FakeState {
    pub(super) fn new(power: Arc<Power>) -> Self {
        Self {
            power,
            documents: Mutex::default(),
            gate: Gate::default(),
            is_full: AtomicBool::default(),
            is_unreadable: AtomicBool::default(),
            stored: Mutex::default(),
        }
    }

    /// Whether there is no room for another document, nor for a new version of one.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }

    /// Whether no document can be read.
    pub fn set_unreadable(&self, is_unreadable: bool) {
        self.is_unreadable.store(is_unreadable, Ordering::SeqCst);
    }

    /// How often a document was stored whole.
    pub fn stored(&self, name: &str) -> usize {
        locked(&self.stored).get(name).copied().unwrap_or(0)
    }

    /// The directory is lost.
    pub fn lose(&self) {
        locked(&self.documents).clear();
    }
}

impl FakeState {
    /// One more effect; an error where there is none, as the power is off or the directory is full.
    fn spend(&self, name: &str) -> Result<(), HostError> {
        let failed = |source| HostError::Io { what: "write", object: name.to_owned(), source };
        self.power.check().map_err(failed)?;
        match self.is_full.load(Ordering::SeqCst) {
            true => Err(failed(io::Error::from_raw_os_error(nix::libc::ENOSPC))),
            false => self.power.spend().map_err(failed),
        }
    }
}

impl StateStore for FakeState {
    fn load(&self, name: &str) -> Result<Option<String>, HostError> {
        self.gate.pass(name);
        if self.is_unreadable.load(Ordering::SeqCst) {
            let source = io::Error::from_raw_os_error(nix::libc::EIO);
            return Err(HostError::Io { what: "read", object: name.to_owned(), source });
        }
        Ok(locked(&self.documents).get(name).cloned())
    }

    fn store(&self, name: &str, text: &str) -> Result<(), HostError> {
        self.gate.pass("store");
        // Written aside and renamed: before the effect the old document is there, after it the new one.
        self.spend(name)?;
        locked(&self.documents).insert(name.to_owned(), text.to_owned());
        *locked(&self.stored).entry(name.to_owned()).or_default() += 1;
        Ok(())
    }

    fn append(&self, name: &str, text: &str) -> Result<(), HostError> {
        self.gate.pass("store");
        if !locked(&self.documents).contains_key(name) {
            let source = io::Error::from_raw_os_error(nix::libc::ENOENT);
            return Err(HostError::Io { what: "add to", object: name.to_owned(), source });
        }
        let was_on = self.power.check().is_ok();
        let spent = self.spend(name);
        if let Some(document) = locked(&self.documents).get_mut(name).filter(|_| was_on) {
            // Of one that fails, a part is there.
            let length = if spent.is_ok() { text.len() } else { text.len() / 2 };
            document.push_str(text.get(..length).unwrap_or_default());
        }
        spent
    }

    fn remove(&self, name: &str) -> Result<(), HostError> {
        self.gate.pass("store");
        if locked(&self.documents).contains_key(name) {
            self.power.spend().map_err(|source| HostError::Io { what: "remove", object: name.to_owned(), source })?;
            locked(&self.documents).remove(name);
        }
        Ok(())
    }

    fn keep_copy(&self, name: &str, copy: &str) -> Result<String, HostError> {
        let copy = format!("{copy}-{}", locked(&self.documents).len());
        let text = self.load(name)?.unwrap_or_default();
        self.store(&copy, &text).map(|()| copy)
    }
}
