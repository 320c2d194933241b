//! The volumes that are being made now: a scan of their disk may not show them yet.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::{DiskId, VolumeId};

#[derive(Default)]
pub(super) struct InMaking(Mutex<Making>);

#[derive(Default)]
struct Making {
    /// Each with its disk.
    now: BTreeSet<(DiskId, VolumeId)>,
    /// How many were begun since the process began.
    begun: u64,
}

/// The volumes that were being made before a scan began.
pub struct BeforeScan {
    now: BTreeSet<(DiskId, VolumeId)>,
    begun: u64,
}

impl InMaking {
    pub fn begin(&self, disk: &DiskId, volume: VolumeId) {
        let mut making = self.lock();
        making.now.insert((disk.clone(), volume));
        making.begun += 1;
    }

    pub fn end(&self, disk: &DiskId, volume: VolumeId) {
        self.lock().now.remove(&(disk.clone(), volume));
    }

    pub fn now(&self) -> BeforeScan {
        let Making { now, begun } = &*self.lock();
        BeforeScan { now: now.clone(), begun: *begun }
    }

    /// Whether a volume was begun, which may have ended, too, since a scan began.
    pub fn has_begun_since(&self, before: &BeforeScan) -> bool {
        self.lock().begun != before.begun
    }

    fn lock(&self) -> MutexGuard<'_, Making> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BeforeScan {
    /// The volumes that were being made on that disk.
    pub(super) fn begun_on<'s>(&'s self, disk: &'s DiskId) -> impl Iterator<Item = VolumeId> + 's {
        self.now.iter().filter(move |(on, _)| on == disk).map(|(_, volume)| *volume)
    }
}
