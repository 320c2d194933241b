//! What the leader does with the startup taint of Nodes.
//!
//! Takes in the Nodes and the pods of the agents; removes the taint of each node whose agent is ready, where the settings
//! ask for that.

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::{Leader, Pass, StartupTaint, WRITES, WRITES_INTERVAL};
use crate::device::NodeName;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::write::{Write, patch};
use crate::operator::node::startup_taint::taints_without;

impl Leader {
    pub(super) async fn startup_taints(&self) -> Pass {
        let mut pass = Pass::done();
        if self.startup_taint == StartupTaint::Stays || !self.agents.is_synced() {
            return pass;
        }
        let tainted = self.cluster.stores.nodes.all().into_iter().filter_map(|node| {
            let agents = self.agents.group(&NodeName::from(node.name_any()));
            taints_without(&node, &agents).map(|taints| (node, taints))
        });
        for (count, (node, taints)) in tainted.enumerate() {
            if count == WRITES {
                pass.due_in(WRITES_INTERVAL);
                break;
            }
            let written = self.write_taints(&node, &taints).await;
            // Kubelet writes the same object: a conflict is tried again as a failure is.
            pass.is_done &= matches!(self.cluster.metrics.note("nodes", written), Some(Write::Done(_)));
        }
        pass
    }

    /// Writes over the taints that were seen.
    async fn write_taints(&self, node: &Node, taints: &[Taint]) -> Result<Write<Node>, OperatorError> {
        let (api, name) = (Api::<Node>::all(self.cluster.client.clone()), node.name_any());
        let what = format!("removing the startup taint of Node {name}");
        let seen = json!({ "resourceVersion": node.resource_version() });
        patch(&api, &name, &what, json!({ "metadata": seen, "spec": { "taints": taints } })).await
    }
}
