//! A bare device of the pool: the one layout whose claim is not on the disk but in the journal.
//!
//! What the journal says and what the device shows must agree; where they do not, the claim is *disputed*:
//! nothing is read, written or given out there until a person decides (docs/adr/0003-raw-device-claims.md).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uuid::Uuid;

use disputed::{DISPUTED, disputed, on_another_disk};

use super::choose::Offer;
use super::disk::zero;
use super::erase::{GIVE_WAY, Progress, prove_erased, samples_are_zero};
use super::extents::ExtentSet;
use super::journal::{BareClaim, BareVolume};
use super::journal_store::{JournalStore, StoreError};
use super::labelled::{DiskView, PATIENCE, SHORT_PATIENCE, Standing, VolumeView};
use super::plan::{ERASE_CHUNK, NewVolume, Site};
use crate::claim::rule::Rule;
use crate::device::label::{ErasePolicy, EraseRecord, Hardware, Layout, VolumeUsage};
use crate::host::pace::{Call, zero_for_a_moment};
use crate::host::raw::is_unchanged;
use crate::host::turn::{Held, Shows, Stuck, Turn};
use crate::host::{Access, BlockDevice, Disk, Extent, Host, HostError, IoError, Openers, RawDisk};

/// A claimed bare device, here or not.
pub struct BareDevice {
    /// The hardware's id, the key of its claim in the journal.
    pub id: String,
    host: Arc<dyn Host>,
    journal: Arc<JournalStore>,
    turn: Turn<BareState>,
    /// A background worker is busy with it.
    worker: AtomicBool,
}

/// What can be said of it now.
pub struct BareState {
    /// None: it was not here since this process began.
    pub raw: Option<RawDisk>,
    /// The whole disk that it is, or is on; `None`: nothing tells it from another one.
    whole: Option<Hardware>,
    disk: Option<Arc<dyn Disk>>,
    pub standing: Standing,
    pub rule: Option<Arc<Rule>>,
    /// A raw volume waits for the free device to be zeroed.
    is_wanted: bool,
    /// Who keeps it from being erased, in words.
    held: Option<String>,
}

/// What there is to see of it without its lock.
pub struct RawShown {
    pub raw: Option<RawDisk>,
    pub standing: Standing,
    pub rule: Option<Arc<Rule>>,
    pub held: Option<String>,
    /// Whether it zeroes by itself; None while it is not open.
    offloads_zeroes: Option<bool>,
}

impl Shows for BareState {
    type Shown = RawShown;

    fn shown(&self) -> RawShown {
        RawShown {
            raw: self.raw.clone(),
            standing: self.standing.clone(),
            rule: self.rule.clone(),
            held: self.held.clone(),
            offloads_zeroes: self.disk.as_ref().map(|disk| disk.geometry().offloads_zeroes),
        }
    }
}

impl RawShown {
    /// Its node, as far as it is known.
    pub fn path(&self) -> PathBuf {
        self.raw.as_ref().map_or_else(PathBuf::new, |raw| raw.path.clone())
    }
}

