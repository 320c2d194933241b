//! What a device says about its owner, as far as a verdict needs it; `device/record` reads it.

use std::sync::Arc;

use crate::device::label::Label;

/// The finding on a device where our disks carry their record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Neither a table nor our label.
    None,
    /// Somebody else's partition table, or a damaged one; the text says which.
    OtherTable(String),
    /// A valid table copy has our label entry, and a label copy verifies.
    Valid(Arc<Label>),
    /// Our label entry is there, but no label copy verifies, or it is of a newer format; the text says which.
    Unreadable(String),
    /// The device could not be read; the text says why.
    Failed(String),
    /// The node's journal claims the whole device for a volume: what is on it is a tenant's, and not read.
    Bare,
    /// The same, but the claim was given up with all that is on it.
    GivenUp,
}

impl Evidence {
    /// The label, if it can be used.
    pub fn label(&self) -> Option<&Arc<Label>> {
        match self {
            Self::Valid(label) => Some(label),
            Self::None | Self::OtherTable(_) | Self::Unreadable(_) => None,
            Self::Failed(_) | Self::Bare | Self::GivenUp => None,
        }
    }
}
