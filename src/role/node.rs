//! The role `node`: the agent of one Kubernetes node. Wires the pool and the agent, the CSI Node service on
//! kubelet's socket, the registration with kubelet, the side of Kubernetes, and HTTP.
//!
//! Volumes that exist are staged and published without the API server: only what changes objects waits for it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tonic::service::Routes;

use super::metrics::NodeMetrics;
use super::{AGENT_SOCKET, GRACE, LogFormat, become_agent, http, log_to_stderr};
use crate::agent::Reconciler;
use crate::agent::thread::AgentHandle;
use crate::csi::proto::agent::agent_server::AgentServer;
use crate::csi::proto::identity_server::IdentityServer;
use crate::csi::proto::node_server::NodeServer;
use crate::csi::{
    AgentService, Calls, DRIVER_NAME, IdentityService, Looks, NodeService, Readiness, registration, server,
};
use crate::device::udev_rules;
use crate::host::events::DeviceEvents;
use crate::host::filesystem::RealFilesystems;
use crate::host::real::RealHost;
use crate::host::sysfs::Roots;
use crate::host::{Host, chain, state};
use crate::operator;
pub use crate::operator::node::CLUSTER_FILE;
use crate::operator::node::{NodeOperator, Seen, ask_own, ask_promises, cluster_uid, of_this_cluster};
use crate::pool::device_pool::{Owner, Pool, Workers};
use crate::volume::{NodeVolumes, TOPOLOGY_KEY, VolumeLocks};

/// Of a label's value.
const LONGEST_NAME: usize = 63;
const AGAIN: Duration = Duration::from_secs(2);
const AGAIN_AT_MOST: Duration = Duration::from_secs(30);

/// What the role is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    pub node: String,
    pub state_dir: PathBuf,
    pub kubelet_dir: PathBuf,
    pub http: SocketAddr,
    pub min_age: Duration,
    pub max_volumes: i64,
    pub udev_rules_dir: Option<PathBuf>,
    pub log: LogFormat,
}

