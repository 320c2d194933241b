//! A disk of the pool over its life: it joins, leaves, and comes back under another name.
//!
//! One lock per disk: operations on different disks never wait for each other. Who only looks takes what is shown, so
//! that a disk that hangs under its lock keeps nobody from looking at all disks.

mod array;
mod shown;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

pub use self::shown::{ArrayMember, LabelledShown};
use super::content::Content;
use super::disk::PoolDisk;
use super::erasure::ErasureCount;
use super::error::ApplyError;
use super::extents::Extents;
use super::journal::KnownDisk;
use super::plan::{Plan, PlanError, relabel};
use super::view::{DiskView, HostMount, Standing, VolumeView};
use super::worker_flag::WorkerFlag;
use crate::claim::Rule;
use crate::device::{
    DiskId, VolumeId,
    duplicate::stable_hardware_id,
    label::{Label, SetRef},
};
use crate::host::{DEVICE_LOCK_TIMEOUT, DeviceLock, DeviceLockGuard, Disk, RawDisk, Shows};

/// A disk of the pool. Its id never changes while the process lives.
pub struct LabelledDisk {
    pub id: DiskId,
    lock: DeviceLock<LabelledState>,
    pub worker: WorkerFlag,
    /// A worker shall try again what was busy.
    retries_busy: AtomicBool,
    failed: Mutex<FailedWork>,
    pub(super) erased: ErasureCount,
}

/// What the disk failed of the background work since the worker last had nothing else to do.
#[derive(Clone, Default)]
pub(super) struct FailedWork {
    /// Erasures, by GUID.
    pub erasures: BTreeSet<Uuid>,
    /// Free space that could not be zeroed.
    pub free: Extents,
}

/// What can be said of a member now.
pub struct LabelledState {
    /// As the kernel has, or last had, it.
    pub raw: RawDisk,
    holding: Holding,
    standing: Standing,
    /// The set that owns the disk, where it exists; without one the disk offers nothing.
    pub rule: Option<Arc<Rule>>,
    /// Free space that somebody waits for to be zeroed.
    wanted: Extents,
}

enum Holding {
    Open(PoolDisk),
    /// What was on it when it was last seen.
    Closed(Box<Content>),
}

impl LabelledDisk {
    /// What is remembered of it should it be away at the next start; `None`: that cannot be told, as a write failed or
    /// it left.
    pub fn known(&self) -> Option<KnownDisk> {
        let shown = self.shown();
        shown.is_usable().then(|| known(&shown.raw, &shown.content))
    }

    pub fn disk_view(&self) -> DiskView {
        let shown = self.shown();
        let content = &shown.content;
        let volumes = content.volumes().count();
        DiskView {
            id: self.id.clone(),
            path: shown.raw.path.clone(),
            model: shown.raw.model.clone(),
            layout: content.label.layout.clone(),
            array: stable_hardware_id(&shown.raw).and_then(|hardware| hardware.array()),
            set: content.label.set.clone(),
            size: content.geometry.size,
            free: content.free().total(),
            erasing: content.erasing().map(|(_, entry, _)| entry.extent.len()).sum(),
            reserved: 0,
            erasure: self.erased.view(content.to_erase()),
            volumes,
            partitions: volumes + content.free_slots().count(),
            standing: shown.standing.clone(),
            host_mount: HostMount::None,
            owned: shown.rule.is_some(),
            busy: shown.busy(),
            failing: None,
            array_problem: None,
            cordon: shown.cordon(),
        }
    }

    pub fn new(id: DiskId, raw: RawDisk, disk: PoolDisk, rule: Option<Arc<Rule>>) -> Self {
        let state = LabelledState {
            raw,
            holding: Holding::Open(disk),
            standing: Standing::Ready,
            rule,
            wanted: Extents::default(),
        };
        let (worker, retries_busy) = (WorkerFlag::default(), AtomicBool::new(false));
        let (failed, erased) = (Mutex::default(), ErasureCount::default());
        Self { id, lock: DeviceLock::new(state), worker, retries_busy, failed, erased }
    }

    /// What there is to see, whoever has the lock.
    pub fn shown(&self) -> Arc<LabelledShown> {
        self.lock.shown()
    }

    /// Waits as long as it takes: for the disk's own worker.
    pub fn lock(&self) -> DeviceLockGuard<'_, LabelledState> {
        self.lock.lock()
    }

    /// Waits for others as long as that is worth while.
    pub fn lock_within(&self, timeout: Duration) -> Result<DeviceLockGuard<'_, LabelledState>, ApplyError> {
        let stuck = |stuck| ApplyError::Stuck { disk: self.shown().raw.path.clone(), stuck };
        self.lock.lock_within(timeout).map_err(stuck)
    }

    /// For what one caller wants of this disk.
    pub fn lock_in_time(&self) -> Result<DeviceLockGuard<'_, LabelledState>, ApplyError> {
        self.lock_within(DEVICE_LOCK_TIMEOUT)
    }

    /// Makes a plan from what the disk holds, and performs it.
    pub fn change(&self, make: impl FnOnce(&Content) -> Result<Plan, PlanError>) -> Result<(), ApplyError> {
        self.lock_in_time()?.disk()?.change(make)
    }

    /// Writes another set into the label: the one that owns the disk now.
    pub fn relabel(&self, set: SetRef) -> Result<(), ApplyError> {
        self.change(|content| Ok(relabel(Label { set, ..Label::clone(&content.label) })))
    }

    /// A person decided that it is used again, with all that is on it.
    pub fn take_back(&self) -> Result<(), ApplyError> {
        let taken = |content: &Content| Label { given_up: false, ..content.pruned_label() };
        self.change(|content| Ok(relabel(taken(content))))
    }

    /// Has the worker try again what was busy on it; gives whether there is any.
    pub fn retry_busy(&self) -> bool {
        let shown = self.shown();
        let has_busy = shown.is_usable() && !shown.content.busy.is_empty();
        self.retries_busy.store(has_busy, Ordering::SeqCst);
        has_busy
    }

    /// Whether that is asked for; it is not any more then.
    pub fn take_retry(&self) -> bool {
        self.retries_busy.swap(false, Ordering::SeqCst)
    }

    /// What the worker does last.
    pub(super) fn failed(&self) -> MutexGuard<'_, FailedWork> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn views(&self) -> Vec<VolumeView> {
        let shown = self.shown();
        shown.content.volumes().map(|volume| shown.view(&self.id, &volume)).collect()
    }

    pub fn view(&self, id: VolumeId) -> Option<VolumeView> {
        let shown = self.shown();
        let volume = shown.content.volume(id)?;
        Some(shown.view(&self.id, &volume))
    }
}

