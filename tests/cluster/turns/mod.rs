//! Checks that restart things or take them away: they run at once, and take turns where they disturb (`peace`).

mod agent;
mod apiserver;
mod controllers;
mod definitions;
mod restarts;
mod upgrade;
