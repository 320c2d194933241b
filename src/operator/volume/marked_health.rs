//! The health of a volume as its object shows it: what its agent finds, and what the controller says of its node. Pure
//! but for the time of what is new.
//!
//! The agent and the controller write it, each when what it knows changes. Both make it here of the same, so neither
//! undoes what the other wrote.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as KubeCondition;

use crate::api::crd::{HealthEntry, PoolVolumeStatus};
use crate::health::{Condition, Finding, HealthReason};
use crate::operator::condition::condition;
use crate::operator::health;
use crate::operator::pool_volume::{AGENT_SILENT, HEALTHY, NODE_GONE, unhealthy};

/// Whether the controller writes a condition of this type.
pub fn is_mark(condition: &KubeCondition) -> bool {
    [NODE_GONE, AGENT_SILENT].contains(&condition.type_.as_str())
}

/// Whether a reason is one that only the controller's marks give.
pub fn is_of_mark(reason: &HealthReason) -> bool {
    matches!(reason, HealthReason::AgentSilent | HealthReason::NodeNotReady | HealthReason::NodeGone)
}

/// What the controller says, as findings.
fn marks(conditions: &[KubeCondition]) -> impl Iterator<Item = Finding> {
    let set = conditions.iter().filter(|condition| is_mark(condition) && condition.status == "True");
    set.map(|mark| {
        let word = if mark.type_ == NODE_GONE { NODE_GONE } else { &mark.reason };
        let since = Some(mark.last_transition_time.0);
        Finding { since, ..Finding::new(HealthReason::from(word.to_owned()), mark.message.clone()) }
    })
}

/// What the agent of a volume has found, as its status shows it.
pub fn found(status: &PoolVolumeStatus) -> Condition {
    let all = unhealthy(status);
    Condition::of(all.findings().iter().filter(|finding| !is_of_mark(&finding.reason)).cloned().collect())
}

/// The list and the condition Healthy: what was `found`, and what the marks among `conditions` say. What was there
/// `before` keeps its time.
pub fn healths(
    before: &PoolVolumeStatus,
    found: &Condition,
    conditions: &[KubeCondition],
) -> (Vec<HealthEntry>, KubeCondition) {
    let now = Condition::of(found.findings().iter().cloned().chain(marks(conditions)).collect());
    let message = if now.is_healthy() { "the volume is healthy".to_owned() } else { now.message() };
    let healthy = condition(&before.conditions, HEALTHY, now.is_healthy(), now.word(), message, None);
    (health::entries(&before.health, &now), healthy)
}
