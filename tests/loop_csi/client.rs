//! A client of a driver's CSI socket, and the requests that tests make.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use localpool::rpc::client::connect_within;
use localpool::rpc::proto::controller_client::ControllerClient;
use localpool::rpc::proto::identity_client::IdentityClient;
use localpool::rpc::proto::node_client::NodeClient;
use localpool::rpc::proto::node_get_storage_health_response::StorageBackendHealth;
use localpool::rpc::proto::volume_capability::access_mode::Mode;
use localpool::rpc::proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use localpool::rpc::proto::volume_health::VolumeHealthEntry;
use localpool::rpc::proto::volume_usage::Unit;
use localpool::rpc::proto::*;
use localpool_testing::{found_async, text};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

/// The limit for the erasure of what a test deleted.
const ERASED_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct Client {
    pub identity: IdentityClient<Channel>,
    pub controller: ControllerClient<Channel>,
    pub node: NodeClient<Channel>,
}

/// A volume's size and id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub id: String,
    pub size: u64,
}

impl Client {
    /// No call may take longer than the limit.
    pub async fn connect(socket: &Path, limit: Duration) -> Result<Self, tonic::transport::Error> {
        let channel = connect_within(socket, limit).await?;
        Ok(Self {
            identity: IdentityClient::new(channel.clone()),
            controller: ControllerClient::new(channel.clone()),
            node: NodeClient::new(channel),
        })
    }

    pub async fn is_ready(&mut self) -> bool {
        self.identity.probe(ProbeRequest {}).await.is_ok_and(|answer| answer.into_inner().ready == Some(true))
    }

    pub async fn try_create(&mut self, request: CreateVolumeRequest) -> Result<Made, Status> {
        let made = self.controller.create_volume(request).await?.into_inner().volume.unwrap();
        Ok(Made { id: made.volume_id, size: u64::try_from(made.capacity_bytes).unwrap() })
    }

    pub async fn create(&mut self, request: CreateVolumeRequest) -> Made {
        self.try_create(request).await.unwrap()
    }

    pub async fn delete(&mut self, id: &str) -> Result<(), Status> {
        let request = DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        self.controller.delete_volume(request).await.map(drop)
    }

    /// What a class can offer for a use: the sum, and the largest volume.
    pub async fn capacity(&mut self, class: &str, capability: &VolumeCapability) -> (u64, u64) {
        let request = GetCapacityRequest {
            parameters: parameters(class),
            volume_capabilities: vec![capability.clone()],
            ..Default::default()
        };
        let answer = self.controller.get_capacity(request).await.unwrap().into_inner();
        let bytes = |number: i64| u64::try_from(number).unwrap();
        (bytes(answer.available_capacity), bytes(answer.maximum_volume_size.unwrap()))
    }

    /// Waits until that much is available again: the deleted volumes are erased then.
    pub async fn await_capacity(&mut self, class: &str, capability: &VolumeCapability, wanted: (u64, u64)) {
        let poll = async || match self.capacity(class, capability).await {
            now if now == wanted => Ok(()),
            now => Err(now),
        };
        let came = found_async(ERASED_WITHIN, Duration::from_millis(10), poll).await;
        came.unwrap_or_else(|now| panic!("capacity is {now:?}, not {wanted:?} as it was"));
    }

    pub async fn expand(&mut self, id: &str, required: u64, limit: u64) -> Result<(u64, bool), Status> {
        let request = ControllerExpandVolumeRequest {
            volume_id: id.to_owned(),
            capacity_range: Some(range(required, limit)),
            ..Default::default()
        };
        let answer = self.controller.controller_expand_volume(request).await?.into_inner();
        Ok((u64::try_from(answer.capacity_bytes).unwrap(), answer.node_expansion_required))
    }

    pub async fn node_expand(&mut self, id: &str, path: &Path, required: u64) -> Result<u64, Status> {
        let request = NodeExpandVolumeRequest {
            volume_id: id.to_owned(),
            volume_path: text(path).to_owned(),
            capacity_range: Some(range(required, 0)),
            ..Default::default()
        };
        let answer = self.node.node_expand_volume(request).await?.into_inner();
        Ok(u64::try_from(answer.capacity_bytes).unwrap())
    }

    /// The call of `stage`, under way.
    pub fn begin_staging(
        &self,
        id: &str,
        staging: &Path,
        capability: VolumeCapability,
    ) -> tokio::task::JoinHandle<Result<(), Status>> {
        let (mut client, id, staging) = (self.clone(), id.to_owned(), staging.to_owned());
        tokio::spawn(async move { client.stage(&id, &staging, &capability).await })
    }

    pub async fn stage(&mut self, id: &str, staging: &Path, capability: &VolumeCapability) -> Result<(), Status> {
        self.node.node_stage_volume(stage(id, staging, capability)).await.map(drop)
    }

    pub async fn unstage(&mut self, id: &str, staging: &Path) -> Result<(), Status> {
        let request =
            NodeUnstageVolumeRequest { volume_id: id.to_owned(), staging_target_path: text(staging).to_owned() };
        self.node.node_unstage_volume(request).await.map(drop)
    }

    pub async fn publish(
        &mut self,
        id: &str,
        staging: &Path,
        target: &Path,
        capability: &VolumeCapability,
    ) -> Result<(), Status> {
        self.node.node_publish_volume(publish(id, staging, target, capability)).await.map(drop)
    }

