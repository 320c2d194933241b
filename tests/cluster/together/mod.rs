//! Checks that disturb nobody: they run at once, each in its own namespace and with its own claims.

mod access;
mod bad_input;
mod bad_set;
mod binding;
mod contested;
mod discovery;
mod examples;
mod folders;
mod given_up;
mod growth;
mod guides;
mod kept;
mod marks;
mod prometheus;
mod reaction_off;
mod replaced;
mod rights;
mod room;
mod runbooks;
mod samples;
mod served;
mod show;
