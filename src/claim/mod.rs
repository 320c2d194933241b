//! Who may take a device: what rules select, how ripe it is, and which rule takes which.
//!
//! Takes in [`Device`](crate::device::Device)s and rules, gives out an election. Pure.

pub mod ballot;
pub mod election;
pub mod expression;
pub mod filter;
pub mod glob;
pub mod named;
pub mod promise;
pub mod rejection;
pub mod ripeness;
pub mod rule;
#[cfg(test)]
pub mod sample;
pub mod wipe;
