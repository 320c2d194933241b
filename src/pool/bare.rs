//! A bare device of the pool: the one layout whose claim is not on the disk but in the journal.
//!
//! What the journal says and what the device shows must agree; where they do not, the claim is *disputed*:
//! nothing is read, written or given out there until a person decides (docs/adr/0003-raw-device-claims.md).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::choose::{DiskOffer, minimum};
use super::erase::samples_are_zero;
use super::erasure::ErasureCount;
use super::error::{BareError, StoreError};
use super::extents::Extents;
use super::journal::BareClaim;
use super::journal_store::JournalStore;
use super::plan::Site;
use super::view::{DiskView, HostMount, Standing, VolumeView};
use super::worker_flag::WorkerFlag;
use crate::claim::Rule;
use crate::device::{
    DiskId,
    duplicate::stable_hardware_id,
    label::{Hardware, Layout, VolumeUsage},
};
use crate::host::{
    Access, BlockDevice, DEVICE_LOCK_TIMEOUT, DeviceLock, DeviceLockGuard, Disk, Extent, Host, HostError, IoError,
    RawDisk, SHORT_DEVICE_LOCK_TIMEOUT, Shows,
};

mod change;
mod disputed;
mod open;
mod work;

const OTHERWISE: &str = "the PoolVolumes have another volume on it than the journal";

/// A claimed bare device, here or not.
pub struct BareDevice {
    /// The hardware's id, the key of its claim in the journal.
    pub id: DiskId,
    host: Arc<dyn Host>,
    journal: Arc<JournalStore>,
    lock: DeviceLock<BareState>,
    pub worker: WorkerFlag,
    erased: ErasureCount,
}

/// What can be said of it now.
pub struct BareState {
    /// None: it was not here since this process began.
    pub raw: Option<RawDisk>,
    /// The whole disk that it is, or is on; `None`: nothing tells it from another one.
    whole: Option<Hardware>,
    disk: Option<Arc<dyn Disk>>,
    standing: Standing,
    /// Why it is not ready is that it contradicts its claim.
    is_disputed: bool,
    pub rule: Option<Arc<Rule>>,
    /// A block volume waits for the free device to be zeroed.
    is_wanted: bool,
    /// Who keeps it from being erased, as text.
    busy: Option<String>,
}

/// What there is to see of it without its lock.
pub struct BareShown {
    pub raw: Option<RawDisk>,
    pub standing: Standing,
    is_disputed: bool,
    pub rule: Option<Arc<Rule>>,
    pub busy: Option<String>,
    /// Whether it zeroes by itself; None while it is not open.
    offloads_zeroes: Option<bool>,
}

/// Why a device that is here is not used, as text.
enum NotReady {
    /// It contradicts its claim: a person decides.
    Disputed(String),
    /// It failed, or somebody has it: the next pass tries again.
    Failed(String),
}

impl BareState {
    fn becomes_ready(&mut self, disk: Arc<dyn Disk>) {
        self.disk = Some(disk);
        (self.standing, self.is_disputed) = (Standing::Ready, false);
    }

    fn becomes_not_ready(&mut self, why: NotReady) {
        self.disk = None;
        (self.standing, self.is_disputed) = match why {
            NotReady::Disputed(why) => (Standing::NotReady(why), true),
            NotReady::Failed(why) => (Standing::NotReady(why), false),
        };
    }
}

impl Shows for BareState {
    type Shown = BareShown;

    fn shown(&self) -> BareShown {
        BareShown {
            raw: self.raw.clone(),
            standing: self.standing.clone(),
            is_disputed: self.is_disputed,
            rule: self.rule.clone(),
            busy: self.busy.clone(),
            offloads_zeroes: self.disk.as_ref().map(|disk| disk.geometry().offloads_zeroes),
        }
    }
}

impl BareShown {
    /// Its node, as far as it is known.
    pub fn path(&self) -> PathBuf {
        self.raw.as_ref().map_or_else(PathBuf::new, |raw| raw.path.clone())
    }
}

