//! Checks that restart things or remove them: they run at once, and take turns when they disturb (`peace`).

mod agent;
mod apiserver;
mod controllers;
mod definitions;
mod folders;
mod restarts;
mod upgrade;
