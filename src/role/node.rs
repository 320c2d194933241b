//! The role `node`: the agent of one Kubernetes node. Wires the pool and the agent, the CSI Node service on kubelet's
//! socket, the registration with kubelet, the Kubernetes side, and HTTP.
//!
//! Volumes that exist are staged and published without the API server: only changes of objects wait for it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::host_rules;
use super::metrics::NodeMetrics;
use super::parts::Parts;
use super::{AGENT_SOCKET, LogFormat, become_agent, http, log_to_stderr, observer};
use crate::agent::{AgentHandle, Checkup, CheckupHandle, PassReport, Reconciler};
use crate::csi::{
    AgentService, Calls, DRIVER_NAME, IdentityService, Looks, NodeService, Readiness,
    proto::{agent::agent_server::AgentServer, identity_server::IdentityServer, node_server::NodeServer},
    registration, server,
};
use crate::device::{NodeName, Owner};

use crate::host::{AgentLock, Backoff, DeviceEvents, Host, MountEvents, Roots};
use crate::operator;
use crate::operator::node::{
    CLUSTER_FILE, NodeOperator, PassSummary, ask_own, ask_promises, cluster_uid, of_this_cluster,
};
use crate::pool::{Pool, Workers};
use crate::volume::{NodeVolumes, TOPOLOGY_KEY, VolumeLocks};

/// The longest value of a label.
const LONGEST_NAME: usize = 63;
/// The wait after the UID of the cluster could not be read, doubled each time.
const CLUSTER_RETRY: Duration = Duration::from_secs(2);
const CLUSTER_RETRY_AT_MOST: Duration = Duration::from_secs(30);

/// The settings of the role.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    pub node: NodeName,
    pub state_dir: PathBuf,
    pub kubelet_dir: PathBuf,
    pub http: SocketAddr,
    pub min_age: Duration,
    pub max_volumes: i64,
    pub udev_rules_dir: Option<PathBuf>,
    pub lvm_dir: Option<PathBuf>,
    pub log: LogFormat,
}

/// Runs until SIGTERM or SIGINT.
pub fn run(settings: NodeSettings) -> Result<()> {
    log_to_stderr(settings.log);
    super::run(|stop| work(settings, stop))
}

/// kubelet makes the name the value of a label of the Node, and refuses a driver whose name is no valid value.
fn check_name(node: &NodeName) -> Result<()> {
    let length = node.len();
    ensure!(
        length <= LONGEST_NAME,
        "the name of this node has {length} characters, and the label {TOPOLOGY_KEY} that it gets holds {LONGEST_NAME}: \
         give the node a shorter one (--hostname-override of kubelet); {node:?}"
    );
    Ok(())
}

async fn work(settings: NodeSettings, stop: CancellationToken) -> Result<()> {
    check_name(&settings.node)?;
    let readiness = Readiness::default();
    let (metrics, registry) = NodeMetrics::new()?;
    let calls = Calls::new(&registry, "node")?;
    let scrape = metrics.refresh();
    // Served from the start: a waiting agent is alive, and not ready.
    let web = http::serve(settings.http, readiness.clone(), registry, scrape, stop.clone().cancelled_owned());
    let web = tokio::spawn(web);
    let Some(role) = NodeRole::open(&settings, &stop).await? else { return Ok(()) };
    metrics.watch(&role.pool);

    let (pass_sender, passes) = watch::channel(None);
    metrics.sets.watch(&settings.node, passes.clone());
    let (look, looked) = watch::channel(0);
    let ready = readiness.clone();
    let agent = role.agent(settings.min_age);
    let (board, (notify, health_changed)) = (metrics.health(), watch::channel(0_u64));
    let checkup = Checkup::new(Arc::clone(&role.host), Arc::clone(&role.pool), board.clone(), agent.reports());
    let mounts = MountEvents::subscribe(&Roots::default()).context("subscribing to changes of mounts")?;
    let (checkups, checkup_thread) =
        CheckupHandle::start(checkup, Some(mounts), move || notify.send_modify(|count| *count += 1));
    let after_pass = checkups.clone();
    let (agent_handle, thread) = role.start(agent, move |pass| {
        pass_sender.send_replace(Some(Arc::new(PassSummary::of(pass))));
        look.send_modify(|count| *count += 1);
        ready.set_ready();
        after_pass.due();
    })?;

    let NodeRole { client, host, pool, cluster: _, _lock: _ } = &role;
    let (locks, pool) = (VolumeLocks::default(), Arc::clone(pool));
    let (operator, inbox) =
        NodeOperator::new(client.clone(), Arc::clone(&pool), agent_handle.clone(), locks.clone(), metrics.writes());
    let operator = operator.with_health(board.clone(), health_changed, checkups.clone());
    let operator = tokio::spawn(operator.run(inbox, passes.clone()));
    let operator_handle = operator.abort_handle();
    let mut parts = Parts::default();
    parts.add_thread("the agent's thread", thread);
    parts.add_thread("the checkup's thread", checkup_thread);
    parts.add("the side of Kubernetes", operator);

    // kubelet immediately asks for what only the first look can find out.
    let mut first = passes;
    tokio::select! {
        Ok(_) = first.wait_for(Option::is_some) => {}
        () = stop.cancelled() => {}
        why = parts.end() => return Err(why),
    }
    let volumes = NodeVolumes::new(Arc::clone(host), Arc::clone(&pool), locks).with_health(board.clone());
    let csi = services(&calls, readiness, volumes, settings.max_volumes);
    let looks = Looks { looked, stop: stop.clone() };
    let own = AgentService::new(agent_handle.clone(), pool, looks, super::sets::read_for_service).with_health(board);
    let served = sockets(&settings, csi, Routes::new(AgentServer::new(own)), &stop)?;
    let web = async { web.await?.context("serving HTTP") };
    let ended = parts.serve(&stop, async { tokio::try_join!(served, web).map(|_| ()) }).await;
    operator_handle.abort();
    checkups.stop();
    agent_handle.stop();
    parts.ended().await;
    ended
}

