//! A pool filesystem: the volumes of a disk that are folders, over the life of the disk.
//!
//! The disk that carries it is a labelled disk as any other, which offers nothing itself: people see both as one. Nothing
//! is read or written below a path: all goes from a root that was proven when it was opened (docs/adr/0016).

mod open;
mod verbs;
mod work;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::choose::DiskOffer;
use super::directory::{self, DirectoryRecord, VOLUMES, folder};
use super::erasure::ErasureCount;
use super::extents::{ExtentSet, MIB};
use super::filesystem_error::FilesystemError;
use super::journal::KnownDisk;
use super::labelled::LabelledDisk;
use super::view::{DirectoryView, DiskView, Standing, VolumeView};
use crate::device::VolumeId;
use crate::device::label::VolumeUsage;
use crate::host::{DEVICE_LOCK_TIMEOUT, DeviceLock, DeviceLockGuard, Extent, FilesystemRoot, FsKind, Host, Shows};

/// The filesystem that is made: the one with project quota and reflink.
pub const KIND: FsKind = FsKind::Xfs;

/// The filesystem of a disk with our label, here or not.
pub struct PoolFilesystem {
    /// The disk that it fills.
    pub carrier: Arc<LabelledDisk>,
    host: Arc<dyn Host>,
    lock: DeviceLock<PoolFilesystemState>,
    erased: ErasureCount,
}

/// By id; `None`: the volume has no record that can be read.
type DirectoryRecords = BTreeMap<VolumeId, Option<DirectoryRecord>>;

/// What can be said of it now.
pub struct PoolFilesystemState {
    /// `None`: nothing can be done there.
    root: Option<Arc<dyn FilesystemRoot>>,
    standing: Standing,
    volumes: Arc<DirectoryRecords>,
    /// Names of what is to be removed.
    trash: Vec<String>,
    /// Bytes that volumes may take.
    capacity: u64,
    /// Where it is mounted for the pool.
    at: PathBuf,
    /// The node of its device.
    node: PathBuf,
}

/// What there is to see of it without its lock.
pub struct PoolFilesystemShown {
    standing: Standing,
    volumes: Arc<DirectoryRecords>,
    trash: Vec<String>,
    capacity: u64,
    at: PathBuf,
    node: PathBuf,
}

impl Shows for PoolFilesystemState {
    type Shown = PoolFilesystemShown;

    fn shown(&self) -> PoolFilesystemShown {
        let Self { root: _, standing, volumes, trash, capacity, at, node } = self;
        PoolFilesystemShown {
            standing: standing.clone(),
            volumes: Arc::clone(volumes),
            trash: trash.clone(),
            capacity: *capacity,
            at: at.clone(),
            node: node.clone(),
        }
    }
}

impl PoolFilesystemState {
    fn free(&self) -> u64 {
        directory::free(self.capacity, &self.volumes, &self.trash)
    }
}

impl PoolFilesystemShown {
    fn free(&self) -> u64 {
        directory::free(self.capacity, &self.volumes, &self.trash)
    }

    fn erasing(&self) -> u64 {
        self.trash.iter().map(|name| directory::trash_size(name)).sum()
    }
}

impl PoolFilesystem {
    /// Not opened yet.
    pub fn new(carrier: Arc<LabelledDisk>, host: Arc<dyn Host>) -> Self {
        let at = host.own_mounts().join(carrier.id.as_str());
        let state = PoolFilesystemState {
            root: None,
            standing: Standing::NotReady("its filesystem was not opened yet".to_owned()),
            volumes: Arc::default(),
            trash: Vec::new(),
            capacity: 0,
            at,
            node: PathBuf::new(),
        };
        Self { carrier, host, lock: DeviceLock::new(state), erased: ErasureCount::default() }
    }

    pub fn shown(&self) -> Arc<PoolFilesystemShown> {
        self.lock.shown()
    }

