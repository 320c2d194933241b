//! What one replica does for all: StorageClasses, the status of sets and LocalVolumes, whether agents answer, and
//! volumes whose node was deleted.
//!
//! Each pass looks at everything and writes what differs. It starts when something changed, when the previous pass
//! could not do everything, or when something is due. `set::{class, status, local_volume}`, `pool::{agent_life, deleted_node}`
//! and `volume::{node_marks, leftover}` decide and are pure; `sets`, `agents`, `volumes` and `pools` do it, object by
//! object.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::runtime::events::{Recorder, Reporter};
use kube::{Api, Client};
use tokio::task::JoinSet;

use super::agent_pod::{AgentPod, AgentPods};
use super::client::within;
use super::error::OperatorError;
use super::metrics::Metrics;
use super::store::Store;
use super::stores::Stores;
use super::volume::objects::VolumeApi;
use crate::api::crd::DevicePool;
use crate::device::NodeName;
use crate::host::{Backoff, chain};
use crate::operator::pool::agent_life::{self, Silences};
use crate::operator::pool::deleted_node::UnusedPools;
pub use crate::operator::volume::node_marks::DeletedNodePolicy;
use crate::operator::{
    crd_owner::Whose,
    event::EventNote,
    watch::{Watched, decoded, keep},
};
use crate::volume::DRIVER_NAME;

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

/// How many objects of one kind a pass marks; the next pass follows a second later. When many nodes change at once, what
/// was known at the beginning of a pass is old at its end, and all its other work waits for it.
const WRITES: usize = 50;

/// The time of the next pass, where more is to be written.
fn soon(next: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let soon = now + SignedDuration::from_secs(1);
    next.map_or(soon, |next| next.min(soon))
}

/// The work of the leader.
pub struct Leader {
    client: Client,
    stores: Stores,
    classes: Store<StorageClass>,
    agents: Store<AgentPod>,
    agent_pods: AgentPods,
    objects: VolumeApi,
    recorder: Recorder,
    metrics: Metrics,
    gone: DeletedNodePolicy,
    retention: SignedDuration,
    grace: SignedDuration,
}

/// What a pass remembers for the next one.
#[derive(Default)]
struct PassMemory {
    unused: UnusedPools,
    silences: Silences,
}

/// How a pass ended.
struct Pass {
    /// Nothing has to be tried again.
    done: bool,
    /// When there is something to do even if nothing changes.
    due: Option<Timestamp>,
}

impl Leader {
    pub fn new(
        client: Client,
        stores: Stores,
        metrics: Metrics,
        agent_pods: AgentPods,
        gone: DeletedNodePolicy,
        identity: &str,
    ) -> Self {
        let reporter = Reporter { controller: DRIVER_NAME.to_owned(), instance: Some(identity.to_owned()) };
        Self {
            stores,
            classes: Store::new(|a, b| a == b),
            agents: AgentPod::store(),
            agent_pods,
            objects: VolumeApi::new(client.clone()),
            recorder: Recorder::new(client.clone(), reporter),
            metrics,
            gone,
            retention: RETENTION,
            grace: agent_life::GRACE,
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
        let classes = Watched::all(Api::all(self.client.clone()), "StorageClasses");
        tasks.spawn(keep(self.classes.clone(), classes, decoded));
        tasks.spawn(keep(self.agents.clone(), self.agent_pods.watched(self.client.clone()), AgentPod::trimmed));
        let (mut changes, mut classes, mut agents) =
            (self.stores.changes(), self.classes.changes(), self.agents.changes());
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let mut memory = PassMemory::default();
        loop {
            // Any change after this starts another pass.
            changes.mark_unchanged();
            classes.mark_unchanged();
            agents.mark_unchanged();
            let Pass { done, due } = match self.stores.are_synced() && self.classes.is_synced() {
                true => self.pass(&mut memory).await,
                false => Pass { done: true, due: None },
            };
            let until = due.map_or(Duration::MAX, |due| {
                Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default()
            });
            let again = backoff.after(!done).map_or(until, |wait| until.min(wait));
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
        let PassMemory { unused, silences } = memory;
        let mut made = BTreeMap::new();
        let sets = self.sets(&mut made).await;
        let local_volumes = self.local_volumes(&mut made).await;
        let (agents, silent) = self.agents(silences).await;
        let (volumes, leftover) = self.volumes().await;
        let (pools, unused) = self.unused_pools(unused).await;
        let done = sets && local_volumes && agents && volumes && pools;
        Pass { done, due: [silent, leftover, unused].into_iter().flatten().min() }
    }

    /// Counts a write, and logs what went wrong.
    fn note<T>(&self, controller: &str, result: Result<T, OperatorError>) -> bool {
        match result {
            Ok(_) => {
                self.metrics.writes.with_label_values(&[controller]).inc();
                true
            }
            Err(error) => {
                self.metrics.errors.with_label_values(&[controller]).inc();
                tracing::warn!(controller, "{}; trying again", chain(&error));
                false
            }
        }
    }

    async fn publish_events(&self, about: ObjectReference, action: &str, events: &[EventNote]) -> bool {
        let mut done = true;
        for event in events {
            let event = event.event(action);
            let request = self.recorder.publish(&event, &about);
            let published = within("writing an Event", request).await;
            done &= published.is_ok() || self.note("events", published);
        }
        done
    }

    /// The reports of nodes that exist: nobody updates the report of a deleted node.
    fn pools(&self) -> Vec<Arc<DevicePool>> {
        let mut pools = self.stores.pools.all();
        pools.retain(|pool| self.stores.nodes.get(&pool.node()).is_some());
        pools
    }

    /// Whether objects of a kind may be written; `None`: the API server could not be asked.
    async fn may_write(&self, whose: &Whose) -> Option<bool> {
        match whose.are_ours().await {
            Ok(ours) => Some(ours),
            Err(error) => {
                self.note("definitions", Err::<(), _>(error));
                None
            }
        }
    }

    async fn exists(&self, node: &NodeName) -> Result<bool, OperatorError> {
        let api: Api<Node> = Api::all(self.client.clone());
        Ok(within(&format!("reading Node {node}"), api.get_metadata_opt(node)).await?.is_some())
    }
}
