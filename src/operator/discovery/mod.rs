//! Discovery's side of Kubernetes: keeps the LocalVolumeDiscoveryResult of one node in step with its devices.
//!
//! Takes in rows of devices, however they were found; writes only when they differ from the object.

pub mod controller;
mod result;

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;

use crate::api::crd::{DiscoveryResultStatus, LocalVolumeDiscoveryResult};
use crate::device::NodeName;
use crate::host::Backoff;
use crate::operator::api_server::client;
use crate::operator::api_server::error::{OperatorError, error_message};
use crate::show::DeviceRow;

/// The name of a node's result.
pub use self::result::name as result_name;

/// The field manager of results.
const MANAGER: &str = "localpool-discovery";
/// The shortest time between two writes: a disk may come and go all the time.
const BETWEEN: Duration = Duration::from_millis(500);
/// The wait after a failed write: the first one, and the longest.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// How many times the API server may refuse a write before the process ends, so that everybody sees it.
const REFUSALS: u32 = 5;

/// Which object, and how often it is compared with what is found, in case somebody changed it.
#[derive(Clone)]
pub struct Reporter {
    pub client: Client,
    pub namespace: String,
    pub node: NodeName,
    pub resync: Duration,
}

/// What is known of the object before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResultState {
    /// It was there and had the status that was written last: it is not read again.
    WasThere,
    NotKnown,
}

impl Reporter {
    fn api(&self) -> Api<LocalVolumeDiscoveryResult> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Writes until the rows end. Returns only an error that another try does not fix.
    pub async fn run(self, mut rows: watch::Receiver<Option<Arc<Vec<DeviceRow>>>>) -> Result<(), OperatorError> {
        let mut written: Option<DiscoveryResultStatus> = None;
        let (mut backoff, mut refusals) = (RETRY, 0);
        let mut retry_in = None;
        let mut read_at = tokio::time::Instant::now();
        loop {
            let due = retry_in.map_or(read_at + self.resync, |wait| tokio::time::Instant::now() + wait);
            tokio::select! {
                changed = rows.changed() => if changed.is_err() { return Ok(()) },
                () = tokio::time::sleep_until(due) => {
                    written = None;
                    read_at = tokio::time::Instant::now();
                }
            }
            let Some(found) = rows.borrow_and_update().clone() else { continue };
            let status = result::status(&found);
            if written.as_ref().is_some_and(|written| result::same(written, &status)) {
                retry_in = None;
                continue;
            }
            let object = if written.is_some() { ResultState::WasThere } else { ResultState::NotKnown };
            match self.report(status, object).await {
                Ok(status) => {
                    (written, retry_in, refusals) = (Some(status), None, 0);
                    backoff.reset();
                }
                Err(error) => {
                    refusals = if matches!(error.code(), Some(400 | 403 | 422)) { refusals + 1 } else { 0 };
                    if refusals == REFUSALS {
                        return Err(error);
                    }
                    tracing::warn!(error = error_message(&error), "the result is not up to date; trying again");
                    // The object as it is now is read first.
                    (written, retry_in) = (None, Some(backoff.wait()));
                }
            }
            tokio::time::sleep(BETWEEN).await;
        }
    }

    /// Gives the object this status; returns the status with its time.
    async fn report(
        &self,
        status: DiscoveryResultStatus,
        object: ResultState,
    ) -> Result<DiscoveryResultStatus, OperatorError> {
        if object == ResultState::NotKnown {
            let found = within("reading", &self.node, self.api().get_opt(&result::name(&self.node))).await?;
            match found {
                Some(found) if is_whole(&found, &self.node) => {
                    if let Some(before) = found.status.filter(|before| result::same(before, &status)) {
                        return Ok(before);
                    }
                }
                _ => self.make().await?,
            }
        }
        let discovered_time_stamp = format!("{:.0}", jiff::Timestamp::now());
        let status = DiscoveryResultStatus { discovered_time_stamp, ..status };
        match self.write(&status).await {
            // It was deleted by hand.
            Err(error) if object == ResultState::WasThere && error.is_not_found() => {
                self.make().await?;
                self.write(&status).await?;
            }
            written => written?,
        }
        tracing::info!(devices = status.device_count, available = status.available_count, "the result was written");
        Ok(status)
    }

    /// The object, without its status. It has no owner: it stays when discovery goes.
    async fn make(&self) -> Result<(), OperatorError> {
        let mut object = identity(&self.node);
        object["metadata"]["labels"] = json!(result::labels(&self.node));
        object["spec"] = json!({"nodeName": self.node});
        let (api, params) = (self.api(), PatchParams::apply(MANAGER).force());
        let (name, patch) = (result::name(&self.node), Patch::Apply(&object));
        within("making", &self.node, api.patch(&name, &params, &patch)).await.map(drop)
    }

    async fn write(&self, status: &DiscoveryResultStatus) -> Result<(), OperatorError> {
        let mut object = identity(&self.node);
        object["status"] = json!(status);
        let (api, params) = (self.api(), PatchParams::apply(MANAGER).force());
        let (name, patch) = (result::name(&self.node), Patch::Apply(&object));
        within("writing", &self.node, api.patch_status(&name, &params, &patch)).await.map(drop)
    }
}

fn identity(node: &NodeName) -> serde_json::Value {
    json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeDiscoveryResult",
        "metadata": {"name": result::name(node)},
    })
}

/// Whether the object equals what `make` makes.
fn is_whole(found: &LocalVolumeDiscoveryResult, node: &NodeName) -> bool {
    let labelled = result::labels(node).iter().all(|(key, value)| found.labels().get(key) == Some(value));
    found.spec.node_name == *node && labelled
}

async fn within<T>(
    verb: &str,
    node: &NodeName,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, OperatorError> {
    let what = format!("{verb} the LocalVolumeDiscoveryResult {} of node {node}", result::name(node));
    client::within(&what, request).await
}
