//! What must hold before a claim is deleted. What watches know is checked first: most volumes are never read.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};

use super::in_flight::{InFlight, is_within};
use super::live::{EvictionAnswer, LiveFacts, PodFacts, StatefulSetFacts};
use super::marked::{HomeState, MarkedVolume, is_of_node};
use super::record::PvcUid;
use super::view::ReactionView;
use super::why::Why;
use crate::health::HealthReason;
use crate::operator::api_server::object_key::ObjectName;
use crate::operator::kube_volume::PvcReference;
use crate::operator::status::steady::Lasting;

/// Whether the volume is lost, by what watches know; gives out the reason.
pub fn lost(volume: &MarkedVolume, view: &ReactionView) -> Result<HealthReason, Why> {
    if !volume.class.is_chosen {
        return Err(Why::ClassNotChosen);
    }
    if volume.losses.is_empty() {
        return Err(Why::MarkNotCounted);
    }
    if volume.is_elsewhere {
        return Err(Why::DiskElsewhere);
    }
    if volume.home == HomeState::Ready && !volume.losses.iter().all(is_of_node) && !volume.is_confirmed() {
        return Err(Why::NobodyKnows);
    }
    let lasts = |since| view.now.duration_since(since) >= view.interval();
    // What was taken back begins again after another interval.
    let ended = volume.reacted.as_ref().and_then(|record| record.ended.as_ref());
    if !volume.lost_since.is_some_and(lasts)
        || ended.is_some_and(|end| is_within(end.at, view.now, view.interval()))
        || !is_seen(volume, view)
    {
        return Err(Why::Recovering);
    }
    cause(volume)
}

pub fn is_seen(volume: &MarkedVolume, view: &ReactionView) -> bool {
    matches!(view.past.seen.get(&volume.uid), Some(Lasting::Yes(())))
}

/// The mark that counts where its node is as it is now.
fn cause(volume: &MarkedVolume) -> Result<HealthReason, Why> {
    let marked = |reason: HealthReason| volume.losses.get(&reason).cloned().ok_or(Why::Recovering);
    match volume.home {
        HomeState::Gone => marked(HealthReason::NodeGone),
        HomeState::NotReady => Err(Why::NodeNotFenced),
        HomeState::Fenced => marked(HealthReason::NodeNotReady),
        HomeState::Silent => Err(Why::NobodyKnows),
        HomeState::Ready => {
            let is_found = |reason: &&HealthReason| !is_of_node(reason) && !volume.unconfirmed.contains(*reason);
            volume.losses.iter().find(is_found).cloned().ok_or(Why::NodeIsBack)
        }
    }
}

/// Whether it is lost by what was just read: a mark may be old, and a watch may be late.
pub fn still_lost(volume: &MarkedVolume, live: &LiveFacts, view: &ReactionView) -> Result<(), Why> {
    if live.home != Some(volume.home) {
        return Err(Why::Recovering);
    }
    if live.node.is_some() == (volume.home == HomeState::Gone) {
        return Err(Why::NodeIsBack);
    }
    if volume.home != HomeState::Ready {
        return Ok(());
    }
    // Disks appear late after a start. What the agent that runs now has not found itself is not among the losses.
    let lasts = live.ready_since.map(|since| view.now.duration_since(since) >= view.interval());
    let is_lost = live.losses.iter().any(|reason| volume.losses.contains(reason) && !is_of_node(reason));
    if lasts == Some(true) && is_lost { Ok(()) } else { Err(Why::Recovering) }
}

/// Whether the cluster is such that anything may begin.
pub fn calm(view: &ReactionView) -> Result<(), Why> {
    if view.past.clock != Lasting::Yes(()) {
        return Err(Why::ClockJumped);
    }
    let are_many = view.nodes.are_many(view.settings.max_bad_nodes) || view.past.calm != Lasting::Yes(());
    if are_many { Err(Why::ManyNodesBad) } else { Ok(()) }
}

/// The claim that its claimRef names.
pub fn pvc_of(volume: &MarkedVolume) -> Option<PvcUid> {
    let PvcReference { namespace, name, uid } = volume.volume.pvc.clone()?;
    let (namespace, name, uid) = (namespace?, name?, uid?);
    Some(PvcUid { namespace, name, uid })
}

/// The claim, its StatefulSet and its pod, as one decision needs them.
pub struct Target<'a> {
    pub pvc: PvcUid,
    pub stateful_set: &'a StatefulSetFacts,
    pub pod: &'a PodFacts,
}

