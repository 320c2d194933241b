//! The shell of the pool, and the only one of its files with effects: holds the open disks, performs plans.
//!
//! * `disk`: one open disk and what it holds; performs steps.
//! * `member`: a disk of the pool over its life: joins, leaves, comes back, offers.
//! * `raw`: a bare device of the pool; `seat`: what it and a labelled member have in common.
//! * `journal`: what the state directory remembers.
//! * `erase`: the background work: erasing what was deleted, cleaning what is dirty.
//! * `agent`: passes over the whole machine: disks arrive, leave, are claimed and given back.
//! * `keeper`: the thread that makes the passes: events, timers, requests.
//! * `onlooker`: looks without touching, where no agent runs.
//! * `admin`: what a person may ask: inventory, release, adopt.
//! * `pool`: all members; the verbs that `volume` calls.

pub mod admin;
pub mod agent;
pub mod disk;
pub mod erase;
pub mod journal;
pub mod keeper;
pub mod member;
pub mod onlooker;
pub mod pool;
pub mod raw;
pub mod seat;
pub mod settle;
pub mod whereabouts;
