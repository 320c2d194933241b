//! DevicePools: what each node has.
//!
//! Takes in what a pass saw and what is in the pool; gives out the agent's status (`report`, and `disk_status` for one
//! disk) and Events about what is new in it (`disk_events`), what the controller says of the agent's life
//! (`agent_life`), what was ordered for disks is carried out (`orders`), and which pools of deleted nodes are deleted.

pub(in crate::operator) mod agent_life;
pub(in crate::operator) mod deleted_node;
mod disk_events;
pub(in crate::operator) mod disk_homes;
mod disk_status;
pub(in crate::operator) mod orders;
pub(in crate::operator) mod report;
mod set_offer;
