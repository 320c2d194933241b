//! What DeleteVolume does next, from the object that is there. Pure.
//!
//! `intent: Delete` orders the erasure; then the object is deleted, and its node's agent removes the finalizer when the
//! volume does not exist any more.

use kube::ResourceExt as _;

use super::create::gone;
use crate::api::crd::{Intent, Phase, PoolVolume, VolumeReason};
use crate::operator::pool_volume::{agent_message, differs, never_accepted, phase};
use crate::volume::Error;

#[derive(Clone, Copy, Debug)]
pub struct DeleteFacts {
    pub node_exists: bool,
    /// The volume has a PersistentVolume: it was Ready once, whatever the object says now.
    pub persistent: bool,
    /// This call saw an object with the order to erase.
    pub ordered: bool,
    /// An agent has had enough time to notice that a user has just stopped using the volume.
    pub grace: bool,
    /// The wait is over.
    pub over: bool,
}

#[derive(Debug)]
pub enum DeleteStep {
    /// There is no object: look for a PersistentVolume, and order the erasure by that.
    Trace,
    Withdraw,
    /// Write `intent: Delete`.
    Order,
    /// Delete the object.
    Delete,
    Wait,
    Answer(Result<(), Error>),
}

pub fn step(object: Option<&PoolVolume>, facts: DeleteFacts) -> DeleteStep {
    let Some(object) = object else {
        // An object that was deleted without the order erased nothing.
        return if facts.ordered { DeleteStep::Answer(Ok(())) } else { DeleteStep::Trace };
    };
    let (id, node) = (object.name_any(), &object.spec.node);
    let ordered = object.spec.intent == Intent::Delete;
    if !ordered && differs(object) {
        let message = agent_message(object).unwrap_or_default();
        return DeleteStep::Answer(Err(Error::Precondition(format!(
            "volume {id} is on a disk, but belongs to nobody: {message}. Before it can be deleted, delete the PoolVolume {id}, which asks \
             for another volume, and run `localpool volume adopt {id}` in the agent's pod there"
        ))));
    }
    // It has a PersistentVolume, so it was made. If the object says otherwise, the agent or a backup has written it
    // again since.
    if !ordered && never_accepted(object) && !facts.persistent {
        return DeleteStep::Withdraw;
    }
    if !facts.node_exists {
        return DeleteStep::Answer(Err(gone(object)));
    }
    if !ordered && phase(object) == Phase::Found {
        return DeleteStep::Answer(Err(Error::Precondition(format!(
            "volume {id} was found on a disk of node {node} and belongs to nobody: before it can be deleted, order \
             Adopt in its spec.order, or run `localpool volume adopt {id}` in the agent's pod there"
        ))));
    }
    if !ordered {
        return match object.metadata.deletion_timestamp {
            // Deleted by hand: the agent lets it go and restores it.
            Some(_) if facts.over => DeleteStep::Answer(Err(Error::Aborted(format!(
                "the object of volume {id} was deleted by hand, and node {node} has not written it again yet; try again"
            )))),
            Some(_) => DeleteStep::Wait,
            None if facts.over => DeleteStep::Answer(Err(contended(object))),
            None => DeleteStep::Order,
        };
    }
    if object.metadata.deletion_timestamp.is_none() {
        return if facts.over { DeleteStep::Answer(Err(contended(object))) } else { DeleteStep::Delete };
    }
    let status = object.status.as_ref();
    let message = agent_message(object);
    let in_use = status.is_some_and(|status| status.reason == Some(VolumeReason::InUse));
    match (phase(object), message) {
        (Phase::Deleting, Some(message)) if in_use && facts.grace => {
            DeleteStep::Answer(Err(Error::Precondition(format!("volume {id}: {message}"))))
        }
        (Phase::Deleting, Some(message)) if facts.over => {
            DeleteStep::Answer(Err(Error::Aborted(format!("volume {id} is not deleted yet: {message}"))))
        }
        _ if facts.over => DeleteStep::Answer(Err(Error::Aborted(format!(
            "volume {id} is not deleted yet by node {node}; does the localpool node pod run there?"
        )))),
        _ => DeleteStep::Wait,
    }
}

