//! What one replica does for all: StorageClasses, the status of sets and LocalVolumes, whether agents answer, and
//! volumes whose node was deleted.
//!
//! Each pass looks at everything and writes what differs. It starts when something changed, when the previous pass
//! could not do everything, or when something is due. `set::{class, summary}`, `pool::{agent_life, deleted_node}`
//! and `volume::{node_conditions, leftover}` decide and are pure; `sets`, `agents`, `volumes` and `pools` do it, object by
//! object.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, Client};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::agent_pod::{AgentPod, AgentPods};
use super::client::within;
use super::error::OperatorError;
use super::event_writer::EventWriter;
use super::metrics::Metrics;
use super::store::Store;
use super::stores::Stores;
use super::volume::objects::VolumeApi;
use crate::api::crd::DevicePool;
use crate::device::NodeName;
use crate::host::Backoff;
use crate::operator::pool::agent_life::Silences;
use crate::operator::pool::deleted_node::UnusedPools;
use crate::operator::steady::GRACE;
pub use crate::operator::volume::node_conditions::DeletedNodePolicy;
use crate::operator::{crd_owner::Whose, event::EventNote, watch::keep};

mod agents;
mod pools;
mod sets;
mod volumes;

/// Changes come in bursts; a pass waits for the end of one.
const SETTLE: Duration = Duration::from_millis(250);
/// The wait after a pass that could not do everything: the first one, and the longest.
const FIRST_WAIT: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long an object stays after nobody asks for it any more.
const RETENTION: SignedDuration = SignedDuration::from_mins(10);

/// How many objects of one kind a pass writes because of their nodes, and how soon the next one follows. When many nodes
/// change at once, what was known at the beginning of a pass is old at its end, and all its other work waits for it.
const WRITES: usize = 50;
const NEXT: SignedDuration = SignedDuration::from_secs(1);

/// The work of the leader.
pub struct Leader {
    client: Client,
    stores: Stores,
    classes: Store<StorageClass>,
    agents: Store<AgentPod>,
    agent_pods: AgentPods,
    objects: VolumeApi,
    events: EventWriter,
    metrics: Metrics,
    gone: DeletedNodePolicy,
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
    /// When there is something to do even if nothing changes.
    due: Option<Timestamp>,
}

impl Pass {
    fn done() -> Self {
        Self { is_done: true, due: None }
    }

    fn due_at(&mut self, time: impl Into<Option<Timestamp>>) {
        self.due = self.due.into_iter().chain(time.into()).min();
    }

    fn and(mut self, other: Self) -> Self {
        self.due_at(other.due);
        Self { is_done: self.is_done && other.is_done, ..self }
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
            stores,
            classes,
            agents: AgentPod::store(),
            agent_pods,
            objects: VolumeApi::new(client.clone()),
            events: EventWriter::new(client.clone(), identity),
            metrics,
            gone,
            retention: RETENTION,
            grace: GRACE,
            client,
        }
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
        tasks.spawn(keep(self.agents.clone(), self.agent_pods.watched(self.client.clone()), AgentPod::trimmed));
        let (mut changes, mut classes, mut agents) =
            (self.stores.changes(), self.classes.changes(), self.agents.changes());
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let (began, unused) = (Instant::now(), UnusedPools::new(self.retention));
        let mut memory = PassMemory { began, unused, silences: Silences::default() };
        loop {
            // Any change after this starts another pass.
            changes.mark_unchanged();
            classes.mark_unchanged();
            agents.mark_unchanged();
            let Pass { is_done, due } = match self.stores.are_synced() && self.classes.is_synced() {
                true => self.pass(&mut memory).await,
                false => Pass::done(),
            };
            let until = due.map_or(Duration::MAX, |due| {
                Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default()
            });
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
        let Stores { sets, read_sets, local_volumes, read_volumes, .. } = &self.stores;
        let mut is_done = self.statuses(sets, read_sets, &mut made).await;
        is_done &= self.statuses(local_volumes, read_volumes, &mut made).await;
        let (agents, volumes) = (self.agents(silences).await, self.volumes().await);
        Pass { is_done, due: None }.and(agents).and(volumes).and(self.unused_pools(unused, now).await)
    }

    /// Whether all were written.
    async fn write_events(&self, about: ObjectReference, action: &str, events: &[EventNote]) -> bool {
        let mut is_done = true;
        for event in events {
            let written = self.events.write(&about, action, event).await;
            is_done &= written.inspect_err(|error| self.metrics.failed("events", error)).is_ok();
        }
        is_done
    }

    /// The reports of nodes that exist: nobody updates the report of a deleted node.
    fn pools(&self) -> Vec<Arc<DevicePool>> {
        let mut pools = self.stores.pools.all();
        pools.retain(|pool| self.stores.nodes.get(&pool.node()).is_some());
        pools
    }

    /// Whether objects of a kind may be written; `None`: the API server could not be asked.
    async fn may_write(&self, whose: &Whose) -> Option<bool> {
        whose.are_ours().await.inspect_err(|error| self.metrics.failed("definitions", error)).ok()
    }

    async fn exists(&self, node: &NodeName) -> Result<bool, OperatorError> {
        let api: Api<Node> = Api::all(self.client.clone());
        Ok(within(&format!("reading Node {node}"), api.get_metadata_opt(node)).await?.is_some())
    }
}
