//! The agent's side of Kubernetes: keeps this node's PoolVolumes and its DevicePool in step with its disks.
//!
//! Takes in watches (its PoolVolumes, its DevicePool, its Node, the sets) and what the pool's passes saw;
//! gives out verbs on the pool, statuses, Events, and objects for volumes that have none. `volume::work`,
//! `pool::report` and `set::config` do the work; this module wires them.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::{mpsc, watch as channel};

pub use self::identity::{CLUSTER_FILE, cluster_uid, of_this_cluster};
use crate::api::crd::{Phase, PoolVolume};
use crate::device::DiskId;
use crate::health::HealthChange;
pub use crate::operator::disk::relevance::Relevance;
pub use crate::operator::node::context::{Inbox, NodeOperator, PassSummary, Writes};
pub use crate::operator::node::question::Questions;
use crate::operator::volume::known::KnownVolumes;
pub use crate::operator::volume::promised_paths::ask as ask_promises;
pub use crate::operator::volume::reported_volumes::ask as ask_volumes;
use crate::operator::{pool, set, volume};
use crate::volume::VolumeId;

mod event_writer;
mod identity;

/// The volumes on a disk, and those that it was chosen for, for people: with the claim, if that is known.
fn volumes_of(known: &KnownVolumes, disk: &DiskId, on_it: Vec<VolumeId>) -> Vec<String> {
    let is_chosen = |object: &PoolVolume| {
        object
            .status
            .as_ref()
            .is_some_and(|status| status.phase == Phase::Accepted && status.disk.as_ref() == Some(disk))
    };
    let chosen = known.ids().into_iter().filter(|id| known.get(*id).is_some_and(|object| is_chosen(&object)));
    let all: BTreeSet<VolumeId> = on_it.into_iter().chain(chosen).collect();
    let named = |id: VolumeId| {
        let claim = known.get(id).and_then(|object| object.claim().map(str::to_owned));
        claim.map_or_else(|| id.to_string(), |claim| format!("{id} of claim {claim}"))
    };
    all.into_iter().map(named).collect()
}

impl NodeOperator {
    /// Keeps everything in step until the process ends. `passes` gives what each pass of the pool saw, and
    /// `health_changes` what each checkup changed.
    pub async fn run(
        self,
        inbox: Inbox,
        passes: channel::Receiver<Option<Arc<PassSummary>>>,
        health_changes: mpsc::UnboundedReceiver<HealthChange>,
    ) {
        let Inbox { volumes: inbox, events } = inbox;
        let (config, configs) = channel::channel(Arc::new(set::node_config::NodeConfig::default()));
        let known = KnownVolumes::default();
        tokio::join!(
            set::config::keep(self.clone(), config),
            pool::report::keep(self.clone(), passes.clone(), configs.clone()),
            pool::orders::keep(self.clone(), passes.clone(), configs.clone(), |disk, on_it| volumes_of(
                &known, disk, on_it
            )),
            pool::benchmarks::keep(self.clone()),
            volume::queue::watch_objects(self.clone(), known.clone()),
            volume::queue::keep(self.clone(), known.clone(), inbox, passes, configs),
            report_health(self.clone(), health_changes),
            event_writer::keep(self.client.clone(), self.node.clone(), events),
        );
    }
}

/// Those whose status says it already are not written.
async fn report_health(operator: NodeOperator, mut changes: mpsc::UnboundedReceiver<HealthChange>) {
    while let Some(change) = changes.recv().await {
        operator.take_in_health(change);
    }
}
