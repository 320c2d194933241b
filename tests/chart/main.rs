//! The Helm chart as both Helms render it: what runs with which rights, that docs/security.md says the same, that each
//! value has an effect, that the flags it passes exist, and what an apiserver makes of its policies.
//!
//! Needs no cluster. Helm, the sidecars and the apiserver come from `make cluster-build`, or lie beside the program
//! that LOCALPOOL_CLUSTER_BIN names; a test that misses them says `skipped: …`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admission;
mod alerts;
mod apiserver;
mod dashboard;
mod definitions;
mod examples;
mod flags;
mod helm;
mod lab;
mod metrics;
mod platforms;
mod pods;
mod release;
mod roles;
mod tried;
mod tried_discovery;
mod tried_node_disk_setup;
mod tried_reaction;
mod tried_sets;
mod tried_startup_taint;
mod tried_status_page;
mod values;

use std::path::{Path, PathBuf};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn chart() -> PathBuf {
    repository().join("charts/localpool")
}
