//! What the controller knows of the cluster, by watches.

use futures::future::select_all;
use k8s_openapi::api::core::v1::Node;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api::crd::{DevicePool, LocalVolume, LocalVolumeSet, PoolVolume};
use crate::operator::api_server::store::{Store, StoreState};
use crate::operator::api_server::watch::{Watched, decoded, decoded_or, keep};
use crate::operator::node::kube_node;
use crate::operator::pool_volume::{promised_on, unread};
use crate::operator::set::parsed::Parsed;

/// What the controller knows of the cluster.
#[derive(Clone)]
pub struct Stores {
    pub volumes: Store<PoolVolume>,
    pub pools: Store<DevicePool>,
    /// Without what localpool does not read: see `kube_node`.
    pub nodes: Store<Node>,
    pub sets: Store<LocalVolumeSet>,
    /// No call of CSI needs them: they may be unknown when everything else is known.
    pub local_volumes: Store<LocalVolume>,
    pub(in crate::operator) read_sets: Parsed<LocalVolumeSet>,
    pub(in crate::operator) read_volumes: Parsed<LocalVolume>,
}

impl Default for Stores {
    fn default() -> Self {
        Self {
            volumes: Store::grouped(|a, b| a == b, |volume| promised_on(volume).cloned()),
            pools: Store::new(|a, b| a == b),
            nodes: Store::new(kube_node::is_same),
            sets: Store::new(|a, b| a == b),
            local_volumes: Store::new(|a, b| a == b),
            read_sets: Parsed::default(),
            read_volumes: Parsed::default(),
        }
    }
}

impl Stores {
    /// Watches as long as the set of tasks lives.
    pub fn watch(&self, client: &Client, tasks: &mut JoinSet<()>) {
        let Self { volumes, pools, nodes, sets, local_volumes, read_sets: _, read_volumes: _ } = self.clone();
        let client = || client.clone();
        let api = Api::<DynamicObject>::all_with(client(), &ApiResource::erase::<PoolVolume>(&()));
        tasks.spawn(keep(volumes, Watched::all(api, "PoolVolumes"), decoded_or(unread)));
        tasks.spawn(keep(pools, Watched::all(Api::all(client()), "DevicePools"), decoded));
        tasks.spawn(keep(sets, Watched::all(Api::all(client()), "LocalVolumeSets"), decoded));
        tasks.spawn(keep(local_volumes, Watched::all(Api::all(client()), "LocalVolumes"), decoded));
        tasks
            .spawn(keep(nodes, Watched::all(Api::all(client()), "Nodes"), |node| decoded(node).map(kube_node::needed)));
    }

    /// Everything was read, and the API server serves all kinds.
    pub fn are_synced(&self) -> bool {
        let Self { volumes, pools, nodes, sets, local_volumes: _, read_sets: _, read_volumes: _ } = self;
        volumes.is_synced() && pools.is_synced() && nodes.is_synced() && sets.is_synced()
    }

    /// Whether some of it is that of before: nobody answers for the API server.
    pub fn are_old(&self) -> bool {
        let Self { volumes, pools, nodes, sets, local_volumes, read_sets: _, read_volumes: _ } = self;
        volumes.is_old() || pools.is_old() || nodes.is_old() || sets.is_old() || local_volumes.is_old()
    }

    /// Another text after each change of any object, and of whether it is old.
    pub fn tag(&self) -> String {
        let Self { volumes, pools, nodes, sets, local_volumes, read_sets: _, read_volumes: _ } = self;
        let all = [volumes.state(), pools.state(), nodes.state(), sets.state(), local_volumes.state()];
        format!("{}{}", all.map(StoreState::tag).join("."), if self.are_old() { "!" } else { "" })
    }

    /// Signals each change of any object from now on.
    pub fn changes(&self) -> Changes {
        let Self { volumes, pools, nodes, sets, local_volumes, read_sets: _, read_volumes: _ } = self;
        Changes(vec![volumes.changes(), pools.changes(), nodes.changes(), sets.changes(), local_volumes.changes()])
    }
}

/// Signals changes of any kind of object.
pub struct Changes(Vec<watch::Receiver<StoreState>>);

impl Changes {
    /// Those of another store as well.
    pub fn and(mut self, other: watch::Receiver<StoreState>) -> Self {
        self.0.push(other);
        self
    }

    /// Marks all changes so far as known.
    pub fn mark_unchanged(&mut self) {
        for kind in &mut self.0 {
            kind.mark_unchanged();
        }
    }

    /// Waits for a change after those that were waited for or marked.
    pub async fn next(&mut self) {
        // A store ends only when the process does.
        let _ = select_all(self.0.iter_mut().map(|kind| Box::pin(kind.changed()))).await;
    }
}
