//! Says in each DevicePool whether its agent answers.
//!
//! Takes in the pods of the agents, the Nodes and the DevicePools; writes the condition Ready where it changes, and an
//! Event.

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;

use super::{Leader, WRITES, soon};
use crate::api::crd::DevicePool;
use crate::health::HealthReason;
use crate::operator::client::within;
use crate::operator::error::OperatorError;
use crate::operator::node_ready::{NodeReadiness, readiness};
use crate::operator::pool::agent_life::{AgentLife, ReadyChange, Silences, decide};
use crate::operator::volume::objects::Write;

impl Leader {
    /// Returns whether everything was done, and when the next agent counts as silent.
    pub(super) async fn agents(&self, silences: &mut Silences) -> (bool, Option<Timestamp>) {
        if !self.agents.is_synced() {
            return (true, None);
        }
        let now = Timestamp::now();
        let pools = self.stores.pools.all();
        let nodes = pools.iter().map(|pool| pool.node());
        let lives = silences.look(nodes, |node| self.agents.group(node), self.grace, now);
        let (mut done, mut next) = (true, None);
        let mut lives: Vec<_> = pools.iter().filter_map(|pool| Some((pool, *lives.get(&pool.node())?))).collect();
        // Those that are back first: their room is 0 until it is said.
        lives.sort_by_key(|(_, life)| !matches!(life, AgentLife::Alive { .. }));
        let mut writes = 0;
        for (pool, life) in lives {
            if let AgentLife::NotReady { until } = life {
                next = Some(next.map_or(until, |next: Timestamp| next.min(until)));
            }
            let Some(ReadyChange { conditions, event }) = decide(pool, life, &self.why_silent(pool), now) else {
                continue;
            };
            writes += 1;
            if writes > WRITES {
                // What is known now may be over before it is this one's turn.
                next = Some(soon(next, now));
                break;
            }
            match self.write_conditions(pool, json!(conditions)).await {
                Ok(Write::Changed) => {}
                Ok(Write::Done(())) => {
                    self.note("agents", Ok(()));
                    done &= self.publish_events(pool.object_ref(&()), "WatchAgent", event.as_slice()).await;
                }
                Err(error) => done &= self.note("agents", Err::<(), _>(error)),
            }
        }
        (done, next)
    }

    fn why_silent(&self, pool: &DevicePool) -> HealthReason {
        match self.stores.nodes.get(&pool.node()).map(|node| readiness(&node)) {
            None => HealthReason::NodeGone,
            Some(NodeReadiness::NotReady) => HealthReason::NodeNotReady,
            Some(NodeReadiness::Ready | NodeReadiness::NotSaid) => HealthReason::AgentSilent,
        }
    }

    /// Writes over the conditions that were seen: those of the agent stay.
    async fn write_conditions(
        &self,
        pool: &DevicePool,
        conditions: serde_json::Value,
    ) -> Result<Write<()>, OperatorError> {
        let api: Api<DevicePool> = Api::all(self.client.clone());
        let name = pool.name_any();
        let change = json!({
            "metadata": { "resourceVersion": pool.resource_version() },
            "status": { "conditions": conditions },
        });
        let what = format!("writing the condition Ready of DevicePool {name}");
        match within(&what, api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&change))).await {
            Ok(_) => Ok(Write::Done(())),
            // It changed: the watch starts another pass.
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(Write::Changed),
            Err(error) => Err(error),
        }
    }
}
