//! A real apiserver with its etcd, for tests that ask what it refuses. No kubelet, no controllers, no root; in its own
//! folder. All of it goes with the value, and with the process of the tests, however that ends.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use localpool_testing::apiserver::{ControlPlane, TOKEN};
use localpool_testing::{Folder, eventually};

use super::helm::built;

/// How long anything may take, on a machine that does other work.
pub const TIMEOUT: Duration = Duration::from_secs(180);

pub struct ApiServer {
    plane: ControlPlane,
    kubectl: PathBuf,
}

/// The outcome of a request.
#[derive(Debug)]
pub struct Answer {
    pub taken: bool,
    pub output: String,
}

impl From<Output> for Answer {
    fn from(done: Output) -> Self {
        let output = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        Self { taken: done.status.success(), output }
    }
}

impl ApiServer {
    /// `None` if the programs are not built, with a line that says so.
    pub fn start() -> Option<Self> {
        let (etcd, apiserver, kubectl) = (built("etcd")?, built("kube-apiserver")?, built("kubectl")?);
        let plane = ControlPlane::start(Folder::new("localpool-chart-"), &etcd, &apiserver);
        let server = Self { plane, kubectl };
        let is_ready = || server.kubectl(TOKEN, &["get", "--raw=/readyz"], "").taken;
        assert!(eventually(TIMEOUT, is_ready), "the apiserver is not ready; {}", server.plane.log(&apiserver));
        Some(server)
    }

    /// A kubeconfig for the holder of a token.
    pub fn kubeconfig(&self, token: &str) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = self.plane.folder().join(format!("config-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": self.plane.url(), "certificate-authority": self.plane.certificate()}}],
            "users": [{"name": "it", "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        fs::write(&path, config.to_string()).unwrap();
        path
    }

    pub fn kubectl(&self, token: &str, args: &[&str], input: &str) -> Answer {
        let mut child = Command::new(&self.kubectl)
            .env_clear()
            .env("HOME", self.plane.folder())
            .args([
                "--kubeconfig=/dev/null",
                "--insecure-skip-tls-verify",
                "--server",
                &self.plane.url(),
                "--token",
                token,
            ])
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
        let answer = self.kubectl(TOKEN, args, input);
        assert!(answer.taken, "kubectl {args:?}: {}", answer.output);
        answer.output
    }

    /// As the administrator, whatever the outcome.
    pub fn try_as_admin(&self, args: &[&str], input: &str) -> Answer {
        self.kubectl(TOKEN, args, input)
    }
}
