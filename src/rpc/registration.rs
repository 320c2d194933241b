//! kubelet's plugin registration: the agent registers itself, no other container does.
//!
//! kubelet calls each socket that appears in its folder. If it refuses a registration, the agent makes a new socket, as
//! kubelet only looks at a socket when it appears.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::proto::registration::registration_server::{Registration, RegistrationServer};
use super::proto::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use super::server::{self, ServeError};
use crate::host::Backoff;
use crate::volume::DRIVER_NAME;

/// The socket's name. kubelet sends the percent-encoded path of the socket as the call's `:authority`, which our HTTP/2
/// server refuses as a host; the part before an `@` may be encoded like that.
pub const SOCKET: &str = "csi.localpool.dev@reg.sock";
/// The CSI versions whose contract kubelet may expect; it compares the major number.
const VERSIONS: [&str; 1] = ["1.0.0"];
/// How long to wait after a refused registration, doubled each time.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// kubelet's last answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    NotAsked,
    Yes,
    Refused,
}

struct RegistrationService {
    endpoint: String,
    answer: Arc<watch::Sender<Registered>>,
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn get_info(&self, _request: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: DRIVER_NAME.to_owned(),
            endpoint: self.endpoint.clone(),
            supported_versions: VERSIONS.map(str::to_owned).to_vec(),
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        match plugin_registered {
            true => tracing::info!("kubelet has registered the driver"),
            false => tracing::error!(error, "kubelet refused the registration; trying again"),
        }
        self.answer.send_replace(if plugin_registered { Registered::Yes } else { Registered::Refused });
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

/// Registers the driver whose services are at `endpoint`, until `stop`.
pub async fn register(socket: PathBuf, endpoint: &Path, stop: &CancellationToken) -> Result<(), ServeError> {
    let mut backoff = RETRY;
    loop {
        let (answer, mut heard) = watch::channel(Registered::NotAsked);
        let service = RegistrationService { endpoint: endpoint.display().to_string(), answer: Arc::new(answer) };
        let routes = Routes::new(RegistrationServer::new(service));
        let stopped = stop.clone().cancelled_owned();
        let refused = async move {
            if heard.wait_for(|answer| *answer == Registered::Refused).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let end = async move {
            tokio::select! {
                () = stopped => {}
                () = refused => {}
            }
        };
        server::serve(server::bind(&socket)?, routes, end).await?;
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(backoff.wait()) => {}
        }
    }
}