/// Whether claim, pod and StatefulSet are such that the StatefulSet makes both again.
pub fn live<'a>(
    volume: &MarkedVolume,
    live: &'a LiveFacts,
    view: &ReactionView,
    others: &InFlight<'_>,
) -> Result<Target<'a>, Why> {
    if !live.namespace.is_chosen {
        return Err(Why::NamespaceNotChosen);
    }
    if is_paused(volume, live) {
        return Err(Why::Paused);
    }
    still_lost(volume, live, view)?;
    let name = ObjectName::of(&*volume.volume);
    let pvc = pvc_of(volume).ok_or(Why::ClaimElsewhere)?;
    let is_its = live
        .pvc
        .as_ref()
        .is_some_and(|found| found.uid == pvc.uid && found.volume.as_ref() == Some(&name) && !found.is_deleted);
    if !is_its {
        return Err(Why::ClaimElsewhere);
    }
    // One that has ended keeps the claim as well, while it exists.
    let mut pods = live.pods.iter().filter(|pod| pod.uses_pvc);
    let pod = pods.next().ok_or(Why::NoPod)?;
    if pods.next().is_some() {
        return Err(Why::OtherPodUsesClaim);
    }
    let stateful_set = live
        .stateful_set
        .as_ref()
        .filter(|stateful_set| pod.stateful_set.as_ref() == Some(&stateful_set.uid))
        .ok_or(Why::NotStatefulSet)?;
    if !stateful_set.pvcs_of(&pod.name).any(|name| name == pvc.name) {
        return Err(Why::NotFromTemplate);
    }
    // A pod that is made again could not run there: its other claim ties it to the node that has lost the disk.
    let is_of_pod = |other: &PvcUid| {
        other.namespace == pvc.namespace && stateful_set.pvcs_of(&pod.name).any(|name| name == other.name)
    };
    let mut moved = view.volumes.iter().filter(|other| other.is_elsewhere);
    if moved.any(|other| pvc_of(other).is_some_and(|pvc| is_of_pod(&pvc))) {
        return Err(Why::DiskElsewhere);
    }
    if stateful_set.ordinal(&pod.name).is_none() {
        return Err(Why::SetEnds);
    }
    if stateful_set.replicas < 2 {
        return Err(Why::OnlyReplica);
    }
    if others.is_busy(&stateful_set.uid, &pod.name) {
        return Err(Why::SetBusy);
    }
    may_lose(pod, stateful_set, &pvc.namespace, live, view)?;
    Ok(Target { pvc, stateful_set, pod })
}

/// Whether the StatefulSet is well without this pod, and makes it again.
pub fn may_lose(
    pod: &PodFacts,
    stateful_set: &StatefulSetFacts,
    namespace: &ObjectName<Namespace>,
    live: &LiveFacts,
    view: &ReactionView,
) -> Result<(), Why> {
    let lost = pvcs_of_unusable_volumes(namespace, view);
    let is_lost = |other: &PodFacts| stateful_set.pvcs_of(&other.name).any(|pvc| lost.contains(pvc.as_str()));
    // While it is scaled down, a StatefulSet may still have pods that it does not want.
    let is_wanted = |other: &PodFacts| {
        other.stateful_set.as_ref() == Some(&stateful_set.uid) && stateful_set.ordinal(&other.name).is_some()
    };
    let of_set = live.pods.iter().filter(|other| is_wanted(other) && other.uid != pod.uid);
    let ready: Vec<&PodFacts> = of_set.filter(|other| other.is_ready && !other.is_deleted).collect();
    let well = ready.iter().filter(|other| !is_lost(other)).count();
    // More than half of them; of two, the other one.
    let needed = (stateful_set.replicas / 2 + 1).min(stateful_set.replicas - 1);
    if i32::try_from(well).unwrap_or(i32::MAX) < needed {
        return Err(Why::SetNotHealthy);
    }
    let own = stateful_set.ordinal(&pod.name).unwrap_or(stateful_set.first_ordinal);
    let mut before = (stateful_set.first_ordinal..own).map(|ordinal| format!("{}-{ordinal}", stateful_set.name));
    if stateful_set.is_ordered && before.any(|name| ready.iter().all(|other| other.name.as_str() != name)) {
        return Err(Why::EarlierPodNotReady);
    }
    Ok(())
}

/// Their pods may be ready, and are no copies to count on.
fn pvcs_of_unusable_volumes<'a>(namespace: &ObjectName<Namespace>, view: &'a ReactionView) -> BTreeSet<&'a str> {
    let lost = view.volumes.iter().filter(|volume| volume.is_bound() && volume.is_unusable);
    let pvcs = lost.filter_map(|volume| volume.volume.pvc.as_ref());
    pvcs.filter(|pvc| pvc.namespace.as_ref() == Some(namespace))
        .filter_map(|pvc| Some(pvc.name.as_ref()?.as_str()))
        .collect()
}

/// Whether the pod can be evicted now; `None`: nobody asked.
pub fn eviction(live: &LiveFacts) -> Option<Result<(), Why>> {
    live.eviction.map(|answer| match answer {
        EvictionAnswer::Allowed => Ok(()),
        EvictionAnswer::Refused => Err(Why::BudgetExhausted),
        EvictionAnswer::Failed => Err(Why::Refused),
    })
}

pub fn is_paused(volume: &MarkedVolume, live: &LiveFacts) -> bool {
    volume.is_paused
        || live.namespace.is_paused
        || live.pvc.as_ref().is_some_and(|pvc| pvc.is_paused)
        || live.stateful_set.as_ref().is_some_and(|stateful_set| stateful_set.is_paused)
}

impl StatefulSetFacts {
    /// The names of the claims that it makes for a pod.
    pub fn pvcs_of(&self, pod: &ObjectName<Pod>) -> impl Iterator<Item = ObjectName<PersistentVolumeClaim>> {
        self.templates.iter().map(move |template| format!("{template}-{pod}").into())
    }

    /// The number of a pod that it wants; `None`: it wants no pod of this name.
    pub fn ordinal(&self, pod: &ObjectName<Pod>) -> Option<i32> {
        let ordinal = pod.as_str().strip_prefix(self.name.as_str())?.strip_prefix('-')?.parse::<i32>().ok()?;
        let wanted = self.first_ordinal..self.first_ordinal.saturating_add(self.replicas);
        (!self.is_deleted && wanted.contains(&ordinal)).then_some(ordinal)
    }
}
