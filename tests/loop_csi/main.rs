//! The promises of the driver, end to end: the real binary as `localpool standalone` on real loop devices, called
//! through its CSI socket and its command line. Needs root; each test has its own directory, disks and driver, and
//! leaves nothing behind.
//!
//! Without root each test says so and passes; the summary of `make test` counts those lines.

// clippy sees tests only in functions that are marked as such, not in what they share.
#![allow(clippy::unwrap_used, reason = "a test may end where a step fails")]

mod bad_request;
mod bad_start;
mod bare;
mod bare_changed;
mod blankness;
mod client;
mod clock;
mod coming;
mod conflict;
mod content;
mod directories;
mod driver;
mod dry_run;
mod hanging;
mod health;
mod held;
mod lab;
mod life;
mod making;
mod mounting;
mod named;
mod pages;
mod process;
mod record;
mod repeated;
mod safety;
mod sick_folders;
mod stale;
mod tool;
