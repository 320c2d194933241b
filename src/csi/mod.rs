//! The gRPC edge: parse, one call into the domain, map the answer. The only place that names a gRPC code.
//!
//! Takes in CSI 1.13 requests on a Unix socket, gives out answers of the port
//! [`Volumes`](crate::volume::Volumes) and of [`NodeVolumes`](crate::volume::NodeVolumes). Holds no state.

mod agent;
mod capability;
pub mod client;
mod controller;
mod convert;
mod health;
mod identity;
mod measure;
mod node;
mod paging;
pub mod proto;
pub mod registration;
pub mod server;
mod status;

pub use agent::{AgentService, Looks};
pub use controller::{ControllerService, ExpansionService};
pub use identity::{IdentityService, Readiness};
pub use measure::Calls;
pub use node::NodeService;

pub use crate::volume::{DRIVER_NAME, TOPOLOGY_KEY};
