//! What a PersistentVolumeClaim gets: its id, its life cycle, its mounts.
//!
//! Takes in requests from the edges (`rpc`, `operator`), gives out [`Volume`]s. Declares the port
//! [`Volumes`]; `local` implements it on this node's pool. `publish` decides about mounts (pure), `node`
//! performs it.
//!
//! ```text
//!             CreateVolume            NodeStage (mkfs once, then FORMATTED is set)
//!   (nothing) ───────────▶ Ready ───────────────────────────▶ Staged ⇄ Published
//!                            │  ▲                                │
//!        DeleteVolume, unused│  └────────────────────────────────┘ NodeUnstage
//!                            ▼
//!                         Erasing ──cursor reaches the end──▶ free space (clean)
//!
//!   Found: came with an adopted disk; counts as used; Ready only by `volume adopt`.
//! ```

mod error;
mod local;
mod locks;
mod node;
mod port;
mod publish;
mod request;

pub use crate::device::VolumeId;
pub use error::Error;
pub use local::LocalVolumes;
pub use locks::{VolumeGuard, VolumeLocks};
pub use node::NodeVolumes;
pub use port::{DRIVER_NAME, Nodes, TOPOLOGY_KEY, Volume, VolumeRequest, Volumes};
pub use publish::AccessType;
pub use request::{PublishRequest, StageRequest, Stats};

pub use crate::health::Condition;
pub use crate::host::TargetAccess;
pub use crate::pool::{Capacity, Selector, WantedUsage};
