//! The Kubernetes edge: observe → decide → apply → report.
//!
//! Takes in objects by watches, gives out statuses, events and verbs on the pool. Each object has a folder with both of
//! its sides: `volume`, `set`, `pool`, `persistent_volume`, `discovery`. `drain` is a verb about several of them. `node` wires those of an agent, the one writer of its pool's
//! objects; `controller` and `leader` wire those of the controller, the one writer of specs. `store` and
//! `watch` keep what was seen. Code that decides takes no client, clock or path.
//!
//! What several of these folders need is in a file beside them: what an agent's tasks share (`node_context`), what the
//! controller knows and counts (`stores`, `leader_stores`, `metrics`, `reaction_metrics`), what a PoolVolume means (`pool_volume`), what is read of
//! a Node (`kube_node`, `node_ready`) and of a pod (`pod_claims`), which paths an agent looks at (`watched`), what an agent asks the controller (`question`), which disks are cordoned (`cordon`), what is ordered for disks (`disk_orders`),
//! and whose CRDs the cluster has (`crd_definition`, `crd_owner`). So no folder imports from one that imports from it.

pub(in crate::operator) mod agent_pod;
pub(in crate::operator) mod bytes;
mod client;
mod condition;
pub mod controller;
mod cordon;
pub(in crate::operator) mod crd_definition;
pub(in crate::operator) mod crd_owner;
pub mod crds;
pub mod discovery;
mod disk_orders;
pub mod drain;
mod error;
pub(in crate::operator) mod event;
pub(in crate::operator) mod event_queue;
mod event_writer;
mod health;
mod identity;
mod kube_node;
pub(in crate::operator) mod leader;
pub(in crate::operator) mod leader_stores;
pub mod lease;
pub(in crate::operator) mod metrics;
pub mod node;
pub(in crate::operator) mod node_context;
pub(in crate::operator) mod node_ready;
mod object_key;
pub(in crate::operator) mod persistent_volume;
mod pod_claims;
pub(in crate::operator) mod pool;
pub(in crate::operator) mod pool_volume;
mod question;
mod reaction;
mod reaction_metrics;
pub(in crate::operator) mod relevance;
pub(in crate::operator) mod set;
pub(in crate::operator) mod steady;
pub(in crate::operator) mod store;
pub(in crate::operator) mod stores;
pub mod volume;
pub(in crate::operator) mod watch;
mod watched;
mod write;

pub use lease::Lease;

pub use self::client::{client, client_without_repetition};
pub use self::error::{OperatorError, error_message};
