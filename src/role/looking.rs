//! An agent that only looks: for commands and discovery, where none runs that keeps the pool.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::node::CLUSTER_FILE;
use crate::host::filesystem::RealFilesystems;
use crate::host::real::RealHost;
use crate::host::state::StateDir;
use crate::host::sysfs::Roots;
use crate::host::{Host, StateStore as _};
use crate::pool::apply::agent::Agent;
use crate::pool::apply::pool::{Owner, Pool, Workers};

/// Whose disks an agent of Kubernetes has written down that these are.
pub fn known_cluster(state: &StateDir) -> Result<Option<String>> {
    let cluster = state.load(CLUSTER_FILE)?;
    Ok(cluster.map(|uid| uid.trim().to_owned()).filter(|uid| !uid.is_empty()))
}

/// Without rules and without the lock: it must not be asked for more than looks.
pub fn agent(state: StateDir, owner: Owner) -> Result<(Agent, Arc<Pool>)> {
    let host: Arc<dyn Host> = Arc::new(RealHost::new(Roots::default(), RealFilesystems::default(), state));
    let pool = Arc::new(Pool::open(Arc::clone(&host), owner, Workers::Caller)?);
    Ok((Agent::new(host, Arc::clone(&pool), Duration::MAX, Vec::new()), pool))
}
