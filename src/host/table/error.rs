//! What can be wrong with a table, one sentence each.

use uuid::Uuid;

use super::lba::Lba;
use crate::host::block::IoError;
use crate::host::extent::Extent;

/// Why bytes are not a table, or not one that we edit.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("reading a partition table")]
    Unreadable {
        /// The disk that its header names, if that could be read.
        disk: Option<Uuid>,
        #[source]
        source: IoError,
    },
    #[error("no GPT header is at sector {at}")]
    NoSignature { at: Lba },
    #[error("the GPT header says that it is {bytes} bytes long")]
    HeaderSize { bytes: u32 },
    #[error("the GPT header's checksum is {computed:08x}, not {stored:08x} as it says")]
    HeaderCrc { stored: u32, computed: u32 },
    /// The header itself is sound, so it is known which disk it belongs to.
    #[error("the checksum of the partition entries is {computed:08x}, not {stored:08x} as the header says")]
    EntriesCrc { disk: Uuid, stored: u32, computed: u32 },
    /// Sound by its checksum, and the kernel may well use it: it is somebody else's, and we do not change it.
    #[error("a GPT that localpool does not edit: {why}")]
    NotEdited { why: String },
    #[error("the table is for a disk of {table} bytes, but this disk has {disk}")]
    Shrunk { table: u64, disk: u64 },
    #[error("sectors of {sector} bytes are neither 512 nor 4096")]
    Sector { sector: u32 },
    #[error("a disk of {size} bytes has no room for a partition table")]
    TooSmall { size: u64 },
    #[error("the disk GUID is nil")]
    NilDisk,
    #[error("the usable space {usable} is not inside {room}")]
    Usable { usable: Extent, room: Extent },
    #[error("partition number {number} is not in 1..={slots}")]
    Number { number: u32, slots: u32 },
    #[error("partition {number} has a nil GUID")]
    NilGuid { number: u32 },
    #[error("partition {number} at {extent} is not a run of whole sectors of {sector} bytes")]
    Bounds { number: u32, extent: Extent, sector: u32 },
    #[error("partition {number} at {extent} is outside the usable space {usable}")]
    Outside { number: u32, extent: Extent, usable: Extent },
    #[error("partitions {one} and {other} overlap")]
    Overlap { one: u32, other: u32 },
    #[error("partitions {one} and {other} both have the GUID {guid}")]
    Twice { one: u32, other: u32, guid: Uuid },
}

impl TableError {
    /// It could not be read; what it says is not known.
    pub fn is_unread(&self) -> bool {
        matches!(self, Self::Unreadable { .. })
    }

    /// The disk that a copy belongs to, if its header is sound and the rest is not.
    pub fn disk(&self) -> Option<Uuid> {
        match self {
            Self::EntriesCrc { disk, .. } => Some(*disk),
            Self::Unreadable { disk, .. } => *disk,
            _ => None,
        }
    }

    /// Absent, torn or rotten: what a stopped write can leave. Anything else was written on purpose, by whomever, and
    /// is never overwritten with a backup.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::NoSignature { .. } | Self::HeaderSize { .. } | Self::HeaderCrc { .. } | Self::EntriesCrc { .. } => {
                true
            }
            Self::Unreadable { .. }
            | Self::NotEdited { .. }
            | Self::Shrunk { .. }
            | Self::Sector { .. }
            | Self::TooSmall { .. }
            | Self::NilDisk
            | Self::Usable { .. }
            | Self::Number { .. }
            | Self::NilGuid { .. }
            | Self::Bounds { .. }
            | Self::Outside { .. }
            | Self::Overlap { .. }
            | Self::Twice { .. } => false,
        }
    }
}
