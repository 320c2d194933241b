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
    /// The gate of `store`.
    pub gate: Gate,
    is_full: AtomicBool,
}

impl FakeState {
    pub(super) fn new(power: Arc<Power>) -> Self {
        Self { power, documents: Mutex::default(), gate: Gate::default(), is_full: AtomicBool::default() }
    }

    /// Whether there is no room for another document, nor for a new version of one.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }

    /// The directory is lost.
    pub fn lose(&self) {
        locked(&self.documents).clear();
    }
}

impl StateStore for FakeState {
    fn load(&self, name: &str) -> Result<Option<String>, HostError> {
        Ok(locked(&self.documents).get(name).cloned())
    }

    fn store(&self, name: &str, text: &str) -> Result<(), HostError> {
        self.gate.pass("store");
        let failed = |source| HostError::Io { what: "write", object: name.to_owned(), source };
        self.power.check().map_err(failed)?;
        if self.is_full.load(Ordering::SeqCst) {
            return Err(failed(io::Error::from_raw_os_error(nix::libc::ENOSPC)));
        }
        // Written aside and renamed: before the effect the old document is there, after it the new one.
        let spent = self.power.spend();
        if spent.is_ok() {
            locked(&self.documents).insert(name.to_owned(), text.to_owned());
        }
        spent.map_err(failed)
    }

    fn keep_copy(&self, name: &str, copy: &str) -> Result<String, HostError> {
        let copy = format!("{copy}-{}", locked(&self.documents).len());
        let text = self.load(name)?.unwrap_or_default();
        self.store(&copy, &text).map(|()| copy)
    }
}
