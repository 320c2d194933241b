//! An etcd and an API server for the tests alone: on a socket and a port of their own, in a folder of their own. All of
//! it is removed with the last test that uses it, and with the test process, however that ends.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use localpool::operator::crds::{self, Ownership};
use localpool_testing::apiserver::{ControlPlane, TOKEN};
use localpool_testing::{found_async, skipped};

const PROGRAM: &str = "LOCALPOOL_CLUSTER_BIN";
const FOLDER: &str = "localpool-apiserver-";
const START: Duration = Duration::from_secs(90);

pub struct Server {
    folder: PathBuf,
    port: u16,
    /// Ends the processes when it is dropped.
    stop: Option<mpsc::Sender<()>>,
    agent_handle: Option<JoinHandle<()>>,
}

static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
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
    let server = {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Server::start(&program));
            *shared = Arc::downgrade(&server);
            server
        })
    };
    Some(with(server, None).await)
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
        // The last one: nobody else is there to end them.
        let ended = if lone.taken == 0 { std::mem::take(&mut lone.idle) } else { Vec::new() };
        drop(lone);
        LONE_IS_FREE.notify_one();
        drop(ended);
    }
}

fn program() -> Option<PathBuf> {
    let program = std::env::var_os(PROGRAM).map(PathBuf::from);
    if program.is_none() {
        skipped(&format!("needs an API server: {PROGRAM}=target/cluster/bin/localpool-cluster (make cluster-up)"));
    }
    program
}

async fn ready(client: &Client) {
    let look = async || {
        let request = axum::http::Request::get("/readyz").body(Vec::new()).expect("a request");
        client.request_text(request).await
    };
    let answer = found_async(START, Duration::from_millis(200), look).await;
    answer.unwrap_or_else(|error| panic!("the API server is not ready: {error}"));
}

impl Server {
    fn start(program: &Path) -> Self {
        let base = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        sweep(&base);
        let prefix = format!("{FOLDER}{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(base).expect("a folder").keep();
        let program = fs::canonicalize(program).expect("LOCALPOOL_CLUSTER_BIN is a file");
        for name in ["etcd", "kube-apiserver"] {
            symlink(&program, folder.join(name)).expect("a link");
        }
        let (stop, stopped) = mpsc::channel();
        let (began, beginning) = mpsc::channel();
        // The kernel ends the processes with the thread that started them, so also if the tests are killed.
        let agent_handle = {
            let folder = folder.clone();
            std::thread::spawn(move || {
                let plane = ControlPlane::start(&folder, &folder.join("etcd"), &folder.join("kube-apiserver"));
                began.send(plane.port).expect("somebody waits");
                let _ = stopped.recv();
                drop(plane);
                fs::remove_dir_all(&folder).expect("the folder is ours");
            })
        };
        let port = beginning.recv().expect("etcd and the API server start");
        Self { folder, port, stop: Some(stop), agent_handle: Some(agent_handle) }
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

    /// The file of an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig_with(&format!("token: {TOKEN}"))
    }

    /// The file of a user with these credentials.
    pub fn kubeconfig_with(&self, proof: &str) -> PathBuf {
        let name: String = proof.chars().filter(char::is_ascii_alphanumeric).collect();
        let path = self.folder.join(format!("kubeconfig-{name}"));
        if !path.is_file() {
            let port = self.port;
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
                 clusters: [{{name: it, cluster: {{server: 'https://127.0.0.1:{port}', insecure-skip-tls-verify: true}}}}]\n\
                 users: [{{name: it, user: {{{proof}}}}}]\n\
                 contexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n"
            );
            // Whole or not at all: other tests read it, too.
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let aside = self.folder.join(format!("kubeconfig-new-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
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
        self.folder.join(name)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(agent_handle) = self.agent_handle.take() {
            let ended = agent_handle.join();
            assert!(ended.is_ok() || std::thread::panicking(), "etcd and the API server did not end");
        }
    }
}

/// Removes what killed tests left behind.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).expect("readable").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(FOLDER) else { continue };
        let process = rest.split('-').next().unwrap_or_default().to_owned();
        if !Path::new("/proc").join(&process).exists() && !process.is_empty() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
