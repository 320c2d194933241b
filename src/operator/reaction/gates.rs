//! What must hold before a claim is deleted. What watches know is checked first: most volumes are never looked at.

use jiff::SignedDuration;

use super::live::{LiveFacts, PodFacts, SetFacts};
use super::marked::{HomeState, MarkedVolume};
use super::record::ClaimUid;
use super::view::ReactionView;
use super::why::Why;
use crate::health::HealthReason;
use crate::operator::steady::Lasting;

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// Whether the volume is lost, by what watches know; gives out the reason.
pub fn lost(volume: &MarkedVolume, view: &ReactionView) -> Result<HealthReason, Why> {
    if !volume.class.is_chosen {
        return Err(Why::ClassNotChosen);
    }
    if volume.losses.is_empty() {
        return Err(Why::MarkNotCounted);
    }
    let lasts = volume.lost_since.map(|since| view.now.duration_since(since));
    let has_lasted = lasts.is_some_and(|lasts| lasts >= view.settings.recover_after);
    if !has_lasted || !is_seen(volume, view) {
        return Err(Why::Recovering);
    }
    cause(volume)
}

pub fn is_seen(volume: &MarkedVolume, view: &ReactionView) -> bool {
    matches!(view.seen.get(&volume.uid), Some(Lasting::Yes(())))
}

/// The mark that counts where its node is as it is now.
pub fn cause(volume: &MarkedVolume) -> Result<HealthReason, Why> {
    let of_node = [HealthReason::NodeNotReady, HealthReason::NodeGone];
    let marked = |reason: HealthReason| volume.losses.get(&reason).cloned().ok_or(Why::Recovering);
    let own = volume.losses.iter().find(|reason| !of_node.contains(reason)).cloned();
    match volume.home {
        HomeState::Gone => marked(HealthReason::NodeGone),
        HomeState::NotReady => Err(Why::NodeNotFenced),
        HomeState::Fenced => marked(HealthReason::NodeNotReady),
        HomeState::Silent => Err(Why::NobodyKnows),
        HomeState::Ready => own.ok_or(Why::NodeIsBack),
    }
}

/// Whether the cluster allows that one more begins.
pub fn cluster(volume: &MarkedVolume, view: &ReactionView) -> Result<(), Why> {
    if view.clock != Lasting::Yes(()) {
        return Err(Why::ClockJumped);
    }
    few_nodes_bad(view)?;
    if is_pod_under_way(volume, view) {
        // Its other claim has gone, or goes: the pod cannot be whole before this one goes too.
        return Ok(());
    }
    // Of one that cannot be read, nobody knows which pod it is of.
    let under_way = |volume: &&MarkedVolume| volume.record.is_some();
    if view.volumes.iter().filter(under_way).count() >= view.settings.at_once {
        return Err(Why::TooManyAtOnce);
    }
    let records = view.volumes.iter().flat_map(|volume| {
        let record = volume.record.iter().filter_map(|record| record.as_ref().ok());
        record.chain(&volume.reacted)
    });
    let lately = records.filter(|record| view.now.duration_since(record.began) < HOUR).count();
    if lately >= view.settings.per_hour { Err(Why::TooManyInAnHour) } else { Ok(()) }
}

pub fn few_nodes_bad(view: &ReactionView) -> Result<(), Why> {
    let are_many = view.nodes.are_many(view.settings.max_bad_nodes) || view.calm != Lasting::Yes(());
    if are_many { Err(Why::ManyNodesBad) } else { Ok(()) }
}

/// Whether another volume of the pod has a record, by the names that a StatefulSet gives its claims.
fn is_pod_under_way(volume: &MarkedVolume, view: &ReactionView) -> bool {
    let Some(claim) = claim_of(volume) else { return false };
    view.volumes.iter().filter_map(|other| other.record.as_ref()?.as_ref().ok()).any(|record| {
        record.claim.namespace == claim.namespace
            && claim.name.strip_suffix(&record.pod).is_some_and(|stem| stem.ends_with('-'))
    })
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
pub fn live<'a>(volume: &MarkedVolume, live: &'a LiveFacts, view: &ReactionView) -> Result<Target<'a>, Why> {
    if !live.namespace.is_chosen {
        return Err(Why::NamespaceNotChosen);
    }
    if is_paused(volume, live) {
        return Err(Why::Paused);
    }
    if live.node.is_some() == (volume.home == HomeState::Gone) {
        return Err(Why::NodeIsBack);
    }
    let name = volume.volume.metadata.name.as_ref();
    let claim = claim_of(volume).ok_or(Why::ClaimElsewhere)?;
    let is_its = live
        .claim
        .as_ref()
        .is_some_and(|found| found.uid == claim.uid && found.volume.as_ref() == name && !found.is_deleted);
    if !is_its {
        return Err(Why::ClaimElsewhere);
    }
    let mut pods = live.pods.iter().filter(|pod| pod.uses_claim && !pod.has_ended);
    let pod = pods.next().ok_or(Why::NoPod)?;
    if pods.next().is_some() {
        return Err(Why::OtherPodUsesClaim);
    }
    let set = live.set.as_ref().filter(|set| pod.set.as_ref() == Some(&set.uid)).ok_or(Why::NotStatefulSet)?;
    if !set.templates.iter().any(|template| format!("{template}-{}", pod.name) == claim.name) {
        return Err(Why::NotFromTemplate);
    }
    if !set.wants(&pod.name) {
        return Err(Why::SetEnds);
    }
    if set.replicas < 2 {
        return Err(Why::OnlyReplica);
    }
    let others = view.volumes.iter().filter(|other| other.uid != volume.uid);
    let mut records = others.filter_map(|other| other.record.as_ref()?.as_ref().ok());
    if records.any(|record| record.set.uid == set.uid && record.pod != pod.name) {
        return Err(Why::SetBusy);
    }
    let is_other = |other: &&PodFacts| other.set.as_ref() == Some(&set.uid) && other.uid != pod.uid;
    let ready = live.pods.iter().filter(is_other).filter(|pod| pod.is_ready && !pod.is_deleted).count();
    // Half of the pods, rounded up.
    if i32::try_from(ready).unwrap_or(i32::MAX) < (set.replicas + 1) / 2 {
        return Err(Why::SetNotHealthy);
    }
    Ok(Target { claim, set, pod })
}

pub fn is_paused(volume: &MarkedVolume, live: &LiveFacts) -> bool {
    volume.is_paused
        || live.namespace.is_paused
        || live.claim.as_ref().is_some_and(|claim| claim.is_paused)
        || live.set.as_ref().is_some_and(|set| set.is_paused)
}

impl SetFacts {
    /// Whether it wants a pod of this name.
    pub fn wants(&self, pod: &str) -> bool {
        let ordinal = pod.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix('-')?.parse::<i32>().ok());
        let wanted = self.first_ordinal..self.first_ordinal.saturating_add(self.replicas);
        !self.is_deleted && ordinal.is_some_and(|ordinal| wanted.contains(&ordinal))
    }
}
