//! A device that was looked at and judged: [`Device`]. Values only; `discovery` makes them.

use std::path::PathBuf;
use std::sync::Arc;

use super::disk_id::DiskId;
use super::label::Label;
use super::node_name::NodeName;
use super::reason::Reason;
use crate::host::{Probe, RawDisk};

/// A disk as the product knows it: what the kernel says, which disk it is, and whose.
#[derive(Clone, Debug)]
pub struct Device {
    pub raw: RawDisk,
    pub id: DiskId,
    /// The link that people should use, chosen in a fixed order; the kernel's node if there is none.
    pub link: PathBuf,
    pub verdict: Verdict,
    /// The label, if a valid one was found, whoever owns it.
    pub label: Option<Arc<Label>>,
    /// The content that was found and that the verdict was made from.
    pub probe: Probe,
    /// Why its label could not be read, whatever else is known of it; `None`: it could be, or need not be.
    pub unread: Option<String>,
    /// Whether it is the only device with its identity, or the one of several that may be used.
    pub believed: Believed,
}

/// The verdict on a disk: whose it is. Theirs until proven unclaimed; one that cannot be read is unknown, and just as
/// untouchable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Unclaimed,
    /// Carries our label for this cluster and node.
    Ours,
    /// Carries our label for another node or cluster: untouched until adopted.
    Foreign {
        cluster: String,
        node: NodeName,
    },
    Theirs(Reason),
    Unknown(String),
}

/// Whether we believe that a device is the one that it says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Believed {
    #[default]
    Yes,
    /// Another device has the same identity, or is the disk and cannot be read; the text says which, and which one is
    /// believed.
    No(String),
}
