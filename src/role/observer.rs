//! An agent that only looks: for commands and discovery, where none runs that keeps the pool.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::machine;
use super::node::CLUSTER_FILE;
use crate::agent::Reconciler;
use crate::device::ownership::Owner;
use crate::host::agent_lock::AgentLock;
use crate::host::filesystem::RealFilesystems;
use crate::host::real::RealHost;
use crate::host::state::StateDir;
use crate::host::{Host, Roots, StateStore};
use crate::pool::{Pool, Workers};

/// Whose disks an agent of Kubernetes has written down that these are.
pub fn known_cluster(state: &dyn StateStore) -> Result<Option<String>> {
    let cluster = state.load(CLUSTER_FILE)?;
    Ok(cluster.map(|uid| uid.trim().to_owned()).filter(|uid| !uid.is_empty()))
}

/// The same, or what a standalone agent of this machine says, or would. `None`: nobody can tell before its first start.
pub fn known_owner(state: &dyn StateStore) -> Result<Option<String>> {
    match known_cluster(state)? {
        Some(cluster) => Ok(Some(cluster)),
        None => machine::known_identity(state),
    }
}

/// This machine, with that state directory, for looks.
pub fn machine(state: StateDir) -> Arc<dyn Host> {
    Arc::new(RealHost::new(Roots::default(), RealFilesystems::default(), state))
}

/// The same for more than looks: what an agent that was killed may still write to is left alone.
pub fn machine_after(state: StateDir, lock: &AgentLock) -> Arc<dyn Host> {
    Arc::new(RealHost::new(Roots::default(), RealFilesystems::default(), state).after(lock.after.clone()))
}

/// Without rules; on a machine whose lock nobody has taken it must not be asked for more than looks.
pub fn agent(host: Arc<dyn Host>, owner: Owner) -> Result<(Reconciler, Arc<Pool>)> {
    let pool = Arc::new(Pool::open(Arc::clone(&host), owner, Workers::Caller)?);
    Ok((Reconciler::new(host, Arc::clone(&pool), Duration::MAX, Vec::new()), pool))
}
