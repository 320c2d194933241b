//! A filesystem that an administrator mounted and named, as the carrier of a pool filesystem: what is known of it. It has
//! no handle, so nothing can be done to the device that it is on (docs/adr/0022).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use uuid::Uuid;

use crate::claim::Rule;
use crate::device::DiskId;
use crate::device::label::Layout;
use crate::host::DevNo;
use crate::pool::cordon::Cordon;
use crate::pool::erasure::Erasure;
use crate::pool::filesystem_claim::FilesystemClaim;
use crate::pool::journal::KnownDisk;
use crate::pool::named_filesystem::NamedFilesystem;
use crate::pool::view::{DiskView, HostMount, Standing};
use crate::pool::worker_flag::WorkerFlag;

/// The number that the journal has for one that was seen: there is no label that would count.
const SEEN: u64 = 1;

pub struct MountedCarrier {
    pub id: DiskId,
    pub uuid: Uuid,
    pub worker: WorkerFlag,
    shown: RwLock<Arc<MountedShown>>,
}

/// What there is to see of it.
#[derive(Clone)]
pub struct MountedShown {
    /// What a person says of it now.
    pub entry: NamedFilesystem,
    /// What is written on it.
    pub claim: FilesystemClaim,
    pub standing: Standing,
    pub rule: Option<Arc<Rule>>,
    /// Bytes.
    pub size: u64,
    /// The device that it is open on.
    pub device: Option<DevNo>,
}

impl MountedCarrier {
    /// One that was not opened yet.
    pub fn new(uuid: Uuid, entry: NamedFilesystem, claim: FilesystemClaim) -> Self {
        let standing = Standing::NotReady("its filesystem was not opened yet".to_owned());
        let shown = MountedShown { entry, claim, standing, rule: None, size: 0, device: None };
        let (id, worker) = (DiskId::of_filesystem(uuid), WorkerFlag::default());
        Self { id, uuid, worker, shown: RwLock::new(Arc::new(shown)) }
    }

    pub fn shown(&self) -> Arc<MountedShown> {
        Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn change(&self, change: impl FnOnce(&mut MountedShown)) {
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut shown));
    }

    pub fn layout(&self) -> Layout {
        Layout::Directory { quota: self.shown().claim.quota }
    }

    pub fn is_chosen_by(&self, rule: &Rule) -> bool {
        let shown = self.shown();
        shown.entry.allows_scheduling && shown.entry.is_chosen_by(rule)
    }

    pub fn known(&self) -> Option<KnownDisk> {
        let shown = self.shown();
        (shown.standing == Standing::Ready).then(|| KnownDisk {
            set: shown.claim.set.clone(),
            layout: self.layout(),
            path: shown.entry.path.clone(),
            model: None,
            hardware: None,
            size: shown.size,
            written: SEEN,
            volumes: None,
            unseen: BTreeSet::new(),
        })
    }

    /// Where the administrator has it.
    pub fn path(&self) -> PathBuf {
        self.shown().entry.path.clone()
    }

    pub fn disk_view(&self) -> DiskView {
        let shown = self.shown();
        DiskView {
            id: self.id.clone(),
            path: shown.entry.path.clone(),
            model: None,
            layout: self.layout(),
            array: None,
            set: shown.claim.set.clone(),
            size: shown.size,
            free: 0,
            erasing: 0,
            reserved: 0,
            erasure: Erasure::default(),
            volumes: 0,
            partitions: 0,
            standing: shown.standing.clone(),
            host_mount: HostMount::None,
            owned: shown.rule.is_some(),
            busy: None,
            failing: None,
            array_problem: None,
            cordon: shown.claim.given_up.then_some(Cordon::GivenUp),
        }
    }
}
