//! Reads from the API server what a volume's node and its agent say now. A mark is what the controller wrote when it
//! last heard of it; a watch may be late, and an agent may have started again since.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};

use super::confirmed::{confirmed, process};
use super::live::LiveFacts;
use super::marked::{MarkedVolume, home_state};
use crate::api::crd::{DevicePool, HealthEntry, PoolVolume};
use crate::device::NodeName;
use crate::health::HealthReason;
use crate::operator::api_server::client::within;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::object_key::Uid;
use crate::operator::kube_volume::Backing;
use crate::operator::node::kube_node;
use crate::operator::status::ready::ready;

/// Fills in `node`, `home`, `ready_since` and `losses`. `pod_node` is the node that the volume's pod is on.
pub async fn read_home(
    client: &Client,
    volume: &MarkedVolume,
    pod_node: Option<&NodeName>,
    live: &mut LiveFacts,
) -> Result<(), OperatorError> {
    let node = kube_node::live(client, &volume.node).await?;
    let pools = Api::<DevicePool>::all(client.clone());
    let pool = within(&format!("reading DevicePool {}", volume.node), pools.get_opt(&volume.node)).await?;
    live.home = Some(home_state(node.as_ref(), pool.as_ref()));
    live.ready_since = ready_since(node.as_ref(), pool.as_ref());
    live.losses = losses(client, volume, pool.as_ref()).await?;
    live.node = node.as_ref().and_then(Uid::of);
    // An affinity may name a node by a label that the node does not have any more.
    if let Some(other) = pod_node.filter(|other| live.node.is_none() && volume.node != **other) {
        live.node = kube_node::live(client, other).await?.as_ref().and_then(Uid::of);
    }
    Ok(())
}

/// The later of both.
fn ready_since(node: Option<&Node>, pool: Option<&DevicePool>) -> Option<Timestamp> {
    let agent = ready(&pool?.status.as_ref()?.conditions)?.last_transition_time.0;
    Some(kube_node::ready_since(node?)?.max(agent))
}

async fn losses(
    client: &Client,
    volume: &MarkedVolume,
    pool: Option<&DevicePool>,
) -> Result<BTreeSet<HealthReason>, OperatorError> {
    let of = |entries: &[HealthEntry]| -> BTreeSet<HealthReason> {
        volume.backing.losses(&confirmed(entries, process(pool).as_ref()))
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
            Ok(found.find(|found| volume.uid == *found.uid).map(|found| of(&found.health)).unwrap_or_default())
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
