//! What is wrong with disks and volumes: one table of reasons, and since when each of them holds.
//!
//! Takes in what the pool knows and what was observed of a disk or a volume; gives out a [`Condition`], from which
//! every face is made: conditions of objects, CSI's health calls and metrics. Pure: it takes the time as a value.
//!
//! ```text
//! pool views, observations ─▶ Finding (reason, message) ─▶ History (since when) ─▶ Condition (worst first)
//! ```

mod answer;
mod array;
mod board;
mod change;
mod condition;
mod face;
mod filesystem_board;
mod finding;
mod history;
mod mount_targets;
mod observed;
mod path;
mod reason;
mod stalled;

pub use answer::{AnswerOf, cordons_in_question};
pub use board::{Board, CheckupResult, PathReport, PathResult};
pub use change::HealthChange;
pub use condition::{Condition, HEALTHY};
pub use face::{FACES, Face};
pub use filesystem_board::{
    DEFAULT_DISK, EarlierFilesystems, FilesystemBoard, FilesystemReport, FilesystemUse, WantedFilesystems,
};
pub use finding::{Finding, FoundBy};
pub use mount_targets::TargetsByVolume;
pub use observed::{AnsweredAt, DiskCounters, DiskObservation, SeenUsage, VolumeObservation, VolumePlaces};
pub use path::{PathClaim, PathClaimUid, PathIdentity, PathKind, PvUid, WatchedPath};
pub use reason::{HealthReason, LossScope, REASONS, ReasonRow, Severity, Source, Subject};
pub use stalled::StalledWrites;