impl BareDevice {
    pub fn new(id: DiskId, host: Arc<dyn Host>, journal: Arc<JournalStore>) -> Self {
        let state = BareState {
            raw: None,
            whole: None,
            disk: None,
            standing: Standing::Missing,
            is_disputed: false,
            rule: None,
            is_wanted: false,
            busy: None,
        };
        let (worker, erased) = (WorkerFlag::default(), ErasureCount::default());
        Self { id, host, journal, lock: DeviceLock::new(state), worker, erased }
    }

    /// What there is to see, whoever has the lock.
    pub fn shown(&self) -> Arc<BareShown> {
        self.lock.shown()
    }

    /// Waits as long as it takes: for the device's own worker.
    pub fn lock(&self) -> DeviceLockGuard<'_, BareState> {
        self.lock.lock()
    }

    /// Waits for others as long as that is worth while.
    pub fn lock_within(&self, timeout: Duration) -> Result<DeviceLockGuard<'_, BareState>, BareError> {
        let stuck = |stuck| BareError::Stuck { disk: self.shown().path(), stuck };
        self.lock.lock_within(timeout).map_err(stuck)
    }

    fn claim(&self) -> Result<BareClaim, BareError> {
        let gone = || BareError::Journal(StoreError::NoClaim(self.id.clone()));
        self.journal.bare_claim(&self.id).ok_or_else(gone)
    }

    /// `None`: its claim has just ended.
    pub fn disk_view(&self) -> Option<DiskView> {
        let claim = self.claim().ok()?;
        let shown = self.shown();
        let taken = claim.volume.is_some();
        let left = claim.erasing.as_ref().map_or(0, |erasing| claim.size.saturating_sub(erasing.cursor));
        Some(DiskView {
            id: self.id.clone(),
            path: shown.path(),
            model: shown.raw.as_ref().and_then(|raw| raw.model.clone()),
            layout: Layout::RawDevice {},
            array: shown.raw.as_ref().and_then(stable_hardware_id).and_then(|hardware| hardware.array()),
            set: claim.set,
            size: claim.size,
            free: if taken || claim.erasing.is_some() { 0 } else { claim.size },
            erasing: if claim.erasing.is_some() { claim.size } else { 0 },
            reserved: 0,
            erasure: self.erased.view(left),
            volumes: usize::from(taken),
            partitions: 0,
            standing: shown.standing.clone(),
            host_mount: HostMount::None,
            owned: shown.rule.is_some(),
            busy: shown.busy.clone(),
            failing: None,
            array_problem: None,
            cordon: None,
        })
    }

    pub fn leave(&self) -> Result<(), BareError> {
        if self.shown().standing == Standing::Missing {
            return Ok(());
        }
        let mut state = self.lock_within(SHORT_DEVICE_LOCK_TIMEOUT)?;
        state.disk = None;
        (state.standing, state.is_disputed) = (Standing::Missing, false);
        Ok(())
    }

    pub fn offer<D>(&self, member: D, usage: VolumeUsage) -> Option<DiskOffer<D>> {
        let claim = self.claim().ok()?;
        let shown = self.shown();
        let allowed = shown.rule.as_ref()?.allows(usage);
        let offloads_zeroes = shown.offloads_zeroes?;
        let free = claim.volume.is_none() && claim.erasing.is_none() && self.journal.knows_volumes();
        let clean = claim.clean || offloads_zeroes || usage != VolumeUsage::Block;
        let places = match free && clean {
            true => vec![(Site::Slot(0), whole(claim.size))],
            false => Vec::new(),
        };
        let offer = DiskOffer {
            disk: member,
            places,
            room: Extents::default(),
            volume_ends: Vec::new(),
            least: minimum(usage),
        };
        (allowed && shown.standing == Standing::Ready).then_some(offer)
    }

    fn here<'s>(&self, state: &'s BareState) -> Result<&'s RawDisk, BareError> {
        let away = || BareError::Away { disk: self.id.clone(), why: Standing::MISSING.to_owned() };
        state.raw.as_ref().ok_or_else(away)
    }

    fn disk(&self, state: &BareState) -> Result<Arc<dyn Disk>, BareError> {
        let away = || BareError::Away {
            disk: self.id.clone(),
            why: state.standing.why_away().unwrap_or_else(|| Standing::MISSING.to_owned()),
        };
        let disk = state.disk.clone().filter(|_| state.standing == Standing::Ready).ok_or_else(away)?;
        // Known since it was opened; the next pass says which it is.
        match self.journal.contradiction(&self.id) {
            Some(_) => Err(BareError::Away { disk: self.id.clone(), why: format!("is not ready: {OTHERWISE}") }),
            None => Ok(disk),
        }
    }

    /// Nobody else has the device open exclusively, as a mount has. The handle goes at once: while it is
    /// there, the kernel would refuse our own mounts.
    fn prove_unused(&self, state: &BareState) -> Result<(), BareError> {
        self.host.open(self.here(state)?, Access::Alone).map(drop).map_err(BareError::opening)
    }

    /// Whether the claim could be ended: no volume, and nothing left to erase.
    pub fn can_release(&self) -> Result<(), BareError> {
        let claim = self.claim()?;
        match (claim.volume, claim.erasing) {
            (Some(volume), _) => Err(BareError::Taken(format!("{}: it holds volume {}", self.id, volume.id))),
            // What somebody put there is his.
            (None, Some(_)) if self.is_disputed() => Ok(()),
            (None, Some(_)) => Err(BareError::Taken(format!("{}: it is being erased", self.id))),
            (None, None) => Ok(()),
        }
    }

    pub fn is_disputed(&self) -> bool {
        self.shown().is_disputed
    }

    /// Ends the claim of a device that is away, with its volume if it has one.
    pub fn forget(&self) -> Result<(), BareError> {
        let _state = self.lock_within(DEVICE_LOCK_TIMEOUT)?;
        Ok(self.journal.release(&self.id)?)
    }

    /// Ends the claim.
    pub fn release(&self) -> Result<(), BareError> {
        let _state = self.lock_within(DEVICE_LOCK_TIMEOUT)?;
        self.can_release()?;
        Ok(self.journal.release(&self.id)?)
    }

    pub fn view(&self) -> Option<VolumeView> {
        let claim = self.claim().ok()?;
        let volume = claim.volume?;
        let shown = self.shown();
        // Known since it was opened; the next pass says which it is.
        let standing = match (&shown.standing, self.journal.contradiction(&self.id)) {
            (Standing::Ready, Some(_)) => Standing::NotReady(OTHERWISE.to_owned()),
            (standing, _) => standing.clone(),
        };
        Some(VolumeView {
            id: volume.id,
            record: Some(volume.record),
            size: claim.size,
            formatted: volume.formatted,
            growable_to: claim.size,
            set: claim.set,
            disk: self.id.clone(),
            standing,
            given_up: false,
            conflict: None,
            // Another device may have the name by now.
            node: if shown.offloads_zeroes.is_some() { shown.path() } else { PathBuf::new() },
            directory: None,
        })
    }
}

/// Drops all partitions that the kernel has on a device, which are what it made of a tenant's bytes.
fn unmap_all(disk: &dyn Disk) -> Result<(), BareError> {
    for mapping in disk.mapped().map_err(BareError::Unmap)? {
        disk.unmap(mapping.number).map_err(|error| match error {
            HostError::Busy { .. } => BareError::Busy(error),
            error => BareError::Unmap(error),
        })?;
    }
    Ok(())
}

pub fn whole(size: u64) -> Extent {
    Extent { start: 0, end: size }
}

/// Whether a device that nobody has a record of looks as if nobody had used it: zeros wherever we look. A
/// raw block volume may hold bytes that no probe knows, so a device without a label must be blank to the eye.
pub fn reads_as_zeros(disk: &dyn BlockDevice) -> Result<bool, IoError> {
    samples_are_zero(disk, whole(disk.geometry().size))
}
