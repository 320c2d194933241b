//! How far the order of a person for a volume is (`spec.order`), and whether it may be carried out now. Pure but for
//! the clock of the condition.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use crate::api::crd::{Intent, OrderReason, Phase, PoolVolume, VolumeOrder};
use crate::health::HealthReason;
use crate::operator::pool_volume::{NodeObject, never_accepted, phase, unhealthy};
use crate::operator::status::condition::condition;

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
    /// The order was refused before: an erasure must not lie in wait until the PersistentVolume is gone for another
    /// reason.
    pub refused: bool,
}

/// Whether the order was refused, and was not removed since.
pub fn is_refused(volume: &PoolVolume) -> bool {
    let named = OrderReason::PersistentVolumeExists.word();
    let conditions = volume.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.type_ == ORDER_DONE && condition.reason == named)
}

/// Whether the API server still has the order that a watch has shown, which may be late: nobody has taken it back,
/// changed it, called it done, or deleted the object.
pub fn stands(shown: &PoolVolume, live: &PoolVolume) -> bool {
    let is_kept = live.spec.intent == Intent::Keep && live.metadata.deletion_timestamp.is_none();
    let is_same = live.spec.order == shown.spec.order && live.spec.keep == shown.spec.keep;
    live.uid() == shown.uid() && is_kept && is_same && !is_done(live)
}

/// Whether the order was carried out.
pub fn is_done(volume: &PoolVolume) -> bool {
    done(volume).is_some()
}

/// What says that the order was carried out.
fn done(volume: &PoolVolume) -> Option<&Condition> {
    let mut conditions = volume.status.iter().flat_map(|status| &status.conditions);
    conditions.find(|condition| condition.type_ == ORDER_DONE && condition.status == "True")
}

/// How far an order is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderProgress {
    Done(String),
    /// It can be carried out now.
    Due,
    /// It is being carried out, or waits.
    Waits {
        reason: OrderReason,
        message: String,
    },
    /// It is not carried out, whatever happens, until it is removed.
    Refused {
        reason: OrderReason,
        message: String,
    },
}

const AGAIN: &str = "This order is refused for good; to order it again, remove it first";

impl OrderProgress {
    /// In one word.
    pub fn reason(&self) -> OrderReason {
        match self {
            Self::Done(_) => OrderReason::Done,
            Self::Due => OrderReason::Due,
            Self::Waits { reason, .. } | Self::Refused { reason, .. } => reason.clone(),
        }
    }
}

fn waits(reason: OrderReason, message: String) -> OrderProgress {
    OrderProgress::Waits { reason, message }
}

/// How far `order` is.
pub fn progress(volume: &PoolVolume, order: VolumeOrder, facts: OrderFacts<'_>) -> OrderProgress {
    match order {
        VolumeOrder::Adopt => adopt(volume),
        VolumeOrder::Erase => erase(volume, facts),
        VolumeOrder::Abandon => abandoned(volume, facts.node),
        VolumeOrder::Settle => settle(volume),
    }
}

fn adopt(volume: &PoolVolume) -> OrderProgress {
    let node = &volume.spec.node;
    match phase(volume) {
        Phase::Ready => OrderProgress::Done("the volume can be used".to_owned()),
        Phase::Found => {
            let why = volume.status.as_ref().and_then(|status| status.message.clone());
            waits(
                OrderReason::NotAdoptedYet,
                why.unwrap_or_else(|| format!("the agent of node {node} has not adopted it yet")),
            )
        }
        Phase::Pending | Phase::Rejected | Phase::Accepted | Phase::Failed | Phase::Deleting => {
            waits(OrderReason::NotAdoptable, "only a volume in the phase Found can be adopted".to_owned())
        }
    }
}

/// The agent does it, and says in the message why it cannot. A volume that is in no conflict is settled: the order does
/// not wait for the next one, which a person has to look at as well. Only another disk to keep is another order.
fn settle(volume: &PoolVolume) -> OrderProgress {
    let settled = match &volume.spec.keep {
        Some(keep) => format!("the volume is on one disk only: this order, with keep {keep}, is over"),
        None => "the volume is on one disk only: this order is over".to_owned(),
    };
    if done(volume).is_some_and(|done| done.message == settled) {
        return OrderProgress::Done(settled);
    }
    let health = volume.status.as_ref().map(unhealthy).unwrap_or_default();
    if phase(volume) != Phase::Ready && phase(volume) != Phase::Found {
        return waits(OrderReason::NotReady, "the volume is on no disk, or is being made or deleted".to_owned());
    }
    match health.findings().iter().find(|finding| finding.reason == HealthReason::Conflict) {
        Some(conflict) => {
            let why = volume.status.as_ref().and_then(|status| status.message.clone());
            waits(OrderReason::InConflict, why.unwrap_or_else(|| conflict.message.clone()))
        }
        None => OrderProgress::Done(settled),
    }
}

