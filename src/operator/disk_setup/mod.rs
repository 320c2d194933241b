//! What a NodeDiskSetup asks of the disks of nodes (docs/node-disk-setup.md, ADR 21): a LocalVolumeSet, which the controller
//! writes for its user, and what became of it on the nodes.
//!
//! ```text
//! setups (which object is for which node) ─▶ own_set (the set of each object) ─▶ readiness (where its disks are ready)
//! ```
//!
//! All of it is pure. `benchmark`, which keeps the other part of these objects, writes what is decided here.

pub mod own_set;
pub mod readiness;
#[cfg(test)]
pub mod sample;
pub mod setups;
