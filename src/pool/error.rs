//! What stops a verb of the pool, from the outside in: the verb, the change of a disk or of a bare device, a step of
//! it, the journal. Values only.

use std::fmt;
use std::path::PathBuf;

use super::choose::NoPlace;
use super::earlier::Earlier;
use super::errand::ErrandKey;
use super::filesystem_error::FilesystemError;
use super::journal::JOURNAL;
use super::plan::PlanError;
use super::request::Selector;
use crate::device::{DiskId, NodeName, Size, VolumeId, record::LabelError};
use crate::host::{Extent, HostError, IoError, LockTimeout, table::TableWriteError, timeout::TimeoutError};

/// Why a verb did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    #[error("there is no volume {id} on this node")]
    NoSuchVolume { id: VolumeId },
    #[error("{0}")]
    NoPlace(#[from] NoPlace),
    #[error("no disk of this node's pool is offered to {0}")]
    NoSet(Selector),
    #[error("the parameter `class` is missing, and there is more than one to choose from: {0}")]
    WhichClass(String),
    #[error("volume {name} exists with other properties: {why}")]
    Differs { name: String, why: String },
    #[error("volume {id} can grow to {growable_to} bytes ({}) at most, and {wanted} ({}) were asked for", Size(*growable_to), Size(*wanted))]
    CannotGrow { id: VolumeId, wanted: u64, growable_to: u64 },
    #[error(
        "the files of volume {id} use {used} bytes ({}), so it cannot shrink to {wanted} ({})",
        Size(*used),
        Size(*wanted)
    )]
    CannotShrink { id: VolumeId, wanted: u64, used: u64 },
    #[error("volume {id} is in use: {why}")]
    InUse { id: VolumeId, why: String },
    #[error("volume {id} was found on an adopted disk; `localpool volume adopt {id}` makes it usable")]
    Found { id: VolumeId },
    #[error("the disk {disk} of volume {id} {why}")]
    DiskAway { id: VolumeId, disk: DiskId, why: String },
    #[error("the disks of this node were not read yet, and volume {id} may be on one of them")]
    NotScanned { id: VolumeId },
    #[error(
        "the PoolVolumes of this node were not read yet, and volume {id} may be on a device for which the journal has \
         another record"
    )]
    VolumesNotRead { id: VolumeId },
    #[error("volume {id} cannot be used: {why}")]
    Conflict { id: VolumeId, why: String },
    #[error("the conflict of volume {id} cannot be settled: {why}")]
    NotSettled { id: VolumeId, why: String },
    #[error(
        "the label of disk {disk} does not describe volume {id}: its use is unknown, so it is kept and not touched"
    )]
    NotDescribed { id: VolumeId, disk: DiskId },
    /// Nobody sees anything of it before that is done.
    #[error("disk {disk} is being zeroed for volume {id}: {} are left; call again", Size(*remaining))]
    BeingZeroed { id: VolumeId, disk: DiskId, remaining: u64 },
    /// It is still being worked on.
    #[error("{on} has not answered yet")]
    Hangs {
        on: ErrandKey,
        #[source]
        hangs: TimeoutError,
    },
    #[error(transparent)]
    Journal(#[from] StoreError),
    #[error(transparent)]
    Bare(#[from] BareError),
    #[error(transparent)]
    Filesystem(#[from] FilesystemError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// What an operation on one disk failed with, by the layout of the disk.
#[derive(Clone, Copy, Debug)]
pub enum FailedOn<'e> {
    Labelled(&'e ApplyError),
    Bare(&'e BareError),
    Filesystem(&'e FilesystemError),
}

impl PoolError {
    /// The error of the disk that an operation had begun on; `None`: it was refused, or waits, before that.
    pub fn failed_on(&self) -> Option<FailedOn<'_>> {
        match self {
            Self::Apply(error) => Some(FailedOn::Labelled(error)),
            Self::Bare(error) => Some(FailedOn::Bare(error)),
            Self::Filesystem(error) => Some(FailedOn::Filesystem(error)),
            Self::NoPlace(_) | Self::NoSet(_) | Self::WhichClass(_) | Self::Journal(_) => None,
            Self::NoSuchVolume { .. } | Self::Differs { .. } | Self::InUse { .. } | Self::Found { .. } => None,
            Self::CannotGrow { .. } | Self::CannotShrink { .. } | Self::NotDescribed { .. } => None,
            Self::DiskAway { .. } | Self::NotScanned { .. } | Self::VolumesNotRead { .. } => None,
            Self::Conflict { .. } | Self::NotSettled { .. } => None,
            Self::BeingZeroed { .. } | Self::Hangs { .. } => None,
        }
    }

    /// No disk can take a volume now.
    pub fn is_no_place(&self) -> bool {
        matches!(self, Self::NoPlace(_) | Self::NoSet(_))
    }

    /// The filesystem that it was asked of has no space: nothing has changed.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Filesystem(FilesystemError::Full { .. }))
    }

    /// Others had the disk: nothing has changed, and the caller may come back.
    pub fn is_locked(&self) -> bool {
        match self {
            Self::Apply(error) => error.is_locked(),
            Self::Bare(error) => matches!(error, BareError::Stuck { .. }),
            Self::Filesystem(error) => error.is_locked(),
            Self::Hangs { .. } => true,
            Self::NoPlace(_) | Self::NoSet(_) | Self::WhichClass(_) | Self::Journal(_) => false,
            Self::NoSuchVolume { .. } | Self::Differs { .. } | Self::CannotGrow { .. } | Self::InUse { .. } => false,
            Self::Found { .. } | Self::NotDescribed { .. } | Self::BeingZeroed { .. } => false,
            Self::CannotShrink { .. } => false,
            Self::DiskAway { .. } | Self::NotScanned { .. } | Self::VolumesNotRead { .. } => false,
            Self::Conflict { .. } | Self::NotSettled { .. } => false,
        }
    }
}

/// What stopped a plan, or an opening.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("could not {step} of {disk}")]
    Step {
        step: String,
        disk: PathBuf,
        trace: Trace,
        #[source]
        source: Box<StepError>,
    },
    /// Nothing has changed, and the caller may come back.
    #[error("{disk} was not changed, because other processes hold its lock")]
    Locked {
        disk: PathBuf,
        #[source]
        source: HostError,
    },
    /// Nothing has changed, and the caller may come back: the disk is slow, or hangs.
    #[error("{disk} was not changed: {stuck}")]
    Stuck { disk: PathBuf, stuck: LockTimeout },
    #[error("{disk} is not used, because another process, perhaps another agent, holds it")]
    Held {
        disk: PathBuf,
        #[source]
        source: HostError,
    },
    #[error(
        "{disk} is in an earlier state: {earlier}. Bring back its latest state, or use the disk as it is with \
         `localpool disk adopt {disk}`"
    )]
    Earlier { disk: PathBuf, earlier: Earlier },
    #[error("{disk} is not a disk of this pool: {why}")]
    NotOurs { disk: PathBuf, why: String },
    #[error("{disk} is not blank any more, and was not written: {found}")]
    NotBlank { disk: PathBuf, found: String },
    #[error("could not plan a change of {disk}")]
    Plan {
        disk: PathBuf,
        #[source]
        source: PlanError,
    },
}

