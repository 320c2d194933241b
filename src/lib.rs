//! localpool turns the local disks of a node into CSI volumes.
//!
//! Data flows one way, and a module imports only from its left:
//!
//! ```text
//! host ─▶ device ─▶ claim ─▶ pool ─▶ health ─▶ volume ─▶ show ─▶ agent ─▶ { rpc, operator }
//! ```
//!
//! * `host`: the machine, and the only effects. A real one, and a fake one that can fail on purpose.
//! * `device`: what a disk is: identity, the label it carries, whose it is.
//! * `claim`: who may take a device: what rules select, how ripe it is, which rule takes which.
//! * `pool`: what we make of disks: layouts, extents, plans (pure) and their execution.
//! * `health`: what is wrong with disks and volumes, and since when.
//! * `volume`: what a PersistentVolumeClaim gets: its id, its life cycle, its mounts.
//! * `api`: the objects a user writes, read strictly and turned into the types above.
//! * `show`: what people read of devices and volumes.
//! * `agent`: the loop of a node: disks arrive, leave, are claimed and released; what a person asks of it.
//! * `rpc`: the gRPC edge, with CSI in it; the only place that names a gRPC code.
//! * `operator`: the Kubernetes edge, of the node's agent and of the controller.
//!
//! `api` stands left of `pool`: it makes `claim`'s rules. `role` and `cli` wire the parts, and import all.
//! tests/layering holds this; docs/architecture.md says more.

// Effects belong to `host` (clippy.toml names them); tests may do what they like.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

// Every profile without debug assertions is one that may be shipped or measured.
#[cfg(all(feature = "testing", not(debug_assertions)))]
compile_error!("the feature `testing` is for tests alone: build without it, or in the profile `dev` or `test`");

pub mod agent;
pub mod api;
pub mod claim;
pub mod cli;
pub mod demo;
pub mod device;
pub mod health;
pub mod host;
pub mod operator;
pub mod pool;
pub mod role;
pub mod rpc;
pub mod show;
pub mod volume;
