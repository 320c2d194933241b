//! An etcd and an API server for tests alone: on a socket and a port of their own, in a folder of their own. No kubelet,
//! no controllers, no root.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Running, free_address, run, text};

/// The credentials of an administrator.
pub const TOKEN: &str = "of-these-tests-only";

/// Both processes. They end with this value, and with the thread that starts them, however that ends.
pub struct ControlPlane {
    folder: PathBuf,
    pub port: u16,
    /// etcd is the last to end.
    processes: Vec<Running>,
}

impl ControlPlane {
    /// Starts both in a folder that exists; they are not ready yet.
    pub fn start(folder: &Path, etcd: &Path, apiserver: &Path) -> Self {
        let port = free_address().port();
        let mut plane = Self { folder: folder.to_owned(), port, processes: Vec::new() };
        plane.run(etcd, &plane.etcd_arguments());
        fs::write(plane.file("tokens.csv"), format!("{TOKEN},admin,admin,\"system:masters\"\n")).unwrap();
        let key = plane.file("accounts.key");
        run("openssl", &["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key]);
        plane.run(apiserver, &plane.apiserver_arguments());
        plane
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
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
        text(&self.folder.join(name)).to_owned()
    }

    fn log_of(&self, program: &Path) -> PathBuf {
        self.folder.join(program.file_name().unwrap()).with_extension("log")
    }

    fn run(&mut self, program: &Path, args: &[String]) {
        let log = File::create(self.log_of(program)).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(args).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.processes.insert(0, Running(command.spawn().expect("setpriv of util-linux starts it")));
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
            format!("--secure-port={}", self.port),
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
