//! The role `node`: the agent of one Kubernetes node. Wires the pool and the agent, the CSI Node service on kubelet's
//! socket, the registration with kubelet, the Kubernetes side, and HTTP.
//!
//! Volumes that exist are staged and published without the API server: only changes of objects wait for it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::host_rules;
use super::metrics::NodeMetrics;
use super::running::{RunningAgent, become_agent};
use super::{AGENT_SOCKET, LogFormat, http, log_to_stderr, observer};
use crate::agent::{DiskBenchmarker, Reconciler};
use crate::device::{NodeName, Owner};
use crate::host::{AgentLock, Backoff, Host};
use crate::operator;
use crate::operator::agent::{
    CLUSTER_FILE, NodeOperator, Questions, ask_promises, ask_volumes, cluster_uid, of_this_cluster,
};
use crate::pool::{Pool, Workers};
use crate::rpc::{
    Calls, DRIVER_NAME, IdentityService, NodeService, Readiness,
    proto::{identity_server::IdentityServer, node_server::NodeServer},
    registration, server,
};
use crate::volume::{NodeVolumes, TOPOLOGY_KEY, VolumeLocks};

/// The longest value of a label.
const LONGEST_NAME: usize = 63;
/// The wait after the UID of the cluster could not be read, doubled each time.
const RETRY: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(30));

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
    let (metrics, registry) = NodeMetrics::new(&settings.node)?;
    let calls = Calls::new(&registry, "node")?;
    let scrape = metrics.refresh();
    // Served from the start: a waiting agent is alive, and not ready.
    let web = http::serve(settings.http, readiness.clone(), registry, scrape, stop.clone());
    let web = tokio::spawn(web);
    let Some(role) = NodeRole::open(&settings, &stop).await? else { return Ok(()) };

    let (agent, disks) = (role.agent(settings.min_age), (&role.host, &role.pool));
    let (tell, health_changes) = mpsc::unbounded_channel();
    let health_changed = move |change| drop(tell.send(change));
    let mut agent = RunningAgent::start(agent, disks, &metrics, readiness.clone(), health_changed, &stop)?;

    let NodeRole { client, questions, host, pool, cluster: _, _lock: _ } = &role;
    let (locks, pool) = (VolumeLocks::default(), Arc::clone(pool));
    let (agent_handle, writes) = (agent.handle.clone(), metrics.writes());
    let (operator, inbox) =
        NodeOperator::new(client.clone(), questions.clone(), Arc::clone(&pool), agent_handle, locks.clone(), writes);
    let operator = operator.with_health(agent.board.clone(), agent.checkups.clone());
    let benchmarker = DiskBenchmarker::new(Arc::clone(host), Arc::clone(&pool), agent.board.clone());
    let operator = operator.with_benchmarker(benchmarker);
    let operator = tokio::spawn(operator.run(inbox, agent.passes.clone(), health_changes));
    let operator_handle = operator.abort_handle();
    agent.parts.add("the side of Kubernetes", operator);

    // kubelet immediately asks for what only the first scan can find out.
    let mut first = agent.passes.clone();
    tokio::select! {
        Ok(_) = first.wait_for(Option::is_some) => {}
        () = stop.cancelled() => {}
        why = agent.parts.end() => return Err(why),
    }
    let volumes = NodeVolumes::new(Arc::clone(host), pool, locks).with_health(agent.board.clone());
    let csi = services(&calls, readiness, volumes, settings.max_volumes);
    let served = sockets(&settings, csi, agent.service(), &stop)?;
    let web = async { web.await?.context("serving HTTP") };
    let ended = agent.parts.serve(&stop, async { tokio::try_join!(served, web).map(|_| ()) }).await;
    operator_handle.abort();
    agent.stop().await;
    ended
}

/// What the parts of this role share.
struct NodeRole {
    client: kube::Client,
    /// Of disks and of volumes.
    questions: Questions,
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
        let Some((state, lock)) = become_agent(state_dir, stop).await? else { return Ok(None) };
        let write = move || host_rules::install_all(udev_rules_dir.as_deref(), lvm_dir.as_deref());
        tokio::task::spawn_blocking(write).await.context("writing the rules of the host")?;
        let host = observer::machine_after(state, &lock);
        let client = operator::client().await?;
        let cluster = tokio::select! {
            cluster = cluster(&client, &host) => cluster?,
            () = stop.cancelled() => return Ok(None),
        };
        let questions = Questions::new(client.clone(), node.clone());
        let owner = Owner { cluster: cluster.clone(), node };
        let pool = Arc::new(Pool::open(Arc::clone(&host), owner, Workers::Threads)?);
        Ok(Some(Self { client, questions, host, pool, cluster, _lock: lock }))
    }

    /// The sets come from the API server; until then nothing is claimed, and everything that is here works.
    fn agent(&self, min_age: Duration) -> Reconciler {
        let Self { client, questions, host, pool, cluster, _lock: _ } = self;
        let (node, runtime) = (pool.owner().node.clone(), Handle::current());
        let agent = Reconciler::new(Arc::clone(host), Arc::clone(pool), min_age, Vec::new());
        let agent = agent.asking_for_volumes(ask_volumes(client.clone(), node, runtime.clone()));
        let ask = ask_promises(questions.clone(), runtime.clone());
        agent.asking_promises(of_this_cluster(client.clone(), cluster.clone(), runtime, ask))
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
    let mut backoff = RETRY;
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
    fn a_node_whose_name_is_too_long_for_its_label_is_refused_with_a_message() {
        assert!(check_name(&"n".repeat(63).into()).is_ok());
        let refused = check_name(&format!("{}.example", "n".repeat(63)).into()).expect_err("too long").to_string();
        assert!(refused.contains("71 characters") && refused.contains("topology.localpool.dev/node"), "{refused}");
    }
}