    pub async fn unpublish(&mut self, id: &str, target: &Path) -> Result<(), Status> {
        let request = NodeUnpublishVolumeRequest { volume_id: id.to_owned(), target_path: text(target).to_owned() };
        self.node.node_unpublish_volume(request).await.map(drop)
    }

    pub async fn stats(&mut self, id: &str, path: &Path) -> Result<NodeGetVolumeStatsResponse, Status> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: id.to_owned(),
            volume_path: text(path).to_owned(),
            ..Default::default()
        };
        self.node.node_get_volume_stats(request).await.map(Response::into_inner)
    }

    /// What is wrong with a volume, as its node says.
    pub async fn node_health(&mut self, id: &str) -> Vec<VolumeHealthEntry> {
        let request = NodeGetVolumeHealthRequest { volume_id: id.to_owned(), ..Default::default() };
        let health = self.node.node_get_volume_health(request).await.unwrap().into_inner().volume_health.unwrap();
        assert_eq!(health.volume_id, id);
        health.health_statuses
    }

    /// What is wrong with the disks of the node.
    pub async fn storage_health(&mut self) -> Vec<StorageBackendHealth> {
        let answer = self.node.node_get_storage_health(NodeGetStorageHealthRequest::default()).await.unwrap();
        answer.into_inner().backend_health
    }

    /// The same as `node_health`, as the controller says.
    pub async fn controller_health(&mut self, id: &str) -> Vec<VolumeHealthEntry> {
        let request = ControllerGetVolumeHealthRequest { volume_id: id.to_owned(), ..Default::default() };
        let answer = self.controller.controller_get_volume_health(request).await.unwrap().into_inner();
        let health = answer.volume_health.unwrap();
        assert_eq!(health.volume_id, id);
        health.health_statuses
    }

    /// The volumes with which something is wrong.
    pub async fn unhealthy(&mut self) -> Vec<VolumeHealth> {
        let request = ControllerListVolumeHealthRequest::default();
        self.controller.controller_list_volume_health(request).await.unwrap().into_inner().entries
    }

    /// Id and condition of every volume that is listed.
    pub async fn list(&mut self) -> Vec<(String, VolumeCondition)> {
        let listed = self.controller.list_volumes(ListVolumesRequest::default()).await.unwrap().into_inner();
        let entry = |entry: list_volumes_response::Entry| {
            (entry.volume.unwrap().volume_id, entry.status.unwrap().volume_condition.unwrap())
        };
        listed.entries.into_iter().map(entry).collect()
    }

    pub async fn ids(&mut self) -> Vec<String> {
        self.list().await.into_iter().map(|(id, _)| id).collect()
    }

    pub async fn get(&mut self, id: &str) -> Result<ControllerGetVolumeResponse, Status> {
        let request = ControllerGetVolumeRequest { volume_id: id.to_owned() };
        self.controller.controller_get_volume(request).await.map(Response::into_inner)
    }
}

pub fn capability(mode: Mode, access: AccessType) -> VolumeCapability {
    VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type: Some(access) }
}

pub fn block() -> VolumeCapability {
    capability(Mode::SingleNodeMultiWriter, AccessType::Block(BlockVolume {}))
}

pub fn mount(fs: &str) -> VolumeCapability {
    mount_with(fs, &[])
}

pub fn mount_with(fs: &str, flags: &[&str]) -> VolumeCapability {
    let mount = MountVolume {
        fs_type: fs.to_owned(),
        mount_flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
        ..Default::default()
    };
    capability(Mode::SingleNodeMultiWriter, AccessType::Mount(mount))
}

/// `None` is a raw block volume.
pub fn of_kind(fs: Option<&str>) -> VolumeCapability {
    fs.map_or_else(block, mount)
}

pub fn range(required: u64, limit: u64) -> CapacityRange {
    CapacityRange { required_bytes: i64::try_from(required).unwrap(), limit_bytes: i64::try_from(limit).unwrap() }
}

pub fn parameters(class: &str) -> HashMap<String, String> {
    HashMap::from([("class".to_owned(), class.to_owned())])
}

pub fn create(name: &str, class: &str, size: u64, capability: &VolumeCapability) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(range(size, 0)),
        volume_capabilities: vec![capability.clone()],
        parameters: parameters(class),
        ..Default::default()
    }
}

pub fn stage(id: &str, staging: &Path, capability: &VolumeCapability) -> NodeStageVolumeRequest {
    NodeStageVolumeRequest {
        volume_id: id.to_owned(),
        staging_target_path: text(staging).to_owned(),
        volume_capability: Some(capability.clone()),
        ..Default::default()
    }
}

pub fn publish(id: &str, staging: &Path, target: &Path, capability: &VolumeCapability) -> NodePublishVolumeRequest {
    NodePublishVolumeRequest {
        volume_id: id.to_owned(),
        staging_target_path: text(staging).to_owned(),
        target_path: text(target).to_owned(),
        volume_capability: Some(capability.clone()),
        ..Default::default()
    }
}

/// The numbers of one unit; `None` if it is not reported.
pub fn usage(stats: &NodeGetVolumeStatsResponse, unit: Unit) -> Option<&VolumeUsage> {
    stats.usage.iter().find(|usage| usage.unit == i32::from(unit))
}

/// A call must be refused with this code, and a sentence that contains all these words.
#[track_caller]
pub fn assert_refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, words: &[&str]) {
    let status = result.expect_err("it should have been refused");
    let refusal = status.message();
    let names_it = words.iter().all(|word| refusal.contains(word));
    assert!(status.code() == code && names_it, "{:?} {refusal:?}, not {code:?} with {words:?}", status.code());
}
