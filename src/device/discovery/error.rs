//! Why there is no look, and why a device is not what it was at the one before.

use crate::device::free::NotFree;
use crate::host::{HostError, KernelName};

/// Why there is no look, or no leave to claim.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    #[error("could not look for block devices")]
    Scan(#[source] HostError),
    #[error("the disks are not looked at before it is known on which of them volumes are")]
    NotTold(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{name} is gone")]
    Gone { name: KernelName },
    #[error("{name} is another device than before")]
    Changed { name: KernelName },
    #[error("what is on {name}, or its use, is another than before")]
    ChangedContent { name: KernelName },
    /// What it is now is not known, or is so for a moment only.
    #[error("what is on {name}, or its use, is another than before: {why}")]
    NotSeen { name: KernelName, why: NotFree },
    #[error("{name} is not free any more: {}", since_the_look(.why))]
    NotFree { name: KernelName, why: NotFree },
}

impl DiscoveryError {
    /// Whether the next look may find it otherwise, though no event of the device tells.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Scan(_) | Self::NotTold(_) => true,
            Self::NotSeen { name: _, why } | Self::NotFree { name: _, why } => why.retryable(),
            Self::Gone { .. } | Self::Changed { .. } | Self::ChangedContent { .. } => false,
        }
    }
}

/// A device was free when it was last looked at, and is not now.
fn since_the_look(why: &NotFree) -> String {
    match why {
        NotFree::Foreign { node, cluster: _ } => format!("it carries the label of node {node}"),
        NotFree::Ours => "it is in the pool already".to_owned(),
        NotFree::Unknown(_) | NotFree::Disbelieved(_) | NotFree::Theirs(_) => why.to_string(),
    }
}
