//! A real apiserver with its etcd, for a test that asks what it refuses. No kubelet, no controllers, no root; in its
//! own folder, and removed with the value or with the thread that made it.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use localpool_testing::apiserver::{ControlPlane, TOKEN};
use localpool_testing::eventually;
use tempfile::TempDir;

use super::helm::built;

const PATIENCE: Duration = Duration::from_secs(90);

pub struct ApiServer {
    plane: ControlPlane,
    kubectl: PathBuf,
    dir: TempDir,
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
        let dir = tempfile::tempdir().unwrap();
        let plane = ControlPlane::start(dir.path(), &etcd, &apiserver);
        let server = Self { plane, kubectl, dir };
        let is_ready = || server.kubectl(TOKEN, &["get", "--raw=/readyz"], "").taken;
        assert!(eventually(PATIENCE, is_ready), "the apiserver is not ready; {}", server.plane.log(&apiserver));
        Some(server)
    }

    /// A kubeconfig for the holder of a token.
    pub fn kubeconfig(&self, token: &str) -> PathBuf {
        let path = self.dir.path().join(format!("config-{}", token.len()));
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
            .env("HOME", self.dir.path())
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
