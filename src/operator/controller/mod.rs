//! The controller's side of Kubernetes: the one writer of specs.
//!
//! Takes in CSI's calls by the port `Volumes` and the cluster's objects by watches; gives out PoolVolumes, which
//! the agents of the nodes answer. `create`, `delete`, `expand`, `offered` and `room` decide and are pure; `volumes` does
//! what was decided, through `objects`, where each write holds only for the state that was seen.
//!
//! ```text
//!  CSI ─▶ volumes ─▶ objects ─▶ API server ─▶ agent of the node
//!            ▲  └▶ create, delete, expand, room          │
//!            └──────────── cache, sight ◀────────────────┘ status
//! ```

mod abandon;
mod cache;
mod create;
mod delete;
mod discovery;
mod expand;
mod handle;
mod leader;
pub mod lease;
mod metrics;
mod objects;
mod offered;
mod parsed;
mod room;
#[cfg(test)]
mod sample;
mod sight;
mod view;
mod volumes;
mod wish;

use k8s_openapi::api::core::v1::Node;
use kube::core::{ApiResource, DeserializeGuard, DynamicObject, PartialObjectMeta};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api::crd::{DevicePool, LocalVolume, LocalVolumeSet, PoolVolume};
use crate::volume::VolumeLocks;
pub use abandon::abandon;
pub use cache::{Cache, Known};
pub use discovery::{Discoveries, Pattern, PatternError};
pub use leader::{Gone, Leader};
pub use metrics::Metrics;
use parsed::Parsed;
pub use volumes::ClusterVolumes;

/// What the controller knows of the cluster.
#[derive(Clone)]
pub struct Caches {
    pub volumes: Cache<PoolVolume>,
    pub pools: Cache<DevicePool>,
    pub nodes: Cache<PartialObjectMeta<Node>>,
    pub sets: Cache<LocalVolumeSet>,
    /// No call of CSI needs them: they may be unknown where all else is known.
    pub local_volumes: Cache<LocalVolume>,
    read_sets: Parsed<LocalVolumeSet>,
    read_volumes: Parsed<LocalVolume>,
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            volumes: Cache::grouped(|a, b| a == b, room::promised_on),
            pools: Cache::new(|a, b| a == b),
            // A node's heartbeat is nobody's business here.
            nodes: Cache::new(|a, b| a.metadata.labels == b.metadata.labels && a.metadata.uid == b.metadata.uid),
            sets: Cache::new(|a, b| a == b),
            local_volumes: Cache::new(|a, b| a == b),
            read_sets: Parsed::default(),
            read_volumes: Parsed::default(),
        }
    }
}

impl Caches {
    /// Watches for as long as the set of tasks lives.
    pub fn watch(&self, client: &Client, tasks: &mut JoinSet<()>) {
        let Self { volumes, pools, nodes, sets, local_volumes, read_sets: _, read_volumes: _ } = self.clone();
        let client = || client.clone();
        let api = Api::<DynamicObject>::all_with(client(), &ApiResource::erase::<PoolVolume>(&()));
        tasks.spawn(cache::keep_standing_in(volumes, api, room::unread, "PoolVolumes"));
        tasks.spawn(cache::keep(pools, Api::<DeserializeGuard<DevicePool>>::all(client()), "DevicePools"));
        tasks.spawn(cache::keep(sets, Api::<DeserializeGuard<LocalVolumeSet>>::all(client()), "LocalVolumeSets"));
        let api = Api::<DeserializeGuard<LocalVolume>>::all(client());
        tasks.spawn(cache::keep(local_volumes, api, "LocalVolumes"));
        tasks.spawn(cache::keep_metadata(nodes, Api::<PartialObjectMeta<Node>>::all(client()), "Nodes"));
    }

    /// All was read, and the API server serves all kinds.
    pub fn are_synced(&self) -> bool {
        let Self { volumes, pools, nodes, sets, local_volumes: _, read_sets: _, read_volumes: _ } = self;
        volumes.is_synced() && pools.is_synced() && nodes.is_synced() && sets.is_synced()
    }

    /// Rings with each change of anything from now on.
    pub fn changes(&self) -> Changes {
        let Self { volumes, pools, nodes, sets, local_volumes, read_sets: _, read_volumes: _ } = self;
        Changes([volumes.changes(), pools.changes(), nodes.changes(), sets.changes(), local_volumes.changes()])
    }

    /// The port `Volumes` on them.
    pub fn volumes(&self, client: Client) -> ClusterVolumes {
        ClusterVolumes { objects: objects::Objects::new(client), caches: self.clone(), locks: VolumeLocks::default() }
    }
}

/// A bell for changes of any kind of object.
pub struct Changes([watch::Receiver<Known>; 5]);

impl Changes {
    /// What has changed so far is known.
    pub fn seen(&mut self) {
        for kind in &mut self.0 {
            kind.mark_unchanged();
        }
    }

    /// Waits for a change since the last one that was waited for.
    pub async fn next(&mut self) {
        let [volumes, pools, nodes, sets, local_volumes] = &mut self.0;
        // An end of a cache would be an end of the process.
        let _ = tokio::select! {
            changed = volumes.changed() => changed,
            changed = pools.changed() => changed,
            changed = nodes.changed() => changed,
            changed = sets.changed() => changed,
            changed = local_volumes.changed() => changed,
        };
    }
}
