//! The cluster as all parts of a pass use it: what is watched of it, and who writes Events and counts failures.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;

use crate::api::crd::DevicePool;
use crate::device::NodeName;
use crate::operator::api_server::error::OperatorError;
use crate::operator::crds::owner::CrdOwnership;
use crate::operator::event::EventNote;
use crate::operator::event::writer::EventWriter;
use crate::operator::metrics::Metrics;
use crate::operator::node::kube_node;
use crate::operator::stores::Stores;

pub(super) struct LeaderCluster {
    pub client: Client,
    pub stores: Stores,
    pub metrics: Metrics,
    events: EventWriter,
}

impl LeaderCluster {
    pub fn new(client: Client, stores: Stores, metrics: Metrics, identity: &str) -> Self {
        Self { events: EventWriter::new(client.clone(), identity), client, stores, metrics }
    }

    /// Whether all were written.
    pub async fn write_events(&self, about: ObjectReference, action: &str, events: &[EventNote]) -> bool {
        let mut is_done = true;
        for event in events {
            let written = self.events.write(&about, action, event).await;
            is_done &= written.inspect_err(|error| self.metrics.failed("events", error)).is_ok();
        }
        is_done
    }

    /// The reports of nodes that exist: nobody updates the report of a deleted node.
    pub fn pools(&self) -> Vec<Arc<DevicePool>> {
        let mut pools = self.stores.pools.all();
        pools.retain(|pool| self.stores.nodes.get(&pool.node()).is_some());
        pools
    }

    /// Whether objects of a kind may be written; `None`: the API server could not be asked.
    pub async fn may_write(&self, ownership: &CrdOwnership) -> Option<bool> {
        ownership.are_ours().await.inspect_err(|error| self.metrics.failed("definitions", error)).ok()
    }

    pub async fn exists(&self, node: &NodeName) -> Result<bool, OperatorError> {
        Ok(kube_node::live_metadata(&self.client, node).await?.is_some())
    }
}