/// Runs until SIGTERM or SIGINT.
pub fn run(settings: Settings) -> Result<()> {
    log_to_stderr(settings.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(serve(settings));
    // Work that outlived its call is not waited for: every stop is a normal stop.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

async fn serve(settings: Settings) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (stop, stopped) = watch::channel(false);
    let work = work(settings, stopped);
    tokio::pin!(work);
    tokio::select! {
        ended = &mut work => return ended,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    let _ = stop.send(true);
    match tokio::time::timeout(GRACE, &mut work).await {
        Ok(ended) => ended,
        Err(_) => {
            tracing::warn!("calls were still under way at the end; they converge after the next start");
            Ok(())
        }
    }
}

/// Without them the agent works as well, so a failure is only told.
fn install_udev_rules(dir: &Path) {
    match state::install(dir, udev_rules::FILE, &udev_rules::text()) {
        Ok(true) => tracing::info!(dir = %dir.display(), "wrote rules that keep udev off what tenants write"),
        Ok(false) => {}
        Err(error) => tracing::warn!(error = %chain(&error), "udev's rules are not written"),
    }
}

async fn until(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// kubelet puts the name on the Node as the value of a label, and refuses a driver whose value it cannot.
fn check_name(node: &str) -> Result<()> {
    let length = node.len();
    ensure!(
        length <= LONGEST_NAME,
        "the name of this node has {length} characters, and the label {TOPOLOGY_KEY} that it gets holds {LONGEST_NAME}: \
         give the node a shorter one (--hostname-override of kubelet); {node:?}"
    );
    Ok(())
}

async fn work(settings: Settings, stopped: watch::Receiver<bool>) -> Result<()> {
    let Settings { node, state_dir, kubelet_dir, http, min_age, max_volumes, udev_rules_dir, log: _ } = settings;
    check_name(&node)?;
    let readiness = Readiness::default();
    let (metrics, registry) = NodeMetrics::new()?;
    let calls = Calls::new(&registry, "node")?;
    let scrape = metrics.refresh();
    // From the start: a waiting agent is alive, and not ready.
    let web = http::serve(http, readiness.clone(), registry, scrape, until(stopped.clone()));
    let web = tokio::spawn(web);

    let locked = {
        let state_dir = state_dir.clone();
        tokio::task::spawn_blocking(move || become_agent(&state_dir))
    };
    let (state, lock) = tokio::select! {
        locked = locked => locked.context("taking the agent's lock")??,
        () = until(stopped.clone()) => return Ok(()),
    };
    if let Some(dir) = udev_rules_dir {
        install_udev_rules(&dir);
    }
    let host: Arc<dyn Host> =
        Arc::new(RealHost::new(Roots::default(), RealFilesystems::default(), state).after(lock.after.clone()));
    let client = operator::client().await?;
    let cluster = tokio::select! {
        cluster = cluster(&client, &host) => cluster?,
        () = until(stopped.clone()) => return Ok(()),
    };
    let owner = Owner { cluster: cluster.clone(), node: node.clone() };
    let pool = Arc::new(Pool::open(Arc::clone(&host), owner, Workers::Threads)?);
    metrics.watch(&pool);

    let events = DeviceEvents::subscribe(&Roots::default()).context("subscribing to device events")?;
    // The sets come from the API server; until they do, nothing is claimed and all that is here works.
    let agent = Reconciler::new(Arc::clone(&host), Arc::clone(&pool), min_age, Vec::new());
    let runtime = Handle::current();
    let agent = agent.asking_for_own(ask_own(client.clone(), node.clone(), runtime.clone()));
    let ask = ask_promises(client.clone(), node.clone(), runtime.clone());
    let agent = agent.asking_elsewhere(of_this_cluster(client.clone(), cluster, runtime, ask));
    let (see, seen) = watch::channel(None);
    metrics.sets.watch(&node, seen.clone());
    let (look, looked) = watch::channel(0);
    let looks = Looks { looked, stopped: stopped.clone() };
    let ready = readiness.clone();
    let (agent_handle, thread) = AgentHandle::start(agent, Arc::clone(&pool), Some(events), move |pass| {
        see.send_replace(Some(Arc::new(Seen::of(pass))));
        look.send_modify(|count| *count += 1);
        ready.set_ready();
    });

    let locks = VolumeLocks::default();
    let writes = metrics.writes();
    let (operator, inbox) = NodeOperator::new(client, Arc::clone(&pool), agent_handle.clone(), locks.clone(), writes);
    let operator = tokio::spawn(operator.run(inbox, seen.clone()));

    // kubelet asks at once for what only a first look can say.
    let mut looked = seen;
    tokio::select! {
        looked = looked.wait_for(Option::is_some) => drop(looked.context("the agent's first look")?),
        () = until(stopped.clone()) => {}
    }
    let csi_path = kubelet_dir.join("plugins").join(DRIVER_NAME).join("csi.sock");
    let registration_path = kubelet_dir.join("plugins_registry").join(registration::SOCKET);
    let node_volumes = NodeVolumes::new(host, Arc::clone(&pool), locks);
    let csi = Routes::new(IdentityServer::new(IdentityService::new(readiness)))
        .add_service(NodeServer::new(NodeService::new(node_volumes, max_volumes)));
    let own =
        Routes::new(AgentServer::new(AgentService::new(agent_handle.clone(), pool, looks, super::sets::read_all)));
    let csi_socket = server::bind(&csi_path)?;
    let agent_socket = server::bind(&state_dir.join(AGENT_SOCKET))?;
    tracing::info!(socket = %csi_path.display(), node, "serving CSI");
    let served = async {
        tokio::try_join!(
            server::serve(csi_socket, calls.around(csi), until(stopped.clone())),
            server::serve(agent_socket, own, until(stopped.clone())),
            registration::register(registration_path, &csi_path, stopped.clone()),
        )
    };
    let ended = tokio::select! {
        ended = served => ended.map(|_| ()).map_err(anyhow::Error::from),
        ended = web => match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.into()),
            Err(error) => Err(error.into()),
        },
    };
    operator.abort();
    agent_handle.stop();
    tokio::task::spawn_blocking(move || thread.join()).await?;
    ended
}

/// The UID of the cluster: as it was written down, else from the API server, however long that takes.
async fn cluster(client: &kube::Client, host: &Arc<dyn Host>) -> Result<String> {
    let reader = Arc::clone(host);
    let known = tokio::task::spawn_blocking(move || reader.state().load(CLUSTER_FILE)).await??;
    if let Some(uid) = known.filter(|uid| !uid.trim().is_empty()) {
        return Ok(uid.trim().to_owned());
    }
    let mut pause = AGAIN;
    loop {
        match cluster_uid(client.clone()).await {
            Ok(uid) => {
                let (writer, text) = (Arc::clone(host), uid.clone());
                tokio::task::spawn_blocking(move || writer.state().store(CLUSTER_FILE, &text)).await??;
                return Ok(uid);
            }
            Err(error) => {
                tracing::warn!(
                    error = operator::words(&error),
                    "the first start on a node needs the API server; trying again"
                )
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AGAIN_AT_MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_whose_name_is_too_long_for_its_label_is_refused_in_words() {
        assert!(check_name(&"n".repeat(63)).is_ok());
        let refused = check_name(&format!("{}.example", "n".repeat(63))).expect_err("too long").to_string();
        assert!(refused.contains("71 characters") && refused.contains("topology.localpool.dev/node"), "{refused}");
    }
}
