//! The reaction: where the disk under a StatefulSet's pod is lost, its claim and its pod are deleted, so that the set
//! makes both elsewhere (docs/reaction.md, ADR 15). No data is deleted. Off unless the administrator, the StorageClass
//! and the namespace ask for it.
//!
//! Takes in the marks of PersistentVolumes, and what the API server has of claims, sets and pods; gives out the steps of
//! one pass. What is under way is a record in an annotation of the PersistentVolume, and nowhere else.
//!
//! ```text
//! marked (volumes, from the stores) ─▶ tally (bad nodes) ─▶ decide ─▶ steps
//!                                                             ▲
//! live (what is read of one volume's pod, claim and set) ─────┘
//! ```
//!
//! All of these are pure. `reactor` runs the passes: `reader` reads, `perform` carries steps out, `teller` tells people with
//! the words of `report`, and `memory` what a process remembers of earlier passes.

mod decide;
mod evict;
mod gates;
mod home_reader;
mod in_flight;
mod live;
mod marked;
mod memory;
mod perform;
mod reactor;
mod reader;
mod record;
mod report;
#[cfg(test)]
mod sample;
mod settings;
mod tally;
mod teller;
mod under_way;
mod view;
mod why;

pub use self::reactor::Reactor;
pub use self::settings::{ReactionMode, ReactionSettings};
pub use self::why::Why;
