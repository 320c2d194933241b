//! CSI calls of this program, answered by the driver in the guest: its socket, over a virtio port.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use localpool::csi::proto::controller_client::ControllerClient;
use localpool::csi::proto::identity_client::IdentityClient;
use localpool::csi::proto::node_client::NodeClient;
use localpool::csi::proto::volume_capability::access_mode::Mode;
use localpool::csi::proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use localpool::csi::proto::*;
use tokio::net::UnixStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// No call may take longer, in a guest that is emulated.
const LIMIT: Duration = Duration::from_secs(180);

#[derive(Clone)]
pub struct Csi {
    identity: IdentityClient<Channel>,
    controller: ControllerClient<Channel>,
    node: NodeClient<Channel>,
}

/// How a volume is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Block,
    Ext4,
}

impl Use {
    fn capability(self) -> VolumeCapability {
        let access_type = match self {
            Self::Block => AccessType::Block(BlockVolume {}),
            Self::Ext4 => AccessType::Mount(MountVolume { fs_type: "ext4".into(), ..Default::default() }),
        };
        let access_mode = AccessMode { mode: Mode::SingleNodeMultiWriter.into() };
        VolumeCapability { access_mode: Some(access_mode), access_type: Some(access_type) }
    }
}

impl Csi {
    /// Over a connection that the other end in the guest waits for now or later.
    pub async fn over(socket: &Path) -> Self {
        let socket = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://localhost").timeout(LIMIT).connect_with_connector(connector).await;
        let channel = channel.unwrap();
        Self {
            identity: IdentityClient::new(channel.clone()),
            controller: ControllerClient::new(channel.clone()),
            node: NodeClient::new(channel),
        }
    }

    pub async fn probe(&mut self) -> Result<bool, Status> {
        Ok(self.identity.probe(ProbeRequest::default()).await?.into_inner().ready.unwrap_or(true))
    }

    /// Returns the volume's id.
    pub async fn create(&mut self, name: &str, class: &str, mib: u64, usage: Use) -> Result<String, Status> {
        let bytes = i64::try_from(mib << 20).unwrap();
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            volume_capabilities: vec![usage.capability()],
            parameters: HashMap::from([("class".to_owned(), class.to_owned())]),
            ..Default::default()
        };
        Ok(self.controller.create_volume(request).await?.into_inner().volume.unwrap().volume_id)
    }

    pub async fn delete(&mut self, id: &str) -> Result<(), Status> {
        let request = DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        self.controller.delete_volume(request).await.map(drop)
    }

    /// Each volume, and whether its condition is abnormal.
    pub async fn list(&mut self) -> HashMap<String, VolumeCondition> {
        let listed = self.controller.list_volumes(ListVolumesRequest::default()).await.unwrap().into_inner();
        let entry = |entry: list_volumes_response::Entry| {
            (entry.volume.unwrap().volume_id, entry.status.unwrap().volume_condition.unwrap())
        };
        listed.entries.into_iter().map(entry).collect()
    }

    /// What a class has left for volumes of this use, in bytes.
    pub async fn capacity(&mut self, class: &str, usage: Use) -> Result<i64, Status> {
        let request = GetCapacityRequest {
            volume_capabilities: vec![usage.capability()],
            parameters: HashMap::from([("class".to_owned(), class.to_owned())]),
            ..Default::default()
        };
        Ok(self.controller.get_capacity(request).await?.into_inner().available_capacity)
    }

    pub async fn stage(&mut self, id: &str, usage: Use) -> Result<(), Status> {
        let request = NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: staging(id),
            volume_capability: Some(usage.capability()),
            ..Default::default()
        };
        self.node.node_stage_volume(request).await.map(drop)
    }

    pub async fn publish(&mut self, id: &str, usage: Use) -> Result<(), Status> {
        let request = NodePublishVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: staging(id),
            target_path: target(id),
            volume_capability: Some(usage.capability()),
            ..Default::default()
        };
        self.node.node_publish_volume(request).await.map(drop)
    }

    pub async fn stats(&mut self, id: &str) -> Result<NodeGetVolumeStatsResponse, Status> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: id.to_owned(),
            volume_path: target(id),
            staging_target_path: staging(id),
        };
        self.node.node_get_volume_stats(request).await.map(|answer| answer.into_inner())
    }

    pub async fn unpublish(&mut self, id: &str) -> Result<(), Status> {
        let request = NodeUnpublishVolumeRequest { volume_id: id.to_owned(), target_path: target(id) };
        self.node.node_unpublish_volume(request).await.map(drop)
    }

    pub async fn unstage(&mut self, id: &str) -> Result<(), Status> {
        let request = NodeUnstageVolumeRequest { volume_id: id.to_owned(), staging_target_path: staging(id) };
        self.node.node_unstage_volume(request).await.map(drop)
    }
}

pub fn staging(id: &str) -> String {
    format!("/var/lib/pods/{id}/staging")
}

/// A folder, or, for a raw block volume, the device itself.
pub fn target(id: &str) -> String {
    format!("/var/lib/pods/{id}/target")
}
