//! The Controller service, over the port `Volumes`.

use std::time::Duration;

use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::capability::{nodes, parameters, required, sizes, usage, volume_name};
use super::convert::topology;
use super::health::volume_health;
use super::paging::page;
use crate::device::{label::VolumeUsage, signed};
use crate::health::{Condition, Finding, HEALTHY};
use crate::rpc::proto;
use crate::rpc::proto::controller_service_capability::{self, Rpc, rpc};
use crate::rpc::proto::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse,
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, ControllerServiceCapability, CreateVolumeRequest, CreateVolumeResponse,
    DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, ListVolumesRequest,
    ListVolumesResponse, ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, VolumeCondition,
    controller_get_volume_response, controller_server::Controller, list_volumes_response,
    validate_volume_capabilities_response,
};
use crate::rpc::status::no_volume;
use crate::volume::{Capacity, TOPOLOGY_KEY, Volume, VolumeId, VolumeRequest, Volumes};

/// How long a caller waits if it sets no timeout.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

pub struct ControllerService<V> {
    volumes: V,
}

impl<V: Volumes> ControllerService<V> {
    pub fn new(volumes: V) -> Self {
        Self { volumes }
    }

    async fn find(&self, text: &str) -> Result<Volume, Status> {
        let text = required("volume_id", text)?;
        let missing = || no_volume(text);
        let id: VolumeId = text.parse().map_err(|_| missing())?;
        self.volumes.get(id).await?.filter(|volume| !volume.found).ok_or_else(missing)
    }
}

fn volume(volume: &Volume) -> proto::Volume {
    proto::Volume {
        capacity_bytes: signed(volume.size),
        volume_id: volume.id.to_string(),
        volume_context: Default::default(),
        content_source: None,
        accessible_topology: vec![topology(&volume.node)],
    }
}

/// What the caller's `grpc-timeout` says: a number and a unit.
fn timeout(metadata: &MetadataMap) -> Duration {
    let text = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some((unit_at, unit)) = text.char_indices().last() else { return DEFAULT_TIMEOUT };
    let Ok(number) = text[..unit_at].parse::<u64>() else { return DEFAULT_TIMEOUT };
    match unit {
        'H' => Duration::from_secs(number.saturating_mul(3600)),
        'M' => Duration::from_secs(number.saturating_mul(60)),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => DEFAULT_TIMEOUT,
    }
}

pub(super) fn condition(condition: &Condition) -> VolumeCondition {
    let one = |finding: &Finding| format!("{}: {}", finding.reason, finding.message);
    let all: Vec<String> = condition.findings().iter().map(one).collect();
    let healthy = || format!("{HEALTHY}: the volume is healthy");
    VolumeCondition {
        abnormal: !condition.is_healthy(),
        message: if condition.is_healthy() { healthy() } else { all.join("; ") },
    }
}