/// Whether a failed step may have left something of the request on the disk: from the first write of a table on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    None,
    Possible,
}

/// The cause of a failed step.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error("the disk failed")]
    Io(#[from] IoError),
    #[error("the system refused")]
    System(#[from] HostError),
    #[error("the partition table was not written")]
    Table(#[from] TableWriteError),
    #[error("the label was not written")]
    Label(#[from] LabelError),
    #[error("an earlier state of the disk was restored meanwhile")]
    Earlier,
    #[error("somebody else wrote a label there meanwhile, for node {0}")]
    Relabelled(NodeName),
}

impl StepError {
    /// Whether a later try may succeed. No event says when.
    pub fn retryable(&self) -> bool {
        match self {
            // Mostly it is a read or a write that fails there.
            Self::Io(_) | Self::Table(_) | Self::Label(_) => true,
            Self::System(error) => error.retryable(),
            Self::Earlier | Self::Relabelled(_) => false,
        }
    }
}

impl ApplyError {
    /// Whether a later try may succeed. No event says when.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Step { source, .. } => source.retryable(),
            // It may be a disk of this pool that could not be read.
            Self::Locked { .. } | Self::Stuck { .. } | Self::Held { .. } | Self::NotOurs { .. } => true,
            Self::Earlier { .. } | Self::NotBlank { .. } | Self::Plan { .. } => false,
        }
    }

    /// A step that may have changed the disk.
    pub(super) fn step(disk: PathBuf, step: &str, source: StepError) -> Self {
        Self::Step { step: step.to_owned(), disk, trace: Trace::Possible, source: Box::new(source) }
    }

    pub(super) fn not_ours(disk: PathBuf, why: &dyn fmt::Display) -> Self {
        Self::NotOurs { disk, why: why.to_string() }
    }

    /// Somebody has the partition open: nothing has changed, and the caller may come back.
    pub fn is_busy(&self) -> bool {
        let Self::Step { source, .. } = self else { return false };
        matches!(**source, StepError::System(HostError::Busy { .. }))
    }

    /// Who has it, as text.
    pub fn busy(&self) -> Option<String> {
        let Self::Step { source, .. } = self else { return None };
        match &**source {
            StepError::System(busy @ HostError::Busy { .. }) => Some(busy.to_string()),
            StepError::System(_) | StepError::Io(_) | StepError::Table(_) | StepError::Label(_) => None,
            StepError::Earlier | StepError::Relabelled(_) => None,
        }
    }

    /// It ended before anything of what was asked for could exist on the disk.
    pub fn left_no_trace(&self) -> bool {
        matches!(self, Self::Step { trace: Trace::None, .. }) || self.is_locked()
    }

    /// The disk failed to read or write.
    pub fn is_io(&self) -> bool {
        matches!(self, Self::Step { source, .. } if matches!(**source, StepError::Io(_)))
    }

    /// What of it the disk failed to read or write.
    pub fn failed_on(&self) -> Option<Extent> {
        let Self::Step { source, .. } = self else { return None };
        match &**source {
            StepError::Io(error) => Some(error.range),
            StepError::System(_) | StepError::Table(_) | StepError::Label(_) => None,
            StepError::Earlier | StepError::Relabelled(_) => None,
        }
    }

    /// Others had the disk: a scan would find nothing changed.
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Locked { .. } | Self::Stuck { .. })
    }
}

