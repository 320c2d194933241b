//! Checks that need the pool for themselves: one after another.

mod again;
mod benchmark;
mod questions;
mod reaction;
mod reserved;
mod room;
mod ways_out;
