//! The loop of a node: it looks, decides what is to be done, and does it; and what a person asks of it.
//!
//! `reconciler` keeps the pool in step, by one thread (`thread`); the pool is shared. `decide` is pure; `perform`,
//! `members`, `claim` and `wipe` do what is decided; `admin` is what a person asks. `checkup` looks at the health of
//! the pool, on a thread of its own.

mod admin;
mod blank;
mod burst;
mod checkup;
mod checkup_thread;
mod claim;
mod decide;
mod disk_copies;
mod health;
mod inventory;
mod member_problem;
mod members;
mod memory;
mod observer;
mod open;
mod own;
mod pass_state;
mod perform;
mod preview;
mod question;
mod reconciler;
mod renamed_bare;
mod reports;
mod thread;
mod verb;
mod wipe;

pub use self::admin::AdminError;
pub use self::checkup::Checkup;
pub use self::checkup_thread::CheckupHandle;
pub use self::inventory::inventory;
pub use self::memory::WipedDisk;
pub use self::observer::{Interest, observe};
pub use self::reconciler::{PassReport, Reconciler};
pub use self::reports::Reports;
pub use self::thread::{AgentHandle, Confirmed, Stopped};
pub use self::verb::{DiskTask, Run, Verb};
