//! `localpool pool forget`: gives up all volumes of a node that is gone, and its DevicePool. Nothing is erased: no
//! agent is there to do it.

use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};

use super::objects::{all_of, named_by, persistent_of};
use crate::agent::Run;
use crate::api::crd::{DevicePool, PoolVolume};
use crate::device::NodeName;
use crate::host::chain;
use crate::operator::api_server::client::within;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::object_key::ObjectName;
use crate::operator::api_server::write::Write;
use crate::operator::node::kube_node;
use crate::operator::pool::agent_life::silence;
use crate::operator::volume::{give_up, given_up_lines};

/// Forgets a node, or says what that would mean. Refuses while the Node exists, or an agent that would write all of it
/// again. Stopped in between, it goes on when it is called again.
pub async fn forget(client: Client, node: NodeName, run: Run) -> Result<Vec<String>, OperatorError> {
    let refused = |message: String| Err(OperatorError::Refused(message));
    if kube_node::live_metadata(&client, &node).await?.is_some() {
        return refused(format!(
            "node {node} is not forgotten: it exists. If the machine never comes back, delete the Node object first"
        ));
    }
    let pools: Api<DevicePool> = Api::all(client.clone());
    let pool = within(&format!("reading DevicePool {node}"), pools.get_opt(&node)).await?;
    if pool.as_ref().is_some_and(|pool| silence(pool).is_none()) {
        return refused(format!(
            "node {node} is not forgotten: the condition Ready of its DevicePool is not Unknown, so its agent answers, or the \
             controller has not seen yet that it does not: wait a minute after the deletion of the Node, and look at the alert \
             LocalpoolNoController"
        ));
    }
    let volumes = volumes_of(client.clone(), &node).await?;
    if pool.is_none() && volumes.is_empty() {
        return refused(format!("nothing is known of a node {node}: it has no DevicePool and no PoolVolumes"));
    }
    let named = named_by(client.clone(), &volumes).await?;
    let mut lines = Vec::new();
    for volume in &volumes {
        give_up(client.clone(), volume, run).await.map_err(|error| after(&lines, error))?;
        let persistent = persistent_of(volume, &named).map(ObjectName::of);
        lines.extend(given_up_lines(volume, persistent.as_ref(), run));
    }
    if let Some(pool) = pool {
        lines.push(match run {
            Run::Dry => format!("would delete DevicePool {node}"),
            Run::Real => {
                delete(&pools, &pool).await.map_err(|error| after(&lines, error))?;
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

/// An error beside what was done before it: the objects of that are gone, and nobody can read it again.
fn after(lines: &[String], error: OperatorError) -> OperatorError {
    match lines {
        [] => error,
        lines => OperatorError::Refused(format!("{}; then: {}", lines.join("; "), chain(&error))),
    }
}

async fn volumes_of(client: Client, node: &NodeName) -> Result<Vec<PoolVolume>, OperatorError> {
    let volumes: Api<PoolVolume> = Api::all(client);
    let here = format!("spec.node={node}");
    let fetch = async |params: ListParams| within("listing PoolVolumes", volumes.list(&params.fields(&here))).await;
    all_of(fetch, |volume: &PoolVolume| volume.spec.node == *node).await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_was_given_up_before_it_and_what_is_left_to_do() {
        let error = || OperatorError::Refused("PoolVolume b changed meanwhile".to_owned());
        let lines = ["gave up volume a".to_owned(), "PersistentVolume pv-a still names it".to_owned()];
        let said = after(&lines, error()).to_string();
        assert_eq!(
            said,
            "gave up volume a; PersistentVolume pv-a still names it; then: PoolVolume b changed meanwhile"
        );
        assert_eq!(after(&[], error()).to_string(), error().to_string());
    }
}