fn erase(volume: &PoolVolume, facts: OrderFacts<'_>) -> OrderProgress {
    let (id, node) = (volume.name_any(), &volume.spec.node);
    let intended = volume.spec.intent == Intent::Delete;
    if intended && volume.metadata.deletion_timestamp.is_some() && facts.node == NodeObject::Exists {
        let why = volume.status.as_ref().and_then(|status| status.message.clone());
        let why = why.unwrap_or_else(|| format!("the agent of node {node} erases it"));
        return waits(OrderReason::BeingErased, why);
    }
    if let Some(persistent) = facts.persistent_volume {
        let message = format!(
            "PersistentVolume {persistent} names it: set its persistentVolumeReclaimPolicy to Delete, and delete its claim. \
             {AGAIN}"
        );
        return OrderProgress::Refused { reason: OrderReason::PersistentVolumeExists, message };
    }
    if facts.refused && !intended {
        let message = format!("a PersistentVolume named it when this was ordered. {AGAIN}");
        return OrderProgress::Refused { reason: OrderReason::PersistentVolumeExists, message };
    }
    if facts.node == NodeObject::Deleted {
        let message = format!("node {node} was deleted, so nobody can erase it: order Abandon, or bring the node back");
        return waits(OrderReason::NodeDeleted, message);
    }
    match phase(volume) {
        // Whoever wrote the intent was stopped before the deletion.
        _ if intended => OrderProgress::Due,
        Phase::Found => OrderProgress::Due,
        Phase::Ready if facts.unclaimed => OrderProgress::Due,
        Phase::Ready => {
            let message =
                "its PersistentVolume may be on its way: it can be erased when none has named it for ten minutes";
            waits(OrderReason::UnclaimedTooShort, message.to_owned())
        }
        Phase::Pending | Phase::Rejected | Phase::Failed if never_accepted(volume) => waits(
            OrderReason::NotMade,
            format!("volume {id} is on no disk, and its PoolVolume is withdrawn automatically"),
        ),
        Phase::Pending | Phase::Rejected | Phase::Failed | Phase::Accepted | Phase::Deleting => {
            waits(OrderReason::NotReady, format!("volume {id} is not Ready or Found; status.message says why"))
        }
    }
}

