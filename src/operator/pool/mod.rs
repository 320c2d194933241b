//! DevicePools: what a node has.
//!
//! Takes in what a pass saw and what is in the pool; gives out the status (`report`), and which pools of deleted nodes go.

mod clean_up;
pub(in crate::operator) mod deleted_node;
pub(in crate::operator) mod report;
