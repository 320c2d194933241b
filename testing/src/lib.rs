//! What tests of more than one program share: tools that they run, what they wait for, loop devices, an API server,
//! and machines as folders.
//!
//! A test fails by a panic, and so do these. Nothing of it is shipped.

// clippy sees tests only in functions that are marked as such, not in what they share.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

pub mod apiserver;
pub mod loops;
pub mod machines;
mod outcome;
mod process;
mod skipped;
mod wait;

pub use outcome::record;
pub use process::{Running, attempt, free_address, pid, run, text};
pub use skipped::{is_root, skipped};
pub use wait::{eventually, eventually_async, found, found_async};

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
