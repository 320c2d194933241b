//! The promises of the driver in Kubernetes: the chart on a real cluster, real pods, their data.
//!
//! `scripts/test-cluster` brings the cluster up and runs `together` (checks that disturb nobody, all at once), then
//! `turns` (checks that restart things), `alone` (checks that look at the whole pool), and `last` (the end of the
//! installation). Without a cluster each check says so and passes.

// clippy sees tests only in functions that are marked as such, not in what they share.
#![allow(clippy::unwrap_used, reason = "a test may end where a step fails")]

mod alone;
mod by_hand;
mod check;
mod cluster;
mod found;
mod last;
mod machine;
mod metrics;
mod page;
mod peace;
mod pods;
mod runbook;
mod sets;
mod sets_of_three;
#[path = "../apiserver/sim.rs"]
mod sim;
mod simulated;
mod table;
mod together;
mod turns;