/// Whether the object may be given up: only if its node will not write it again.
pub fn abandoned(volume: &PoolVolume, node_object: NodeObject) -> OrderProgress {
    let node = &volume.spec.node;
    match node_object {
        NodeObject::Deleted => OrderProgress::Due,
        NodeObject::Exists => waits(
            OrderReason::NodeExists,
            format!(
                "node {node} exists: its agent would write the object again. Delete the volume's claim instead; if the \
                 machine never comes back, delete the Node object first"
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
        let is_done = matches!(progress, OrderProgress::Done(_));
        let message = match progress {
            OrderProgress::Due => "it is carried out now",
            OrderProgress::Done(message)
            | OrderProgress::Waits { message, .. }
            | OrderProgress::Refused { message, .. } => message,
        };
        condition(before, ORDER_DONE, is_done, progress.reason().word(), message, generation)
    });
    if written == next.as_ref() {
        return None;
    }
    let others = before.iter().filter(|condition| condition.type_ != ORDER_DONE).cloned();
    Some(others.chain(next).collect())
}

#[cfg(test)]
mod tests {
    use super::super::sample::{being_deleted, in_phase, status_condition};
    use super::*;
    use crate::device::DiskId;

    const ALL: [Phase; 7] =
        [Phase::Pending, Phase::Rejected, Phase::Accepted, Phase::Failed, Phase::Ready, Phase::Found, Phase::Deleting];
    const FACTS: OrderFacts<'static> =
        OrderFacts { persistent_volume: None, unclaimed: true, node: NodeObject::Exists, refused: false };

    fn reason(progress: OrderProgress) -> String {
        progress.reason().word().to_owned()
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
        for phase in [Phase::Ready, Phase::Found] {
            assert_eq!(of(phase, OrderFacts { refused: true, ..FACTS }), "PersistentVolumeExists", "it lies in wait");
        }
        assert_eq!(of(Phase::Ready, OrderFacts { unclaimed: false, ..FACTS }), "UnclaimedTooShort");
        assert_eq!(of(Phase::Found, OrderFacts { unclaimed: false, ..FACTS }), "Due", "nobody asked for it");
        let mut erased = in_phase(Phase::Ready);
        erased.spec.intent = Intent::Delete;
        assert_eq!(reason(progress(&erased, VolumeOrder::Erase, FACTS)), "Due", "its deletion is still to come");
        let erased = being_deleted(erased);
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
                _ => "NotAdoptable",
            };
            assert_eq!(of(VolumeOrder::Adopt, FACTS), adopted);
            let is_there = matches!(phase, Phase::Ready | Phase::Found);
            assert_eq!(of(VolumeOrder::Settle, FACTS), if is_there { "Done" } else { "NotReady" });
        }
    }

    #[test]
    fn a_settled_conflict_is_settled_and_the_next_one_waits_for_another_order() {
        let mut volume = in_phase(Phase::Ready);
        let of = |volume: &PoolVolume| progress(volume, VolumeOrder::Settle, FACTS);
        let write = |volume: &mut PoolVolume| {
            let progress = of(volume);
            let status = volume.status.as_mut().expect("set");
            status.conditions = conditions(&status.conditions, Some(&progress), None).expect("a change");
        };
        let in_conflict = |volume: &PoolVolume| {
            let mut volume = volume.clone();
            let status = volume.status.as_mut().expect("set");
            status.conditions.push(status_condition("Healthy", "False", "Conflict", "two disks have it"));
            volume
        };
        volume.spec.keep = Some(DiskId::named("gpt-x"));
        assert_eq!(reason(of(&in_conflict(&volume))), "InConflict");
        write(&mut volume);
        assert!(is_done(&volume));
        assert_eq!(reason(of(&in_conflict(&volume))), "Done", "the next conflict is another one");
        volume.spec.keep = Some(DiskId::named("gpt-y"));
        assert_eq!(reason(of(&in_conflict(&volume))), "InConflict", "it is another order");
    }

    #[test]
    fn an_order_stands_while_nobody_has_taken_it_back_changed_it_called_it_done_or_deleted_the_object() {
        let shown = {
            let mut shown = in_phase(Phase::Ready);
            (shown.spec.order, shown.spec.keep) = (Some(VolumeOrder::Settle), Some(DiskId::named("gpt-x")));
            shown
        };
        let live_with = |change: &dyn Fn(&mut PoolVolume)| {
            let mut live = shown.clone();
            change(&mut live);
            stands(&shown, &live)
        };
        assert!(live_with(&|_| {}));
        let others = |live: &mut PoolVolume| {
            live.metadata.resource_version = Some("11".to_owned());
            live.spec.size = Some(9 << 30);
            let waits = status_condition(ORDER_DONE, "False", "InConflict", "");
            live.status.as_mut().expect("set").conditions.push(waits);
        };
        assert!(live_with(&others), "that is not about the order");
        let changes: [&dyn Fn(&mut PoolVolume); 7] = [
            &|live| live.spec.order = None,
            &|live| live.spec.order = Some(VolumeOrder::Adopt),
            &|live| live.spec.keep = Some(DiskId::named("gpt-y")),
            &|live| live.metadata.uid = Some("u2".to_owned()),
            &|live| live.spec.intent = Intent::Delete,
            &|live| *live = being_deleted(live.clone()),
            &|live| {
                let done = status_condition(ORDER_DONE, "True", "Done", "");
                live.status.as_mut().expect("set").conditions.push(done);
            },
        ];
        for (nth, change) in changes.into_iter().enumerate() {
            assert!(!live_with(change), "the change {nth}");
        }
    }

    #[test]
    fn an_order_is_reported_once_and_forgotten_with_the_order() {
        let other = status_condition("Healthy", "True", "Fine", "");
        let waits = waits(OrderReason::NodeExists, "wait".to_owned());
        let first = conditions(std::slice::from_ref(&other), Some(&waits), Some(1)).expect("a change");
        assert_eq!((first[1].type_.as_str(), first[1].status.as_str()), (ORDER_DONE, "False"));
        assert_eq!(conditions(&first, Some(&waits), Some(1)), None);
        let done = conditions(&first, Some(&OrderProgress::Done("done".to_owned())), Some(1)).expect("a change");
        assert_eq!((done.len(), done[1].status.as_str()), (2, "True"));
        assert_eq!(conditions(&done, None, Some(2)), Some(vec![other.clone()]));
        assert_eq!(conditions(&[other], None, Some(2)), None);
    }
}
