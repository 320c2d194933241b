//! A pool filesystem: the volumes of a disk that are folders, over the life of the disk.
//!
//! The disk that carries it is a labelled disk as any other, which offers nothing itself: people see both as one.
//! Nothing is read or written below a path: all goes from a root that was proven when it was opened (docs/adr/0016).

mod below;
mod carrier;
mod found;
mod host_mount;
mod limits;
mod mounted;
mod mounted_carrier;
mod open;
mod others;
mod verbs;
mod work;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

pub use self::carrier::Carrier;
use self::carrier::CarrierShown;
pub use self::found::{LookedFor, find_mounted};
use super::choose::DiskOffer;
use super::directory::{DirectoryRecord, VOLUMES, folder};
use super::directory_table::{DirectoryRoom, DirectoryTable};
use super::erasure::ErasureCount;
use super::extents::{Extents, MIB};
use super::filesystem_error::FilesystemError;
use super::journal::KnownDisk;
use super::journal_store::JournalStore;
use super::view::{DirectoryView, DiskView, HostMount, Standing, VolumeView};
use crate::claim::Provisioning;
use crate::device::label::VolumeUsage;
use crate::device::{DiskId, VolumeId};
use crate::host::{DEVICE_LOCK_TIMEOUT, DeviceLock, DeviceLockGuard, FilesystemRoot, FsKind, Host, Shows};

/// The filesystem that is made: the one with project quota and reflink.
pub const KIND: FsKind = FsKind::Xfs;

/// The filesystem of a disk with our label, here or not.
pub struct PoolFilesystem {
    pub id: DiskId,
    pub carrier: Carrier,
    host: Arc<dyn Host>,
    lock: DeviceLock<PoolFilesystemState>,
    erased: ErasureCount,
    /// What a person reserves of it.
    reserved: RwLock<Option<u64>>,
}

/// What can be said of it now.
pub struct PoolFilesystemState {
    /// `None`: nothing can be done there.
    root: Option<Arc<dyn FilesystemRoot>>,
    standing: Standing,
    table: SharedTable,
    /// The volumes that cannot be kept within their sizes, and why.
    unlimited: Arc<BTreeMap<VolumeId, String>>,
    /// When the limit of some of them could not be set, in monotonic time; `None`: that is not why.
    limits_failed: Option<Duration>,
    /// Where it is mounted for the pool.
    at: PathBuf,
    host_mount: HostMount,
    /// The node of its device.
    node: PathBuf,
}

/// What is there, for whoever looks, too. Only who has the lock of the state changes it, and waits for nothing
/// meanwhile: so it is what is there at each moment, and no change costs a copy of all.
#[derive(Clone, Default)]
struct SharedTable(Arc<RwLock<DirectoryTable>>);

impl SharedTable {
    fn read(&self) -> RwLockReadGuard<'_, DirectoryTable> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, DirectoryTable> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What there is to see of it without its lock.
pub struct PoolFilesystemShown {
    /// Open only for as long as the state has it: it keeps nobody from unmounting.
    root: Option<Weak<dyn FilesystemRoot>>,
    standing: Standing,
    table: SharedTable,
    unlimited: Arc<BTreeMap<VolumeId, String>>,
    at: PathBuf,
    host_mount: HostMount,
    node: PathBuf,
}

impl Shows for PoolFilesystemState {
    type Shown = PoolFilesystemShown;

    fn shown(&self) -> PoolFilesystemShown {
        let Self { root, standing, table, unlimited, limits_failed: _, at, host_mount, node } = self;
        PoolFilesystemShown {
            root: root.as_ref().map(Arc::downgrade),
            standing: standing.clone(),
            table: table.clone(),
            unlimited: Arc::clone(unlimited),
            at: at.clone(),
            host_mount: host_mount.clone(),
            node: node.clone(),
        }
    }
}

/// What all its volumes have in common.
struct Seen {
    shown: Arc<PoolFilesystemShown>,
    carrier: CarrierShown,
    standing: Standing,
}

impl PoolFilesystem {
    /// Not opened yet.
    pub fn new(carrier: Carrier, host: Arc<dyn Host>) -> Self {
        let id = carrier.id().clone();
        let at = host.own_mounts().join(id.as_str());
        let state = PoolFilesystemState {
            root: None,
            standing: Standing::NotReady("its filesystem was not opened yet".to_owned()),
            table: SharedTable::default(),
            unlimited: Arc::default(),
            limits_failed: None,
            at,
            host_mount: HostMount::None,
            node: PathBuf::new(),
        };
        let (lock, erased) = (DeviceLock::new(state), ErasureCount::default());
        Self { id, carrier, host, lock, erased, reserved: RwLock::default() }
    }

    pub fn shown(&self) -> Arc<PoolFilesystemShown> {
        self.lock.shown()
    }

    fn lock_within(&self, timeout: Duration) -> Result<DeviceLockGuard<'_, PoolFilesystemState>, FilesystemError> {
        let stuck = |stuck| FilesystemError::Stuck { disk: self.id.clone(), stuck };
        self.lock.lock_within(timeout).map_err(stuck)
    }

