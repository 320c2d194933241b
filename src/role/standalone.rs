//! The role `standalone`: a whole driver in one process, without Kubernetes. Wires host, pool, volumes and the sockets,
//! and stops them again.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::metrics::NodeMetrics;
use super::running::{RunningAgent, become_agent};
use super::{AGENT_SOCKET, LogFormat, http, log_to_stderr, machine, observer, sets};
use crate::agent::Reconciler;
use crate::claim::Rule;
use crate::device::{NodeName, Owner};
use crate::pool::{Pool, Workers};
use crate::rpc::{
    ControllerService, IdentityService, NodeService, Readiness,
    proto::{controller_server::ControllerServer, identity_server::IdentityServer, node_server::NodeServer},
    server,
};
use crate::volume::{LocalVolumes, NodeVolumes, VolumeLocks};

/// The settings of the role.
#[derive(Clone, Debug)]
pub struct StandaloneSettings {
    pub socket: PathBuf,
    pub state_dir: PathBuf,
    pub sets: PathBuf,
    /// `None`: there is no HTTP.
    pub http: Option<SocketAddr>,
    pub node: NodeName,
    pub min_age: Duration,
    pub max_volumes: i64,
}

/// Runs until SIGTERM or SIGINT.
pub fn run(settings: StandaloneSettings) -> Result<()> {
    log_to_stderr(LogFormat::Text);
    let rules = read_sets(&settings.sets, &settings.node)?;
    super::run(|stop| serve(settings, rules, stop))
}

/// A bad document does not affect the others; a file that cannot be read prevents the start.
fn read_sets(path: &Path, node: &NodeName) -> Result<Vec<Rule>> {
    let documents = sets::documents(path).context("--sets")?;
    let (rules, errors) = sets::read(&documents, node);
    for error in &errors {
        tracing::error!(file = %path.display(), "{error}; this set is ignored, and its disks are not touched");
    }
    if rules.is_empty() {
        tracing::warn!(file = %path.display(), "no valid set: nothing will be claimed");
    }
    Ok(rules)
}

async fn serve(settings: StandaloneSettings, rules: Vec<Rule>, stop: CancellationToken) -> Result<()> {
    let Some((state, lock)) = become_agent(settings.state_dir.clone(), &stop).await? else { return Ok(()) };
    let (state, cluster) =
        tokio::task::spawn_blocking(move || machine::identity(&state).map(|identity| (state, identity))).await??;
    let host = observer::machine_after(state, &lock);
    let owner = Owner { cluster, node: settings.node.clone() };
    let pool = Arc::new(Pool::open(Arc::clone(&host), owner, Workers::Threads)?);
    let csi_socket = server::bind(&settings.socket)?;
    let agent_socket = server::bind(&settings.state_dir.join(AGENT_SOCKET))?;

    let agent = Reconciler::new(Arc::clone(&host), Arc::clone(&pool), settings.min_age, rules);
    let readiness = Readiness::default();
    let (metrics, registry) = NodeMetrics::new(&settings.node)?;
    // Nobody keeps a copy of what the board says.
    let mut agent = RunningAgent::start(agent, (&host, &pool), &metrics, readiness.clone(), |_| {}, &stop)?;
    let web =
        settings.http.map(|address| http::serve(address, readiness.clone(), registry, metrics.refresh(), stop.clone()));

    let locks = VolumeLocks::default();
    let volumes = LocalVolumes::new(Arc::clone(&pool), locks.clone()).with_health(agent.board.clone());
    let node_volumes = NodeVolumes::new(host, pool, locks).with_health(agent.board.clone());
    let csi = Routes::new(IdentityServer::new(IdentityService::new(readiness)))
        .add_service(ControllerServer::new(ControllerService::new(volumes)))
        .add_service(NodeServer::new(NodeService::new(node_volumes, settings.max_volumes)));
    let own = agent.service();
    tracing::info!(socket = %settings.socket.display(), node = settings.node.as_str(), "serving CSI");

    let sockets = async {
        let both = tokio::try_join!(
            server::serve(csi_socket, csi, stop.clone().cancelled_owned()),
            server::serve(agent_socket, own, stop.clone().cancelled_owned()),
        );
        both.map(|_| ()).context("serving CSI")
    };
    let web = async {
        match web {
            Some(web) => web.await.context("serving HTTP"),
            None => Ok(()),
        }
    };
    let ended = agent.parts.serve(&stop, async { tokio::try_join!(sockets, web).map(|_| ()) }).await;
    agent.stop().await;
    ended
}
