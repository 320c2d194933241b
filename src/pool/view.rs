//! What the rest of the product sees of the pool: its disks, its volumes, and what is not known of them. Values only.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::cordon::Cordon;
use super::erasure::Erasure;
use super::journal::KnownDisk;
use crate::device::label::{Layout, SetRef, VolumeRecord};
use crate::device::{DiskId, VolumeId};
use crate::host::MountSource;

/// Whether a member can be used, as text for people where it cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Ready,
    NotReady(String),
    Missing,
}

impl Standing {
    /// Goes on after the disk's name.
    pub const MISSING: &str = "is missing";

    /// Why what is on the disk cannot be used now, as it goes on after the disk's name; `None`: it can.
    pub fn why_away(&self) -> Option<String> {
        match self {
            Self::Ready => None,
            Self::NotReady(why) => Some(format!("is not ready: {why}")),
            Self::Missing => Some(Self::MISSING.to_owned()),
        }
    }
}

/// Whether the node has the filesystem of a disk mounted for others than localpool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostMount {
    /// It does not have to be, or cannot be used.
    #[default]
    None,
    At(PathBuf),
    /// It has to be, and this is why it is not.
    Failed(String),
}

impl HostMount {
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::At(path) => Some(path),
            Self::None | Self::Failed(_) => None,
        }
    }

    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::Failed(why) => Some(why),
            Self::None | Self::At(_) => None,
        }
    }
}

/// A volume as the rest of the product sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeView {
    pub id: VolumeId,
    /// `None`: the label does not describe it; it can be found and kept, but not used.
    pub record: Option<VolumeRecord>,
    /// Bytes.
    pub size: u64,
    pub formatted: bool,
    pub growable_to: u64,
    pub set: SetRef,
    /// Id of its disk.
    pub disk: DiskId,
    pub standing: Standing,
    /// A person gave its disk up, which is back: it cannot be used before the disk is adopted.
    pub given_up: bool,
    /// It is, or may be, on another disk as well, as text: it cannot be used.
    pub conflict: Option<String>,
    /// The device that the tenant gets, or that the filesystem of its folder is on.
    pub node: PathBuf,
    /// `None`: the tenant gets the device.
    pub directory: Option<DirectoryView>,
}

/// The folder that a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryView {
    /// Its path on this node, in the mount of the pool.
    pub path: PathBuf,
    /// Its path in the filesystem.
    pub root: PathBuf,
    /// It can become smaller.
    pub shrinks: bool,
}

impl VolumeView {
    /// What its mounts are from.
    pub fn source(&self) -> MountSource<'_> {
        match &self.directory {
            Some(DirectoryView { root, .. }) => MountSource { device: &self.node, root },
            None => MountSource::whole(&self.node),
        }
    }

    /// What people are shown: the folder, or the device.
    pub fn path(&self) -> &Path {
        self.directory.as_ref().map_or(&self.node, |directory| &directory.path)
    }
}

/// A disk of the pool as the rest of the product sees it. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskView {
    pub id: DiskId,
    pub path: PathBuf,
    pub model: Option<String>,
    pub layout: Layout,
    /// The md array that it is.
    pub array: Option<Uuid>,
    pub set: SetRef,
    pub size: u64,
    pub free: u64,
    pub erasing: u64,
    /// Kept free of volumes.
    pub reserved: u64,
    pub erasure: Erasure,
    pub volumes: usize,
    /// Slots, taken or free; else volumes.
    pub partitions: usize,
    pub standing: Standing,
    pub host_mount: HostMount,
    /// Whether the set that owns it exists.
    pub owned: bool,
    /// What of it cannot be given away, as somebody uses it.
    pub busy: Option<String>,
    /// What its background work failed in when it was last tried.
    pub failing: Option<String>,
    /// What keeps the array that it is, or is a member of, from being used.
    pub array_problem: Option<String>,
    /// Why it takes no new volumes.
    pub cordon: Option<Cordon>,
}

/// What is said of a cordoned disk where people look.
pub const CORDONED: &str = "it takes no new volumes";

/// What is said of it where people look.
pub const FAILING: &str = "background work (erasing, zeroing, the second copy of the label) fails, and is tried again";

impl DiskView {
    /// A disk that has not been here since the process began: what is on it is not known.
    pub fn absent(id: DiskId, disk: KnownDisk) -> Self {
        let KnownDisk { set, layout, path, model, hardware, size, .. } = disk;
        Self {
            id,
            path,
            model,
            layout,
            array: hardware.and_then(|hardware| hardware.array()),
            set,
            size,
            free: 0,
            erasing: 0,
            reserved: 0,
            erasure: Erasure::default(),
            volumes: 0,
            partitions: 0,
            standing: Standing::Missing,
            host_mount: HostMount::None,
            // It offers nothing either way, and that is said as missing.
            owned: true,
            busy: None,
            failing: None,
            array_problem: None,
            cordon: None,
        }
    }

    /// The array that it is a member of.
    pub fn member_of(&self) -> Option<Uuid> {
        self.layout.member().map(|place| place.array)
    }

    /// Bytes that count where disks are added up: those of a member of an array are the array's.
    pub fn own_size(&self) -> u64 {
        if self.member_of().is_some() { 0 } else { self.size }
    }
}

/// A disk of the pool whose content cannot be asked for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unasked {
    pub disk: DiskId,
    /// Goes on after its name: `is missing`.
    pub why: String,
    /// Volumes that are or may be on it.
    pub listed: BTreeSet<VolumeId>,
    pub knowledge: Knowledge,
}

/// What the list of a disk that cannot be asked is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Nothing else is on it.
    Whole,
    /// Anything may be on it.
    Part,
    /// Nor is it known whether it is ours.
    None,
}

/// Whether a volume that no disk here has may be on one that cannot be asked, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    None,
    /// A disk had it, or was to have it.
    Of(String),
    /// It was on a disk that a person gave up while that was away: what is there comes back only with the disk.
    GivenUp(String),
    /// There is a disk of which nothing is known.
    General(String),
}

impl Doubt {
    pub fn message(self) -> Option<String> {
        match self {
            Self::Of(message) | Self::GivenUp(message) | Self::General(message) => Some(message),
            Self::None => None,
        }
    }
}
