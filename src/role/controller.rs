//! The role `controller`: CSI's Controller for the provisioner and the resizer on every replica, and the controllers of
//! the cluster's objects on the replica that holds the lease. Wires them, and stops them again.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::parts::Parts;
use super::registry::registry;
use super::sidecar::{self, Sidecar};
use super::{LogFormat, http, log_to_stderr, status_page};
use crate::operator::{
    Lease,
    controller::{
        AgentPods, Answerer, BenchmarkRecorder, DaemonTemplate, DeletedNodePolicy, Discoveries, DiskSetupSettings,
        Leader, LeaderStores, Metrics, Monitor, PodCommands, ReactionSettings, Reactor, ReservePolicy, StartupTaint,
        Stores,
    },
    lease,
    overview::StatusPage,
};
use crate::rpc::{
    Calls, ControllerService, ExpansionService, IdentityService, Readiness,
    proto::{controller_server::ControllerServer, identity_server::IdentityServer},
    server,
};

/// The settings of the role.
#[derive(Clone, Debug)]
pub struct ControllerSettings {
    pub namespace: String,
    pub pod_name: String,
    pub socket: PathBuf,
    /// The socket that serves expansion only.
    pub resizer_socket: Option<PathBuf>,
    pub http: SocketAddr,
    /// Where the status page is served; `None`: nowhere.
    pub status_page: Option<SocketAddr>,
    pub lease: String,
    /// Finds the pods of the agents in this namespace.
    pub agent_pods: String,
    pub deleted_node_volumes: DeletedNodePolicy,
    pub reserve_marked: bool,
    pub remove_startup_taint: bool,
    pub reaction: ReactionSettings,
    pub disk_setups: DiskSetupSettings,
    /// Where commands of NodeDiskSetups may run in pods.
    pub exec_namespaces: Vec<String>,
    pub sidecar: Option<Sidecar>,
    /// The DaemonSet that a LocalVolumeDiscovery runs.
    pub discovery: Option<DaemonTemplate>,
    pub log: LogFormat,
}

/// Runs until SIGTERM or SIGINT.
pub fn run(settings: ControllerSettings) -> Result<()> {
    log_to_stderr(settings.log);
    super::run(|stop| work(settings, stop))
}

/// Runs all parts, each until `stop`.
async fn work(settings: ControllerSettings, stop: CancellationToken) -> Result<()> {
    let client = crate::operator::client().await?;
    let once = crate::operator::client_without_repetition().await?;
    let mut watches = JoinSet::new();
    let stores = Stores::default();
    stores.watch(&client, &mut watches);
    let page = settings.status_page.map(|address| (address, StatusPage::new(stores.clone(), &settings.pod_name)));
    if let Some((_, page)) = &page {
        watches.spawn(page.pods().clone().keep(client.clone()));
    }
    let mut parts = Parts::default();
    parts.add_all("a watch", watches);

    let registry = registry(&[])?;
    let metrics = Metrics::new(&registry)?;
    let calls = Calls::new(&registry, "controller")?;
    let readiness = Readiness::default();
    let refresh = {
        let (metrics, stores) = (metrics.clone(), stores.clone());
        Arc::new(move || metrics.refresh(&stores))
    };
    let page = page.map(|(address, page)| status_page::serve(address, page, stop.clone()));
    let web = http::serve(settings.http, readiness.clone(), registry, refresh, stop.clone());
    let role = ControllerRole { settings, client, once, stores, readiness, stop: stop.clone() };
    let served = async {
        let web = async { web.await.context("serving HTTP") };
        let page = async {
            match page {
                Some(page) => page.await.context("serving the status page"),
                None => Ok(()),
            }
        };
        let lead = async {
            role.lead(&metrics).await;
            Ok(())
        };
        tokio::try_join!(role.serve_csi(&calls), web, page, lead).map(|_| ())
    };
    parts.serve(&stop, served).await
}

/// What the parts of this role share.
struct ControllerRole {
    settings: ControllerSettings,
    client: kube::Client,
    /// It sends each request once.
    once: kube::Client,
    stores: Stores,
    readiness: Readiness,
    stop: CancellationToken,
}

