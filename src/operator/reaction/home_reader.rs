//! Reads from the API server what a volume's node and its agent say now. A mark is what the controller wrote when it
//! last heard of it; a watch may be late, and an agent may have started again since.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};

use super::live::LiveFacts;
use super::marked::{MarkedVolume, home_state};
use crate::api::crd::{DevicePool, HealthEntry, PoolVolume, READY};
use crate::health::HealthReason;
use crate::operator::client::within;
use crate::operator::error::OperatorError;
use crate::operator::kube_node;
use crate::operator::persistent_volume::object::Backing;

/// Fills in `node`, `home`, `ready_since` and `losses`. `pod_node` is the node that the volume's pod is on.
pub async fn read_home(
    client: &Client,
    volume: &MarkedVolume,
    pod_node: Option<&str>,
    live: &mut LiveFacts,
) -> Result<(), OperatorError> {
    let node = read_node(client, &volume.node).await?;
    let pools = Api::<DevicePool>::all(client.clone());
    let pool = within(&format!("reading DevicePool {}", volume.node), pools.get_opt(&volume.node)).await?;
    live.home = Some(home_state(node.as_ref(), pool.as_ref()));
    live.ready_since = ready_since(node.as_ref(), pool.as_ref());
    live.losses = losses(client, volume, pool.as_ref()).await?;
    live.node = uid(node);
    // An affinity may name a node by a label that the node does not have any more.
    if let Some(other) = pod_node.filter(|other| live.node.is_none() && volume.node != **other) {
        live.node = uid(read_node(client, other).await?);
    }
    Ok(())
}

async fn read_node(client: &Client, name: &str) -> Result<Option<Node>, OperatorError> {
    within(&format!("reading Node {name}"), Api::<Node>::all(client.clone()).get_opt(name)).await
}

fn uid(node: Option<Node>) -> Option<String> {
    node.and_then(|node| node.metadata.uid)
}

/// The later of both.
fn ready_since(node: Option<&Node>, pool: Option<&DevicePool>) -> Option<Timestamp> {
    let conditions = pool?.status.as_ref()?.conditions.iter();
    let agent = conditions.into_iter().find(|condition| condition.type_ == READY)?.last_transition_time.0;
    Some(kube_node::ready_since(node?)?.max(agent))
}

async fn losses(
    client: &Client,
    volume: &MarkedVolume,
    pool: Option<&DevicePool>,
) -> Result<BTreeSet<HealthReason>, OperatorError> {
    let of = |entries: &[HealthEntry]| -> BTreeSet<HealthReason> {
        volume.backing.losses(&entries.iter().map(|entry| HealthReason::from(entry.reason.clone())).collect())
    };
    match &volume.backing {
        Backing::Volume(id) => {
            let (name, api) = (id.to_string(), Api::<PoolVolume>::all(client.clone()));
            let found = within(&format!("reading PoolVolume {name}"), api.get_opt(&name)).await?;
            let Some(found) = found else { return Ok([HealthReason::VolumeMissing].into()) };
            Ok(found.status.map(|status| of(&status.health)).unwrap_or_default())
        }
        Backing::Path(_) => {
            let mut found =
                pool.iter().filter_map(|pool| pool.status.as_ref()).flat_map(|status| &status.persistent_volumes);
            Ok(found.find(|found| found.uid == volume.uid).map(|found| of(&found.health)).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_and_its_agent_are_ready_since_the_later_of_both() {
        let node = |since: &str| -> Node {
            let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": since});
            serde_json::from_value(json!({"status": {"conditions": [ready]}})).expect("a Node")
        };
        let pool = |since: &str| -> DevicePool {
            let ready =
                json!({"type": "Ready", "status": "True", "reason": "x", "message": "", "lastTransitionTime": since});
            let value = json!({"apiVersion": "localpool.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "n"},
                "spec": {}, "status": {"conditions": [ready]}});
            serde_json::from_value(value).expect("a DevicePool")
        };
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z");
        let since = |node: &Node, pool: Option<&DevicePool>| ready_since(Some(node), pool).map(|time| time.to_string());
        assert_eq!(since(&node(early), Some(&pool(late))).as_deref(), Some(late));
        assert_eq!(since(&node(late), Some(&pool(early))).as_deref(), Some(late));
        assert_eq!(since(&node(late), None), None);
    }
}
