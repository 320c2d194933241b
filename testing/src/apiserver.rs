//! An etcd and an API server for tests alone: on a socket and a port of their own, in a folder of their own. No
//! kubelet, no controllers, no root.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::{Folder, Port, Running, run, text};

/// The credentials of an administrator.
pub const TOKEN: &str = "of-these-tests-only";

/// Starts a program only if the process that started it, whose number comes first, is still there: the kernel would not
/// end it with one that ended before it was told to.
const IF_WANTED: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;

/// Both processes and their folder. They go with this value, and with the process of the tests, however that ends.
pub struct ControlPlane {
    port: Port,
    /// The kernel ends the processes with the thread that started them. That of a test ends before other tests are done
    /// with them.
    keeper: Option<JoinHandle<()>>,
    stop: Option<mpsc::Sender<()>>,
    /// It goes last.
    folder: Folder,
}

impl ControlPlane {
    /// Starts both; they are not ready yet.
    pub fn start(folder: Folder, etcd: &Path, apiserver: &Path) -> Self {
        let (stop, stopped) = mpsc::channel();
        let mut plane = Self { port: Port::take(), keeper: None, stop: Some(stop), folder };
        let key = plane.file("accounts.key");
        fs::write(plane.file("tokens.csv"), format!("{TOKEN},admin,admin,\"system:masters\"\n")).unwrap();
        run("openssl", &["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key]);
        let etcd = plane.command(etcd, &plane.etcd_arguments());
        let apiserver = plane.command(apiserver, &plane.apiserver_arguments());
        let (began, beginning) = mpsc::channel();
        plane.keeper = Some(std::thread::spawn(move || {
            let start = |mut command: Command| Running(command.spawn().expect("setpriv of util-linux starts it"));
            let etcd = start(etcd);
            let apiserver = start(apiserver);
            began.send(()).expect("somebody waits");
            let _ = stopped.recv();
            // etcd is the last to end.
            drop(apiserver);
            drop(etcd);
        }));
        beginning.recv().expect("etcd and the API server start");
        plane
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port.number())
    }

    /// The certificate of the API server, which it signs itself.
    pub fn certificate(&self) -> String {
        self.file("certificates/apiserver.crt")
    }

    /// The last lines that a program wrote.
    pub fn log(&self, program: &Path) -> String {
        let text = fs::read_to_string(self.log_of(program)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn file(&self, name: &str) -> String {
        text(&self.folder().join(name)).to_owned()
    }

    fn log_of(&self, program: &Path) -> PathBuf {
        self.folder().join(program.file_name().unwrap()).with_extension("log")
    }

    fn command(&self, program: &Path, args: &[String]) -> Command {
        let log = File::create(self.log_of(program)).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "sh", "-c", IF_WANTED, &std::process::id().to_string()]);
        command.arg(program).args(args).current_dir(self.folder());
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command
    }

    fn etcd_arguments(&self) -> Vec<String> {
        let socket = self.socket();
        let nobody = "http://localhost:2380";
        vec![
            "--name=it".to_owned(),
            format!("--data-dir={}", self.file("data")),
            format!("--listen-client-urls={socket}"),
            format!("--advertise-client-urls={nobody}"),
            format!("--listen-peer-urls={socket}-peer"),
            format!("--initial-advertise-peer-urls={nobody}"),
            format!("--initial-cluster=it={nobody}"),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ]
    }

    fn apiserver_arguments(&self) -> Vec<String> {
        let key = self.file("accounts.key");
        vec![
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.port.number()),
            // With who keeps it free until then.
            "--permit-port-sharing".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--etcd-servers={}", self.socket()),
            format!("--cert-dir={}", self.file("certificates")),
            format!("--token-auth-file={}", self.file("tokens.csv")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={key}"),
            format!("--service-account-signing-key-file={key}"),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--allow-privileged".to_owned(),
            "--profiling=false".to_owned(),
        ]
    }

    /// A short name, as a socket's path holds 107 bytes.
    fn socket(&self) -> String {
        format!("unix://{}", self.file("e"))
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(keeper) = self.keeper.take() {
            let ended = keeper.join();
            assert!(ended.is_ok() || std::thread::panicking(), "etcd and the API server did not end");
        }
    }
}
