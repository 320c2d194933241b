//! Says in each DevicePool whether its agent answers.
//!
//! Takes in the pods of the agents, the Nodes and the DevicePools; writes the condition Ready where it changes, and an
//! Event.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;

use super::{Leader, Pass, WRITES, WRITES_INTERVAL};
use crate::api::crd::DevicePool;
use crate::health::HealthReason;
use crate::operator::api_server::error::OperatorError;
use crate::operator::api_server::write::{Write, patch_status};
use crate::operator::node::ready::{NodeReadiness, readiness};
use crate::operator::pool::agent_life::{AgentLife, ReadyChange, Silences, decide};

impl Leader {
    /// The next agent counts as silent when it is due.
    pub(super) async fn agents(&self, silences: &mut Silences, monotonic: SignedDuration) -> Pass {
        let mut pass = Pass::done();
        if !self.agents.is_synced() {
            return pass;
        }
        let now = Timestamp::now();
        let pools = self.cluster.stores.pools.all();
        let nodes = pools.iter().map(|pool| pool.node());
        let lives = silences.observe(nodes, |node| self.agents.group(node), now, monotonic);
        let mut lives: Vec<_> = pools.iter().filter_map(|pool| Some((pool, *lives.get(&pool.node())?))).collect();
        // Those that are back first: their room is 0 until it is said.
        lives.sort_by_key(|(_, life)| !matches!(life, AgentLife::Alive { .. }));
        let mut writes = 0;
        for (pool, life) in lives {
            if let AgentLife::NotReady { left } = life {
                pass.due_in(left);
            }
            let Some(ReadyChange { conditions, event }) = decide(pool, life, &self.why_silent(pool), now) else {
                continue;
            };
            writes += 1;
            if writes > WRITES {
                // What is known now may be over before it is this one's turn.
                pass.due_in(WRITES_INTERVAL);
                break;
            }
            match self.write_conditions(pool, &conditions).await {
                Ok(Write::Changed) => {}
                Ok(Write::Done(_)) => {
                    self.cluster.metrics.note("agents", Ok(()));
                    pass.is_done &=
                        self.cluster.write_events(pool.object_ref(&()), "WatchAgent", event.as_slice()).await;
                }
                Err(error) => {
                    self.cluster.metrics.failed("agents", &error);
                    pass.is_done = false;
                }
            }
        }
        pass
    }

    fn why_silent(&self, pool: &DevicePool) -> HealthReason {
        match readiness(self.cluster.stores.nodes.get(&pool.node()).as_deref()) {
            NodeReadiness::Gone => HealthReason::NodeGone,
            NodeReadiness::NotReady => HealthReason::NodeNotReady,
            NodeReadiness::Ready => HealthReason::AgentSilent,
        }
    }

    /// Writes over the conditions that were seen: those of the agent stay.
    async fn write_conditions(
        &self,
        pool: &DevicePool,
        conditions: &[Condition],
    ) -> Result<Write<DevicePool>, OperatorError> {
        let (api, name) = (Api::<DevicePool>::all(self.cluster.client.clone()), pool.name_any());
        let what = format!("writing the condition Ready of DevicePool {name}");
        let seen = json!({ "resourceVersion": pool.resource_version() });
        patch_status(&api, &name, &what, json!({ "metadata": seen, "status": { "conditions": conditions } })).await
    }
}
