//! How far the order of a person for a volume is (`spec.order`), and whether it may be carried out now. Pure but for the
//! clock of the condition.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use crate::api::crd::{Intent, Phase, PoolVolume, VolumeOrder};
use crate::operator::condition::condition;
use crate::operator::pool_volume::{NodeObject, never_accepted, phase};

/// Type of the condition that shows how far an order is; the leader writes it.
pub const ORDER_DONE: &str = "OrderDone";

/// What is known of a volume for its order.
#[derive(Clone, Copy, Debug)]
pub struct OrderFacts<'a> {
    /// A PersistentVolume that names it.
    pub persistent_volume: Option<&'a str>,
    /// No PersistentVolume has named it for long enough that nobody is about to make one.
    pub unclaimed: bool,
    pub node: NodeObject,
}

/// How far an order is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderProgress {
    Done(String),
    /// It can be carried out now.
    Due,
    /// It is being carried out, waits, or is refused as things are.
    Waits {
        reason: &'static str,
        message: String,
    },
}

fn waits(reason: &'static str, message: String) -> OrderProgress {
    OrderProgress::Waits { reason, message }
}

/// How far `order` is.
pub fn progress(volume: &PoolVolume, order: VolumeOrder, facts: OrderFacts<'_>) -> OrderProgress {
    match order {
        VolumeOrder::Adopt => adopt(volume),
        VolumeOrder::Erase => erase(volume, facts),
        VolumeOrder::Abandon => abandon(volume, facts),
    }
}

fn adopt(volume: &PoolVolume) -> OrderProgress {
    let node = &volume.spec.node;
    match phase(volume) {
        Phase::Ready => OrderProgress::Done("the volume can be used".to_owned()),
        Phase::Found => {
            waits("NotAdoptedYet", format!("the agent of node {node} adopts it, once its disk can be used"))
        }
        Phase::Pending | Phase::Rejected | Phase::Accepted | Phase::Failed | Phase::Deleting => {
            waits("NotFound", "only a volume in the phase Found can be adopted".to_owned())
        }
    }
}

fn erase(volume: &PoolVolume, facts: OrderFacts<'_>) -> OrderProgress {
    let (id, node) = (volume.name_any(), &volume.spec.node);
    if volume.spec.intent == Intent::Delete {
        let why = volume.status.as_ref().and_then(|status| status.message.clone());
        let why = why.unwrap_or_else(|| format!("the agent of node {node} erases it"));
        return waits("BeingErased", why);
    }
    if let Some(persistent) = facts.persistent_volume {
        let message = format!(
            "PersistentVolume {persistent} names it: delete its claim, and set its persistentVolumeReclaimPolicy to Delete"
        );
        return waits("PersistentVolumeExists", message);
    }
    if facts.node == NodeObject::Deleted {
        let message = format!("node {node} was deleted, so nobody can erase it: order Abandon, or bring the node back");
        return waits("NodeDeleted", message);
    }
    match phase(volume) {
        Phase::Found => OrderProgress::Due,
        Phase::Ready if facts.unclaimed => OrderProgress::Due,
        Phase::Ready => {
            let message =
                "it may have been made just now: it is erased when no PersistentVolume has named it for ten minutes";
            waits("UnclaimedTooShort", message.to_owned())
        }
        Phase::Pending | Phase::Rejected | Phase::Failed if never_accepted(volume) => {
            waits("NotMade", format!("volume {id} is on no disk, and its PoolVolume is withdrawn automatically"))
        }
        Phase::Pending | Phase::Rejected | Phase::Failed | Phase::Accepted | Phase::Deleting => {
            waits("NotReady", format!("volume {id} is not Ready or Found; status.message says why"))
        }
    }
}

fn abandon(volume: &PoolVolume, facts: OrderFacts<'_>) -> OrderProgress {
    let node = &volume.spec.node;
    match facts.node {
        NodeObject::Deleted => OrderProgress::Due,
        NodeObject::Exists => waits(
            "NodeExists",
            format!(
                "node {node} exists: its agent would write the object again. Delete the volume's claim, or order Erase"
            ),
        ),
    }
}

