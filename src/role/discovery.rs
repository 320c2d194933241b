//! The role `discovery`: reports all devices of one node to the cluster. It gets the inventory from the socket of the
//! node's agent, and looks at disks itself only if there is no agent.
//!
//! The start of an agent shows as the file_watch of its socket, its end as the end of the stream; there is no polling
//! in between.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{AGENT_SOCKET, LogFormat, log_to_stderr, observer};
use crate::agent::{Interest, observe};
use crate::device::{NodeName, Owner};
use crate::host::{DeviceEvents, FileWatch, HostError, Roots, StateDir, chain};
use crate::operator;
use crate::operator::{agent::cluster_uid, discovery::Reporter};
use crate::rpc::{client, proto::agent::WatchRequest};
use crate::show::{DeviceList, DeviceRow, devices::list};

/// How long an agent that ended may take to come back before the role looks at its disks itself.
const RESTART: Duration = Duration::from_secs(20);
/// The interval at which a wait for an agent's socket checks whether it is still wanted.
const ASK: Duration = Duration::from_secs(1);
/// How long an agent may take for its first reply.
const FIRST_REPLY: Duration = Duration::from_secs(60);
/// The wait after a stream that ended at once, and after the API server did not answer.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// The settings of the role.
#[derive(Clone, Debug)]
pub struct DiscoverySettings {
    pub node: NodeName,
    pub state_dir: PathBuf,
    pub namespace: String,
    pub resync: Duration,
    pub log: LogFormat,
}

type Found = watch::Sender<Option<Arc<Vec<DeviceRow>>>>;

/// Runs until SIGTERM or SIGINT, or until a failure that another try does not fix.
pub fn run(settings: DiscoverySettings) -> Result<()> {
    log_to_stderr(settings.log);
    super::run(|stop| serve(settings, stop))
}

async fn serve(settings: DiscoverySettings, stop: CancellationToken) -> Result<()> {
    let client = operator::client().await?;
    let DiscoverySettings { node, namespace, resync, .. } = settings.clone();
    let (found, rows) = watch::channel(None);
    let reporter = Reporter { client: client.clone(), namespace, node, resync };
    tokio::select! {
        ended = find(&settings, &client, &found) => ended,
        ended = reporter.run(rows) => ended.context("reporting to the cluster"),
        () = stop.cancelled() => Ok(()),
    }
}

/// Finds devices for ever, through the agent or without one.
async fn find(settings: &DiscoverySettings, client: &kube::Client, found: &Found) -> Result<()> {
    let socket = settings.state_dir.join(AGENT_SOCKET);
    let mut had_agent = false;
    loop {
        // Before the agent is asked, so that an agent that starts right after that is not missed.
        let file_watch = FileWatch::watch(&settings.state_dir, AGENT_SOCKET)?;
        match ask(&socket, found).await {
            AgentAnswer::Answered => {
                had_agent = true;
                continue;
            }
            AgentAnswer::NobodyThere => {}
        }
        if std::mem::take(&mut had_agent) {
            let back = AwaitedAgent::new(file_watch);
            let _ = tokio::time::timeout(RESTART, back.arrived()).await;
            continue;
        }
        tracing::info!("no agent answers on this node: reading the disks without one");
        scan_without_agent(settings, client, found, file_watch).await?;
    }
}

enum AgentAnswer {
    Answered,
    NobodyThere,
}

