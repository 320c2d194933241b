//! An etcd and an API server for the tests alone: on a socket and a port of their own, in a folder of their own. What
//! tests share stays until their process ends, as between two that use it there may be others. All of it goes with that
//! process, however it ends.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use localpool::operator::crds::{self, Ownership};
use localpool_testing::apiserver::{ControlPlane, TOKEN};
use localpool_testing::{Folder, found_async, skipped};

const PROGRAM: &str = "LOCALPOOL_CLUSTER_BIN";
pub const FOLDER: &str = "localpool-apiserver-";
const START: Duration = Duration::from_secs(180);

pub struct Server {
    plane: ControlPlane,
}

static SHARED: OnceLock<Arc<Server>> = OnceLock::new();
/// The servers of the tests that run alone: the leader writes to all objects, those of other tests too.
static LONE: Mutex<Lone> = Mutex::new(Lone { idle: Vec::new(), taken: 0 });
static LONE_IS_FREE: Condvar = Condvar::new();
const LONE_AT_MOST: usize = 3;

struct Lone {
    idle: Vec<Arc<Server>>,
    taken: usize,
}

/// The right of one test to one of these servers.
struct Turn {
    server: Option<Arc<Server>>,
}

/// Gets a cluster for a test, or ends the test if there is no program for one.
#[macro_export]
macro_rules! cluster {
    ($make:ident) => {
        match $crate::server::$make().await {
            Some(cluster) => cluster,
            None => return,
        }
    };
}

/// A server, and a client of it.
pub struct Cluster {
    pub client: Client,
    pub server: Arc<Server>,
    _turn: Option<Turn>,
}

/// A cluster that other tests use at the same time.
pub async fn shared() -> Option<Cluster> {
    let program = program()?;
    let server = SHARED.get_or_init(|| Arc::new(Server::start(&program)));
    Some(with(Arc::clone(server), None).await)
}

/// One that no other test uses at the same time.
pub async fn alone() -> Option<Cluster> {
    let turn = Turn::take(&program()?);
    let server = turn.server.clone().expect("it was taken");
    Some(with(server, Some(turn)).await)
}

/// A fresh cluster, which does not know our kinds of objects.
pub async fn fresh() -> Option<Cluster> {
    let program = program()?;
    let server = Arc::new(Server::start(&program));
    let client = server.client().await;
    ready(&client).await;
    Some(Cluster { client, server, _turn: None })
}

async fn with(server: Arc<Server>, turn: Option<Turn>) -> Cluster {
    let client = server.client().await;
    ready(&client).await;
    crds::apply(client.clone(), Ownership::Respect).await.expect("the CRDs are served");
    Cluster { client, server, _turn: turn }
}

impl Turn {
    fn take(program: &Path) -> Self {
        let lone = LONE.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |lone: &mut Lone| lone.idle.is_empty() && lone.taken == LONE_AT_MOST;
        let mut lone = LONE_IS_FREE.wait_while(lone, full).unwrap_or_else(PoisonError::into_inner);
        lone.taken += 1;
        let idle = lone.idle.pop();
        drop(lone);
        let mut turn = Self { server: idle };
        turn.server.get_or_insert_with(|| Arc::new(Server::start(program)));
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lone = LONE.lock().unwrap_or_else(PoisonError::into_inner);
        lone.taken -= 1;
        lone.idle.extend(self.server.take());
        drop(lone);
        LONE_IS_FREE.notify_one();
    }
}

pub fn program() -> Option<PathBuf> {
    let program = std::env::var_os(PROGRAM).map(PathBuf::from);
    if program.is_none() {
        skipped(&format!("needs an API server: {PROGRAM}=target/cluster/bin/localpool-cluster (make cluster-up)"));
    }
    program
}

async fn ready(client: &Client) {
    let poll = async || {
        let request = axum::http::Request::get("/readyz").body(Vec::new()).expect("a request");
        client.request_text(request).await
    };
    let answer = found_async(START, Duration::from_millis(200), poll).await;
    answer.unwrap_or_else(|error| panic!("the API server is not ready: {error}"));
}

impl Server {
    /// It is not ready yet.
    pub fn start(program: &Path) -> Self {
        let program = fs::canonicalize(program).expect("LOCALPOOL_CLUSTER_BIN is a file");
        let folder = Folder::new(FOLDER);
        let [etcd, apiserver] = ["etcd", "kube-apiserver"].map(|name| folder.path().join(name));
        for link in [&etcd, &apiserver] {
            symlink(&program, link).expect("a link");
        }
        Self { plane: ControlPlane::start(folder, &etcd, &apiserver) }
    }

    pub async fn client(&self) -> Client {
        Client::try_from(self.config().await).expect("a client")
    }

    /// One that sends each request once.
    pub async fn client_without_repetition(&self) -> Client {
        let mut config = self.config().await;
        config.default_retry = false;
        Client::try_from(config).expect("a client")
    }

    async fn config(&self) -> Config {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).expect("ours");
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("ours")
    }

    pub fn url(&self) -> String {
        self.plane.url()
    }

    /// The file of an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig_with(&format!("token: {TOKEN}"))
    }

    /// The file of a user with these credentials.
    pub fn kubeconfig_with(&self, proof: &str) -> PathBuf {
        let name: String = proof.chars().filter(char::is_ascii_alphanumeric).collect();
        let path = self.plane.folder().join(format!("kubeconfig-{name}"));
        if !path.is_file() {
            let url = self.url();
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
                 clusters: [{{name: it, cluster: {{server: '{url}', insecure-skip-tls-verify: true}}}}]\n\
                 users: [{{name: it, user: {{{proof}}}}}]\n\
                 contexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n"
            );
            // Whole or not at all: other tests read it, too.
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let aside = self.plane.folder().join(format!("kubeconfig-new-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
            fs::write(&aside, text).expect("the folder is ours");
            fs::rename(&aside, &path).expect("the folder is ours");
        }
        path
    }

    /// The credentials of an administrator.
    pub fn token(&self) -> &'static str {
        TOKEN
    }

    /// A path for one test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.plane.folder().join(name)
    }
}
