//! The Kubernetes edge: observe → decide → apply → report.
//!
//! Takes in objects by watches, gives out statuses, events and verbs on the pool. Each object has a folder with both
//! of its sides: `volume`, `set`, `pool` with its `disk`s, `node`, `persistent_volume`, `discovery`, `crds`. `drain`,
//! `reaction`, `disk_setup` with `benchmark`, and `overview` are about several of them. `agent` wires the tasks of an agent, the one writer of its pool's objects;
//! `controller` and `leader` wire those of the controller, the one writer of specs. Code that decides takes no client,
//! clock or path.
//!
//! What all of them need: `api_server` (requests, watches, stores), `kube_volume` (PersistentVolumes, as they are
//! read), `status` and `event` (what is written), `metrics`. Three files stand beside the folders: what the controller
//! knows (`stores`) needs what a PoolVolume means (`pool_volume`), and `volume` needs both; `bytes` converts sizes for
//! all of them.

pub mod agent;
mod api_server;
mod benchmark;
mod bytes;
pub mod controller;
pub mod crds;
pub mod discovery;
mod disk;
mod disk_setup;
pub mod drain;
mod event;
mod kube_volume;
mod leader;
mod metrics;
mod node;
pub mod overview;
mod persistent_volume;
mod pool;
mod pool_volume;
mod reaction;
#[cfg(test)]
mod recorded_failures;
mod set;
mod status;
mod stores;
pub mod volume;

pub use self::api_server::client::{AskedCluster, ClusterChoice, client, client_of, client_without_repetition};
pub use self::api_server::error::{OperatorError, error_message};
pub use self::leader::lease::{self, Lease};
