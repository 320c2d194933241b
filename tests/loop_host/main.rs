//! The real host on real loop devices. Needs root; each test makes and removes its own images.
//!
//! Without root each test says so and passes; the summary of `make test` counts those lines.

mod disk;
mod filesystems;
mod fixture;
mod mounts;
mod partitions;
mod signatures;
