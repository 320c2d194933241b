//! Volumes whose Node object was deleted: they are marked, and given up if the administrator wants that. Pure but for
//! the clock of conditions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::crd::PoolVolume;
use crate::operator::condition::condition;
use crate::operator::pool_volume::{NODE_GONE, NodeObject, never_accepted};

/// What happens to the objects of volumes whose Node object was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletedNodePolicy {
    /// They stay, with a condition: the node may come back.
    Keep,
    /// They are given up; nothing is erased, as no agent is there to do it.
    Release,
}

#[derive(Clone, Debug, PartialEq)]
pub enum NodeGoneAction {
    /// Write these conditions, and an Event if they are new.
    Mark(Vec<Condition>),
    /// Write these conditions: the node is back.
    Clear(Vec<Condition>),
    Release,
}

pub fn decide(volume: &PoolVolume, node: NodeObject, gone: DeletedNodePolicy) -> Option<NodeGoneAction> {
    let before = volume.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
    let others = || before.iter().filter(|condition| condition.type_ != NODE_GONE).cloned();
    let marked = before.iter().any(|condition| condition.type_ == NODE_GONE && condition.status == "True");
    match (node, gone) {
        (NodeObject::Exists, _) if marked => Some(NodeGoneAction::Clear(others().collect())),
        (NodeObject::Deleted, DeletedNodePolicy::Release) => Some(NodeGoneAction::Release),
        // None of its data is on a disk.
        (NodeObject::Deleted, DeletedNodePolicy::Keep) if !marked && !never_accepted(volume) => {
            let node = &volume.spec.node;
            let message = format!(
                "node {node} does not exist any more; its disk may still hold the data. Bring the node back, or give \
                 the volume up with `localpool volume abandon` in the controller's pod"
            );
            let mark = condition(before, NODE_GONE, true, "NodeDeleted", message, volume.metadata.generation);
            Some(NodeGoneAction::Mark(others().chain([mark]).collect()))
        }
        (NodeObject::Exists, _) | (NodeObject::Deleted, DeletedNodePolicy::Keep) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{in_phase, status_condition};
    use super::*;
    use crate::api::crd::Phase;

    fn with(volume: &PoolVolume, conditions: Vec<Condition>) -> PoolVolume {
        let mut volume = volume.clone();
        volume.status.as_mut().expect("set").conditions = conditions;
        volume
    }

    #[test]
    fn a_volume_is_marked_once_and_the_mark_goes_when_the_node_is_back() {
        let other = status_condition("Healthy", "True", "Fine", "");
        let volume = with(&in_phase(Phase::Ready), vec![other.clone()]);
        assert_eq!(decide(&volume, NodeObject::Exists, DeletedNodePolicy::Keep), None);
        let Some(NodeGoneAction::Mark(marked)) = decide(&volume, NodeObject::Deleted, DeletedNodePolicy::Keep) else {
            panic!("not marked")
        };
        assert_eq!(marked.len(), 2, "what others say stays");
        let marked = with(&volume, marked);
        assert_eq!(decide(&marked, NodeObject::Deleted, DeletedNodePolicy::Keep), None, "once");
        assert_eq!(
            decide(&marked, NodeObject::Exists, DeletedNodePolicy::Keep),
            Some(NodeGoneAction::Clear(vec![other]))
        );
    }

    #[test]
    fn nothing_is_given_up_unless_the_administrator_said_so() {
        for phase in [Phase::Accepted, Phase::Ready, Phase::Found, Phase::Deleting] {
            assert!(
                matches!(
                    decide(&in_phase(phase), NodeObject::Deleted, DeletedNodePolicy::Keep),
                    Some(NodeGoneAction::Mark(_))
                ),
                "{phase:?}"
            );
            assert_eq!(
                decide(&in_phase(phase), NodeObject::Deleted, DeletedNodePolicy::Release),
                Some(NodeGoneAction::Release),
                "{phase:?}"
            );
            assert_eq!(decide(&in_phase(phase), NodeObject::Exists, DeletedNodePolicy::Release), None, "{phase:?}");
        }
        assert_eq!(
            decide(&in_phase(Phase::Pending), NodeObject::Deleted, DeletedNodePolicy::Keep),
            None,
            "a CreateVolume withdraws it"
        );
    }
}
