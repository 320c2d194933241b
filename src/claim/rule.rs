//! What a LocalVolumeSet or one class of a LocalVolume asks of this node, after validation: the gate behind which
//! nobody reads an unchecked spec.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::expression::Expression;
use super::filesystem_choice::FilesystemChoice;
use super::glob::Glob;
use super::list_filter::FilterLists;
use super::named::NamedPaths;
use crate::device::{
    DeviceType,
    label::{ArrayLevel, ErasePolicy, Layout, SetRef, VolumeUsage},
};
use crate::host::{FsKind, Health};

/// A valid set, or one class of a LocalVolume, for one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub set: SetRef,
    /// Between unclaimed contenders the older set wins: seconds since the epoch, `i64::MAX` where the
    /// set does not say, then `position`, then `set`.
    pub created: i64,
    /// Place among the sets of one file; 0 where sets do not come from a file.
    pub position: u32,
    /// Whether the set's nodeSelector takes this node. Another node's set claims nothing here.
    pub node: NodeMatch,
    /// Held against the node's taints where there are any.
    pub tolerations: Vec<Toleration>,
    /// The StorageClass that offers the disks. Empty: none does, as they are for whoever uses `host_mount`.
    pub class: String,
    /// The disks that it takes first become an array, which then has the layout. `None`: each is used by itself.
    pub array: Option<ArrayLevel>,
    pub layout: Layout,
    /// The folder of the node below which the filesystems of its disks are mounted for others, too.
    pub host_mount: Option<PathBuf>,
    pub provisioning: Provisioning,
    /// It takes filesystems that an administrator mounted and named, and no disk.
    pub filesystems: Option<FilesystemChoice>,
    pub filter: Filter,
    pub blankness: Blankness,
    /// The devices that a LocalVolume names; no others are taken, whatever the filter says. `None`: a set.
    pub named: Option<NamedPaths>,
    /// Below this many matching devices a first claim on this node does not happen.
    pub min_devices: u32,
    pub max_devices: Option<u32>,
    /// What volumes may be used as; `None`: the claim chooses.
    pub volume_mode: Option<VolumeMode>,
    /// The filesystem where neither the claim nor its class names one.
    pub fs: FsKind,
    pub erase: ErasePolicy,
    pub reclaim: Reclaim,
    /// It takes nothing, and says what it would take.
    pub dry_run: bool,
}

impl Rule {
    /// Whether volumes of the set may be used so. A folder is no device, and has the filesystem of its disk.
    pub fn allows(&self, usage: VolumeUsage) -> bool {
        if self.class.is_empty() {
            return false;
        }
        match (self.volume_mode, usage) {
            (Some(VolumeMode::Block), VolumeUsage::Mount(_)) => false,
            (Some(VolumeMode::Filesystem), VolumeUsage::Block) => false,
            (None | Some(VolumeMode::Block), VolumeUsage::Block) => !self.layout.is_directory(),
            (None | Some(VolumeMode::Filesystem), VolumeUsage::Mount(kind)) => {
                !self.layout.is_directory() || kind == self.fs
            }
        }
    }

    /// Whether a device that the set may take must read as zeros. `may_be_ours`: it may be one of the pool's whose record
    /// is lost.
    pub fn wants_zeros(&self, may_be_ours: bool) -> bool {
        self.blankness == Blankness::Zeros || may_be_ours
    }
}

/// What volumes that are folders may be promised of each disk of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provisioning {
    /// Bytes that are kept free of volumes.
    pub reserved: u64,
    /// How much all volumes together may be promised, in percent of the rest; 100: no more than there is.
    pub percent: u32,
}

impl Default for Provisioning {
    fn default() -> Self {
        Self { reserved: 0, percent: *OVERPROVISION.start() }
    }
}

/// The percentages that a set may ask for.
pub const OVERPROVISION: RangeInclusive<u32> = 100..=10_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeMatch {
    #[default]
    Selected,
    NotSelected,
    /// Selected, but nothing new is claimed by any such object: the cluster's definition of it is not this version's.
    HeldBack,
    /// Selected, but the node has a taint that the set does not tolerate: nothing new is claimed for it.
    Tainted,
    /// Selected, but the diskmaker of another operator runs on this node: nothing new is claimed.
    StandsBack,
}

/// A taint that a set puts up with; the words are Kubernetes' own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toleration {
    /// `None` with `Exists`: every taint.
    pub key: Option<String>,
    pub operator: TolerationOperator,
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule`, `NoExecute`; `None`: each of them.
    pub effect: Option<String>,
    pub seconds: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TolerationOperator {
    #[default]
    Equal,
    Exists,
}

// Kubernetes' word. The spec of a PoolVolume has it, too; a doc comment here would be in that schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub enum VolumeMode {
    Block,
    Filesystem,
}

/// What a disk must be to be blank, beside being nobody's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Blankness {
    /// No signature, table or label that anything recognises.
    #[default]
    Signatures,
    /// And zeros, as far as it is read.
    Zeros,
}

/// What happens to a disk after its last volume is erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reclaim {
    #[default]
    Keep,
    Release,
}

/// Which devices a set may claim. Filters decide claiming only, never what becomes of a claimed disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    pub types: Vec<DeviceType>,
    /// Empty: both.
    pub rotational: Vec<bool>,
    /// Bytes; 0 is none.
    pub min_size: u64,
    pub max_size: Option<u64>,
    pub lists: FilterLists,
    /// Globs over the kernel name that exclude (deviceExclusionSpec.deviceNameFilter).
    pub exclude_names: Vec<Glob>,
    /// Ours: leave disks whose bytes come over a network, as far as the machine can tell.
    pub exclude_network: bool,
    /// Ours: what else is asked of a device, in CEL; asked last.
    pub expression: Option<Expression>,
    /// Ours: what a device must say of its own health; absent: it is not asked.
    pub min_health: Option<MinHealth>,
}

impl Filter {
    /// For named devices: every sort of device that can be claimed at all; there is no smallest size.
    pub fn of_named() -> Self {
        use DeviceType::{Disk, Loop, Lvm, Mpath, Part};
        Self::any_of(vec![Disk, Part, Loop, Mpath, Lvm])
    }

    /// Every device of these types.
    pub fn any_of(types: Vec<DeviceType>) -> Self {
        Self {
            types,
            rotational: Vec::new(),
            min_size: 0,
            max_size: None,
            lists: FilterLists::default(),
            exclude_names: Vec::new(),
            exclude_network: false,
            expression: None,
            min_health: None,
        }
    }
}

/// How well a device must be by its own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinHealth {
    /// It does not say that it is failing; it may say nothing.
    NotFailing,
    /// It says that it is well.
    Passed,
}

/// What a device says of its own health is not enough for a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwell {
    #[error("its SMART status says that it is failing ({0})")]
    Failing(String),
    #[error("it does not report its health ({0}), and minHealth is Passed")]
    Silent(String),
}

impl MinHealth {
    /// As they are written in a set.
    pub const WORDS: [(&'static str, Self); 2] = [("NotFailing", Self::NotFailing), ("Passed", Self::Passed)];

    /// Whether what a device says is enough.
    pub fn check(self, health: &Health) -> Result<(), Unwell> {
        match (self, health) {
            (_, Health::Passed) | (Self::NotFailing, Health::Unknown(_)) => Ok(()),
            (_, Health::Failing(message)) => Err(Unwell::Failing(message.clone())),
            (Self::Passed, Health::Unknown(why)) => Err(Unwell::Silent(why.clone())),
        }
    }
}