/// Why something was not done with a bare device.
#[derive(Debug, thiserror::Error)]
pub enum BareError {
    #[error("the device {0} is not free any more")]
    Taken(String),
    #[error("the device {disk} {why}")]
    Away { disk: DiskId, why: String },
    /// Nothing has changed, and the caller may come back.
    #[error("the device {disk} was not changed: {stuck}")]
    Stuck { disk: PathBuf, stuck: LockTimeout },
    /// Nothing of the volume is there before that is done.
    #[error("the device is being zeroed: {remaining} bytes are left")]
    BeingZeroed { remaining: u64 },
    #[error("the device is in use")]
    Busy(#[source] HostError),
    #[error("the device could not be opened")]
    Open(#[source] HostError),
    #[error("a partition that the kernel has on the device could not be unmapped")]
    Unmap(#[source] HostError),
    #[error("the device failed")]
    Io(#[from] IoError),
    #[error("the claim was not recorded")]
    Journal(#[from] StoreError),
}

impl BareError {
    /// Whether a later try may succeed. No event says when.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Stuck { .. } | Self::BeingZeroed { .. } | Self::Busy(_) | Self::Io(_) => true,
            Self::Open(error) | Self::Unmap(error) => error.retryable(),
            Self::Journal(error) => error.retryable(),
            Self::Taken(_) | Self::Away { .. } => false,
        }
    }

    /// Somebody has the device, or it does not answer as it should.
    pub(super) fn opening(error: HostError) -> Self {
        match error {
            HostError::Busy { .. } => Self::Busy(error),
            error => Self::Open(error),
        }
    }

    /// The device failed before the journal said anything of what was asked for.
    pub fn left_no_trace(&self) -> bool {
        match self {
            Self::Away { .. } | Self::Stuck { .. } | Self::Busy(_) | Self::Open(_) | Self::Unmap(_) | Self::Io(_) => {
                true
            }
            Self::Taken(_) | Self::Journal(_) | Self::BeingZeroed { .. } => false,
        }
    }
}

/// Why the journal was not read or not written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("could not use the state directory")]
    State(#[source] HostError),
    #[error(
        "{JOURNAL} in the state directory of this node cannot be used: {0}; volumes on labelled disks are served, \
         nothing is claimed, and requests that need this file are refused, until `localpool state set-aside journal` \
         starts a new one"
    )]
    Damaged(String),
    #[error("{JOURNAL} can be read, and nothing is wrong with it: it stays where it is")]
    Sound,
    #[error("the journal has no claim of {0} any more")]
    NoClaim(DiskId),
}

impl StoreError {
    /// Whether it may go better the next time: a full disk has room again. The others are for a person.
    pub fn retryable(&self) -> bool {
        match self {
            Self::State(error) => error.retryable(),
            Self::Damaged(_) | Self::Sound | Self::NoClaim(_) => false,
        }
    }
}
