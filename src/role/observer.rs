//! An agent that only looks: for commands and discovery, if no agent that keeps the pool runs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::machine;
use crate::agent::Reconciler;
use crate::device::Owner;
use crate::host::{AgentLock, Host, RealFilesystems, RealHost, Roots, StateDir, StateStore};
use crate::operator::agent::CLUSTER_FILE;
use crate::pool::{Pool, Workers};

/// The cluster that a Kubernetes agent has recorded as the owner of these disks.
pub fn known_cluster(state: &dyn StateStore) -> Result<Option<String>> {
    let cluster = state.load(CLUSTER_FILE)?;
    Ok(cluster.map(|uid| uid.trim().to_owned()).filter(|uid| !uid.is_empty()))
}

/// The same, or else the identity of a standalone agent of this machine. `None`: unknown before its first start.
pub fn known_owner(state: &dyn StateStore) -> Result<Option<String>> {
    match known_cluster(state)? {
        Some(cluster) => Ok(Some(cluster)),
        None => machine::known_identity(state),
    }
}

/// This machine with that state directory, only for scans.
pub fn machine(state: StateDir) -> Arc<dyn Host> {
    Arc::new(RealHost::new(Roots::default(), RealFilesystems::default(), state))
}

/// The same for more than scans: devices that a killed agent may still write to are not touched.
pub fn machine_after(state: StateDir, lock: &AgentLock) -> Arc<dyn Host> {
    Arc::new(RealHost::new(Roots::default(), RealFilesystems::default(), state).after(lock.after.clone()))
}

/// An agent without rules. If nobody holds the machine's lock, it must only look.
pub fn agent(host: Arc<dyn Host>, owner: Owner) -> Result<(Reconciler, Arc<Pool>)> {
    let pool = Arc::new(Pool::open(Arc::clone(&host), owner, Workers::Caller)?);
    Ok((Reconciler::new(host, Arc::clone(&pool), Duration::MAX, Vec::new()), pool))
}
