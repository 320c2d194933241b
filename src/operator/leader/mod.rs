//! What one replica does for all: StorageClasses, the status of sets and LocalVolumes, whether agents answer, the
//! startup taint of nodes, and volumes whose node was deleted.
//!
//! Each pass looks at everything and writes what differs. It starts when something changed, when the previous pass
//! could not do everything, or when something is due. `set::{class, summary}`, `pool::{agent_life, deleted_node}`,
//! `node::startup_taint` and `volume::{node_conditions, leftover}` decide and are pure; `sets`, `agents`, `startup_taints`, `volumes` and
//! `pools` do it, object by object.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Client;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::cluster::LeaderCluster;
use crate::host::Backoff;
use crate::operator::api_server::store::Store;
use crate::operator::api_server::watch::keep;
use crate::operator::metrics::Metrics;
use crate::operator::node::agent_pod::{AgentPod, AgentPods};
use crate::operator::pool::agent_life::Silences;
use crate::operator::pool::deleted_node::UnusedPools;
use crate::operator::status::steady::GRACE;
use crate::operator::stores::Stores;
pub use crate::operator::volume::node_conditions::DeletedNodePolicy;
use crate::operator::volume::objects::VolumeApi;

mod agents;
mod cluster;
pub mod lease;
mod pools;
mod sets;
mod startup_taints;
pub(in crate::operator) mod stores;
mod volumes;

/// Changes come in bursts; a pass waits for the end of one.
const SETTLE: Duration = Duration::from_millis(250);
/// The wait after a pass that could not do everything: the first one, and the longest.
const RETRY: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
/// How long an object stays after nobody asks for it any more.
const RETENTION: SignedDuration = SignedDuration::from_mins(10);

/// What becomes of the startup taint of a node whose agent is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupTaint {
    Stays,
    Removed,
}

/// How many objects of one kind a pass writes because of their nodes, and how soon the next one follows. When
/// many nodes change at once, what was known at the beginning of a pass is old at its end, and all its other
/// work waits for it.
const WRITES: usize = 50;
const WRITES_INTERVAL: SignedDuration = SignedDuration::from_secs(1);

/// The work of the leader.
pub struct Leader {
    cluster: LeaderCluster,
    classes: Store<StorageClass>,
    agents: Store<AgentPod>,
    agent_pods: AgentPods,
    objects: VolumeApi,
    gone: DeletedNodePolicy,
    startup_taint: StartupTaint,
    retention: SignedDuration,
    grace: SignedDuration,
}

/// What a pass remembers for the next one.
struct PassMemory {
    began: Instant,
    unused: UnusedPools,
    silences: Silences,
}

/// How a pass, or a part of it, ended.
struct Pass {
    /// Nothing has to be tried again.
    is_done: bool,
    /// When there is something to do even if nothing changes, whatever the wall clock says then.
    due: Option<Instant>,
}

impl Pass {
    fn done() -> Self {
        Self { is_done: true, due: None }
    }

    fn due_in(&mut self, wait: SignedDuration) {
        let due = Instant::now().checked_add(Duration::try_from(wait).unwrap_or_default());
        self.due = self.due.into_iter().chain(due).min();
    }

    fn and(self, other: Self) -> Self {
        let due = self.due.into_iter().chain(other.due).min();
        Self { is_done: self.is_done && other.is_done, due }
    }
}

impl Leader {
    pub fn new(
        client: Client,
        stores: Stores,
        classes: Store<StorageClass>,
        metrics: Metrics,
        agent_pods: AgentPods,
        gone: DeletedNodePolicy,
        identity: &str,
    ) -> Self {
        Self {
            classes,
            agents: AgentPod::store(),
            agent_pods,
            objects: VolumeApi::new(client.clone()),
            gone,
            startup_taint: StartupTaint::Stays,
            retention: RETENTION,
            grace: GRACE,
            cluster: LeaderCluster::new(client, stores, metrics, identity),
        }
    }

    /// Removing it needs a right of its own.
    pub fn with_startup_taint(self, startup_taint: StartupTaint) -> Self {
        Self { startup_taint, ..self }
    }

    /// Sets another time for which an object stays after nobody asks for it any more.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_retention(self, retention: SignedDuration) -> Self {
        Self { retention, ..self }
    }

    /// Sets another time after which an agent whose pod is not ready counts as silent.
    #[cfg(any(test, feature = "testing"))]
    pub fn silent_after(self, grace: SignedDuration) -> Self {
        Self { grace, ..self }
    }

    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut tasks = JoinSet::new();
        tasks.spawn(keep(self.agents.clone(), self.agent_pods.watched(self.cluster.client.clone()), AgentPod::trimmed));
        let (mut changes, mut classes, mut agents) =
            (self.cluster.stores.changes(), self.classes.changes(), self.agents.changes());
        let mut backoff = RETRY;
        let (began, unused) = (Instant::now(), UnusedPools::new(self.retention));
        let mut memory = PassMemory { began, unused, silences: Silences::new(self.grace) };
        loop {
            // Any change after this starts another pass.
            changes.mark_unchanged();
            classes.mark_unchanged();
            agents.mark_unchanged();
            let Pass { is_done, due } = match self.cluster.stores.are_synced() && self.classes.is_synced() {
                true => self.pass(&mut memory).await,
                false => Pass::done(),
            };
            let until = due.map_or(Duration::MAX, |due| due.saturating_duration_since(Instant::now()));
            let again = backoff.after(!is_done).map_or(until, |wait| until.min(wait));
            let _ = tokio::time::timeout(again, async {
                tokio::select! {
                    () = changes.next() => {}
                    _ = classes.changed() => {}
                    _ = agents.changed() => {}
                }
            })
            .await;
            tokio::time::sleep(SETTLE).await;
        }
    }

    async fn pass(&self, memory: &mut PassMemory) -> Pass {
        let PassMemory { began, unused, silences } = memory;
        let now = SignedDuration::try_from(began.elapsed()).unwrap_or(SignedDuration::MAX);
        let mut made = BTreeMap::new();
        let Stores { sets, read_sets, local_volumes, read_volumes, .. } = &self.cluster.stores;
        let mut is_done = self.statuses(sets, read_sets, &mut made).await;
        is_done &= self.statuses(local_volumes, read_volumes, &mut made).await;
        let (agents, volumes) = (self.agents(silences, now).await, self.volumes().await);
        let statuses = Pass { is_done, due: None };
        let nodes = self.startup_taints().await;
        statuses.and(agents).and(nodes).and(volumes).and(self.unused_pools(unused, now).await)
    }
}