/// Why something was not done with a bare device.
#[derive(Debug, thiserror::Error)]
pub enum BareError {
    #[error("the device {0} is not free any more")]
    Taken(String),
    #[error("the device {disk} {why}")]
    Away { disk: String, why: String },
    /// Nothing has changed, and the caller may come back.
    #[error("the device {disk} was not changed: {stuck}")]
    Stuck { disk: String, stuck: Stuck },
    /// Nothing of the volume is there before that is done.
    #[error("the device is being zeroed: {left} bytes are left")]
    BeingZeroed { left: u64 },
    #[error("the device is in use")]
    Busy(#[source] HostError),
    #[error("the device could not be opened")]
    Open(#[source] HostError),
    #[error("a partition that the kernel has on the device could not be unmapped")]
    Unmap(#[source] HostError),
    #[error("the device failed")]
    Io(#[from] IoError),
    #[error("the claim was not written down")]
    Journal(#[from] StoreError),
}

impl BareError {
    /// Somebody has the device, or it does not answer as it should.
    fn opening(error: HostError) -> Self {
        match error {
            HostError::Busy { .. } => Self::Busy(error),
            error => Self::Open(error),
        }
    }

    /// The device failed before the journal said anything of what was asked for.
    pub fn left_nothing(&self) -> bool {
        match self {
            Self::Away { .. } | Self::Stuck { .. } | Self::Busy(_) | Self::Open(_) | Self::Unmap(_) | Self::Io(_) => {
                true
            }
            Self::Taken(_) | Self::Journal(_) | Self::BeingZeroed { .. } => false,
        }
    }
}

impl BareDevice {
    pub fn new(id: String, host: Arc<dyn Host>, journal: Arc<JournalStore>) -> Self {
        let state = BareState {
            raw: None,
            whole: None,
            disk: None,
            standing: Standing::Missing,
            rule: None,
            is_wanted: false,
            held: None,
        };
        Self { id, host, journal, turn: Turn::new(state), worker: AtomicBool::new(false) }
    }

    /// What there is to see, whoever has the lock.
    pub fn shown(&self) -> Arc<RawShown> {
        self.turn.shown()
    }

    /// Waits as long as it takes: for the device's own worker.
    pub fn lock(&self) -> Held<'_, BareState> {
        self.turn.lock()
    }

    /// Waits for others as long as that is worth while.
    pub fn lock_within(&self, patience: Duration) -> Result<Held<'_, BareState>, BareError> {
        let stuck = |stuck| BareError::Stuck { disk: self.shown().path().display().to_string(), stuck };
        self.turn.lock_within(patience).map_err(stuck)
    }

    pub fn has_worker(&self) -> bool {
        self.worker.load(Ordering::SeqCst)
    }

    /// Marks whether a worker is on it; gives whether one was.
    pub fn set_worker(&self, is_there: bool) -> bool {
        self.worker.swap(is_there, Ordering::SeqCst)
    }

    fn claim(&self) -> Result<BareClaim, BareError> {
        let gone = || BareError::Journal(StoreError::NoClaim(self.id.clone()));
        self.journal.bare_claim(&self.id).ok_or_else(gone)
    }

    /// The device is here: opened, and held against what the journal says of it.
    pub fn arrive(&self, raw: &RawDisk, whole: Option<Hardware>) -> Result<(), BareError> {
        if self.is_open_as(raw) {
            return Ok(());
        }
        {
            // Its old handle goes, and with it the name that it had: nobody may be sent there while it is opened.
            let mut state = self.lock_within(SHORT_PATIENCE)?;
            state.raw = Some(raw.clone());
            state.disk = None;
            if state.standing == Standing::Ready {
                state.standing = Standing::NotReady("it is being opened again".to_owned());
            }
        }
        let mut state = self.lock_within(SHORT_PATIENCE)?;
        state.standing = match self.open(raw, whole.as_ref()) {
            Ok(disk) => {
                state.disk = Some(disk);
                Standing::Ready
            }
            Err(words) => Standing::NotReady(words),
        };
        state.whole = whole;
        Ok(())
    }

    /// The device that it is open as; `None`: it is not.
    pub fn open_as(&self) -> Option<RawDisk> {
        let shown = self.shown();
        shown.offloads_zeroes.is_some().then(|| shown.raw.clone()).flatten()
    }

    fn is_open_as(&self, raw: &RawDisk) -> bool {
        self.open_as().is_some_and(|was| is_unchanged(&was, raw))
    }

    fn open(&self, raw: &RawDisk, whole: Option<&Hardware>) -> Result<Arc<dyn Disk>, String> {
        let words = |e: &dyn std::error::Error| crate::host::chain(e);
        let claim = self.claim().map_err(|e| words(&e))?;
        if let Some(why) = on_another_disk(&claim, whole) {
            return Err(why);
        }
        let disk = self.host.open(raw, Access::Own).map_err(|e| words(&e))?;
        // A tenant's, mapped while nobody held the device. One in use costs nobody his volume, and is nobody else's either.
        if let Err(error) = unmap_all(&*disk) {
            tracing::warn!(disk = %self.id, error = %words(&error), "a partition on a bare device stays mapped");
        }
        let size = disk.geometry().size;
        if size < claim.size {
            return Err(format!("{DISPUTED}: the device has {size} bytes, and was claimed with {}", claim.size));
        }
        if claim.should_be_blank()
            && let Some(found) = self.found_on(raw, &*disk, &claim).map_err(|e| words(&e))?
        {
            return Err(disputed(&claim, &found));
        }
        if let Some(why) = self.put_there(raw, &*disk, &claim).map_err(|e| words(&e))? {
            return Err(why);
        }
        self.follow_growth(&claim, size).map_err(|e| words(&e))?;
        if claim.hardware.is_none() && whole.is_some() {
            let written = self.journal.change_bare(&self.id, |claim| claim.hardware = whole.cloned());
            written.map_err(|e| words(&e))?;
        }
        Ok(disk)
    }

    /// A free device that has grown is given out whole, so that what it gained is dirty. A volume keeps its size, though
    /// its tenant has all of the device: what he had is erased with it.
    fn follow_growth(&self, claim: &BareClaim, size: u64) -> Result<(), BareError> {
        if size <= claim.size || claim.volume.is_some() {
            return Ok(());
        }
        tracing::info!(disk = %self.id, from = claim.size, to = size, "a bare device has grown");
        self.journal.change_bare(&self.id, |claim| {
            claim.cleaned = if claim.clean { claim.size } else { claim.cleaned };
            (claim.clean, claim.size) = (false, size);
        })?;
        Ok(())
    }

    /// A filesystem is about to be made for the volume. Durable before the first byte of it, as what was begun may be
    /// done again; what nobody began here is somebody's data.
    pub fn begin_format(&self, id: Uuid) -> Result<(), BareError> {
        let mut state = self.lock_within(PATIENCE)?;
        self.disk(&state)?;
        let claim = self.claim()?;
        if !claim.should_be_blank() {
            return Ok(());
        }
        self.prove_blank(&mut state, &claim)?;
        self.change_volume(id, |volume| volume.formatting = true)
    }

    /// `None`: its claim has just ended.
    pub fn disk_view(&self) -> Option<DiskView> {
        let claim = self.claim().ok()?;
        let shown = self.shown();
        let taken = claim.volume.is_some();
        Some(DiskView {
            id: self.id.clone(),
            path: shown.path(),
            model: shown.raw.as_ref().and_then(|raw| raw.model.clone()),
            layout: Layout::RawDevice {},
            set: claim.set,
            size: claim.size,
            free: if taken || claim.erasing.is_some() { 0 } else { claim.size },
            erasing: if claim.erasing.is_some() { claim.size } else { 0 },
            volumes: usize::from(taken),
            partitions: 0,
            standing: shown.standing.clone(),
            owned: shown.rule.is_some(),
            held: shown.held.clone(),
        })
    }

    pub fn leave(&self) -> Result<(), BareError> {
        if self.shown().standing == Standing::Missing {
            return Ok(());
        }
        let mut state = self.lock_within(SHORT_PATIENCE)?;
        state.disk = None;
        state.standing = Standing::Missing;
        Ok(())
    }

    /// Ends a dispute, as a person said that the device is ours: a free one is erased and offered again, one
    /// with a volume is taken as it is.
    pub fn settle(&self) -> Result<(), BareError> {
        let mut state = self.lock_within(PATIENCE)?;
        let disk = self.host.open(self.here(&state)?, Access::Alone).map_err(BareError::opening)?;
        let size = disk.geometry().size;
        drop(disk);
        let identified = self.host.filesystems().identify(&self.here(&state)?.path).map_err(BareError::Open)?;
        let found = identified.and_then(|found| found.uuid);
        self.journal.change_bare(&self.id, |claim| {
            claim.size = size;
            claim.hardware = state.whole.clone();
            let disputed = claim.should_be_blank();
            match &mut claim.volume {
                // The journal was behind: the filesystem is the volume's own. Anything else is formatted over.
                Some(volume) if disputed && found == Some(volume.id) => volume.formatted = true,
                Some(volume) if disputed => volume.formatting = true,
                Some(_) => {}
                None => {
                    (claim.clean, claim.cleaned) = (false, 0);
                    claim.erasing = Some(EraseRecord { was: Uuid::nil(), policy: ErasePolicy::Zero, cursor: 0 });
                    claim.erasing_usage = None;
                }
            }
        })?;
        state.disk = Some(self.host.open(self.here(&state)?, Access::Own).map_err(BareError::Open)?);
        state.standing = Standing::Ready;
        Ok(())
    }

    pub fn offer<D>(&self, member: D, usage: VolumeUsage) -> Option<Offer<D>> {
        let claim = self.claim().ok()?;
        let shown = self.shown();
        let allowed = shown.rule.as_ref()?.allows(usage);
        let offloads_zeroes = shown.offloads_zeroes?;
        let free = claim.volume.is_none() && claim.erasing.is_none();
        let clean = claim.clean || offloads_zeroes || usage != VolumeUsage::Block;
        let places = match free && clean {
            true => vec![(Site::Slot(0), whole(claim.size))],
            false => Vec::new(),
        };
        let offer = Offer { disk: member, places, room: ExtentSet::default(), volume_ends: Vec::new() };
        (allowed && shown.standing == Standing::Ready).then_some(offer)
    }

    fn here<'s>(&self, state: &'s BareState) -> Result<&'s RawDisk, BareError> {
        let away = || BareError::Away { disk: self.id.clone(), why: "is missing".to_owned() };
        state.raw.as_ref().ok_or_else(away)
    }

    fn disk(&self, state: &BareState) -> Result<Arc<dyn Disk>, BareError> {
        let away = || BareError::Away {
            disk: self.id.clone(),
            why: match &state.standing {
                Standing::NotReady(why) => format!("is not ready: {why}"),
                Standing::Missing | Standing::Ready => "is missing".to_owned(),
            },
        };
        state.disk.clone().filter(|_| state.standing == Standing::Ready).ok_or_else(away)
    }

    /// Nobody else has the device open exclusively, as a mount has. The handle goes at once: while it is
    /// there, the kernel would refuse our own mounts.
    fn prove_unused(&self, state: &BareState) -> Result<(), BareError> {
        self.host.open(self.here(state)?, Access::Alone).map(drop).map_err(BareError::opening)
    }

    /// A raw volume's device is zeroed before, in pieces between which others have their turn; the journal says how far,
    /// and the worker goes on where the caller does not wait.
    pub fn create(&self, volume: &NewVolume, patience: Duration) -> Result<(), BareError> {
        let mut call = Call::begin();
        let _state = loop {
            let mut state = self.lock_within(patience)?;
            let disk = self.disk(&state)?;
            let claim = self.claim()?;
            if claim.volume.is_some() || claim.erasing.is_some() {
                return Err(BareError::Taken(self.id.clone()));
            }
            self.has_its_size(&state, &claim)?;
            let is_zero = volume.record.usage != VolumeUsage::Block || claim.clean;
            if !is_zero && call.is_over() {
                state.is_wanted = true;
                return Err(BareError::BeingZeroed { left: claim.size.saturating_sub(claim.cleaned) });
            }
            self.prove_blank(&mut state, &claim)?;
            if is_zero {
                // Nobody else can have it alone, and whoever only writes to it has found nothing to change yet.
                disk.prove_unopened(Openers::Writers).map_err(BareError::opening)?;
                break state;
            }
            call.has_zeroed(self.clean(&*disk, &claim)?);
            drop(state);
            std::thread::sleep(GIVE_WAY);
        };
        self.journal.change_bare(&self.id, |claim| {
            (claim.clean, claim.cleaned) = (false, 0);
            claim.used = true;
            claim.volume =
                Some(BareVolume { id: volume.id, record: volume.record.clone(), formatting: false, formatted: false });
        })?;
        Ok(())
    }

    /// What it has gained since it was opened is not known to be zeros; the next pass opens it again.
    fn has_its_size(&self, state: &BareState, claim: &BareClaim) -> Result<(), BareError> {
        let size = self.host.open(self.here(state)?, Access::Look).map_err(BareError::Open)?.geometry().size;
        let why = || format!("has {size} bytes by now, and not {}: call again", claim.size);
        if size == claim.size { Ok(()) } else { Err(BareError::Away { disk: self.id.clone(), why: why() }) }
    }

    /// From the journal's write on the volume does not exist; the device is erased in the background.
    pub fn delete(&self, id: Uuid, policy: ErasePolicy) -> Result<(), BareError> {
        let state = self.lock_within(PATIENCE)?;
        let disk = self.disk(&state)?;
        self.has(id)?;
        self.prove_unused(&state)?;
        disk.prove_unopened(Openers::All).map_err(BareError::opening)?;
        unmap_all(&*disk)?;
        self.journal.change_bare(&self.id, |claim| {
            if let Some(volume) = claim.volume.take() {
                // Without erasure a bare device could not be told from somebody else's afterwards.
                let policy = if policy == ErasePolicy::None { ErasePolicy::Zero } else { policy };
                claim.erasing = Some(EraseRecord { was: volume.id, policy, cursor: 0 });
                claim.erasing_usage = Some(volume.record.usage);
            }
        })?;
        Ok(())
    }

    /// Whoever waited for the device may find another volume there.
    fn has(&self, id: Uuid) -> Result<(), BareError> {
        match self.claim()?.volume {
            Some(volume) if volume.id == id => Ok(()),
            Some(_) | None => {
                Err(BareError::Away { disk: self.id.clone(), why: format!("does not have volume {id} any more") })
            }
        }
    }

    /// Changes the volume's own record.
    pub fn change_volume(&self, id: Uuid, change: impl FnOnce(&mut BareVolume)) -> Result<(), BareError> {
        self.has(id)?;
        self.journal
            .change_bare(&self.id, |claim| claim.volume.as_mut().filter(|volume| volume.id == id).map(change))?;
        Ok(())
    }

    /// Its volume becomes another one, found, its data as it is.
    pub fn give_other_id(&self, id: Uuid, fresh: Uuid, name: &str) -> Result<(), BareError> {
        let state = self.lock_within(PATIENCE)?;
        self.disk(&state)?;
        self.prove_unused(&state)?;
        self.change_volume(id, |volume| {
            volume.id = fresh;
            volume.record.name = name.to_owned();
            volume.record.found = true;
        })
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

    /// Ends the claim of a device that is away, with its volume if it has one.
    pub fn forget(&self) -> Result<(), BareError> {
        let _state = self.lock_within(PATIENCE)?;
        Ok(self.journal.release(&self.id)?)
    }

    /// Ends the claim.
    pub fn release(&self) -> Result<(), BareError> {
        let _state = self.lock_within(PATIENCE)?;
        self.can_release()?;
        Ok(self.journal.release(&self.id)?)
    }

    pub fn view(&self) -> Option<VolumeView> {
        let claim = self.claim().ok()?;
        let volume = claim.volume?;
        let shown = self.shown();
        Some(VolumeView {
            id: volume.id,
            record: Some(volume.record),
            size: claim.size,
            formatted: volume.formatted,
            growable_to: claim.size,
            set: claim.set,
            disk: self.id.clone(),
            standing: shown.standing.clone(),
            conflict: None,
            // Another device may have the name by now.
            node: if shown.offloads_zeroes.is_some() { shown.path() } else { PathBuf::new() },
        })
    }

    /// One chunk of erasing or cleaning.
    pub fn work(&self) -> Result<Progress, BareError> {
        let (disk, _alone, claim, erasing) = {
            let mut state = self.lock();
            // Under the lock: what is written down of it after this look finds no worker, and starts one.
            let claim = self.claim()?;
            let disk = self.disk(&state).ok();
            let wants_clean = state.rule.as_ref().is_some_and(|rule| rule.allows(VolumeUsage::Block))
                && disk.as_ref().is_some_and(|disk| !disk.geometry().offloads_zeroes);
            let is_dirty = claim.volume.is_none() && !claim.clean;
            match (disk, claim.erasing.clone()) {
                (Some(disk), Some(erasing)) => match self.may_erase(&mut state, &claim)? {
                    Some(alone) => (disk, alone, claim, erasing),
                    None => {
                        self.set_worker(false);
                        return Ok(Progress::Idle);
                    }
                },
                (Some(disk), None) if is_dirty && (wants_clean || state.is_wanted) => {
                    self.prove_blank(&mut state, &claim)?;
                    self.clean(&*disk, &claim)?;
                    drop(state);
                    std::thread::sleep(GIVE_WAY);
                    return Ok(Progress::Worked);
                }
                (None, _) | (Some(_), None) => {
                    self.set_worker(false);
                    return Ok(Progress::Idle);
                }
            }
        };
        let from = erasing.cursor;
        // As it is now: the tenant had all of it, also what it gained since it was claimed.
        let size = disk.geometry().size.max(claim.size);
        let chunk = Extent { start: from, end: size.min(from.saturating_add(ERASE_CHUNK)) };
        if chunk.is_empty() {
            // Made since the deletion: it would lead into the next tenant's volume.
            unmap_all(&*disk)?;
            prove_erased(&*disk, whole(size), erasing.policy)?;
            self.journal.change_bare(&self.id, |claim| {
                (claim.erasing, claim.erasing_usage) = (None, None);
                (claim.clean, claim.size) = (true, size);
            })?;
        } else {
            zero(&*disk, chunk)?;
            self.journal.change_bare(&self.id, |claim| {
                if let Some(erasing) = claim.erasing.as_mut() {
                    erasing.cursor = chunk.end;
                }
            })?;
        }
        Ok(Progress::Worked)
    }

    /// Zeroes the free device for a moment; the journal then says how far. Gives how much. Under the lock, as a volume may
    /// be made on it at any time.
    fn clean(&self, disk: &dyn Disk, claim: &BareClaim) -> Result<u64, BareError> {
        let done = zero_for_a_moment(disk, Extent { start: claim.cleaned.min(claim.size), end: claim.size })?;
        self.journal.change_bare(&self.id, |claim| {
            claim.cleaned = done.end;
            claim.clean = done.end == claim.size;
        })?;
        Ok(done.len())
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

mod disputed;