/// What the parts of this role share.
struct NodeRole {
    client: kube::Client,
    host: Arc<dyn Host>,
    pool: Arc<Pool>,
    cluster: String,
    /// No other process is the agent of the state directory while this lives.
    _lock: AgentLock,
}

impl NodeRole {
    /// Waits for the agent's lock, and at the first start on a node for the API server. `None`: stopped meanwhile.
    async fn open(settings: &NodeSettings, stop: &CancellationToken) -> Result<Option<Self>> {
        let NodeSettings { node, state_dir, udev_rules_dir, lvm_dir, .. } = settings.clone();
        let locked = tokio::task::spawn_blocking(move || become_agent(&state_dir));
        let (state, lock) = tokio::select! {
            locked = locked => locked.context("taking the agent's lock")??,
            () = stop.cancelled() => return Ok(None),
        };
        let write = move || host_rules::install_all(udev_rules_dir.as_deref(), lvm_dir.as_deref());
        tokio::task::spawn_blocking(write).await.context("writing the rules of the host")?;
        let host = observer::machine_after(state, &lock);
        let client = operator::client().await?;
        let cluster = tokio::select! {
            cluster = cluster(&client, &host) => cluster?,
            () = stop.cancelled() => return Ok(None),
        };
        let owner = Owner { cluster: cluster.clone(), node };
        let pool = Arc::new(Pool::open(Arc::clone(&host), owner, Workers::Threads)?);
        Ok(Some(Self { client, host, pool, cluster, _lock: lock }))
    }

    /// The sets come from the API server; until then nothing is claimed, and everything that is here works.
    fn agent(&self, min_age: Duration) -> Reconciler {
        let Self { client, host, pool, cluster, _lock: _ } = self;
        let (node, runtime) = (pool.owner().node.clone(), Handle::current());
        let agent = Reconciler::new(Arc::clone(host), Arc::clone(pool), min_age, Vec::new());
        let agent = agent.asking_for_own(ask_own(client.clone(), node.clone(), runtime.clone()));
        let ask = ask_promises(client.clone(), node, runtime.clone());
        agent.asking_elsewhere(of_this_cluster(client.clone(), cluster.clone(), runtime, ask))
    }

    fn start(
        &self,
        agent: Reconciler,
        on_pass: impl FnMut(&PassReport) + Send + 'static,
    ) -> Result<(AgentHandle, JoinHandle<()>)> {
        let events = DeviceEvents::subscribe(&Roots::default()).context("subscribing to device events")?;
        Ok(AgentHandle::start(agent, Arc::clone(&self.pool), Some(events), on_pass))
    }
}

/// Serves kubelet's socket and the agent's own, and registers the first with kubelet.
fn sockets(
    settings: &NodeSettings,
    csi: Routes,
    own: Routes,
    stop: &CancellationToken,
) -> Result<impl Future<Output = Result<()>>> {
    let NodeSettings { node, kubelet_dir, state_dir, .. } = settings;
    let csi_path = kubelet_dir.join("plugins").join(DRIVER_NAME).join("csi.sock");
    let registration_path = kubelet_dir.join("plugins_registry").join(registration::SOCKET);
    let csi_socket = server::bind(&csi_path)?;
    let agent_socket = server::bind(&state_dir.join(AGENT_SOCKET))?;
    tracing::info!(socket = %csi_path.display(), node = node.as_str(), "serving CSI");
    Ok(async move {
        let sockets = tokio::try_join!(
            server::serve(csi_socket, csi, stop.clone().cancelled_owned()),
            server::serve(agent_socket, own, stop.clone().cancelled_owned()),
            registration::register(registration_path, &csi_path, stop),
        );
        sockets.map(|_| ()).context("serving CSI")
    })
}

/// The services that kubelet calls, counted.
pub fn services(calls: &Calls, readiness: Readiness, volumes: NodeVolumes, max_volumes: i64) -> Routes {
    let identity = Routes::new(IdentityServer::new(IdentityService::new(readiness)));
    calls.around(identity.add_service(NodeServer::new(NodeService::new(volumes, max_volumes))))
}

/// The UID of the cluster: the recorded one, else from the API server, however long that takes.
async fn cluster(client: &kube::Client, host: &Arc<dyn Host>) -> Result<String> {
    let reader = Arc::clone(host);
    let known = tokio::task::spawn_blocking(move || observer::known_cluster(reader.state())).await??;
    if let Some(uid) = known {
        return Ok(uid);
    }
    let mut backoff = Backoff::new(CLUSTER_RETRY, CLUSTER_RETRY_AT_MOST);
    loop {
        match cluster_uid(client.clone()).await {
            Ok(uid) => {
                let (writer, text) = (Arc::clone(host), uid.clone());
                tokio::task::spawn_blocking(move || writer.state().store(CLUSTER_FILE, &text)).await??;
                return Ok(uid);
            }
            Err(error) => {
                tracing::warn!(
                    error = operator::error_message(&error),
                    "the first start on a node needs the API server; trying again"
                )
            }
        }
        tokio::time::sleep(backoff.wait()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_whose_name_is_too_long_for_its_label_is_refused_in_words() {
        assert!(check_name(&"n".repeat(63).into()).is_ok());
        let refused = check_name(&format!("{}.example", "n".repeat(63)).into()).expect_err("too long").to_string();
        assert!(refused.contains("71 characters") && refused.contains("topology.localpool.dev/node"), "{refused}");
    }
}