    fn lock_within(&self, timeout: Duration) -> Result<DeviceLockGuard<'_, PoolFilesystemState>, FilesystemError> {
        let stuck = |stuck| FilesystemError::Stuck { disk: self.carrier.id.clone(), stuck };
        self.lock.lock_within(timeout).map_err(stuck)
    }

    fn lock_in_time(&self) -> Result<DeviceLockGuard<'_, PoolFilesystemState>, FilesystemError> {
        self.lock_within(DEVICE_LOCK_TIMEOUT)
    }

    /// Whether disk and filesystem can be used.
    pub fn standing(&self) -> Standing {
        match self.carrier.shown().standing.clone() {
            Standing::Ready => self.shown().standing.clone(),
            away => away,
        }
    }

    pub fn is_usable(&self) -> bool {
        self.standing() == Standing::Ready
    }

    /// What is remembered of the disk should it be away at the next start; `None`: that cannot be told.
    pub fn known(&self) -> Option<KnownDisk> {
        let known = self.carrier.known()?;
        let volumes = self.shown().volumes.keys().copied().collect();
        self.is_usable().then_some(KnownDisk { volumes: Some(volumes), ..known })
    }

    /// The same for who has the lock.
    fn known_in(&self, state: &PoolFilesystemState) -> Result<KnownDisk, FilesystemError> {
        let away = || FilesystemError::Away { disk: self.carrier.id.clone(), why: "cannot be used".to_owned() };
        let known = self.carrier.known().ok_or_else(away)?;
        Ok(KnownDisk { volumes: Some(state.volumes.keys().copied().collect()), ..known })
    }

    /// Nothing is on it, and nothing of what was is left.
    pub fn is_empty(&self) -> bool {
        let shown = self.shown();
        shown.volumes.is_empty() && shown.trash.is_empty()
    }

    pub fn is_erasing(&self) -> bool {
        !self.shown().trash.is_empty()
    }

    pub fn disk_view(&self) -> DiskView {
        let shown = self.shown();
        let carrier = self.carrier.disk_view();
        DiskView {
            free: shown.free(),
            erasing: shown.erasing(),
            erasure: self.erased.view(shown.erasing()),
            volumes: shown.volumes.len(),
            partitions: 0,
            standing: self.standing(),
            ..carrier
        }
    }

    /// Space for folders: each gets just its size, in whole MiB.
    pub fn offer<D>(&self, member: D, usage: VolumeUsage) -> Option<DiskOffer<D>> {
        let carrier = self.carrier.shown();
        let rule = carrier.rule.as_ref()?;
        let is_wanted = rule.allows(usage) && usage == VolumeUsage::Mount(KIND) && self.is_usable();
        let free = Extent { start: 0, end: self.shown().free() / MIB * MIB };
        let room = if free.is_empty() { ExtentSet::default() } else { ExtentSet::from_iter([free]) };
        is_wanted.then_some(DiskOffer { disk: member, places: Vec::new(), room, volume_ends: Vec::new(), least: MIB })
    }

    pub fn views(&self) -> Vec<VolumeView> {
        let (shown, standing) = (self.shown(), self.standing());
        let view = |(id, record): (&VolumeId, &Option<DirectoryRecord>)| self.view_of(&shown, &standing, *id, record);
        shown.volumes.iter().map(view).collect()
    }

    pub fn view(&self, id: VolumeId) -> Option<VolumeView> {
        let shown = self.shown();
        let record = shown.volumes.get(&id)?;
        Some(self.view_of(&shown, &self.standing(), id, record))
    }

    fn view_of(
        &self,
        shown: &PoolFilesystemShown,
        standing: &Standing,
        id: VolumeId,
        record: &Option<DirectoryRecord>,
    ) -> VolumeView {
        let carrier = self.carrier.shown();
        let size = record.as_ref().map_or(0, |record| record.size);
        let root = Path::new("/").join(folder(VOLUMES, id));
        VolumeView {
            id,
            record: record.as_ref().map(|record| record.volume.clone()),
            size,
            formatted: true,
            growable_to: size + shown.free(),
            set: carrier.content.label.set.clone(),
            disk: self.carrier.id.clone(),
            standing: standing.clone(),
            given_up: carrier.content.label.given_up,
            conflict: None,
            node: shown.node.clone(),
            directory: Some(DirectoryView { path: shown.at.join(folder(VOLUMES, id)), root }),
        }
    }
}
