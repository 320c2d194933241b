//! A real apiserver with its etcd, for a test that asks what it refuses. No kubelet, no controllers, no root; on its
//! own ports on loopback, in its own folder, and removed with the value or with the thread that made it.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::helm::built;

const ADMIN: &str = "the-token-of-the-administrator-of-this-test";
const PATIENCE: Duration = Duration::from_secs(90);

pub struct ApiServer {
    processes: Vec<Child>,
    kubectl: PathBuf,
    url: String,
    dir: TempDir,
}

/// The outcome of a request.
#[derive(Debug)]
pub struct Answer {
    pub taken: bool,
    pub said: String,
}

impl From<Output> for Answer {
    fn from(done: Output) -> Self {
        let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        Self { taken: done.status.success(), said }
    }
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

impl ApiServer {
    /// `None` if the programs are not built, with a line that says so.
    pub fn start() -> Option<Self> {
        let (etcd, apiserver, kubectl) = (built("etcd")?, built("kube-apiserver")?, built("kubectl")?);
        let dir = tempfile::tempdir().unwrap();
        let key = at(&dir, "key.pem");
        let made = Command::new("openssl").args(["genrsa", "-out", &key, "2048"]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        fs::write(at(&dir, "tokens"), format!("{ADMIN},admin,admin,system:masters\n")).unwrap();

        let (client, peer, secure) = (free_address(), free_address(), free_address());
        let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
        let (host, port) = secure.split_once(':').unwrap();
        let mut server = Self { processes: Vec::new(), kubectl, url: format!("https://{secure}"), dir };
        server.run(
            &etcd,
            &[
                &format!("--data-dir={}", at(&server.dir, "etcd")),
                &format!("--listen-client-urls={client}"),
                &format!("--advertise-client-urls={client}"),
                &format!("--listen-peer-urls={peer}"),
                &format!("--initial-advertise-peer-urls={peer}"),
                &format!("--initial-cluster=default={peer}"),
                "--unsafe-no-fsync",
            ],
        );
        server.run(
            &apiserver,
            &[
                &format!("--etcd-servers={client}"),
                &format!("--bind-address={host}"),
                &format!("--secure-port={port}"),
                &format!("--cert-dir={}", at(&server.dir, "certificates")),
                &format!("--service-account-key-file={key}"),
                &format!("--service-account-signing-key-file={key}"),
                "--service-account-issuer=https://kubernetes.default.svc",
                &format!("--token-auth-file={}", at(&server.dir, "tokens")),
                "--authorization-mode=RBAC",
                "--allow-privileged",
            ],
        );
        let begun = Instant::now();
        while !server.kubectl(ADMIN, &["get", "--raw=/readyz"], "").taken {
            assert!(begun.elapsed() < PATIENCE, "the apiserver is not ready; {}", server.log(&apiserver));
            std::thread::sleep(Duration::from_millis(200));
        }
        Some(server)
    }

    fn run(&mut self, program: &Path, args: &[&str]) {
        let log = fs::File::create(self.log_of(program)).unwrap();
        // It ends with this thread, even if the thread gets no chance to end it.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.processes.push(child);
    }

    fn log_of(&self, program: &Path) -> PathBuf {
        self.dir.path().join(program.file_name().unwrap()).with_extension("log")
    }

    fn log(&self, program: &Path) -> String {
        let text = fs::read_to_string(self.log_of(program)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// A kubeconfig for the holder of a token.
    pub fn kubeconfig(&self, token: &str) -> PathBuf {
        let path = self.dir.path().join(format!("config-{}", token.len()));
        let authority = self.dir.path().join("certificates/apiserver.crt");
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": self.url, "certificate-authority": authority}}],
            "users": [{"name": "it", "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        fs::write(&path, config.to_string()).unwrap();
        path
    }

    pub fn kubectl(&self, token: &str, args: &[&str], input: &str) -> Answer {
        let mut child = Command::new(&self.kubectl)
            .env_clear()
            .env("HOME", self.dir.path())
            .args(["--kubeconfig=/dev/null", "--insecure-skip-tls-verify", "--server", &self.url, "--token", token])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that does not read its input may have ended already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap().into()
    }

    /// As the administrator; it has to succeed.
    pub fn admin(&self, args: &[&str], input: &str) -> String {
        let answer = self.kubectl(ADMIN, args, input);
        assert!(answer.taken, "kubectl {args:?}: {}", answer.said);
        answer.said
    }

    /// As the administrator, whatever the outcome.
    pub fn try_as_admin(&self, args: &[&str], input: &str) -> Answer {
        self.kubectl(ADMIN, args, input)
    }
}

fn at(dir: &TempDir, file: &str) -> String {
    dir.path().join(file).to_str().unwrap().to_owned()
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        for child in self.processes.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
