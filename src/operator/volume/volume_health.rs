//! The health of a volume as its object shows it: what its agent finds, and what the controller says of its node. Pure
//! but for the time of what is new.
//!
//! The agent and the controller write it, each when what it knows changes. Both make it here of the same, so neither
//! undoes what the other wrote.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as KubeCondition;

use crate::api::crd::{HealthEntry, Phase, PoolVolumeStatus};
use crate::health::{Condition, Finding, HealthReason, Severity};
use crate::operator::pool_volume::{AGENT_SILENT, CONFLICT, HEALTHY, NODE_GONE, unhealthy};
use crate::operator::status::condition::condition;
use crate::operator::status::health;

/// Whether the controller writes it, because of the volume's node or of another one.
pub fn is_by_controller(condition: &KubeCondition) -> bool {
    [NODE_GONE, AGENT_SILENT, CONFLICT].contains(&condition.type_.as_str())
}

/// Whether only these conditions give the reason: no agent finds it.
pub fn is_reason_by_controller(reason: &HealthReason) -> bool {
    matches!(
        reason,
        HealthReason::AgentSilent | HealthReason::NodeNotReady | HealthReason::NodeGone | HealthReason::DiskElsewhere
    )
}

/// What the controller says, as findings.
fn findings_by_controller(conditions: &[KubeCondition]) -> impl Iterator<Item = Finding> {
    let set = conditions.iter().filter(|condition| is_by_controller(condition) && condition.status == "True");
    set.map(|condition| {
        let word = if condition.type_ == NODE_GONE { &condition.type_ } else { &condition.reason };
        let since = Some(condition.last_transition_time.0);
        Finding { since, ..Finding::new(HealthReason::from(word.to_owned()), condition.message.clone()) }
    })
}

/// What the agent of a volume has found, as its status shows it.
pub fn found(status: &PoolVolumeStatus) -> Condition {
    let all = unhealthy(status);
    let of_agent = all.findings().iter().filter(|finding| !is_reason_by_controller(&finding.reason));
    Condition::of(of_agent.cloned().collect())
}

/// The list and the condition Healthy: what was `found`, and what the controller says in `conditions`. What was there
/// `before` keeps its time. `by`: the process of the agent that writes it; `None`: the controller does.
pub fn healths(
    before: &PoolVolumeStatus,
    found: &Condition,
    conditions: &[KubeCondition],
    by: Option<&str>,
) -> (Vec<HealthEntry>, KubeCondition) {
    let now = Condition::of(found.findings().iter().cloned().chain(findings_by_controller(conditions)).collect());
    let message = if now.is_healthy() { "the volume is healthy".to_owned() } else { now.message() };
    let healthy = condition(&before.conditions, HEALTHY, now.is_healthy(), now.word(), message, None);
    (health::entries(&before.health, &now, by), healthy)
}

/// What `kubectl get` shows of a volume first. Its phase says how far it came, and stays Ready when its disk dies.
pub fn state(phase: Phase, health: &[HealthEntry]) -> String {
    let reasons = || health.iter().map(|entry| HealthReason::from(entry.reason.clone()));
    match phase {
        Phase::Ready if reasons().any(|reason| reason.severity() != Severity::Degraded) => "Unusable".to_owned(),
        Phase::Ready if reasons().any(|reason| reason == HealthReason::AgentSilent) => "Unknown".to_owned(),
        phase => format!("{phase:?}"),
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::events::EventType;

    use super::*;
    use crate::health::REASONS;
    use crate::operator::event::EventNote;
    use crate::operator::recorded_failures::{RecordedFailure, words};

    /// The chain from a real kernel to the PoolVolume and the Events of its claim: the vm tier holds the reasons, this
    /// what becomes of them.
    #[test]
    fn what_each_failure_on_a_real_kernel_reports_is_in_the_pool_volume_and_in_events_until_its_repair() {
        let recovered = EventNote { type_: EventType::Normal, reason: "Recovered".to_owned(), note: String::new() };
        for failure in RecordedFailure::all() {
            let mut status = PoolVolumeStatus::default();
            assert_eq!(words(&failure.of_volume()[0]), failure.reasons, "the worst is not the first");
            for (found, is_sick) in failure.of_volume().into_iter().zip([true, false]) {
                let (health, healthy) = healths(&status, &found, &status.conditions, Some("a"));
                let listed: Vec<String> = health.iter().map(|entry| entry.reason.clone()).collect();
                assert_eq!(listed, words(&found), "{}", failure.name());
                let wanted = match listed.first() {
                    Some(worst) => ("False", worst.as_str()),
                    None => ("True", "Healthy"),
                };
                assert_eq!((healthy.status.as_str(), healthy.reason.as_str()), wanted, "{}", failure.name());
                assert!(listed.iter().all(|word| healthy.message.contains(&format!("{word} it is"))), "{healthy:?}");
                let is_lost = found.severity().is_some_and(|severity| severity >= Severity::Inaccessible);
                assert_eq!(state(Phase::Ready, &health), if is_lost { "Unusable" } else { "Ready" });
                let events = health::events(&status.health, &health, recovered.clone());
                let events: Vec<&str> = events.iter().map(|event| event.reason.as_str()).collect();
                let wanted: Vec<&str> = match (is_sick, listed.is_empty()) {
                    (true, _) => listed.iter().map(String::as_str).collect(),
                    (false, true) => vec!["Recovered"],
                    (false, false) => Vec::new(),
                };
                assert_eq!(events, wanted, "{}", failure.name());
                status = PoolVolumeStatus { health, conditions: vec![healthy], ..status };
            }
        }
    }

    #[test]
    fn nothing_that_cannot_be_used_says_ready_and_what_is_only_worse_does() {
        let entry = |word: &str| HealthEntry {
            reason: word.to_owned(),
            severity: String::new(),
            message: String::new(),
            since: None,
            confirmed_by: None,
        };
        assert_eq!(state(Phase::Ready, &[]), "Ready");
        for row in REASONS {
            let expected = match (row.severity, row.word) {
                (Severity::Inaccessible | Severity::DataLoss, _) => "Unusable",
                (Severity::Degraded, "AgentSilent") => "Unknown",
                (Severity::Degraded, _) => "Ready",
            };
            assert_eq!(state(Phase::Ready, &[entry("DiskWornOut"), entry(row.word)]), expected, "{}", row.word);
            assert_eq!(state(Phase::Deleting, &[entry(row.word)]), "Deleting");
        }
        assert_eq!(state(Phase::Ready, &[entry("AgentSilent"), entry("DiskMissing")]), "Unusable");
        assert_eq!(state(Phase::Ready, &[entry("WordOfALaterVersion")]), "Unusable", "the careful reading");
    }
}
