//! The role `standalone`: a whole driver in one process, without Kubernetes. Wires host, pool, volumes and the sockets,
//! and stops them again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::parts::Parts;
use super::{AGENT_SOCKET, LogFormat, become_agent, log_to_stderr, machine, observer, sets};
use crate::agent::{AgentHandle, Checkup, CheckupHandle, Reconciler};
use crate::claim::Rule;
use crate::csi::{
    AgentService, ControllerService, IdentityService, Looks, NodeService, Readiness,
    proto::{
        agent::agent_server::AgentServer, controller_server::ControllerServer, identity_server::IdentityServer,
        node_server::NodeServer,
    },
    server,
};
use crate::device::{NodeName, Owner};
use crate::health::Board;
use crate::host::{DeviceEvents, MountEvents, Roots};
use crate::pool::{Pool, Workers};
use crate::volume::{LocalVolumes, NodeVolumes, VolumeLocks};

/// The settings of the role.
#[derive(Clone, Debug)]
pub struct StandaloneSettings {
    pub socket: PathBuf,
    pub state_dir: PathBuf,
    pub sets: PathBuf,
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
    let state_dir = settings.state_dir.clone();
    let locked = tokio::task::spawn_blocking(move || become_agent(&state_dir));
    let (state, lock) = tokio::select! {
        locked = locked => locked.context("taking the agent's lock")??,
        () = stop.cancelled() => return Ok(()),
    };
    let (state, cluster) =
        tokio::task::spawn_blocking(move || machine::identity(&state).map(|identity| (state, identity))).await??;
    let host = observer::machine_after(state, &lock);
    let owner = Owner { cluster, node: settings.node.clone() };
    let pool = Arc::new(Pool::open(Arc::clone(&host), owner, Workers::Threads)?);
    let csi_socket = server::bind(&settings.socket)?;
    let agent_socket = server::bind(&settings.state_dir.join(AGENT_SOCKET))?;

    let events = DeviceEvents::subscribe(&Roots::default()).context("subscribing to device events")?;
    let agent = Reconciler::new(Arc::clone(&host), Arc::clone(&pool), settings.min_age, rules);
    let readiness = Readiness::default();
    let ready = readiness.clone();
    let (look, looked) = tokio::sync::watch::channel(0);
    let looks = Looks { looked, stop: stop.clone() };
    let board = Board::default();
    let checkup = Checkup::new(Arc::clone(&host), Arc::clone(&pool), board.clone(), agent.reports());
    let mounts = MountEvents::subscribe(&Roots::default()).context("subscribing to changes of mounts")?;
    // Whoever asks gets what is on the board: nobody waits for a change.
    let (checkups, checkup_thread) = CheckupHandle::start(checkup, Some(mounts), || {});
    let after_pass = checkups.clone();
    let (agent_handle, thread) = AgentHandle::start(agent, Arc::clone(&pool), Some(events), move |_| {
        ready.set_ready();
        look.send_modify(|count| *count += 1);
        after_pass.due();
    });
    let mut parts = Parts::default();
    parts.add_thread("the agent's thread", thread);
    parts.add_thread("the checkup's thread", checkup_thread);

    let locks = VolumeLocks::default();
    let volumes = LocalVolumes::new(Arc::clone(&pool), locks.clone()).with_health(board.clone());
    let node_volumes = NodeVolumes::new(host, Arc::clone(&pool), locks).with_health(board.clone());
    let csi = Routes::new(IdentityServer::new(IdentityService::new(readiness)))
        .add_service(ControllerServer::new(ControllerService::new(volumes)))
        .add_service(NodeServer::new(NodeService::new(node_volumes, settings.max_volumes)));
    let own = Routes::new(AgentServer::new(
        AgentService::new(agent_handle.clone(), pool, looks, sets::read_for_service).with_health(board),
    ));
    tracing::info!(socket = %settings.socket.display(), node = settings.node.as_str(), "serving CSI");

    let both = async {
        let sockets = tokio::try_join!(
            server::serve(csi_socket, csi, stop.clone().cancelled_owned()),
            server::serve(agent_socket, own, stop.clone().cancelled_owned()),
        );
        sockets.map(|_| ()).context("serving CSI")
    };
    let ended = parts.serve(&stop, both).await;
    checkups.stop();
    agent_handle.stop();
    parts.ended().await;
    ended
}
