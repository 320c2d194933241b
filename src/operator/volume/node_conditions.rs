//! The conditions of a volume whose node is gone or silent, which the controller writes once. The volume of a deleted
//! node is given up if the administrator wants that. Pure but for the clock of conditions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::events::EventType;

use crate::api::crd::{HealthEntry, PoolVolume, PoolVolumeStatus};
use crate::device::NodeName;
use crate::health::HealthReason;
use crate::operator::event::EventNote;
use crate::operator::pool_volume::{
    AGENT_SILENT, CONFLICT, HEALTHY, NODE_GONE, NodeObject, never_accepted, node_gone_message,
};
use crate::operator::status::condition::condition;
use crate::operator::volume::volume_health::{found, healths, is_by_controller, state};

/// What happens to the objects of volumes whose Node object was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletedNodePolicy {
    /// They stay, with a condition: the node may come back.
    Keep,
    /// They are given up; nothing is erased, as no agent is there to do it.
    Release,
}

/// What is known of a volume's node.
#[derive(Clone, Copy, Debug)]
pub enum NodeLife<'a> {
    Answers,
    /// With the condition Ready of its DevicePool.
    Silent(&'a Condition),
    Deleted,
}

#[derive(Clone, Debug, PartialEq)]
pub enum NodeAction {
    Write(NodeConditions),
    Release,
}

/// What the status says because of the node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConditions {
    pub conditions: Vec<Condition>,
    pub health: Vec<HealthEntry>,
    pub state: String,
    /// That a node is silent is an Event of its DevicePool, and none of each volume.
    pub event: Option<EventNote>,
}

/// `elsewhere` is another node whose pool has the disk of the volume.
pub fn decide(
    volume: &PoolVolume,
    node: NodeLife<'_>,
    elsewhere: Option<&NodeName>,
    gone: DeletedNodePolicy,
) -> Option<NodeAction> {
    let unwritten = PoolVolumeStatus::default();
    let status = volume.status.as_ref().unwrap_or(&unwritten);
    let of_node = match (node, gone) {
        (NodeLife::Deleted, DeletedNodePolicy::Release) => return Some(NodeAction::Release),
        // None of its data is on a disk.
        (NodeLife::Deleted | NodeLife::Silent(_), _) if never_accepted(volume) => return None,
        (NodeLife::Deleted, DeletedNodePolicy::Keep) => Some(node_gone(volume, &status.conditions)),
        (NodeLife::Silent(ready), _) => Some(agent_silent(volume, ready)),
        (NodeLife::Answers, _) => None,
    };
    let moved = elsewhere.map(|elsewhere| disk_elsewhere(volume, elsewhere, &status.conditions));
    let next: Vec<Condition> = of_node.into_iter().chain(moved).collect();
    let present: Vec<&Condition> = status.conditions.iter().filter(|condition| is_by_controller(condition)).collect();
    if present.iter().map(|condition| compared(condition)).eq(next.iter().map(compared)) {
        return None;
    }
    let event = event(volume, node_object(present.iter().copied()), node_object(next.iter()));
    let is_of_others = |condition: &&Condition| !is_by_controller(condition) && condition.type_ != HEALTHY;
    let mut conditions: Vec<Condition> = status.conditions.iter().filter(is_of_others).cloned().chain(next).collect();
    let (health, healthy) = healths(status, &found(status), &conditions, None);
    conditions.insert(0, healthy);
    let state = state(status.phase, &health);
    Some(NodeAction::Write(NodeConditions { conditions, health, state, event }))
}

/// What is compared: if it is the same, a condition is not written again.
fn compared(condition: &Condition) -> (&str, &str, &str) {
    (&condition.type_, &condition.status, &condition.reason)
}

fn node_gone(volume: &PoolVolume, before: &[Condition]) -> Condition {
    condition(before, NODE_GONE, true, "NodeDeleted", node_gone_message(volume), volume.metadata.generation)
}

fn agent_silent(volume: &PoolVolume, ready: &Condition) -> Condition {
    Condition {
        type_: AGENT_SILENT.to_owned(),
        status: "True".to_owned(),
        message: format!("node {}: {}", volume.spec.node, ready.message),
        observed_generation: None,
        ..ready.clone()
    }
}

/// Nobody uses it on the other node, whose agent acts only on objects that name it.
fn disk_elsewhere(volume: &PoolVolume, elsewhere: &NodeName, before: &[Condition]) -> Condition {
    let node = &volume.spec.node;
    let disk = volume.status.as_ref().and_then(|status| status.disk.as_ref()).map_or("its disk", |disk| disk.as_str());
    let message = format!(
        "disk {disk} is in the pool of node {elsewhere}, and this object names node {node}: nobody uses the volume there until \
         this object is gone. If the disk was moved: docs/troubleshooting.md, \"A disk moves to another node\""
    );
    condition(before, CONFLICT, true, HealthReason::DiskElsewhere.word(), message, volume.metadata.generation)
}

