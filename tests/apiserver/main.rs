//! The controller against a real etcd and API server, with agents that the tests play.
//!
//! LOCALPOOL_CLUSTER_BIN names the program for both, target/cluster/bin/localpool-cluster, which `make cluster-up`
//! builds. If it is missing, each test says that it was skipped.

mod adoption;
mod agent;
mod conflict;
mod cordons;
mod discovery;
mod discovery_result;
mod disk_events;
mod disk_orders;
mod disks_away;
mod elsewhere;
mod ended;
mod events;
mod foreign_crds;
mod identity;
mod immutable;
mod late_events;
mod late_watch;
mod leader;
mod lost;
mod marks;
mod modes;
mod nodes;
mod orders;
mod race;
mod reaction;
mod reasons;
mod restored;
mod role;
mod sent;
mod server;
mod set_status;
mod silent;
mod sim;
mod stateful;
mod taken_back;
mod tap;
mod tries;
mod upgrade;
mod volumes;
