//! What a pool filesystem is on: a disk with our label, or a mount of an administrator.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::mounted_carrier::MountedCarrier;
use crate::claim::Rule;
use crate::device::{
    DiskId,
    label::{Layout, SetRef},
};
use crate::pool::filesystem_claim::OWN_FOLDER;
use crate::pool::worker_flag::WorkerFlag;
use crate::pool::{cordon::Cordon, journal::KnownDisk, labelled::LabelledDisk, view::DiskView, view::Standing};

/// It offers nothing itself: people see it and the filesystem as one.
pub enum Carrier {
    /// The filesystem fills it.
    Disk(Arc<LabelledDisk>),
    /// Somebody else made the filesystem and mounted it. There is no handle of a device.
    Mount(MountedCarrier),
}

/// What all kinds say, for whoever looks.
#[derive(Clone)]
pub struct CarrierShown {
    pub standing: Standing,
    pub rule: Option<Arc<Rule>>,
    /// The set that took it.
    pub set: SetRef,
    pub layout: Layout,
    /// A person gave it up, and it is back.
    pub given_up: bool,
    /// It has had a volume; always so of a mount.
    pub used: bool,
}

impl CarrierShown {
    pub fn cordon(&self) -> Option<Cordon> {
        self.given_up.then_some(Cordon::GivenUp)
    }
}

impl Carrier {
    pub fn id(&self) -> &DiskId {
        match self {
            Self::Disk(disk) => &disk.id,
            Self::Mount(mount) => &mount.id,
        }
    }

    /// `None`: it is no disk of ours.
    pub fn disk(&self) -> Option<&Arc<LabelledDisk>> {
        match self {
            Self::Disk(disk) => Some(disk),
            Self::Mount(_) => None,
        }
    }

    pub fn mount(&self) -> Option<&MountedCarrier> {
        match self {
            Self::Disk(_) => None,
            Self::Mount(mount) => Some(mount),
        }
    }

    /// A path of the pool, as the whole filesystem has it.
    pub fn in_filesystem(&self, path: &Path) -> PathBuf {
        match self {
            Self::Disk(_) => path.to_owned(),
            Self::Mount(_) => Path::new(OWN_FOLDER).join(path),
        }
    }

    pub fn shown(&self) -> CarrierShown {
        match self {
            Self::Disk(disk) => {
                let shown = disk.shown();
                let label = &shown.content.label;
                CarrierShown {
                    standing: shown.standing.clone(),
                    rule: shown.rule.clone(),
                    set: label.set.clone(),
                    layout: label.layout.clone(),
                    given_up: label.given_up,
                    used: label.used,
                }
            }
            Self::Mount(mount) => {
                let shown = mount.shown();
                CarrierShown {
                    standing: shown.standing.clone(),
                    rule: shown.rule.clone(),
                    set: shown.claim.set.clone(),
                    layout: mount.layout(),
                    given_up: shown.claim.given_up,
                    used: true,
                }
            }
        }
    }

    pub fn layout(&self) -> Layout {
        match self {
            Self::Disk(disk) => disk.shown().content.label.layout.clone(),
            Self::Mount(mount) => mount.layout(),
        }
    }

    pub fn rule(&self) -> Option<Arc<Rule>> {
        match self {
            Self::Disk(disk) => disk.shown().rule.clone(),
            Self::Mount(mount) => mount.shown().rule.clone(),
        }
    }

    /// Whether the rule lets new volumes come here.
    pub fn is_chosen_by(&self, rule: &Rule) -> bool {
        match self {
            Self::Disk(_) => rule.filesystems.is_none(),
            Self::Mount(mount) => mount.is_chosen_by(rule),
        }
    }

    /// What is remembered of it should it be away at the next start; `None`: that cannot be told.
    pub fn known(&self) -> Option<KnownDisk> {
        match self {
            Self::Disk(disk) => disk.known(),
            Self::Mount(mount) => mount.known(),
        }
    }

    pub fn disk_view(&self) -> DiskView {
        match self {
            Self::Disk(disk) => disk.disk_view(),
            Self::Mount(mount) => mount.disk_view(),
        }
    }

    pub fn worker(&self) -> &WorkerFlag {
        match self {
            Self::Disk(disk) => &disk.worker,
            Self::Mount(mount) => &mount.worker,
        }
    }
}