impl ControllerRole {
    /// Serves the provisioner and the resizer, once they have an identity.
    async fn serve_csi(&self, calls: &Calls) -> Result<()> {
        let Self { settings, client, once: _, stores, readiness, stop } = self;
        let mut own = Parts::default();
        if let Some(sidecar) = &settings.sidecar {
            let life = tokio::select! {
                life = sidecar::begin(client, &settings.namespace, sidecar) => life,
                () = stop.cancelled() => return Ok(()),
            };
            let kept = sidecar::keep(client.clone(), settings.namespace.clone(), sidecar.clone(), life);
            own.add("the identity of the sidecars", tokio::spawn(kept));
        }
        // The socket is the sign for the sidecars that they can start.
        let listener = server::bind(&settings.socket)?;
        let resizer = settings.resizer_socket.as_deref().map(server::bind).transpose()?;
        own.add("readiness", tokio::spawn(keep_readiness(stores.clone(), readiness.clone())));
        let volumes = stores.volumes(client.clone());
        let identity = || Routes::new(IdentityServer::new(IdentityService::new(readiness.clone())));
        let all = identity().add_service(ControllerServer::new(ControllerService::new(volumes.clone())));
        let growth = identity().add_service(ControllerServer::new(ExpansionService::new(volumes)));
        tracing::info!(socket = %settings.socket.display(), "serving CSI");
        let all = server::serve(listener, calls.around(all), stop.clone().cancelled_owned());
        let growth = async {
            match resizer {
                Some(listener) => server::serve(listener, calls.around(growth), stop.clone().cancelled_owned()).await,
                None => Ok(()),
            }
        };
        tokio::select! {
            served = async { tokio::try_join!(all, growth) } => served.map(|_| ()).context("serving CSI"),
            why = own.end() => Err(why),
        }
    }

    /// Competes for the lease, and leads while this replica has it.
    async fn lead(&self, metrics: &Metrics) {
        let Self { settings, client, once, stores, readiness: _, stop } = self;
        let ControllerSettings {
            namespace,
            pod_name,
            lease,
            agent_pods,
            deleted_node_volumes: gone,
            reserve_marked,
            remove_startup_taint,
            reaction,
            disk_setups,
            exec_namespaces,
            discovery,
            ..
        } = settings;
        let startup_taint = if *remove_startup_taint { StartupTaint::Removed } else { StartupTaint::Stays };
        let reserve = if *reserve_marked { ReservePolicy::In(namespace.as_str().into()) } else { ReservePolicy::Never };
        let (leads, leading) = watch::channel(false);
        let lease = Lease { namespace: namespace.clone(), name: lease.clone(), identity: pod_name.clone() };
        let leader = async || {
            let own = LeaderStores::watch(client);
            let agents = AgentPods { namespace: namespace.clone(), selector: agent_pods.clone() };
            let LeaderStores { volumes, classes, .. } = &own;
            let leader =
                Leader::new(client.clone(), stores.clone(), classes.clone(), metrics.clone(), agents, *gone, pod_name)
                    .with_startup_taint(startup_taint);
            let template = discovery.clone();
            let discoveries = Discoveries::new(client.clone(), stores, metrics.clone(), namespace, template, pod_name);
            let monitor = Monitor::new(
                client.clone(),
                stores.clone(),
                volumes.clone(),
                metrics.clone(),
                reserve.clone(),
                pod_name,
            );
            let settings = reaction.clone();
            let reactor =
                Reactor::new(once.clone(), stores.clone(), own.clone(), metrics.clone(), settings, lease.clone());
            let answerer = Answerer::new(client.clone(), stores.clone(), metrics.clone());
            let commands = PodCommands::new(client.clone(), exec_namespaces.iter().cloned());
            let recorder =
                BenchmarkRecorder::new(client.clone(), namespace, stores.clone(), volumes.clone(), metrics.clone())
                    .with_commands(commands);
            let record = async {
                recorder.run(*disk_setups).await;
            };
            tokio::join!(leader.run(), discoveries.run(), monitor.run(), answerer.run(), reactor.run(), record);
        };
        tokio::select! {
            () = lease::hold(client.clone(), lease.clone(), leads, stop.clone().cancelled_owned()) => {}
            () = follow(leading, metrics, leader) => {}
        }
    }
}

/// Runs the leader whenever this replica is the leader, for ever.
async fn follow(mut leads: watch::Receiver<bool>, metrics: &Metrics, leader: impl AsyncFn()) {
    loop {
        let leading = *leads.borrow_and_update();
        metrics.leader.set(i64::from(leading));
        let changed = async {
            if leads.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        if leading {
            tracing::info!("this replica is the leader");
            tokio::select! {
                () = leader() => {}
                () = changed => tracing::info!("this replica is not the leader any more"),
            }
        } else {
            changed.await;
        }
    }
}

/// Keeps the readiness in step with whether calls can be answered.
async fn keep_readiness(stores: Stores, readiness: Readiness) {
    let mut changes = stores.changes();
    loop {
        let ready = stores.are_synced();
        if ready != readiness.is_ready() {
            match ready {
                true => readiness.set_ready(),
                false => readiness.set_not_ready(),
            }
            tracing::info!("{}", if ready { "ready" } else { "not ready: not all kinds of objects can be read" });
        }
        changes.next().await;
    }
}
