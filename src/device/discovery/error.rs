//! Why there is no scan, and why a device is not what it was at the one before.

use crate::device::free::NotFree;
use crate::host::{HostError, KernelName};

/// Why there is no scan, or no leave to claim.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    #[error("could not look for block devices")]
    Scan(#[source] HostError),
    #[error("the disks are not read before it is known which of them have volumes")]
    VolumesNotRead(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{name} is gone")]
    Gone { name: KernelName },
    #[error("{name} is not the same device as before")]
    Changed { name: KernelName },
    #[error("the content or the use of {name} has changed")]
    ChangedContent { name: KernelName },
    /// It could not be read, or another program has it open: that may pass.
    #[error("the content or the use of {name} has changed: {why}")]
    NotSeen { name: KernelName, why: NotFree },
    #[error("{name} is not free any more: {}", since_the_scan(.why))]
    NotFree { name: KernelName, why: NotFree },
}

impl DiscoveryError {
    /// Whether a later scan may succeed without an event of the device.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Scan(_) | Self::VolumesNotRead(_) => true,
            Self::NotSeen { name: _, why } | Self::NotFree { name: _, why } => why.retryable(),
            Self::Gone { .. } | Self::Changed { .. } | Self::ChangedContent { .. } => false,
        }
    }
}

/// The reason, as a sentence about a device that was free at the last scan.
fn since_the_scan(why: &NotFree) -> String {
    match why {
        NotFree::Foreign { node, cluster: _ } => format!("it carries the label of node {node}"),
        NotFree::Ours => "it is in the pool already".to_owned(),
        NotFree::Unknown(_) | NotFree::Disbelieved(_) | NotFree::Theirs(_) => why.to_string(),
    }
}