/// Takes the agent's inventory as long as the agent sends it.
async fn ask(socket: &std::path::Path, found: &Found) -> AgentAnswer {
    let Ok(mut agent) = client::agent(socket).await else { return AgentAnswer::NobodyThere };
    let mut stream = match agent.watch_inventory(WatchRequest {}).await {
        Ok(stream) => stream.into_inner(),
        Err(status) => {
            tracing::warn!(error = status.message(), "the agent of this node provides no inventory");
            return AgentAnswer::NobodyThere;
        }
    };
    let mut replies = 0_u64;
    loop {
        // Without a first reply the agent counts as absent; after it there may be nothing to report for days.
        let timeout = if replies == 0 { FIRST_REPLY } else { Duration::MAX };
        let Ok(message) = tokio::time::timeout(timeout, stream.message()).await else {
            tracing::warn!("the agent of this node answers, but does not report its devices");
            return AgentAnswer::NobodyThere;
        };
        let text = match message {
            Ok(Some(reply)) => match serde_json::from_str::<DeviceList>(&reply.text) {
                Ok(DeviceList { devices }) => {
                    if replies == 0 {
                        tracing::info!("the agent of this node reports its devices");
                    }
                    replies += 1;
                    found.send_replace(Some(Arc::new(devices)));
                    continue;
                }
                Err(error) => format!("its inventory cannot be read: {error}"),
            },
            Ok(None) => "it stopped".to_owned(),
            Err(status) => status.message().to_owned(),
        };
        tracing::info!("the agent of this node stopped reporting: {text}");
        if replies == 0 {
            tokio::time::sleep(RETRY_WAIT).await;
            return AgentAnswer::NobodyThere;
        }
        return AgentAnswer::Answered;
    }
}

/// Scans the disks again and again, until an agent comes.
async fn scan_without_agent(
    settings: &DiscoverySettings,
    client: &kube::Client,
    found: &Found,
    file_watch: FileWatch,
) -> Result<()> {
    let state = StateDir::at(&settings.state_dir);
    let cluster = match observer::known_cluster(&state)? {
        Some(cluster) => cluster,
        None => cluster(client).await?,
    };
    let owner = Owner { cluster, node: settings.node.clone() };
    let (ended, resync, found) = (Arc::new(AtomicBool::new(false)), settings.resync, found.clone());
    let scans = {
        let ended = Arc::clone(&ended);
        tokio::task::spawn_blocking(move || -> Result<()> {
            // Before the first scan, so that no later change is missed.
            let events = DeviceEvents::subscribe(&Roots::default()).context("subscribing to device events")?;
            let (mut agent, _pool) = observer::agent(observer::machine(state), owner)?;
            let wanted = || match ended.load(Ordering::Relaxed) {
                true => Interest::NoMore,
                false => Interest::Still,
            };
            let publish = |shown: Vec<_>| drop(found.send_replace(Some(Arc::new(list(&shown).devices))));
            Ok(observe(&mut agent, &events, resync, publish, wanted)?)
        })
    };
    tokio::pin!(scans);
    let until = AwaitedAgent::new(file_watch);
    tokio::select! {
        ended = &mut scans => return ended?.context("reading the disks of this node"),
        () = until.arrived() => {}
    }
    ended.store(true, Ordering::Relaxed);
    scans.await?.context("reading the disks of this node")
}

/// The UID of the cluster, by which disks of other clusters are recognised.
async fn cluster(client: &kube::Client) -> Result<String> {
    loop {
        match cluster_uid(client.clone()).await {
            Err(error) if error.code().is_none_or(|code| code >= 500) => {
                tracing::warn!(error = operator::error_message(&error), "trying again");
                tokio::time::sleep(RETRY_WAIT).await;
            }
            answer => return Ok(answer?),
        }
    }
}

/// A wait for an agent's socket, which ends when this is dropped.
struct AwaitedAgent {
    file_watch: Arc<FileWatch>,
    unwanted: Arc<AtomicBool>,
}

impl AwaitedAgent {
    fn new(file_watch: FileWatch) -> Self {
        Self { file_watch: Arc::new(file_watch), unwanted: Arc::default() }
    }

    async fn arrived(&self) {
        let (file_watch, unwanted) = (Arc::clone(&self.file_watch), Arc::clone(&self.unwanted));
        let waited = tokio::task::spawn_blocking(move || {
            while !unwanted.load(Ordering::Relaxed) && !file_watch.within(ASK)? {}
            Ok::<_, HostError>(())
        });
        if let Ok(Err(error)) = waited.await {
            tracing::warn!(error = %chain(&error), "the start of an agent cannot be noticed; trying to reach one from \
                                                    time to time");
            tokio::time::sleep(RESTART).await;
        }
    }
}

impl Drop for AwaitedAgent {
    fn drop(&mut self) {
        self.unwanted.store(true, Ordering::Relaxed);
    }
}
