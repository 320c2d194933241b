//! What only the leader watches of the cluster, and its tasks share: two of them need PersistentVolumes.

use std::sync::Arc;

use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, Client};
use tokio::task::JoinSet;

use crate::operator::api_server::store::Store;
use crate::operator::api_server::watch::{Watched, decoded, keep};
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::stores::{Changes, Stores};

/// What the leader knows of the cluster besides `Stores`.
#[derive(Clone)]
pub struct LeaderStores {
    /// The one watch of them. What is about to be deleted, ordered or adopted is read again: `LivePersistentVolumes`.
    pub volumes: Store<PersistentVolume>,
    pub classes: Store<StorageClass>,
    /// They end with the last clone.
    _watches: Arc<JoinSet<()>>,
}

impl LeaderStores {
    /// Begins to watch.
    pub fn watch(client: &Client) -> Self {
        let (volumes, classes) = (Store::new(PersistentVolume::is_same), Store::new(|a, b| a == b));
        let mut watches = JoinSet::new();
        let watched = Watched::all(Api::all(client.clone()), "PersistentVolumes");
        watches.spawn(keep(volumes.clone(), watched, |volume| decoded(volume).map(PersistentVolume::for_store)));
        let watched = Watched::all(Api::all(client.clone()), "StorageClasses");
        watches.spawn(keep(classes.clone(), watched, decoded));
        Self { volumes, classes, _watches: Arc::new(watches) }
    }

    pub fn are_synced(&self) -> bool {
        self.volumes.is_synced() && self.classes.is_synced()
    }

    /// Signals each change of any object from now on, also of those that all replicas watch.
    pub fn changes(&self, stores: &Stores) -> Changes {
        stores.changes().and(self.volumes.changes()).and(self.classes.changes())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn each_kind_wakes_whoever_waits_for_a_change_also_the_one_that_is_read_last() {
        let own = LeaderStores {
            volumes: Store::new(PersistentVolume::is_same),
            classes: Store::new(|a, b| a == b),
            _watches: Arc::new(JoinSet::new()),
        };
        let stores = Stores::default();
        let mut changes = own.changes(&stores);
        let mut wakes = |read: &dyn Fn()| {
            changes.mark_unchanged();
            let before = changes.next().now_or_never().is_some();
            read();
            (before, changes.next().now_or_never().is_some())
        };
        assert_eq!(wakes(&|| drop(stores.pools.replace(Vec::new()))), (false, true));
        assert_eq!(wakes(&|| drop(own.volumes.replace(Vec::new()))), (false, true));
        assert!(!own.are_synced());
        assert_eq!(wakes(&|| drop(own.classes.replace(Vec::new()))), (false, true));
        assert!(own.are_synced());
    }
}
