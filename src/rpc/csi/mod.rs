//! CSI 1.13: parse, one call into the domain, map the answer.
//!
//! Takes in requests, gives out answers of the port [`Volumes`](crate::volume::Volumes) and of
//! [`NodeVolumes`](crate::volume::NodeVolumes). Holds no state.

mod capability;
mod controller;
mod convert;
mod health;
mod identity;
mod node;
mod paging;

pub use controller::{ControllerService, ExpansionService};
pub use identity::IdentityService;
pub use node::NodeService;
