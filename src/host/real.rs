//! The machine that this process runs on: the wiring of the real parts into one [`Host`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::disk::RealDisk;
use super::filesystem::RealFilesystems;
use super::mount::RealMounts;
use super::state::StateDir;
use super::sysfs::Roots;
use super::{
    Access, Disk, Filesystems, Health, Host, HostError, Mounts, Probe, RawDisk, StateStore, health, signature, sysfs,
};

/// Linux, as its kernel shows it here and now.
pub struct RealHost {
    roots: Roots,
    filesystems: RealFilesystems,
    mounts: RealMounts,
    state: StateDir,
    /// The fixed point of [`Host::monotonic`]. `Instant` is CLOCK_MONOTONIC: no clock change moves it.
    began: Instant,
}

impl RealHost {
    /// `state` is the directory whose lock the caller holds, or one that it will not write to.
    pub fn new(roots: Roots, filesystems: RealFilesystems, state: StateDir) -> Self {
        Self { roots, filesystems, mounts: RealMounts, state, began: Instant::now() }
    }
}

impl Host for RealHost {
    fn scan(&self) -> Result<Vec<RawDisk>, HostError> {
        sysfs::scan(&self.roots)
    }

    fn probe(&self, disk: &RawDisk) -> Probe {
        signature::probe(disk)
    }

    fn health(&self, disk: &RawDisk) -> Health {
        health::ask(disk)
    }

    fn open(&self, disk: &RawDisk, access: Access) -> Result<Arc<dyn Disk>, HostError> {
        Ok(Arc::new(RealDisk::open(disk, access)?))
    }

    fn filesystems(&self) -> &dyn Filesystems {
        &self.filesystems
    }

    fn mounts(&self) -> &dyn Mounts {
        &self.mounts
    }

    fn state(&self) -> &dyn StateStore {
        &self.state
    }

    fn monotonic(&self) -> Duration {
        self.began.elapsed()
    }
}
