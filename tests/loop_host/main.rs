//! The real host on real loop devices. Needs root; each test makes and removes its own images.
//!
//! Without root each test says so and passes; the summary of `make test` counts those lines.

// clippy sees tests only in functions that are marked as such, not in what they share.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod benchmark;
mod disk;
mod filesystems;
mod fixture;
mod host_mounts;
mod mounts;
mod named;
mod partitions;
mod quota;
mod removal;
mod roots;
mod scan;
mod signatures;
mod states;
mod table;
