//! PoolVolumes: the controller writes the spec, the agent of the node answers in the status (ADR 10).
//!
//! Takes in CSI's calls and what is on the disks; gives out objects, and verbs on the pool. `create`, `delete`,
//! `expand`, `offered`, `modes`, `node_capacity`, `decide`, `node_conditions` and `leftover` decide and are pure.
//! `controller` and the leader do what they decide, through `objects`, where each write applies only to the state that
//! was seen; `node_capacity` says which node is asked. On the node, `queue`, `work`, `make`, `report` and `settle` do the
//! work.
//!
//! ```text
//!  CSI ─▶ controller ─▶ objects ─▶ API server ─▶ agent of the node ─▶ pool
//!            ▲  └▶ create, delete, expand, node_capacity      │
//!            └───────────── store, latest ◀───────────────────┘ status
//! ```

mod abandon;
pub(in crate::operator) mod controller;
pub(in crate::operator) mod create;
pub(in crate::operator) mod decide;
pub(in crate::operator) mod delete;
mod erase;
pub(in crate::operator) mod erased;
pub(in crate::operator) mod expand;
pub(in crate::operator) mod foreign_volumes;
pub(in crate::operator) mod handle;
pub(in crate::operator) mod known;
mod latest_volume;
pub(in crate::operator) mod leftover;
mod make;
mod manifest;
pub(in crate::operator) mod modes;
pub(in crate::operator) mod new_volume;
pub(in crate::operator) mod node_capacity;
pub(in crate::operator) mod node_conditions;
pub(in crate::operator) mod objects;
pub(in crate::operator) mod offered;
pub(in crate::operator) mod order;
pub(in crate::operator) mod own;
pub(in crate::operator) mod persistent_volumes;
pub(in crate::operator) mod queue;
pub(in crate::operator) mod refused_modes;
mod report;
#[cfg(test)]
pub(in crate::operator) mod sample;
mod settle;
mod settle_orders;
pub(in crate::operator) mod status;
pub(in crate::operator) mod volume_health;
mod work;

pub use abandon::{abandon, give_up, given_up_words};
pub use erase::erase;
pub(in crate::operator) use erase::{AskedBy, erase_of};
pub use manifest::{ClaimName, ManifestRequest, manifest};
