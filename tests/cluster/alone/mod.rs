//! Checks that restart things, or need the pool for themselves: one after another.

mod agent;
mod apiserver;
mod controllers;
mod definitions;
mod restarts;
mod room;
