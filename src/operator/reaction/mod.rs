//! The reaction: where the disk under a StatefulSet's pod is lost, its claim and its pod are deleted, so that the
//! StatefulSet makes both elsewhere (docs/reaction.md, ADR 15). No data is deleted. Off unless the administrator, the
//! StorageClass and the namespace ask for it.
//!
//! Takes in the marks of PersistentVolumes, and what the API server has of claims, StatefulSets and pods; gives out
//! the steps of one pass. What is under way is a record in an annotation of the PersistentVolume, and nowhere else.
//!
//! ```text
//! marked (volumes, from the stores) ─▶ tally (bad nodes) ─▶ decide ─▶ steps
//!                                                             ▲
//! live (one volume's pod, claim and StatefulSet, as read) ────┘
//! ```
//!
//! All of these are pure, and so is `confirmed`: which losses the agent that runs now has found. `reactor` runs the
//! passes: `reader` reads, `writes` says what is written, `perform` carries steps out, and `teller` tells people with
//! the words of `report`. `memory` is what a process remembers of earlier passes, and `handover` what of it the next
//! leader takes over, from the `lease_annotation`.

mod confirmed;
mod decide;
mod evict;
mod gates;
mod handover;
mod home_reader;
mod in_flight;
mod lease_annotation;
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
mod writes;

pub use self::reactor::Reactor;
pub use self::settings::{ReactionMode, ReactionSettings};
pub use self::why::Why;
