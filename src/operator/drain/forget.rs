//! `localpool pool forget`: gives up all volumes of a node that is gone, and its DevicePool. Nothing is erased: no agent is
//! there to do it.

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};

use super::objects::all_of;
use crate::agent::Run;
use crate::api::crd::{DevicePool, PoolVolume};
use crate::device::NodeName;
use crate::operator::client::within;
use crate::operator::error::OperatorError;
use crate::operator::pool::agent_life::silence;
use crate::operator::volume::abandon;
use crate::operator::write::Write;
use crate::volume::VolumeId;

/// Forgets a node, or says what that would mean. Refuses while the Node exists, or an agent that would write all of it
/// again. Stopped in between, it goes on when it is called again.
pub async fn forget(client: Client, node: NodeName, run: Run) -> Result<Vec<String>, OperatorError> {
    let refused = |words: String| Err(OperatorError::Refused(words));
    let nodes: Api<Node> = Api::all(client.clone());
    if within(&format!("reading Node {node}"), nodes.get_metadata_opt(&node)).await?.is_some() {
        return refused(format!(
            "node {node} is not forgotten: it exists. If the machine never comes back, delete the Node object first"
        ));
    }
    let pools: Api<DevicePool> = Api::all(client.clone());
    let pool = within(&format!("reading DevicePool {node}"), pools.get_opt(&node)).await?;
    if pool.as_ref().is_some_and(|pool| silence(pool).is_none()) {
        return refused(format!(
            "node {node} is not forgotten: the condition Ready of its DevicePool is not Unknown, so its agent answers, or the \
             controller has not seen yet that it does not"
        ));
    }
    let volumes = volumes_of(client.clone(), &node).await?;
    if pool.is_none() && volumes.is_empty() {
        return refused(format!("nothing is known of a node {node}: it has no DevicePool and no PoolVolumes"));
    }
    let mut lines = Vec::new();
    for id in volumes {
        lines.extend(abandon(client.clone(), id, run).await?);
    }
    if let Some(pool) = pool {
        lines.push(match run {
            Run::Dry => format!("would delete DevicePool {node}"),
            Run::Real => {
                delete(&pools, &pool).await?;
                format!("deleted DevicePool {node}")
            }
        });
    }
    lines.push(
        "nothing is erased: its disks still have the data; a node that comes back under this name finds its volumes"
            .to_owned(),
    );
    Ok(lines)
}

async fn volumes_of(client: Client, node: &NodeName) -> Result<Vec<VolumeId>, OperatorError> {
    let volumes: Api<PoolVolume> = Api::all(client);
    let here = format!("spec.node={node}");
    let fetch = async |params: ListParams| within("listing PoolVolumes", volumes.list(&params.fields(&here))).await;
    let found = all_of(fetch, |volume: &PoolVolume| volume.spec.node == *node).await?;
    let id = |volume: PoolVolume| {
        let name = volume.name_any();
        name.parse().map_err(|_| OperatorError::Refused(format!("the name of PoolVolume {name} is no id of a volume")))
    };
    found.into_iter().map(id).collect()
}

async fn delete(pools: &Api<DevicePool>, pool: &DevicePool) -> Result<(), OperatorError> {
    let name = pool.name_any();
    // A node of this name that begins meanwhile writes another one.
    let exactly = Preconditions { uid: pool.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
    match Write::of(within(&format!("deleting DevicePool {name}"), pools.delete(&name, &params)).await)? {
        Write::Done(_) | Write::Changed => Ok(()),
    }
}
