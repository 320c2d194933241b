//! An identity for the sidecars of the controller: the files that a Kubernetes client looks for, for another
//! ServiceAccount, in a folder that the sidecars mount.
//!
//! With it neither sidecar can write a PoolVolume, though they share the controller's pod. They can only ask for what
//! their sockets serve: the resizer for growth, the provisioner for everything but the deletion of a volume that a
//! claim has.

#![allow(clippy::disallowed_methods, reason = "wiring: the files are this module's one effect")]

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::device::signed;
use crate::host::Backoff;

/// Where a pod finds its own identity.
pub const OWN_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// How long a token is valid; it is renewed after two thirds of that.
const LIFE: Duration = Duration::from_secs(3600);
/// The shortest time between two token requests, whatever lifetime the API server gives.
const LEAST: Duration = Duration::from_secs(30);
/// The wait after a failure: the first one, and the longest.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// The account of the identity, and the folder for its files.
#[derive(Clone, Debug)]
pub struct Sidecar {
    pub account: String,
    pub folder: PathBuf,
}

/// Writes the files; returns how long they are valid.
async fn write(client: &Client, namespace: &str, sidecar: &Sidecar) -> Result<Duration> {
    let Sidecar { account, folder } = sidecar;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let seconds = signed(LIFE.as_secs());
    let spec = TokenRequestSpec { expiration_seconds: Some(seconds), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let answer = answer.with_context(|| format!("asking for a token of ServiceAccount {namespace}/{account}"))?;
    let status = answer.status.context("the API server answered without a token")?;
    let ca = Path::new(OWN_FOLDER).join("ca.crt");
    match fs::read(&ca) {
        Ok(bytes) => put(folder, "ca.crt", &bytes)?,
        // Outside a cluster there is none to copy; whoever mounts the folder has another.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("reading {}", ca.display())),
    }
    put(folder, "namespace", namespace.as_bytes())?;
    put(folder, "token", status.token.as_bytes())?;
    let remaining = status.expiration_timestamp.0.duration_since(jiff::Timestamp::now());
    Ok(Duration::try_from(remaining).unwrap_or_default())
}

/// A reader sees the old file or the new one, never half of it.
fn put(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let (path, aside) = (folder.join(name), folder.join(format!(".{name}")));
    let write = || {
        fs::create_dir_all(folder)?;
        fs::write(&aside, bytes)?;
        fs::set_permissions(&aside, Permissions::from_mode(0o644))?;
        fs::rename(&aside, &path)
    };
    write().with_context(|| format!("writing {} (--sidecar-token-dir)", path.display()))
}

/// Writes the files for the first time, however long that takes; returns how long they are valid.
pub async fn begin(client: &Client, namespace: &str, sidecar: &Sidecar) -> Duration {
    let (mut backoff, mut logged) = (RETRY, String::new());
    loop {
        match write(client, namespace, sidecar).await {
            Ok(life) => {
                if !logged.is_empty() {
                    tracing::info!("the sidecars have a valid token again");
                }
                return life;
            }
            Err(error) => {
                let message = format!("{error:#}");
                if message != logged {
                    tracing::warn!("the sidecars have no new token yet; trying again: {message}");
                    logged = message;
                }
            }
        }
        tokio::time::sleep(backoff.wait()).await;
    }
}

/// Keeps the files fresh for ever.
pub async fn keep(client: Client, namespace: String, sidecar: Sidecar, mut life: Duration) {
    loop {
        tokio::time::sleep((life * 2 / 3).max(LEAST)).await;
        life = begin(&client, &namespace, &sidecar).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_everybody_may_read_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let folder = dir.path().join("token");
        put(&folder, "token", b"one").expect("written");
        put(&folder, "token", b"two").expect("replaced");
        let path = folder.join("token");
        assert_eq!(fs::read(&path).expect("readable"), b"two");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(&folder).expect("readable").count(), 1, "nothing is left aside");
    }
}