impl Shows for LabelledState {
    type Shown = LabelledShown;

    fn shown(&self) -> LabelledShown {
        let nodes = match &self.holding {
            Holding::Open(disk) => {
                let content = disk.content();
                let numbers = content.volumes().map(|volume| volume.number);
                let numbers = numbers.chain(content.array_member().map(|(number, _)| number));
                numbers.map(|number| (number, disk.disk().node(number))).collect()
            }
            Holding::Closed(_) => BTreeMap::new(),
        };
        LabelledShown {
            raw: self.raw.clone(),
            content: self.content().clone(),
            standing: self.standing(),
            rule: self.rule.clone(),
            nodes,
        }
    }
}

impl LabelledState {
    pub(super) fn known(&self) -> KnownDisk {
        known(&self.raw, self.content())
    }

    pub fn content(&self) -> &Content {
        match &self.holding {
            Holding::Open(disk) => disk.content(),
            Holding::Closed(content) => content,
        }
    }

    pub fn standing(&self) -> Standing {
        match &self.holding {
            Holding::Open(disk) if self.standing == Standing::Ready => {
                disk.lost().map_or(Standing::Ready, |why| Standing::NotReady(why.to_owned()))
            }
            Holding::Open(_) | Holding::Closed(_) => self.standing.clone(),
        }
    }

    /// The open disk, or why there is none to work on.
    pub fn disk(&mut self) -> Result<&mut PoolDisk, ApplyError> {
        let gone = |why: &str, raw: &RawDisk| ApplyError::NotOurs { disk: raw.path.clone(), why: why.to_owned() };
        match (&mut self.holding, &self.standing) {
            (Holding::Open(disk), Standing::Ready) => Ok(disk),
            (_, Standing::NotReady(why)) => Err(gone(why, &self.raw)),
            (Holding::Closed(_), _) | (_, Standing::Missing) => Err(gone("it is missing", &self.raw)),
        }
    }

    /// A handle for work outside the lock.
    pub fn handle(&self) -> Option<Arc<dyn Disk>> {
        match (&self.holding, &self.standing) {
            (Holding::Open(disk), Standing::Ready) => Some(Arc::clone(disk.disk())),
            (Holding::Open(_), Standing::NotReady(_) | Standing::Missing) | (Holding::Closed(_), _) => None,
        }
    }

    /// The disk left: its handle is dropped, what was on it is remembered.
    pub fn leave(&mut self, standing: Standing) {
        if let Holding::Open(disk) = &self.holding {
            self.holding = Holding::Closed(Box::new(disk.content().clone()));
        }
        self.standing = standing;
    }

    /// The disk is here, perhaps under another name, and cannot be opened.
    pub fn arrive_unusable(&mut self, raw: RawDisk, why: String) {
        self.leave(Standing::NotReady(why));
        self.raw = raw;
    }

    /// The disk is (back) here, perhaps under another name.
    pub fn arrive(&mut self, raw: RawDisk, disk: PoolDisk) {
        self.raw = raw;
        self.holding = Holding::Open(disk);
        self.standing = Standing::Ready;
    }

    /// Here, ready, and not lost by a failed write.
    pub fn is_usable(&self) -> bool {
        matches!(self.holding, Holding::Open(_)) && self.standing() == Standing::Ready
    }

    /// Whether only one copy of the label says what is on it.
    pub fn is_unmirrored(&self) -> bool {
        matches!(&self.holding, Holding::Open(disk) if !disk.is_mirrored()) && self.is_usable()
    }

    /// Somebody waits for that: the background work does it first, also where it would leave it to the device.
    pub fn want(&mut self, space: &Extents) {
        self.wanted = self.wanted.intersection(&self.content().dirty());
        space.iter().for_each(|extent| self.wanted.insert(*extent));
    }

    pub fn wanted(&self) -> &Extents {
        &self.wanted
    }
}

/// A disk as the journal has it.
fn known(raw: &RawDisk, content: &Content) -> KnownDisk {
    KnownDisk {
        set: content.label.set.clone(),
        layout: content.label.layout.clone(),
        path: raw.path.clone(),
        model: raw.model.clone(),
        hardware: stable_hardware_id(raw),
        size: content.geometry.size,
        written: content.written,
        volumes: Some(content.volumes().map(|volume| volume.id()).collect()),
        unseen: BTreeSet::new(),
    }
}
