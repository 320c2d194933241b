//! The Node service, over `NodeVolumes`.

use tonic::{Request, Response, Status};

use super::capability::{access, required, sizes};
use super::controller::condition;
use super::convert::topology;
use super::health::{storage_health, volume_health};
use crate::device::signed;
use crate::rpc::proto::node_service_capability::{self, Rpc, rpc};
use crate::rpc::proto::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse,
    NodeGetInfoRequest, NodeGetInfoResponse, NodeGetStorageHealthRequest, NodeGetStorageHealthResponse,
    NodeGetVolumeHealthRequest, NodeGetVolumeHealthResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse, VolumeUsage, node_server::Node, volume_usage::Unit,
};
use crate::rpc::status::no_volume;
use crate::volume::{NodeVolumes, PublishRequest, StageRequest, Stats, TargetAccess, VolumeId};

pub struct NodeService {
    volumes: NodeVolumes,
    /// How many volumes a node can have at once; 0 lets the orchestrator decide.
    max_volumes: i64,
}

impl NodeService {
    pub fn new(volumes: NodeVolumes, max_volumes: i64) -> Self {
        Self { volumes, max_volumes }
    }
}

/// An id that localpool did not make names no volume of it.
fn volume_id(text: &str) -> Result<VolumeId, Status> {
    let text = required("volume_id", text)?;
    text.parse().map_err(|_| no_volume(text))
}

fn path<'a>(field: &str, text: &'a str) -> Result<&'a str, Status> {
    match text {
        "" => Err(Status::invalid_argument(format!("{field} is missing"))),
        text => Ok(text),
    }
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        let staging = path("staging_target_path", &request.staging_target_path)?.to_owned();
        let access_type = access(request.volume_capability.as_ref())?.access_type;
        let id = volume_id(&request.volume_id)?;
        self.volumes.stage(StageRequest { id, staging, access_type }).await?;
        Ok(Response::new(NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        let staging = path("staging_target_path", &request.staging_target_path)?;
        self.volumes.unstage(volume_id(&request.volume_id)?, staging).await?;
        Ok(Response::new(NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        let target = path("target_path", &request.target_path)?.to_owned();
        let access = access(request.volume_capability.as_ref())?;
        let id = volume_id(&request.volume_id)?;
        if request.staging_target_path.is_empty() {
            return Err(Status::failed_precondition("staging_target_path is missing: the volume has to be staged"));
        }
        let publish = PublishRequest {
            id,
            staging: request.staging_target_path,
            target,
            access_type: access.access_type,
            access: TargetAccess::of(request.readonly),
            single_target: access.single_target,
        };
        self.volumes.publish(publish).await?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        let target = path("target_path", &request.target_path)?;
        self.volumes.unpublish(volume_id(&request.volume_id)?, target).await?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        let volume_path = path("volume_path", &request.volume_path)?;
        let stats = self.volumes.stats(volume_id(&request.volume_id)?, volume_path).await?;
        let volume_condition = Some(condition(&stats.condition));
        Ok(Response::new(NodeGetVolumeStatsResponse { usage: usage(&stats), volume_condition }))
    }

    async fn node_get_volume_health(
        &self,
        request: Request<NodeGetVolumeHealthRequest>,
    ) -> Result<Response<NodeGetVolumeHealthResponse>, Status> {
        let id = volume_id(&request.into_inner().volume_id)?;
        let condition = self.volumes.health(id).await?;
        Ok(Response::new(NodeGetVolumeHealthResponse { volume_health: Some(volume_health(id, &condition)) }))
    }

    async fn node_get_storage_health(
        &self,
        _request: Request<NodeGetStorageHealthRequest>,
    ) -> Result<Response<NodeGetStorageHealthResponse>, Status> {
        let disks = self.volumes.disks_health().await?;
        Ok(Response::new(NodeGetStorageHealthResponse { backend_health: storage_health(&disks) }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        let volume_path = path("volume_path", &request.volume_path)?;
        let wanted = match request.capacity_range.as_ref() {
            None => 0,
            Some(range) => sizes(Some(range))?.0,
        };
        let size = self.volumes.expand(volume_id(&request.volume_id)?, volume_path, wanted).await?;
        Ok(Response::new(NodeExpandVolumeResponse { capacity_bytes: signed(size) }))
    }

    async fn node_get_capabilities(
        &self,
        _request: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let capabilities = [
            rpc::Type::StageUnstageVolume,
            rpc::Type::GetVolumeStats,
            rpc::Type::VolumeCondition,
            rpc::Type::ExpandVolume,
            rpc::Type::SingleNodeMultiWriter,
            rpc::Type::GetVolumeHealth,
            rpc::Type::GetStorageHealth,
        ];
        let capability = |kind: rpc::Type| NodeServiceCapability {
            r#type: Some(node_service_capability::Type::Rpc(Rpc { r#type: kind.into() })),
        };
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities: capabilities.map(capability).to_vec() }))
    }

    async fn node_get_info(
        &self,
        _request: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        let node = self.volumes.node_name();
        Ok(Response::new(NodeGetInfoResponse {
            node_id: node.to_string(),
            max_volumes_per_node: self.max_volumes,
            accessible_topology: Some(topology(node)),
        }))
    }
}

fn usage(stats: &Stats) -> Vec<VolumeUsage> {
    let line = |unit: Unit, total: u64, available: u64, used: u64| VolumeUsage {
        available: signed(available),
        total: signed(total),
        used: signed(used),
        unit: unit.into(),
    };
    match &stats.usage {
        None => vec![line(Unit::Bytes, stats.size, 0, 0)],
        Some(fs) => vec![
            line(Unit::Bytes, fs.total, fs.available, fs.used),
            line(Unit::Inodes, fs.inodes, fs.inodes_free, fs.inodes_used),
        ],
    }
}
