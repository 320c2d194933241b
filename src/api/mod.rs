//! The objects that a user writes, read strictly and turned into the types of `claim`.
//!
//! Takes in YAML, gives out [`Rule`](crate::claim::Rule)s and one error for each document that is not a rule. Nothing
//! is guessed: an unknown field, a second spelling with another value or a quantity out of range makes that document
//! invalid, and no other.

pub mod crd;
mod documents;
mod local_volume;
mod local_volume_discovery;
mod local_volume_set;
mod metadata;
mod node_disk_setup;
pub mod node_selector;
pub mod quantity;
mod set_error;
mod strict;
mod tolerations;

pub use local_volume::parse_volume;
pub use local_volume_discovery::{DiscoverySpec, parse_discovery};
pub use local_volume_set::{parse_set, parse_sets};
pub use node_disk_setup::{
    BenchmarkOptions, BenchmarkPlace, DiskSetup, DisksUse, PodCommand, PrecomputedUse, parse_disk_setup,
    parse_placement,
};
pub use node_selector::Node;
pub use set_error::{SetError, SetErrors};
pub use strict::{Invalid, Problem};
