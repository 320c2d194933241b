//! What only the leader watches of the cluster, and its tasks share: two of them need PersistentVolumes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, Client};
use tokio::task::JoinSet;

use crate::operator::persistent_volume::object;
use crate::operator::store::Store;
use crate::operator::watch::{Watched, decoded, keep};

/// What the leader knows of the cluster besides `Stores`.
#[derive(Clone)]
pub struct LeaderStores {
    /// Without what localpool does not read: see `object`.
    pub volumes: Store<PersistentVolume>,
    pub classes: Store<StorageClass>,
    /// They end with the last clone.
    _watches: Arc<JoinSet<()>>,
}

impl LeaderStores {
    /// Begins to watch.
    pub fn watch(client: &Client) -> Self {
        let (volumes, classes) = (Store::new(object::is_same), Store::new(|a, b| a == b));
        let mut watches = JoinSet::new();
        let watched = Watched::all(Api::all(client.clone()), "PersistentVolumes");
        watches.spawn(keep(volumes.clone(), watched, |volume| decoded(volume).map(object::needed)));
        let watched = Watched::all(Api::all(client.clone()), "StorageClasses");
        watches.spawn(keep(classes.clone(), watched, decoded));
        Self { volumes, classes, _watches: Arc::new(watches) }
    }
}