/// What the conditions of a volume say of its Node object.
fn node_object<'c>(mut conditions: impl Iterator<Item = &'c Condition>) -> NodeObject {
    match conditions.any(|condition| condition.type_ == NODE_GONE) {
        true => NodeObject::Deleted,
        false => NodeObject::Exists,
    }
}

fn event(volume: &PoolVolume, before: NodeObject, now: NodeObject) -> Option<EventNote> {
    let node = &volume.spec.node;
    let (type_, reason, note) = match (before, now) {
        (NodeObject::Exists, NodeObject::Deleted) => {
            (EventType::Warning, "NodeDeleted", format!("node {node}, whose disk holds the volume, was deleted"))
        }
        (NodeObject::Deleted, NodeObject::Exists) => (EventType::Normal, "NodeBack", format!("node {node} is back")),
        (NodeObject::Exists, NodeObject::Exists) | (NodeObject::Deleted, NodeObject::Deleted) => return None,
    };
    Some(EventNote { type_, reason: reason.to_owned(), note })
}

#[cfg(test)]
mod tests {
    use super::super::sample::{in_phase, status_condition};
    use super::*;
    use crate::api::crd::Phase;
    use crate::operator::volume::status;

    const KEEP: DeletedNodePolicy = DeletedNodePolicy::Keep;

    fn with(volume: &PoolVolume, conditions: Vec<Condition>) -> PoolVolume {
        let mut volume = volume.clone();
        volume.status.as_mut().expect("set").conditions = conditions;
        volume
    }

    /// Writes what is decided, and returns the reason of the Event.
    fn carry_out(volume: &mut PoolVolume, node: NodeLife<'_>) -> Option<Option<String>> {
        let NodeAction::Write(written) = decide(volume, node, None, KEEP)? else { panic!("it is kept") };
        let status = volume.status.as_mut().expect("set");
        (status.conditions, status.health) = (written.conditions, written.health);
        assert_eq!(decide(volume, node, None, KEEP), None, "once");
        Some(written.event.map(|event| event.reason))
    }

    fn healthy(volume: &PoolVolume) -> (String, Vec<String>) {
        let status = volume.status.as_ref().expect("set");
        let healthy: Vec<_> = status.conditions.iter().filter(|condition| condition.type_ == HEALTHY).collect();
        assert_eq!(healthy.len(), 1, "{status:?}");
        (healthy[0].reason.clone(), status.health.iter().map(|entry| entry.reason.clone()).collect())
    }

    fn shows(worst: &str, all: &[&str]) -> (String, Vec<String>) {
        (worst.to_owned(), all.iter().map(|word| (*word).to_owned()).collect())
    }

    fn silent(reason: &str) -> Condition {
        status_condition("Ready", "Unknown", reason, "no answer")
    }

    #[test]
    fn a_volume_of_a_deleted_node_has_a_condition_and_an_event_once_and_no_condition_when_the_node_is_back() {
        let other = status_condition("Other", "True", "Fine", "");
        let mut volume = with(&in_phase(Phase::Ready), vec![other.clone()]);
        assert_eq!(carry_out(&mut volume, NodeLife::Answers), None);
        assert_eq!(carry_out(&mut volume, NodeLife::Deleted), Some(Some("NodeDeleted".to_owned())));
        assert_eq!(healthy(&volume), shows("NodeGone", &["NodeGone"]));
        assert!(volume.status.as_ref().expect("set").conditions.contains(&other), "what others say stays");
        assert_eq!(carry_out(&mut volume, NodeLife::Answers), Some(Some("NodeBack".to_owned())));
        assert_eq!(healthy(&volume), shows("Healthy", &[]));
    }

    #[test]
    fn a_silent_agent_is_told_of_each_volume_since_when_it_is_silent_and_without_an_event() {
        let mut volume = in_phase(Phase::Ready);
        assert_eq!(carry_out(&mut volume, NodeLife::Silent(&silent("AgentSilent"))), Some(None));
        assert_eq!(healthy(&volume), shows("AgentSilent", &["AgentSilent"]));
        let entry = &volume.status.as_ref().expect("set").health[0];
        let since = silent("AgentSilent").last_transition_time;
        assert_eq!((entry.severity.as_str(), entry.since.as_ref()), ("Degraded", Some(&since)));
        assert!(entry.message.contains("node n: no answer"), "{entry:?}");
        assert_eq!(carry_out(&mut volume, NodeLife::Silent(&silent("NodeNotReady"))), Some(None));
        assert_eq!(healthy(&volume), shows("NodeNotReady", &["NodeNotReady"]));
        assert_eq!(carry_out(&mut volume, NodeLife::Deleted), Some(Some("NodeDeleted".to_owned())));
        assert_eq!(healthy(&volume), shows("NodeGone", &["NodeGone"]));
        assert_eq!(carry_out(&mut volume, NodeLife::Answers), Some(Some("NodeBack".to_owned())));
        assert_eq!(healthy(&volume), shows("Healthy", &[]));
    }

