//! What must hold before a claim is deleted. What watches know is checked first: most volumes are never looked at.

use std::collections::BTreeSet;

use super::in_flight::{InFlight, is_within};
use super::live::{EvictionAnswer, LiveFacts, PodFacts, SetFacts};
use super::marked::{HomeState, MarkedVolume};
use super::record::ClaimUid;
use super::view::ReactionView;
use super::why::Why;
use crate::health::HealthReason;
use crate::operator::steady::Lasting;

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
    let lasts = |since| view.now.duration_since(since) >= view.settings.recover_after;
    // What was taken back begins again after another interval.
    let ended = volume.reacted.as_ref().and_then(|record| record.ended.as_ref());
    if !volume.lost_since.is_some_and(lasts)
        || ended.is_some_and(|end| is_within(end.at, view.now, view.settings.recover_after))
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
        HomeState::Ready => volume.losses.iter().find(|reason| !is_of_node(reason)).cloned().ok_or(Why::NodeIsBack),
    }
}

fn is_of_node(reason: &HealthReason) -> bool {
    matches!(reason, HealthReason::NodeNotReady | HealthReason::NodeGone)
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
    // Disks appear late after a start, and an agent that has just started repeats what was found before.
    let lasts = live.ready_since.map(|since| view.now.duration_since(since) >= view.settings.recover_after);
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
pub fn claim_of(volume: &MarkedVolume) -> Option<ClaimUid> {
    let claim = volume.volume.spec.as_ref()?.claim_ref.as_ref()?;
    let (namespace, name, uid) = (claim.namespace.clone()?, claim.name.clone()?, claim.uid.clone()?);
    Some(ClaimUid { namespace, name, uid })
}

/// Whose claim it is.
pub struct Target<'a> {
    pub claim: ClaimUid,
    pub set: &'a SetFacts,
    pub pod: &'a PodFacts,
}

/// Whether claim, pod and set are such that the set makes both again.
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
    let name = volume.volume.metadata.name.as_ref();
    let claim = claim_of(volume).ok_or(Why::ClaimElsewhere)?;
    let is_its = live
        .claim
        .as_ref()
        .is_some_and(|found| found.uid == claim.uid && found.volume.as_ref() == name && !found.is_deleted);
    if !is_its {
        return Err(Why::ClaimElsewhere);
    }
    // One that has ended keeps the claim as well, while it exists.
    let mut pods = live.pods.iter().filter(|pod| pod.uses_claim);
    let pod = pods.next().ok_or(Why::NoPod)?;
    if pods.next().is_some() {
        return Err(Why::OtherPodUsesClaim);
    }
    let set = live.set.as_ref().filter(|set| pod.set.as_ref() == Some(&set.uid)).ok_or(Why::NotStatefulSet)?;
    if !set.claims_of(&pod.name).any(|name| name == claim.name) {
        return Err(Why::NotFromTemplate);
    }
    // A pod that is made again could not run there: its other claim ties it to the node that has lost the disk.
    let is_of_pod = |other: &ClaimUid| {
        other.namespace == claim.namespace && set.claims_of(&pod.name).any(|name| name == other.name)
    };
    let mut moved = view.volumes.iter().filter(|other| other.is_elsewhere);
    if moved.any(|other| claim_of(other).is_some_and(|claim| is_of_pod(&claim))) {
        return Err(Why::DiskElsewhere);
    }
    if set.ordinal(&pod.name).is_none() {
        return Err(Why::SetEnds);
    }
    if set.replicas < 2 {
        return Err(Why::OnlyReplica);
    }
    if others.is_busy(&set.uid, &pod.name) {
        return Err(Why::SetBusy);
    }
    may_lose(pod, set, &claim.namespace, live, view)?;
    Ok(Target { claim, set, pod })
}

/// Whether the set is well without this pod, and makes it again.
pub fn may_lose(
    pod: &PodFacts,
    set: &SetFacts,
    namespace: &str,
    live: &LiveFacts,
    view: &ReactionView,
) -> Result<(), Why> {
    let lost = claims_of_unusable_volumes(namespace, view);
    let is_lost = |other: &PodFacts| set.claims_of(&other.name).any(|claim| lost.contains(claim.as_str()));
    // While it is scaled down, a set may still have pods that it does not want.
    let is_wanted = |other: &PodFacts| other.set.as_ref() == Some(&set.uid) && set.ordinal(&other.name).is_some();
    let of_set = live.pods.iter().filter(|other| is_wanted(other) && other.uid != pod.uid);
    let ready: Vec<&PodFacts> = of_set.filter(|other| other.is_ready && !other.is_deleted).collect();
    let well = ready.iter().filter(|other| !is_lost(other)).count();
    // More than half of them; of two, the other one.
    let needed = (set.replicas / 2 + 1).min(set.replicas - 1);
    if i32::try_from(well).unwrap_or(i32::MAX) < needed {
        return Err(Why::SetNotHealthy);
    }
    let own = set.ordinal(&pod.name).unwrap_or(set.first_ordinal);
    let mut before = (set.first_ordinal..own).map(|ordinal| format!("{}-{ordinal}", set.name));
    if set.is_ordered && before.any(|name| ready.iter().all(|other| other.name != name)) {
        return Err(Why::EarlierPodNotReady);
    }
    Ok(())
}

/// Their pods may be ready, and are no copies to count on.
fn claims_of_unusable_volumes<'a>(namespace: &str, view: &'a ReactionView) -> BTreeSet<&'a str> {
    let lost = view.volumes.iter().filter(|volume| volume.is_bound() && volume.is_unusable);
    let claims = lost.filter_map(|volume| volume.volume.spec.as_ref()?.claim_ref.as_ref());
    claims
        .filter(|claim| claim.namespace.as_deref() == Some(namespace))
        .filter_map(|claim| claim.name.as_deref())
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
        || live.claim.as_ref().is_some_and(|claim| claim.is_paused)
        || live.set.as_ref().is_some_and(|set| set.is_paused)
}

impl SetFacts {
    /// The names of the claims that it makes for a pod.
    pub fn claims_of(&self, pod: &str) -> impl Iterator<Item = String> {
        self.templates.iter().map(move |template| format!("{template}-{pod}"))
    }

    /// The number of a pod that it wants; `None`: it wants no pod of this name.
    pub fn ordinal(&self, pod: &str) -> Option<i32> {
        let ordinal = pod.strip_prefix(&self.name)?.strip_prefix('-')?.parse::<i32>().ok()?;
        let wanted = self.first_ordinal..self.first_ordinal.saturating_add(self.replicas);
        (!self.is_deleted && wanted.contains(&ordinal)).then_some(ordinal)
    }
}