#[tonic::async_trait]
impl<V: Volumes> Controller for ControllerService<V> {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let timeout = timeout(request.metadata());
        let request = request.into_inner();
        let name = volume_name(&request.name)?.to_owned();
        let usage = usage(&request.volume_capabilities)?;
        let (required, limit) = sizes(request.capacity_range.as_ref())?;
        let (selector, parameters) = parameters(&request.parameters)?;
        if request.volume_content_source.is_some() {
            return Err(Status::invalid_argument(
                "volume_content_source is not supported: no snapshots, no clones yet",
            ));
        }
        if let Some(key) = request.mutable_parameters.keys().next() {
            return Err(Status::invalid_argument(format!("mutable_parameters.{key} is not supported")));
        }
        let nodes = nodes(request.accessibility_requirements.as_ref())?;
        let wanted = VolumeRequest { name, required, limit, usage, parameters, selector, nodes, timeout };
        let made = self.volumes.create(wanted).await?;
        Ok(Response::new(CreateVolumeResponse { volume: Some(volume(&made)) }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let request = request.into_inner();
        // An id that localpool did not make names no volume of it, so that volume is deleted already.
        if let Ok(id) = required("volume_id", &request.volume_id)?.parse() {
            self.volumes.delete(id).await?;
        }
        Ok(Response::new(DeleteVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("volume_capabilities is missing"));
        }
        let found = self.find(&request.volume_id).await?;
        let (confirmed, message) = match usage(&request.volume_capabilities) {
            Ok(wanted) if found.usage.is_some_and(|made| wanted.accepts(made)) => {
                let confirmed = validate_volume_capabilities_response::Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    mutable_parameters: request.mutable_parameters,
                };
                (Some(confirmed), String::new())
            }
            Ok(_) => (None, "the volume was made with other capabilities".to_owned()),
            Err(error) => (None, error.to_string()),
        };
        Ok(Response::new(ValidateVolumeCapabilitiesResponse { confirmed, message }))
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        let request = request.into_inner();
        let all = self.volumes.list().await?.into_iter().filter(|volume| !volume.found).collect();
        let (volumes, next_token) = page(all, &request.starting_token, request.max_entries)?;
        let entry = |found: &Volume| list_volumes_response::Entry {
            volume: Some(volume(found)),
            status: Some(list_volumes_response::VolumeStatus {
                published_node_ids: Vec::new(),
                volume_condition: Some(condition(&found.condition)),
            }),
        };
        Ok(Response::new(ListVolumesResponse { entries: volumes.iter().map(entry).collect(), next_token }))
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        let found = self.find(&request.into_inner().volume_id).await?;
        let status = controller_get_volume_response::VolumeStatus {
            published_node_ids: Vec::new(),
            volume_condition: Some(condition(&found.condition)),
        };
        Ok(Response::new(ControllerGetVolumeResponse { volume: Some(volume(&found)), status: Some(status) }))
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<ControllerListVolumeHealthRequest>,
    ) -> Result<Response<ControllerListVolumeHealthResponse>, Status> {
        let request = request.into_inner();
        let all = self.volumes.list().await?.into_iter();
        let unwell = all.filter(|volume| !volume.found && !volume.condition.is_healthy()).collect();
        let (volumes, next_token) = page(unwell, &request.starting_token, request.max_entries)?;
        let entries = volumes.iter().map(|found| volume_health(found.id, &found.condition)).collect();
        Ok(Response::new(ControllerListVolumeHealthResponse { entries, next_token }))
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<ControllerGetVolumeHealthRequest>,
    ) -> Result<Response<ControllerGetVolumeHealthResponse>, Status> {
        let found = self.find(&request.into_inner().volume_id).await?;
        let volume_health = Some(volume_health(found.id, &found.condition));
        Ok(Response::new(ControllerGetVolumeHealthResponse { volume_health }))
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let request = request.into_inner();
        // The provisioner sends no capabilities, and the scheduler uses the answer for claims of both modes.
        let usage = match request.volume_capabilities.as_slice() {
            [] => None,
            capabilities => Some(usage(capabilities)?),
        };
        let selector = match parameters(&request.parameters) {
            Ok((selector, _)) => selector,
            Err(_) if V::WEIGHED_BEFORE => return Ok(answer(Capacity::ANYTHING)),
            Err(error) => return Err(error.into()),
        };
        let segments = request.accessible_topology.map(|topology| topology.segments).unwrap_or_default();
        let node = segments.get(TOPOLOGY_KEY).map(|node| node.as_str().into());
        let capacity = self.volumes.capacity(selector, usage, node).await?;
        Ok(answer(capacity))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let text = required("volume_id", &request.volume_id)?;
        let Some(range) = request.capacity_range.as_ref() else {
            return Err(Status::invalid_argument("capacity_range is missing"));
        };
        let (wanted, limit) = sizes(Some(range))?;
        let id: VolumeId = text.parse().map_err(|_| no_volume(text))?;
        let grown = self.volumes.expand(id, wanted, limit).await?;
        Ok(Response::new(ControllerExpandVolumeResponse {
            capacity_bytes: signed(grown.size),
            node_expansion_required: matches!(grown.usage, Some(VolumeUsage::Mount(_))),
        }))
    }

    async fn controller_get_capabilities(
        &self,
        _request: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let capabilities = [
            rpc::Type::CreateDeleteVolume,
            rpc::Type::GetCapacity,
            rpc::Type::ListVolumes,
            rpc::Type::GetVolume,
            rpc::Type::VolumeCondition,
            rpc::Type::ExpandVolume,
            rpc::Type::SingleNodeMultiWriter,
            rpc::Type::GetVolumeHealth,
            rpc::Type::ListVolumeHealth,
        ];
        let capabilities = capabilities.map(capability).to_vec();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }
}

/// The same service for a client that only expands volumes: it cannot create, list or delete one.
pub struct ExpansionService<V>(ControllerService<V>);

impl<V: Volumes> ExpansionService<V> {
    pub fn new(volumes: V) -> Self {
        Self(ControllerService::new(volumes))
    }
}

/// Every method that is not named here is UNIMPLEMENTED.
#[tonic::async_trait]
impl<V: Volumes> Controller for ExpansionService<V> {
    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        self.0.controller_expand_volume(request).await
    }

    async fn controller_get_capabilities(
        &self,
        _request: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let capabilities = vec![capability(rpc::Type::ExpandVolume)];
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }
}

fn answer(capacity: Capacity) -> Response<GetCapacityResponse> {
    Response::new(GetCapacityResponse {
        available_capacity: signed(capacity.available),
        maximum_volume_size: Some(signed(capacity.largest)),
        minimum_volume_size: Some(signed(capacity.smallest)),
    })
}

fn capability(kind: rpc::Type) -> ControllerServiceCapability {
    ControllerServiceCapability { r#type: Some(controller_service_capability::Type::Rpc(Rpc { r#type: kind.into() })) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_deadline_is_read_in_every_unit() {
        let parsed = |text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().expect("ascii"));
            timeout(&metadata)
        };
        for (text, time) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("15S", Duration::from_secs(15)),
            ("59999m", Duration::from_millis(59_999)),
            ("14999999u", Duration::from_micros(14_999_999)),
            ("7n", Duration::from_nanos(7)),
            ("x", DEFAULT_TIMEOUT),
            ("S", DEFAULT_TIMEOUT),
            ("5Y", DEFAULT_TIMEOUT),
        ] {
            assert_eq!(parsed(text), time, "{text}");
        }
        assert_eq!(timeout(&MetadataMap::new()), DEFAULT_TIMEOUT);
    }
}
