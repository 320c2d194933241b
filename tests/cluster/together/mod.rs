//! Checks that disturb nobody: they run at once, each in a namespace and with claims of its own.

mod access;
mod bad_input;
mod bad_set;
mod binding;
mod contested;
mod discovery;
mod examples;
mod growth;
mod kept;
mod rights;
mod room;
mod samples;
mod served;
mod show;
