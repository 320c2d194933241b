//! What is wrong with disks and volumes: one table of reasons, and since when each of them holds.
//!
//! Takes in what the pool knows and what was observed of a disk or a volume; gives out a [`Condition`], from which
//! every face is made: conditions of objects, CSI's health calls and metrics. Pure: it takes the time as a value.
//!
//! ```text
//! pool views, observations ─▶ Finding (reason, message) ─▶ History (since when) ─▶ Condition (worst first)
//! ```

mod array;
mod board;
mod condition;
mod face;
mod finding;
mod history;
mod observed;
mod path;
mod reason;
mod stalled;

pub use board::{Board, Look, PathLook, PathReport};
pub use condition::{Condition, HEALTHY};
pub use face::{FACES, Face};
pub use finding::Finding;
pub use observed::{DiskCounters, DiskObservation, VolumeObservation, VolumePlaces};
pub use path::{PathKind, WatchedPath};
pub use reason::{HealthReason, LossScope, REASONS, ReasonRow, Severity, Source, Subject};
pub use stalled::StalledWrites;