    /// Writes what an agent finds whose disk is away; gives whether that is new.
    fn agent_writes(volume: &mut PoolVolume) -> bool {
        let status = status::beside_others(volume, status::missing(volume, Some("it is away".to_owned()), "a"));
        let before = volume.status.replace(status);
        volume.status != before
    }

    /// An agent may live on while its kubelet is dead. It writes what it finds, and the controller what it sees.
    #[test]
    fn what_the_agent_finds_and_what_the_controller_says_stand_together_whoever_writes_last() {
        let ready = silent("AgentSilent");
        let mut volume = in_phase(Phase::Ready);
        assert!(agent_writes(&mut volume));
        assert_eq!(healthy(&volume), shows("DiskMissing", &["DiskMissing"]));
        assert_eq!(carry_out(&mut volume, NodeLife::Silent(&ready)), Some(None));
        assert_eq!(healthy(&volume), shows("DiskMissing", &["DiskMissing", "AgentSilent"]));
        assert!(!agent_writes(&mut volume), "it says the same");
        assert_eq!(decide(&volume, NodeLife::Silent(&ready), None, KEEP), None, "and so does the controller");
        assert_eq!(carry_out(&mut volume, NodeLife::Answers), Some(None));
        assert_eq!(healthy(&volume), shows("DiskMissing", &["DiskMissing"]));
        assert!(!agent_writes(&mut volume), "it says the same");
    }

    #[test]
    fn what_an_agent_of_an_earlier_version_said_without_a_list_stays() {
        let worst = status_condition(HEALTHY, "False", "DiskMissing", "it is away");
        let mut volume = with(&in_phase(Phase::Ready), vec![worst]);
        assert_eq!(carry_out(&mut volume, NodeLife::Silent(&silent("AgentSilent"))), Some(None));
        assert_eq!(healthy(&volume), shows("DiskMissing", &["DiskMissing", "AgentSilent"]));
    }

    #[test]
    fn nothing_is_given_up_unless_the_administrator_said_so() {
        const RELEASE: DeletedNodePolicy = DeletedNodePolicy::Release;
        for phase in [Phase::Accepted, Phase::Ready, Phase::Found, Phase::Deleting] {
            let volume = in_phase(phase);
            assert!(matches!(decide(&volume, NodeLife::Deleted, None, KEEP), Some(NodeAction::Write(_))), "{phase:?}");
            assert_eq!(decide(&volume, NodeLife::Deleted, None, RELEASE), Some(NodeAction::Release), "{phase:?}");
            assert_eq!(decide(&volume, NodeLife::Answers, None, RELEASE), None, "{phase:?}");
        }
        assert_eq!(
            decide(&in_phase(Phase::Pending), NodeLife::Deleted, None, KEEP),
            None,
            "a CreateVolume withdraws it"
        );
    }

    #[test]
    fn a_volume_whose_disk_another_node_has_says_so_once_and_before_what_the_agent_finds_until_that_ends() {
        let mut volume = in_phase(Phase::Ready);
        assert!(agent_writes(&mut volume));
        let other = NodeName::from("other");
        let write = |volume: &mut PoolVolume, elsewhere: Option<&NodeName>| {
            let action = decide(volume, NodeLife::Answers, elsewhere, KEEP);
            let Some(NodeAction::Write(written)) = action else { panic!("{action:?}") };
            let status = volume.status.as_mut().expect("set");
            (status.conditions, status.health) = (written.conditions, written.health);
            assert_eq!(decide(volume, NodeLife::Answers, elsewhere, KEEP), None, "once");
        };
        write(&mut volume, Some(&other));
        assert_eq!(healthy(&volume), shows("DiskElsewhere", &["DiskElsewhere", "DiskMissing"]), "it is not dead");
        assert!(!agent_writes(&mut volume), "it says the same");
        write(&mut volume, None);
        assert_eq!(healthy(&volume), shows("DiskMissing", &["DiskMissing"]));
        assert!(!agent_writes(&mut volume), "it says the same");
    }
}
