//! A disk of the pool over its life: it joins, leaves, and comes back under another name.
//!
//! One lock per disk: operations on different disks never wait for each other.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::disk::{ApplyError, PoolDisk};
use crate::device::label::{Layout, SetRef, VolumeRecord, VolumeUsage};
use crate::device::rule::Rule;
use crate::host::{Disk, RawDisk};
use crate::pool::choose::{Offer, offer};
use crate::pool::content::{Content, OnDisk};
use crate::pool::journal::KnownDisk;
use crate::pool::plan::{NewVolume, Site, create, expand};

/// A disk of the pool. Its id never changes while the process lives.
pub struct Member {
    pub id: String,
    state: Mutex<State>,
}

/// What can be said of a member now.
pub struct State {
    /// As the kernel has, or last had, it.
    pub raw: RawDisk,
    holding: Holding,
    standing: Standing,
    /// The set that owns the disk, where it exists; without one the disk offers nothing.
    pub rule: Option<Arc<Rule>>,
    /// A background worker is busy with this disk.
    pub worker: bool,
    /// A worker shall try again what somebody held.
    pub retries_held: bool,
}

#[expect(clippy::large_enum_variant, reason = "there is one for each disk of the machine")]
enum Holding {
    Open(PoolDisk),
    /// What it held when it was last seen.
    Closed(Box<Content>),
}

/// Whether a member can be used, in words for people where it cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Ready,
    NotReady(String),
    Missing,
}

/// A volume as the rest of the product sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeView {
    pub id: Uuid,
    /// `None`: the label does not describe it; it can be found and kept, but not used.
    pub record: Option<VolumeRecord>,
    /// Bytes.
    pub size: u64,
    pub formatted: bool,
    pub growable_to: u64,
    pub set: SetRef,
    /// Id of its disk.
    pub disk: String,
    pub standing: Standing,
    /// It is, or may be, on another disk as well, in words: it cannot be used.
    pub conflict: Option<String>,
    /// The device that the tenant gets.
    pub node: PathBuf,
}

/// A disk of the pool as the rest of the product sees it. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskView {
    pub id: String,
    pub path: PathBuf,
    pub model: Option<String>,
    pub layout: Layout,
    pub set: SetRef,
    pub size: u64,
    pub free: u64,
    pub erasing: u64,
    pub volumes: usize,
    /// Slots, taken or free; else volumes.
    pub partitions: usize,
    pub standing: Standing,
    /// Whether the set that owns it exists.
    pub owned: bool,
    /// What of it cannot be given away, as somebody uses it.
    pub held: Option<String>,
}

impl DiskView {
    /// A disk that has not been here since the process began: what is on it is not known.
    pub fn absent(id: String, disk: KnownDisk) -> Self {
        let KnownDisk { set, layout, path, model, size, volumes: _ } = disk;
        Self {
            id,
            path,
            model,
            layout,
            set,
            size,
            free: 0,
            erasing: 0,
            volumes: 0,
            partitions: 0,
            standing: Standing::Missing,
            // It offers nothing either way, and that is said as missing.
            owned: true,
            held: None,
        }
    }
}

impl Member {
    /// What is remembered of it should it be away at the next start; `None`: that cannot be told, as a write failed or it
    /// left.
    pub fn known(&self) -> Option<KnownDisk> {
        let state = self.lock();
        state.is_usable().then(|| state.known())
    }

    pub fn disk_view(&self) -> DiskView {
        let state = self.lock();
        let content = state.content();
        let volumes = content.volumes().count();
        DiskView {
            id: self.id.clone(),
            path: state.raw.path.clone(),
            model: state.raw.model.clone(),
            layout: content.label.layout.clone(),
            set: content.label.set.clone(),
            size: content.geometry.size,
            free: content.free().total(),
            erasing: content.erasing().map(|(_, entry, _)| entry.extent.len()).sum(),
            volumes,
            partitions: volumes + content.free_slots().count(),
            standing: state.standing(),
            owned: state.rule.is_some(),
            held: state.held(),
        }
    }

    pub fn new(id: String, raw: RawDisk, disk: PoolDisk, rule: Option<Arc<Rule>>) -> Self {
        let state = State {
            raw,
            holding: Holding::Open(disk),
            standing: Standing::Ready,
            rule,
            worker: false,
            retries_held: false,
        };
        Self { id, state: Mutex::new(state) }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn views(&self) -> Vec<VolumeView> {
        let state = self.lock();
        state.content().volumes().map(|volume| state.view(&self.id, &volume)).collect()
    }

    pub fn view(&self, id: Uuid) -> Option<VolumeView> {
        let state = self.lock();
        let volume = state.content().volume(id)?;
        Some(state.view(&self.id, &volume))
    }
}

impl State {
    pub(super) fn known(&self) -> KnownDisk {
        let content = self.content();
        KnownDisk {
            set: content.label.set.clone(),
            layout: content.label.layout.clone(),
            path: self.raw.path.clone(),
            model: self.raw.model.clone(),
            size: content.geometry.size,
            volumes: Some(content.volumes().map(|volume| volume.id()).collect()),
        }
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
        let gone = |why: &str, raw: &RawDisk| ApplyError::NotOurs {
            disk: raw.path.display().to_string(),
            why: why.to_owned(),
        };
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
            _ => None,
        }
    }

    /// The disk left: its handle is dropped, what it held is remembered.
    pub fn leave(&mut self, standing: Standing) {
        if let Holding::Open(disk) = &self.holding {
            self.holding = Holding::Closed(Box::new(disk.content().clone()));
        }
        self.standing = standing;
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

    /// What of it somebody uses, though no volume is there, and what that costs.
    pub fn held(&self) -> Option<String> {
        let held: Vec<&str> = self.content().held.values().map(|held| held.why.as_str()).collect();
        (!held.is_empty())
            .then(|| format!("{}: not offered, and not erased, before that ends; tried again", held.join("; ")))
    }

    /// Whether only one copy of the label says what is on it.
    pub fn is_unmirrored(&self) -> bool {
        matches!(&self.holding, Holding::Open(disk) if !disk.is_mirrored()) && self.is_usable()
    }

    /// What it has to give for `usage`, where its set exists and allows that.
    pub fn offer(&self, member: usize, usage: VolumeUsage) -> Option<Offer<usize>> {
        let rule = self.rule.as_ref()?;
        (rule.allows(usage) && self.is_usable()).then(|| offer(member, self.content(), usage))
    }

    pub fn create(&mut self, site: Site, volume: &NewVolume) -> Result<(), ApplyError> {
        self.disk()?.change(|content| create(content, site, volume))
    }

    pub fn expand(&mut self, id: Uuid, required: u64) -> Result<(), ApplyError> {
        self.disk()?.change(|content| expand(content, id, required))
    }

    fn view(&self, member: &str, volume: &OnDisk<'_>) -> VolumeView {
        let content = self.content();
        let mut into = content.unpartitioned();
        let block = volume.record.is_some_and(|r| r.usage == VolumeUsage::Block);
        if block && !content.geometry.offloads_zeroes {
            into = into.intersection(&content.clean());
        }
        let node = match &self.holding {
            Holding::Open(disk) => disk.disk().node(volume.number),
            Holding::Closed(_) => PathBuf::new(),
        };
        VolumeView {
            id: volume.id(),
            record: volume.record.cloned(),
            size: volume.size(),
            formatted: volume.formatted(),
            growable_to: content.growable_to(volume.id(), &into).unwrap_or(volume.size()),
            set: content.label.set.clone(),
            disk: member.to_owned(),
            standing: self.standing(),
            conflict: None,
            node,
        }
    }
}
