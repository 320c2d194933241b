//! LocalVolumeSets and LocalVolumes: what they ask of a node, and what their statuses report.
//!
//! Takes in the objects and what the nodes offer for them; gives out rules (`node_config`), statuses and
//! StorageClasses, which the leader writes. Pure but for the watches of `config`.

pub(in crate::operator) mod class;
pub(in crate::operator) mod config;
mod local_volume;
pub(in crate::operator) mod node_config;
pub(in crate::operator) mod offers;
pub(in crate::operator) mod parsed;
pub(in crate::operator) mod partitioning;
#[cfg(test)]
pub(in crate::operator) mod sample;
pub(in crate::operator) mod status;
pub(in crate::operator) mod summary;