/// The conditions of a volume with that of its order; `None`: `before` is right.
pub fn conditions(
    before: &[Condition],
    progress: Option<&OrderProgress>,
    generation: Option<i64>,
) -> Option<Vec<Condition>> {
    let written = before.iter().find(|condition| condition.type_ == ORDER_DONE);
    let next = progress.map(|progress| {
        let due = (false, "Due", "it is carried out now");
        let (done, reason, message) = match progress {
            OrderProgress::Done(message) => (true, "Done", message.as_str()),
            OrderProgress::Due => due,
            OrderProgress::Waits { reason, message } => (false, *reason, message.as_str()),
        };
        condition(before, ORDER_DONE, done, reason, message, generation)
    });
    if written == next.as_ref() {
        return None;
    }
    let others = before.iter().filter(|condition| condition.type_ != ORDER_DONE).cloned();
    Some(others.chain(next).collect())
}

#[cfg(test)]
mod tests {
    use super::super::sample::{in_phase, status_condition};
    use super::*;

    const ALL: [Phase; 7] =
        [Phase::Pending, Phase::Rejected, Phase::Accepted, Phase::Failed, Phase::Ready, Phase::Found, Phase::Deleting];
    const FACTS: OrderFacts<'static> =
        OrderFacts { persistent_volume: None, unclaimed: true, node: NodeObject::Exists };

    fn reason(progress: OrderProgress) -> &'static str {
        match progress {
            OrderProgress::Done(_) => "Done",
            OrderProgress::Due => "Due",
            OrderProgress::Waits { reason, .. } => reason,
        }
    }

    #[test]
    fn only_a_volume_that_is_on_a_disk_and_that_nobody_names_is_erased() {
        let of = |phase, facts| reason(progress(&in_phase(phase), VolumeOrder::Erase, facts));
        let due: Vec<Phase> = ALL.into_iter().filter(|phase| of(*phase, FACTS) == "Due").collect();
        assert_eq!(due, [Phase::Ready, Phase::Found]);
        for phase in ALL {
            let named = OrderFacts { persistent_volume: Some("pv"), ..FACTS };
            assert_eq!(of(phase, named), "PersistentVolumeExists", "{phase:?}");
            let deleted = OrderFacts { node: NodeObject::Deleted, ..FACTS };
            assert_eq!(of(phase, deleted), "NodeDeleted", "{phase:?}");
        }
        assert_eq!(of(Phase::Ready, OrderFacts { unclaimed: false, ..FACTS }), "UnclaimedTooShort");
        assert_eq!(of(Phase::Found, OrderFacts { unclaimed: false, ..FACTS }), "Due", "nobody asked for it");
        let mut erased = in_phase(Phase::Ready);
        erased.spec.intent = Intent::Delete;
        assert_eq!(reason(progress(&erased, VolumeOrder::Erase, FACTS)), "BeingErased", "it is ordered once");
    }

    #[test]
    fn only_the_volume_of_a_deleted_node_is_abandoned_and_only_a_found_one_adopted() {
        for phase in ALL {
            let of = |order, facts| reason(progress(&in_phase(phase), order, facts));
            assert_eq!(of(VolumeOrder::Abandon, FACTS), "NodeExists");
            assert_eq!(of(VolumeOrder::Abandon, OrderFacts { node: NodeObject::Deleted, ..FACTS }), "Due");
            let adopted = match phase {
                Phase::Ready => "Done",
                Phase::Found => "NotAdoptedYet",
                _ => "NotFound",
            };
            assert_eq!(of(VolumeOrder::Adopt, FACTS), adopted);
        }
    }

    #[test]
    fn an_order_is_reported_once_and_forgotten_with_the_order() {
        let other = status_condition("Healthy", "True", "Fine", "");
        let waits = waits("NodeExists", "wait".to_owned());
        let first = conditions(std::slice::from_ref(&other), Some(&waits), Some(1)).expect("a change");
        assert_eq!((first[1].type_.as_str(), first[1].status.as_str()), (ORDER_DONE, "False"));
        assert_eq!(conditions(&first, Some(&waits), Some(1)), None);
        let done = conditions(&first, Some(&OrderProgress::Done("done".to_owned())), Some(1)).expect("a change");
        assert_eq!((done.len(), done[1].status.as_str()), (2, "True"));
        assert_eq!(conditions(&done, None, Some(2)), Some(vec![other.clone()]));
        assert_eq!(conditions(&[other], None, Some(2)), None);
    }
}
