//! What the leader does with DevicePools of deleted nodes.
//!
//! Takes in all DevicePools; deletes those that no agent updates any more, after a while.

use jiff::SignedDuration;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt as _};

use super::{Leader, Pass};
use crate::api::crd::DevicePool;
use crate::device::NodeName;
use crate::operator::api_server::client::within;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::write::Write;
use crate::operator::pool::deleted_node::UnusedPools;

impl Leader {
    /// Deletes DevicePools that no agent updates any more. The next one is deleted when it is due.
    pub(super) async fn unused_pools(&self, unused: &mut UnusedPools, now: SignedDuration) -> Pass {
        let volumes = self.cluster.stores.volumes.all();
        let used = |name: &NodeName| {
            self.cluster.stores.nodes.get(name).is_some() || volumes.iter().any(|volume| volume.spec.node == *name)
        };
        let (due, next) = unused.due(self.cluster.stores.pools.all(), used, now);
        let mut pass = Pass::done();
        next.into_iter().for_each(|wait| pass.due_in(wait));
        for pool in due {
            // A watch may be behind.
            if !self.cluster.exists(&pool.node()).await.unwrap_or(true) {
                pass.is_done &= self.cluster.metrics.note("nodes", self.delete_pool(&pool).await).is_some();
            }
        }
        pass
    }

    async fn delete_pool(&self, pool: &DevicePool) -> Result<Write<()>, OperatorError> {
        let (api, name) = (Api::<DevicePool>::all(self.cluster.client.clone()), pool.name_any());
        let exactly = Preconditions { uid: pool.uid(), resource_version: pool.resource_version() };
        let params = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
        let what = format!("deleting DevicePool {name}, whose node was deleted");
        Ok(Write::of(within(&what, api.delete(&name, &params)).await)?.map(drop))
    }
}
