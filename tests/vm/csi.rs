//! CSI calls of this program, answered by the driver in the guest: its socket, over a virtio port.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use localpool::rpc::proto::volume_health::VolumeHealthEntry;
use localpool::rpc::proto::*;
use tonic::Status;

use crate::client::{Client, block, create, mount, parameters};

/// No call may take longer, in a guest that is emulated.
const LIMIT: Duration = Duration::from_secs(180);

#[derive(Clone)]
pub struct Csi(Client);

/// How a volume is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Block,
    Ext4,
    Xfs,
    Btrfs,
}

impl Use {
    fn capability(self) -> VolumeCapability {
        match self {
            Self::Block => block(),
            Self::Ext4 => mount("ext4"),
            Self::Xfs => mount("xfs"),
            Self::Btrfs => mount("btrfs"),
        }
    }
}

impl Csi {
    /// Over a connection that the other end in the guest waits for now or later.
    pub async fn over(socket: &Path) -> Self {
        Self(Client::connect(socket, LIMIT).await.unwrap())
    }

    pub async fn probe(&mut self) -> Result<bool, Status> {
        Ok(self.0.identity.probe(ProbeRequest::default()).await?.into_inner().ready.unwrap_or(true))
    }

    /// Returns the volume's id.
    pub async fn create(&mut self, name: &str, class: &str, mib: u64, usage: Use) -> Result<String, Status> {
        Ok(self.0.try_create(create(name, class, mib << 20, &usage.capability())).await?.id)
    }

    /// To at least `mib`, or, if the volume has more than `most`, down to that; 0 is no limit. Returns its MiB.
    pub async fn expand(&mut self, id: &str, mib: u64, most: u64) -> Result<u64, Status> {
        Ok(self.0.expand(id, mib << 20, most << 20).await?.0 >> 20)
    }

    pub async fn delete(&mut self, id: &str) -> Result<(), Status> {
        self.0.delete(id).await
    }

    /// Each volume, and whether its condition is abnormal.
    pub async fn list(&mut self) -> HashMap<String, VolumeCondition> {
        self.0.list().await.into_iter().collect()
    }

    /// What a class has left for volumes of this use, in bytes.
    pub async fn capacity(&mut self, class: &str, usage: Use) -> Result<i64, Status> {
        let request = GetCapacityRequest {
            volume_capabilities: vec![usage.capability()],
            parameters: parameters(class),
            ..Default::default()
        };
        Ok(self.0.controller.get_capacity(request).await?.into_inner().available_capacity)
    }

    pub async fn stage(&mut self, id: &str, usage: Use) -> Result<(), Status> {
        self.0.stage(id, Path::new(&staging(id)), &usage.capability()).await
    }

    pub async fn publish(&mut self, id: &str, usage: Use) -> Result<(), Status> {
        self.0.publish(id, Path::new(&staging(id)), Path::new(&target(id)), &usage.capability()).await
    }

    pub async fn stats(&mut self, id: &str) -> Result<NodeGetVolumeStatsResponse, Status> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: id.to_owned(),
            volume_path: target(id),
            staging_target_path: staging(id),
        };
        self.0.node.node_get_volume_stats(request).await.map(|answer| answer.into_inner())
    }

    /// Its condition, as the controller says.
    pub async fn get(&mut self, id: &str) -> Result<VolumeCondition, Status> {
        Ok(self.0.get(id).await?.status.unwrap().volume_condition.unwrap())
    }

    /// What is wrong with a volume, as its node says and as the controller says.
    pub async fn health(&mut self, id: &str) -> [Vec<VolumeHealthEntry>; 2] {
        [self.0.node_health(id).await, self.0.controller_health(id).await]
    }

    /// What is wrong with each volume that is not healthy.
    pub async fn unhealthy(&mut self) -> HashMap<String, Vec<VolumeHealthEntry>> {
        self.0.unhealthy().await.into_iter().map(|health| (health.volume_id, health.health_statuses)).collect()
    }

    /// The reasons for which a disk of the node is not healthy.
    pub async fn storage_health(&mut self) -> BTreeSet<String> {
        let answer = self.0.node.node_get_storage_health(NodeGetStorageHealthRequest::default()).await.unwrap();
        answer.into_inner().backend_health.into_iter().map(|entry| entry.reason).collect()
    }

    pub async fn unpublish(&mut self, id: &str) -> Result<(), Status> {
        self.0.unpublish(id, Path::new(&target(id))).await
    }

    pub async fn unstage(&mut self, id: &str) -> Result<(), Status> {
        self.0.unstage(id, Path::new(&staging(id))).await
    }
}

pub fn staging(id: &str) -> String {
    format!("/var/lib/pods/{id}/staging")
}

/// A folder, or, for a raw block volume, the device itself.
pub fn target(id: &str) -> String {
    format!("/var/lib/pods/{id}/target")
}
