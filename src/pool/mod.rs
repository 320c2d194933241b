//! What we make of disks: layouts, extents, placement and plans (pure), and their execution.
//!
//! Takes in devices and rules; gives out volumes' places, capacity, and changed disks. `disk`,
//! `erase`, `labelled` and `bare` touch a disk, `journal_store` the state directory; what they perform is decided elsewhere.
//!
//! * `device_pool`: all members, and the verbs that `volume` calls; `whereabouts`: where a volume is, and may be.
//! * `labelled`: a labelled disk over its life; `bare`: a bare device; `member`: what both have in common.
//! * `disk`: one open disk, performs the steps of a `plan`; `erase`: the background work.

pub mod bare;
pub mod choose;
pub mod content;
pub mod device_pool;
pub mod disk;
pub mod earlier;
pub mod erase;
pub mod extents;
pub mod journal;
pub mod journal_store;
pub mod labelled;
pub mod layout;
pub mod member;
pub mod placement;
pub mod plan;
pub mod request;
pub mod settle;
pub mod whereabouts;
