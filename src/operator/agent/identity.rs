//! Whether the API server belongs to the cluster whose name the agent writes on disks.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};
use tokio::runtime::Handle;

use crate::claim::{AskPromises, NoAnswer};
use crate::operator::api_server::error::OperatorError;

/// The document of the state directory that keeps the cluster's UID, for starts without the API server.
pub const CLUSTER_FILE: &str = "cluster";
/// How long the API server may take to answer which cluster it serves.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(30);

/// The UID that identifies a cluster: that of its `kube-system` namespace.
pub async fn cluster_uid(client: Client) -> Result<String, OperatorError> {
    let namespaces: Api<Namespace> = Api::all(client);
    let what = "reading the namespace kube-system, whose UID names the cluster on its disks";
    let system = namespaces.get("kube-system").await.map_err(OperatorError::api(what))?;
    system.uid().ok_or_else(|| OperatorError::Refused("the namespace kube-system has no UID".to_owned()))
}

/// The same question, for when the API server has proved to be that of this cluster: the state directory may have come
/// from another cluster with a machine, or with a copy of one.
pub fn of_this_cluster(client: Client, cluster: String, runtime: Handle, mut ask: AskPromises) -> AskPromises {
    let mut is_proved = false;
    Box::new(move || {
        if !is_proved {
            let now =
                runtime.block_on(async { tokio::time::timeout(CLUSTER_TIMEOUT, cluster_uid(client.clone())).await });
            let now = now.map_err(|_| NoAnswer::Late { within: CLUSTER_TIMEOUT })?;
            let now = now.map_err(OperatorError::no_answer)?;
            same_cluster(&cluster, &now).map_err(|other| NoAnswer::OtherCluster(Box::new(other)))?;
            is_proved = true;
        }
        ask()
    })
}

/// The API server belongs to another cluster than this node.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "they are of another cluster: the file `{CLUSTER_FILE}` in the state directory of this node names {written}, but \
     the API server belongs to cluster {now}. If this machine belongs to that cluster now: run `localpool state \
     set-aside cluster` in the agent's pod, then delete that pod; after that, disks of the old cluster are not touched \
     until `localpool disk adopt`"
)]
struct OtherCluster {
    written: String,
    now: String,
}

fn same_cluster(written: &str, now: &str) -> Result<(), OtherCluster> {
    if written == now {
        return Ok(());
    }
    Err(OtherCluster { written: written.to_owned(), now: now.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_server_of_another_cluster_than_the_state_directory_says_is_refused_with_a_message() {
        assert_eq!(same_cluster("uid-1", "uid-1"), Ok(()));
        let why = same_cluster("uid-1", "uid-2").expect_err("another cluster").to_string();
        for word in
            ["names uid-1", "belongs to cluster uid-2", "`localpool state set-aside cluster`", "`localpool disk adopt`"]
        {
            assert!(why.contains(word), "{why}");
        }
    }
}
