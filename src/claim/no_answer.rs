//! Why the API server has not answered a question of the agent. `operator` asks, and makes these errors.

use std::path::PathBuf;
use std::time::Duration;

use crate::device::PvName;
use crate::host::timeout::TimeoutError;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    #[error("no answer within {within:?}")]
    Late { within: Duration },
    /// It was not reached, it refused, or its answer makes no sense.
    #[error("{0}")]
    Failed(Box<dyn std::error::Error + Send + Sync>),
    /// It names a path of this node that does not answer.
    #[error("cannot find out which device {} of the PersistentVolume {volume} is", path.display())]
    Path {
        path: PathBuf,
        volume: PvName,
        #[source]
        source: TimeoutError,
    },
    /// It is that of another cluster, and only a person says where this node belongs.
    #[error("{0}")]
    OtherCluster(Box<dyn std::error::Error + Send + Sync>),
}

impl NoAnswer {
    /// Whether it may answer the next time.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Late { .. } | Self::Failed(_) | Self::Path { .. } => true,
            Self::OtherCluster(_) => false,
        }
    }
}
