//! Why a layout does not fit on a device. `pool/layout.rs` makes these errors; an election passes them on.

/// Why a disk cannot have a layout; `Display` names the numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    #[error("the disk has {size} bytes, which is too small for volumes beside the label and both partition tables")]
    NoRoom { size: u64 },
    #[error(
        "{count} partitions of {each} bytes need {needed} bytes, and the disk has room for {room} beside its label and tables"
    )]
    DoesNotHold { count: u64, each: u64, needed: u64, room: u64 },
    #[error("this would make {count} partitions, and a disk of the pool holds at most {most} beside its label")]
    TooMany { count: u64, most: usize },
    #[error("partitioningSpec has neither partSize nor count")]
    Neither,
    #[error("a partition of {each} bytes is too small: the least is {least}")]
    TooSmall { each: u64, least: u64 },
    #[error(
        "nothing would keep a folder within the size of its volume: {why}; with `quota: none` sizes are only counted"
    )]
    NoQuota { why: String },
    #[error("its disks cannot become an array: {why}")]
    NoArrays { why: String },
    #[error("its filesystem could not be mounted for the node below the set's hostMountPath: {why}")]
    NoHostMount { why: String },
}

impl LayoutError {
    /// Whether no disk of the machine could have the layout.
    pub fn is_of_machine(&self) -> bool {
        match self {
            Self::NoQuota { .. } | Self::NoArrays { .. } | Self::NoHostMount { .. } => true,
            Self::NoRoom { .. } | Self::DoesNotHold { .. } | Self::TooMany { .. } => false,
            Self::Neither | Self::TooSmall { .. } => false,
        }
    }
}
