//! What tests of more than one program share: tools that they run, what they wait for, loop devices, an API server, a
//! folder of theirs, machines as folders, and the rights that are documented.
//!
//! A test fails by a panic, and so do these. Nothing of it is shipped.

// clippy sees tests only in functions that are marked as such, not in what they share.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

pub mod apiserver;
mod folder;
pub mod loops;
pub mod machines;
mod outcome;
mod port;
mod process;
pub mod rights;
mod sets;
mod skipped;
mod wait;

pub use folder::Folder;
pub use outcome::record;
pub use port::Port;
pub use process::{Running, attempt, free_address, pid, run, text};
pub use sets::set_of_images;
pub use skipped::{is_root, skipped};
pub use wait::{eventually, eventually_async, found, found_async};

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
