//! The Identity service.

use tonic::{Request, Response, Status};

use crate::rpc::proto::plugin_capability::{self, service, volume_expansion};
use crate::rpc::proto::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse, identity_server::Identity,
};
use crate::rpc::readiness::Readiness;
use crate::volume::DRIVER_NAME;

pub struct IdentityService {
    readiness: Readiness,
}

impl IdentityService {
    pub fn new(readiness: Readiness) -> Self {
        Self { readiness }
    }
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _request: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: DRIVER_NAME.to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: Default::default(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _request: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let service =
            |kind: service::Type| plugin_capability::Type::Service(plugin_capability::Service { r#type: kind.into() });
        let expansion = |kind: volume_expansion::Type| {
            plugin_capability::Type::VolumeExpansion(plugin_capability::VolumeExpansion { r#type: kind.into() })
        };
        // These are capabilities of the driver as a whole, on every socket, whatever that serves: CSI wants it so.
        let capabilities = [
            service(service::Type::ControllerService),
            service(service::Type::VolumeAccessibilityConstraints),
            // Online includes offline: a volume grows whether or not it is published.
            expansion(volume_expansion::Type::Online),
        ];
        let capabilities = capabilities.map(|kind| PluginCapability { r#type: Some(kind) }).to_vec();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _request: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(self.readiness.is_ready()) }))
    }
}
