//! What we make of disks: layouts, extents, placement and plans (pure), and their execution.
//!
//! Takes in devices and rules; gives out volumes' places, capacity, and changed disks. Only `apply`
//! touches a disk.

pub mod apply;
pub mod choose;
pub mod content;
pub mod earlier;
pub mod extents;
pub mod journal;
pub mod layout;
pub mod placement;
pub mod plan;
pub mod request;
