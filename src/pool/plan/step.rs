//! A plan as a value: steps in their order, and why none can be made.

use std::fmt;
use std::sync::Arc;

use crate::claim::LayoutError;
use crate::device::{
    Size, VolumeId,
    label::{ArrayPlace, Label},
};
use crate::host::{Extent, table::Table};
use crate::pool::extents::Extents;

/// One thing that is done to a disk. A step may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// O_EXCL says that nobody has the partition mounted or mapped.
    ProveUnused(u32),
    /// BLKPG delete; busy: nothing has changed.
    Unmap(u32),
    /// BLKPG add.
    Map(u32, Extent),
    /// BLKPG resize.
    Resize(u32, Extent),
    /// BLKZEROOUT and sync.
    Zero(Extent),
    /// The label, into its older copy, and sync.
    Label(Arc<Label>),
    /// The table: backup, sync, primary, sync, read back.
    Table(Arc<Table>),
    /// The first table of a claimed disk: backup, sync, primary, sync, protective MBR last.
    FirstTable(Arc<Table>),
    /// Primary table with the MBR, then the backup, then the labels become zeros; for a label that says *releasing*.
    WipeAll,
}

impl Step {
    /// Whether a table may have been written after it.
    pub fn writes_table(&self) -> bool {
        match self {
            Self::Table(_) | Self::FirstTable(_) | Self::WipeAll => true,
            Self::ProveUnused(_) | Self::Unmap(_) | Self::Map(..) | Self::Resize(..) => false,
            Self::Zero(_) | Self::Label(_) => false,
        }
    }

    /// What others would see; zeros go only where nothing is, and may take long.
    pub fn changes_disk(&self) -> bool {
        match self {
            Self::Unmap(_) | Self::Label(_) | Self::Table(_) | Self::FirstTable(_) | Self::WipeAll => true,
            Self::Map(..) | Self::Resize(..) => true,
            Self::ProveUnused(_) | Self::Zero(_) => false,
        }
    }

    /// What would hit others where table and label are not what they were.
    pub fn relies_on_record(&self) -> bool {
        match self {
            Self::Unmap(_) | Self::Zero(_) | Self::Label(_) | Self::Table(_) | Self::WipeAll => true,
            Self::FirstTable(_) | Self::ProveUnused(_) | Self::Map(..) | Self::Resize(..) => false,
        }
    }

    /// Whether table or label may be anything after it has failed.
    pub fn changes_record(&self) -> bool {
        match self {
            Self::Label(_) | Self::Table(_) | Self::FirstTable(_) | Self::WipeAll => true,
            Self::ProveUnused(_) | Self::Unmap(_) | Self::Map(..) | Self::Resize(..) | Self::Zero(_) => false,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::ProveUnused(number) => write!(f, "check that nobody uses partition {number}"),
            Step::Unmap(number) => write!(f, "unmap partition {number}"),
            Step::Map(number, extent) => write!(f, "map partition {number} at bytes {extent}"),
            Step::Resize(number, extent) => write!(f, "resize partition {number} to bytes {extent}"),
            Step::Zero(extent) => write!(f, "zero bytes {extent}"),
            Step::Label(_) => write!(f, "write the label"),
            Step::Table(_) => write!(f, "write both copies of the partition table"),
            Step::FirstTable(_) => write!(f, "write the first partition table"),
            Step::WipeAll => write!(f, "wipe both partition tables and the label"),
        }
    }
}

/// Steps in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan(pub Vec<Step>);

impl Plan {
    /// What it makes zero.
    pub fn zeroed(&self) -> Extents {
        let zeroed = |step: &Step| match step {
            Step::Zero(extent) => Some(*extent),
            Step::ProveUnused(_) | Step::Unmap(_) | Step::Map(..) | Step::Resize(..) => None,
            Step::Label(_) | Step::Table(_) | Step::FirstTable(_) | Step::WipeAll => None,
        };
        self.0.iter().filter_map(zeroed).collect()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            writeln!(f, "{:>3}. {step}", index + 1)?;
        }
        Ok(())
    }
}

/// Why no plan can be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("the layout does not fit")]
    Layout(#[from] LayoutError),
    #[error("there is no volume {id} on this disk")]
    NoSuchVolume { id: VolumeId },
    #[error("the disk has 128 partitions, and localpool's partition table cannot hold more")]
    TableFull,
    #[error("the place at bytes {extent} is not free any more")]
    Taken { extent: Extent },
    #[error("volume {id} can grow to {growable_to} bytes ({}) at most, and {wanted} ({}) were asked for", Size(*growable_to), Size(*wanted))]
    CannotGrow { id: VolumeId, wanted: u64, growable_to: u64 },
    #[error("the disk still holds {volumes} volumes and {erasing} that are being erased")]
    NotEmpty { volumes: usize, erasing: usize },
    #[error(
        "the disk is {place}, which may hold data and is lost with it: release the array itself first, while it has all of its members"
    )]
    Member { place: ArrayPlace },
    #[error("the disk has no partition that is a member of an array")]
    NoMember,
    #[error("the array of the disk may hold data")]
    MayHoldData,
    #[error("{why}")]
    Busy { why: String },
    #[error("the disk holds {count} partitions that do not belong to localpool")]
    EntriesOfOthers { count: usize },
    #[error("the partition table would become invalid")]
    Table(#[from] crate::host::table::TableError),
}