    fn lock_in_time(&self) -> Result<DeviceLockGuard<'_, PoolFilesystemState>, FilesystemError> {
        self.lock_within(DEVICE_LOCK_TIMEOUT)
    }

    /// Whether disk and filesystem can be used.
    pub fn standing(&self) -> Standing {
        match self.carrier.shown().standing {
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
        let volumes = self.shown().table.read().volumes().keys().copied().collect();
        self.is_usable().then_some(KnownDisk { volumes: Some(volumes), ..known })
    }

    /// The same for who has the lock: without its volumes, where the journal has them.
    fn known_in(&self, state: &PoolFilesystemState, journal: &JournalStore) -> Result<KnownDisk, FilesystemError> {
        let away = || FilesystemError::Away { disk: self.id.clone(), why: "cannot be used".to_owned() };
        let known = self.carrier.known().ok_or_else(away)?;
        let volumes = || state.table.read().volumes().keys().copied().collect();
        let volumes = (!journal.has_list(&self.id)).then(volumes);
        Ok(KnownDisk { volumes, ..known })
    }

    /// Nothing is on it, and nothing of what was is left.
    pub fn is_empty(&self) -> bool {
        let shown = self.shown();
        let table = shown.table.read();
        table.volumes().is_empty() && table.trash().is_empty()
    }

    pub fn is_erasing(&self) -> bool {
        !self.shown().table.read().trash().is_empty()
    }

    pub fn disk_view(&self) -> DiskView {
        let shown = self.shown();
        let (carrier, standing, provisioning) = (self.carrier.disk_view(), self.standing(), self.provisioning());
        let table = shown.table.read();
        let erasing = table.trash().bytes();
        DiskView {
            free: table.room(provisioning).free,
            erasing,
            reserved: provisioning.reserved,
            erasure: self.erased.view(erasing),
            volumes: table.volumes().len(),
            partitions: 0,
            host_mount: if standing == Standing::Ready { shown.host_mount.clone() } else { HostMount::None },
            standing,
            ..carrier
        }
    }

    /// Space for folders: each gets just its size, in whole MiB.
    pub fn offer<D>(&self, member: D, usage: VolumeUsage) -> Option<DiskOffer<D>> {
        let rule = self.carrier.rule()?;
        let is_wanted = rule.allows(usage)
            && self.carrier.is_chosen_by(&rule)
            && usage == VolumeUsage::Mount(KIND)
            && self.is_usable();
        let room = Extents::from_iter(self.shown().table.read().room(self.provisioning()).pieces());
        is_wanted.then_some(DiskOffer { disk: member, places: Vec::new(), room, volume_ends: Vec::new(), least: MIB })
    }

    /// What its set, if there is one, lets volumes have of it. What a person reserves of this disk counts more.
    fn provisioning(&self) -> Provisioning {
        let of_set = self.carrier.rule().as_ref().map(|rule| rule.provisioning).unwrap_or_default();
        let chosen = *self.reserved.read().unwrap_or_else(PoisonError::into_inner);
        Provisioning { reserved: chosen.unwrap_or(of_set.reserved), ..of_set }
    }

    /// A person reserves this many bytes of it; `None`: as its set says.
    pub fn reserve(&self, bytes: Option<u64>) {
        *self.reserved.write().unwrap_or_else(PoisonError::into_inner) = bytes;
    }

    pub fn views(&self) -> Vec<VolumeView> {
        let seen = self.seen();
        // Who has the lock waits for nobody who looks at thousands.
        let (room, volumes) = {
            let table = seen.shown.table.read();
            (table.room(self.provisioning()), table.volumes().clone())
        };
        volumes.iter().map(|(id, record)| self.view_of(&seen, room, *id, record.as_deref())).collect()
    }

    pub fn view(&self, id: VolumeId) -> Option<VolumeView> {
        let seen = self.seen();
        let table = seen.shown.table.read();
        let record = table.volumes().get(&id)?;
        Some(self.view_of(&seen, table.room(self.provisioning()), id, record.as_deref()))
    }

    fn seen(&self) -> Seen {
        Seen { shown: self.shown(), carrier: self.carrier.shown(), standing: self.standing() }
    }

    fn view_of(&self, seen: &Seen, room: DirectoryRoom, id: VolumeId, record: Option<&DirectoryRecord>) -> VolumeView {
        let Seen { shown, carrier, standing } = seen;
        let size = record.map_or(0, |record| record.size);
        let folder = self.carrier.in_filesystem(&folder(VOLUMES, id));
        let root = Path::new("/").join(&folder);
        VolumeView {
            id,
            record: record.map(|record| record.volume.clone()),
            size,
            formatted: true,
            growable_to: room.growable(size),
            set: carrier.set.clone(),
            disk: self.id.clone(),
            standing: standing.clone(),
            given_up: carrier.given_up,
            conflict: shown.unlimited.get(&id).cloned(),
            node: shown.node.clone(),
            directory: Some(DirectoryView { path: shown.at.join(folder), root, shrinks: self.is_limited() }),
        }
    }
}