fn contended(object: &PoolVolume) -> Error {
    Error::Aborted(format!("the object of volume {} keeps changing; try again", object.name_any()))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{being_deleted, in_phase};
    use super::*;

    const FACTS: DeleteFacts =
        DeleteFacts { node_exists: true, persistent: true, ordered: false, grace: false, over: false };
    const UNACCEPTED: [Phase; 3] = [Phase::Pending, Phase::Rejected, Phase::Failed];
    const ON_DISK: [Phase; 3] = [Phase::Accepted, Phase::Ready, Phase::Deleting];

    fn ordered(phase: Phase) -> PoolVolume {
        let mut object = in_phase(phase);
        object.spec.intent = Intent::Delete;
        object
    }

    #[test]
    fn no_object_is_success_only_after_the_order_to_erase() {
        assert!(matches!(step(None, DeleteFacts { ordered: true, ..FACTS }), DeleteStep::Answer(Ok(()))));
        assert!(matches!(step(None, FACTS), DeleteStep::Trace));
    }

    #[test]
    fn what_no_agent_accepted_is_withdrawn_even_on_a_deleted_node() {
        for phase in UNACCEPTED {
            for node_exists in [true, false] {
                for object in [in_phase(phase), being_deleted(in_phase(phase))] {
                    let act = step(Some(&object), DeleteFacts { node_exists, persistent: false, ..FACTS });
                    assert!(matches!(act, DeleteStep::Withdraw), "{phase:?}");
                }
            }
        }
    }

    #[test]
    fn what_was_rejected_because_another_volume_of_this_id_is_on_a_disk_is_not_gone() {
        let mut object = in_phase(Phase::Rejected);
        object.status.as_mut().expect("set").reason = Some(VolumeReason::Differs);
        for persistent in [true, false] {
            let act = step(Some(&object), DeleteFacts { persistent, ..FACTS });
            let DeleteStep::Answer(Err(Error::Precondition(message))) = act else { panic!("{act:?}") };
            assert!(message.contains("localpool volume adopt"), "{message}");
        }
    }

    #[test]
    fn a_volume_that_a_persistent_volume_tells_of_is_erased_though_its_object_has_no_status_or_says_that_none_was_made()
    {
        let mut without_status = in_phase(Phase::Pending);
        without_status.status = None;
        for object in UNACCEPTED.map(in_phase).into_iter().chain([without_status]) {
            assert!(matches!(step(Some(&object), FACTS), DeleteStep::Order), "{object:?}");
            let gone = step(Some(&object), DeleteFacts { node_exists: false, ..FACTS });
            assert!(
                matches!(&gone, DeleteStep::Answer(Err(Error::Precondition(w))) if w.contains("abandon")),
                "{gone:?}"
            );
        }
    }

    #[test]
    fn a_volume_on_a_disk_is_ordered_to_be_erased_then_deleted_then_waited_for() {
        for phase in ON_DISK {
            assert!(matches!(step(Some(&in_phase(phase)), FACTS), DeleteStep::Order), "{phase:?}");
            assert!(matches!(step(Some(&ordered(phase)), FACTS), DeleteStep::Delete), "{phase:?}");
            assert!(matches!(step(Some(&being_deleted(ordered(phase))), FACTS), DeleteStep::Wait), "{phase:?}");
            for contended in [in_phase(phase), ordered(phase)] {
                let over = step(Some(&contended), DeleteFacts { over: true, ..FACTS });
                assert!(matches!(over, DeleteStep::Answer(Err(Error::Aborted(_)))), "{phase:?}: {over:?}");
            }
        }
        for phase in [Phase::Pending, Phase::Rejected, Phase::Failed, Phase::Found] {
            assert!(matches!(step(Some(&ordered(phase)), FACTS), DeleteStep::Delete), "{phase:?}");
        }
    }

    #[test]
    fn a_deletion_by_hand_is_never_taken_for_the_order() {
        for phase in [Phase::Accepted, Phase::Ready, Phase::Deleting] {
            let object = being_deleted(in_phase(phase));
            assert!(matches!(step(Some(&object), FACTS), DeleteStep::Wait), "{phase:?}");
            let over = step(Some(&object), DeleteFacts { over: true, ..FACTS });
            assert!(matches!(over, DeleteStep::Answer(Err(Error::Aborted(_)))), "{over:?}");
        }
    }

    #[test]
    fn what_was_found_is_adopted_first() {
        let act = step(Some(&in_phase(Phase::Found)), FACTS);
        let DeleteStep::Answer(Err(Error::Precondition(message))) = act else { panic!("{act:?}") };
        assert!(message.contains("localpool volume adopt"), "{message}");
    }

    #[test]
    fn a_volume_in_use_is_refused_with_the_agents_words_and_a_slow_one_aborted() {
        let mut object = being_deleted(ordered(Phase::Deleting));
        let status = object.status.as_mut().expect("set");
        (status.reason, status.message) = (Some(VolumeReason::InUse), Some("a pod has it open".to_owned()));
        assert!(matches!(step(Some(&object), FACTS), DeleteStep::Wait));
        let act = step(Some(&object), DeleteFacts { grace: true, ..FACTS });
        assert!(
            matches!(&act, DeleteStep::Answer(Err(Error::Precondition(w))) if w.contains("a pod has it open")),
            "{act:?}"
        );
        object.status.as_mut().expect("set").reason = Some(VolumeReason::DiskMissing);
        assert!(matches!(step(Some(&object), DeleteFacts { grace: true, ..FACTS }), DeleteStep::Wait));
        let act = step(Some(&object), DeleteFacts { over: true, ..FACTS });
        assert!(
            matches!(&act, DeleteStep::Answer(Err(Error::Aborted(w))) if w.contains("a pod has it open")),
            "{act:?}"
        );
        let act = step(Some(&being_deleted(ordered(Phase::Ready))), DeleteFacts { over: true, ..FACTS });
        assert!(matches!(&act, DeleteStep::Answer(Err(Error::Aborted(w))) if w.contains("node pod run")), "{act:?}");
    }

    #[test]
    fn a_deleted_nodes_volume_waits_for_a_person() {
        for object in [in_phase(Phase::Ready), ordered(Phase::Ready), being_deleted(ordered(Phase::Deleting))] {
            let act = step(Some(&object), DeleteFacts { node_exists: false, ..FACTS });
            let DeleteStep::Answer(Err(Error::Precondition(message))) = act else { panic!("{act:?}") };
            assert!(message.contains("localpool volume abandon"), "{message}");
        }
    }
}
