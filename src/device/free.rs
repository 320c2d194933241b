//! Whether nobody has a device, and why not.
//!
//! Takes in a device with its verdict; gives out nothing, or who has it. Pure.

use super::judged::{Believed, Device, Verdict};
use super::node_name::NodeName;
use super::reason::Reason;

/// Why a device is not free; `Display` is a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFree {
    #[error("{0}")]
    Unknown(String),
    /// Another device has its identity.
    #[error("{0}")]
    Disbelieved(String),
    #[error("{0}")]
    Theirs(Reason),
    #[error("belongs to node {node} of cluster {cluster}")]
    Foreign { cluster: String, node: NodeName },
    #[error("in use by the pool")]
    Ours,
}

impl NotFree {
    /// Whether a later scan may find it free without an event of the device.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unknown(_) => true,
            Self::Theirs(reason) => reason.may_pass(),
            Self::Disbelieved(_) | Self::Foreign { .. } | Self::Ours => false,
        }
    }
}

impl Device {
    /// Nobody has it.
    pub fn free(&self) -> Result<(), NotFree> {
        Err(match (&self.verdict, &self.believed) {
            (Verdict::Unclaimed, Believed::Yes) => return Ok(()),
            (Verdict::Unclaimed, Believed::No(why)) => NotFree::Disbelieved(why.clone()),
            (Verdict::Unknown(why), _) => NotFree::Unknown(why.clone()),
            (Verdict::Theirs(reason), _) => NotFree::Theirs(reason.clone()),
            (Verdict::Foreign { cluster, node }, _) => {
                NotFree::Foreign { cluster: cluster.clone(), node: node.clone() }
            }
            (Verdict::Ours, _) => NotFree::Ours,
        })
    }
}
