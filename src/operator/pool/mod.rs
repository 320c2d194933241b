//! DevicePools: what each node has.
//!
//! Takes in what a pass saw and what is in the pool; gives out the agent's status (`report`) and Events about what is
//! new in it, what the controller says of the agent's life (`agent_life`), what was ordered for disks is carried out
//! (`orders`), disks are measured (`benchmarks`), and which pools of deleted nodes are deleted.

pub(in crate::operator) mod agent_life;
pub(in crate::operator) mod benchmarks;
pub(in crate::operator) mod deleted_node;
pub(in crate::operator) mod disk_homes;
pub(in crate::operator) mod orders;
pub(in crate::operator) mod report;
mod set_offer;
