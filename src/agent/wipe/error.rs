//! Why a disk was not wiped, in the order of the steps.

use crate::device::DiscoveryError;
use crate::host::{
    HostError, IoError,
    table::TableError,
    timeout::{TimeoutError, TooLate},
};

const DELETE: &str = "delete them first, if nothing on them is needed";

/// Nothing was destroyed before the last two: `Disk` may be a write.
#[derive(Debug, thiserror::Error)]
pub(in crate::agent) enum WipeError {
    #[error(transparent)]
    Scan(#[from] DiscoveryError),
    #[error("its content is not known")]
    NotKnown,
    /// It does not answer, or not yet.
    #[error(transparent)]
    Hangs(#[from] TimeoutError),
    /// The next pass decides again what was decided for this one.
    #[error(transparent)]
    Late(#[from] TooLate),
    /// It could not be opened, or somebody else has it open.
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("{0}")]
    Probe(String),
    #[error("its content has changed")]
    Changed,
    #[error("it has partitions: {DELETE}")]
    Mapped,
    #[error("its partition table has partitions: {DELETE}")]
    Partitions,
    #[error("it is not known whether it has partitions: {0}")]
    Table(TableError),
    #[error("it has a partition table for sectors of {0} bytes: `wipefs --all` blanks it")]
    OtherSector(u32),
    #[error("it has a protective MBR, and its table is lost: `wipefs --all` blanks it")]
    TableLost,
    /// Reading a table, or writing.
    #[error(transparent)]
    Disk(#[from] IoError),
    #[error("it was wiped, but {}", crate::host::chain(.0))]
    StillThere(DiscoveryError),
}

impl WipeError {
    /// Whether a later try may succeed without an event of the disk and without a person.
    pub fn retryable(&self) -> bool {
        match self {
            Self::NotKnown | Self::Hangs(_) | Self::Late(_) | Self::Probe(_) | Self::Disk(_) => true,
            Self::Scan(error) | Self::StillThere(error) => error.retryable(),
            Self::Host(error) => error.retryable(),
            Self::Table(damage) => damage.is_unread(),
            Self::Changed | Self::Mapped | Self::Partitions | Self::OtherSector(_) | Self::TableLost => false,
        }
    }
}
