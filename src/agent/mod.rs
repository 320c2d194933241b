//! The loop of a node: it looks, decides what is to be done, and does it; and what a person asks of it.
//!
//! `reconciler` keeps the pool in step, by one thread (`thread`); the pool is shared. `decide` is pure; `perform`,
//! `members`, `claim` and `wipe` do what is decided; `admin` is what a person asks. `checkup` looks at the health of
//! the pool, on a thread of its own; `kept_targets` remembers where volumes are mounted.

mod admin;
mod again;
mod array;
mod array_members;
mod array_steps;
mod blank;
mod burst;
mod checkup;
mod checkup_thread;
mod claim;
mod decide;
mod disk_benchmarker;
mod disk_copies;
mod disk_health_cache;
mod errands;
mod health;
mod host_paths;
mod inventory;
mod kept_targets;
mod known_disks;
mod member_problem;
mod members;
mod memory;
mod named;
mod observer;
mod open;
mod pass_state;
mod perform;
mod preview;
mod question;
mod reconciler;
mod renamed_bare;
mod reported_volumes;
mod target_thread;
mod thread;
mod verb;
mod wipe;

pub use self::admin::AdminError;
pub use self::checkup::Checkup;
pub use self::checkup_thread::CheckupHandle;
pub use self::disk_benchmarker::{BenchmarkError, BenchmarkPace, DiskAway, DiskBenchmarker, DiskUse};
pub use self::disk_health_cache::DiskHealthCache;
pub use self::inventory::inventory;
pub use self::memory::WipedDisk;
pub use self::observer::{Interest, observe};
pub use self::reconciler::{PassReport, Reconciler};
pub use self::target_thread::TargetThread;
pub use self::thread::{AgentHandle, OrderRead, Stopped};
pub use self::verb::{DiskTask, Run, Verb};
