//! What disks reported of themselves, shared by the elections, which ask before a claim, and the checkup of the pool.
//!
//! A report counts until an event of its disk, and whoever reads it says how old it may be.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::device::Remembered;
use crate::host::{DiskReport, KernelName, RawDisk};

#[derive(Clone, Debug, Default)]
pub struct DiskHealthCache(Arc<Mutex<Remembered<DiskReport>>>);

impl DiskHealthCache {
    /// An event of a device, by kernel name.
    pub fn changed(&self, name: &KernelName) {
        self.lock().changed(name);
    }

    /// An event of an NVMe controller, by kernel name.
    pub fn reported(&self, controller: &KernelName) {
        self.lock().forget(|disk| disk.is_namespace_of(controller));
    }

    pub fn all_changed(&self) {
        self.lock().all_changed();
    }

    /// The report that it gave less than `keep` ago.
    pub fn fresh(&self, raw: &RawDisk, now: Duration, keep: Duration) -> Option<DiskReport> {
        self.lock().fresh(raw, now, keep).cloned()
    }

    pub fn keep(&self, raw: &RawDisk, now: Duration, report: DiskReport) {
        self.lock().keep(raw, now, report);
    }

    fn lock(&self) -> MutexGuard<'_, Remembered<DiskReport>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
