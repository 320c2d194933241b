//! PoolVolumes: the controller writes the spec, the agent of the node answers in the status (ADR 10).
//!
//! Takes in CSI's calls and what is on the disks; gives out objects, and verbs on the pool. `create`, `delete`,
//! `expand`, `eligible`, `node_capacity`, `decide`, `node_conditions` and `leftover` decide and are pure.
//! `controller` and the leader do what they decide, through `objects`, where each write applies only to the state that
//! was seen; `eligible` says which node is asked. On the node, `due` says which volumes a pass
//! makes due; `queue`, `work`, `make`, `size`, `report` and `settle` do the work, by `own_volume`.
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
mod due;
pub(in crate::operator) mod eligible;
mod erase;
pub(in crate::operator) mod erased;
pub(in crate::operator) mod expand;
pub(in crate::operator) mod handle;
pub(in crate::operator) mod known;
pub(in crate::operator) mod leftover;
mod make;
mod manifest;
pub(in crate::operator) mod node_capacity;
pub(in crate::operator) mod node_conditions;
pub(in crate::operator) mod objects;
pub(in crate::operator) mod order;
mod own_volume;
pub(in crate::operator) mod promised_paths;
pub(in crate::operator) mod queue;
pub(in crate::operator) mod refused_modes;
mod report;
pub(in crate::operator) mod reported_volumes;
mod resize;
#[cfg(test)]
pub(in crate::operator) mod sample;
mod settle;
mod settle_orders;
mod size;
pub(in crate::operator) mod status;
pub(in crate::operator) mod volume_health;
mod work;

pub use abandon::{abandon, give_up, given_up_lines};
pub use erase::erase;
pub(in crate::operator) use erase::{AskedBy, erase_of};
pub use manifest::{ManifestRequest, PvcName, manifest};
