//! Checks that need the pool for themselves: one after another.

mod questions;
mod reaction;
mod room;
mod ways_out;
