//! The gRPC edge, and the only place that names a gRPC code.
//!
//! Takes in requests on Unix sockets: of CSI (`csi`), of people (`agent`), and kubelet's question who serves CSI
//! (`registration`). Gives out answers, with the one table of codes (`status`). `server` and `client` are the two ends
//! of a socket, `proto` is what goes through it, and `measure` counts calls.

mod agent;
pub mod client;
mod csi;
mod measure;
pub mod proto;
mod readiness;
pub mod registration;
pub mod server;
mod status;

pub use agent::{AgentService, PassSignal};
pub use csi::{ControllerService, ExpansionService, IdentityService, NodeService};
pub use measure::Calls;
pub use readiness::Readiness;

pub use crate::volume::{DRIVER_NAME, TOPOLOGY_KEY};
