//! What follows for a volume that has a record. The steps are found by what is there: one that was done is not done
//! again, whoever did it.

use super::gates;
use super::in_flight::{InFlight, is_within};
use super::live::{LiveFacts, PodFacts, SetFacts};
use super::marked::MarkedVolume;
use super::record::{ClaimUid, RETAIN, ReactionRecord};
use super::settings::ReactionMode;
use super::view::{Deed, PodRef, ReactionView};
use super::why::Why;
use crate::operator::steady::Lasting;

pub fn next(
    volume: &MarkedVolume,
    record: &ReactionRecord,
    live: &LiveFacts,
    view: &ReactionView,
    others: &InFlight<'_>,
) -> Deed {
    if record.volume != volume.uid {
        return Deed::Report(Why::RecordUnreadable);
    }
    let old = live.claim.as_ref().filter(|claim| claim.uid == record.claim.uid);
    if old.is_some_and(|claim| !claim.is_deleted) {
        return claim_lives(volume, record, live, view, others);
    }
    if let Err(why) = goes_on(volume, record, live, view) {
        return Deed::Stop(record.clone(), why);
    }
    let set = live.set.as_ref().filter(|set| set.ordinal(&record.pod).is_some());
    let Some(set) = set else { return Deed::Stop(record.clone(), Why::SetEnds) };
    let of_set = |pod: &&PodFacts| pod.name == record.pod && pod.set.as_ref() == Some(&set.uid);
    let pod = live.pods.iter().find(of_set);
    match (old, &live.claim, pod) {
        (_, None, None) => Deed::Report(Why::WaitsForSet),
        (Some(_), _, None) => Deed::Report(Why::WaitsForClaim),
        (Some(_), _, Some(pod)) if pod.node.is_none() => Deed::Report(Why::WaitsForClaim),
        (None, Some(claim), _) if !claim.is_bound => Deed::Report(Why::WaitsForBinding),
        (None, Some(_), Some(pod)) if pod.is_ready && !pod.is_deleted => Deed::Finish(record.clone()),
        (None, Some(_), _) => Deed::Report(Why::WaitsForReady),
        (_, _, Some(pod)) if pod.is_deleted => Deed::Report(Why::WaitsForPod),
        (_, _, Some(_)) if gates::is_paused(volume, live) => Deed::Report(Why::Paused),
        (_, _, Some(_)) if is_other_claim_alive(volume, record, view) => Deed::Report(Why::WaitsForClaim),
        (_, _, Some(pod)) if !pod.uses_claim && !is_made(&record.claim, set, pod) => {
            Deed::Stop(record.clone(), Why::NotFromTemplate)
        }
        (_, _, Some(pod)) if !pod.uses_claim => Deed::Report(Why::NoPod),
        // It runs and holds the old claim; or it is Pending and its claim has gone, and no event makes the set look.
        (_, _, Some(pod)) => match may_go(pod, live, record, view) {
            Ok(()) => Deed::Evict(pod.reference(&record.claim.namespace)),
            Err(why) => Deed::Report(why),
        },
    }
}

/// Whether anybody still wants it, now that the claim is deleted.
fn goes_on(volume: &MarkedVolume, record: &ReactionRecord, live: &LiveFacts, view: &ReactionView) -> Result<(), Why> {
    if view.settings.mode != ReactionMode::On {
        return Err(Why::SwitchedOff);
    }
    if !live.namespace.is_chosen {
        return Err(Why::NamespaceNotChosen);
    }
    // Somebody binds the volume again.
    let is_its = gates::claim_of(volume).is_some_and(|claim| claim.uid == record.claim.uid);
    if is_its { Ok(()) } else { Err(Why::ClaimElsewhere) }
}

/// A pod that is ready still serves: while others of its set are away, it can wait.
fn may_go(pod: &PodFacts, live: &LiveFacts, record: &ReactionRecord, view: &ReactionView) -> Result<(), Why> {
    let Some(set) = live.set.as_ref().filter(|_| pod.is_ready) else { return Ok(()) };
    gates::calm(view)?;
    gates::may_lose(pod, set, &record.claim.namespace, live, view)
}

/// The claim is still there, so all can be taken back.
fn claim_lives(
    volume: &MarkedVolume,
    record: &ReactionRecord,
    live: &LiveFacts,
    view: &ReactionView,
    others: &InFlight<'_>,
) -> Deed {
    let cancel = |why| Deed::Cancel(record.clone(), why);
    if view.settings.mode != ReactionMode::On {
        return cancel(Why::SwitchedOff);
    }
    if view.nodes.are_many(view.settings.max_bad_nodes) {
        return cancel(Why::ManyNodesBad);
    }
    if view.past.refused.contains(&volume.uid) {
        return cancel(Why::Refused);
    }
    // A controller that has just taken over knows too little yet, to go on or to take it back.
    if !gates::is_seen(volume, view) && !volume.losses.is_empty() {
        // A node or an agent that comes and goes must not hold the place of others.
        let is_late = !is_within(record.began, view.now, view.settings.recover_after * 2);
        return if is_late { cancel(Why::Recovering) } else { Deed::Report(Why::Recovering) };
    }
    if view.past.clock != Lasting::Yes(()) {
        return Deed::Report(Why::ClockJumped);
    }
    if let Err(why) = gates::lost(volume, view) {
        return cancel(why);
    }
    match gates::live(volume, live, view, others) {
        Err(why) => cancel(why),
        Ok(target) if target.pod.name != record.pod || target.set.uid != record.set.uid => cancel(Why::ClaimElsewhere),
        Ok(_) if node_uid(record) != live.node.as_deref() => cancel(Why::NodeIsBack),
        // The deletion of the claim would delete the volume.
        Ok(_) if volume.policy() != RETAIN => cancel(Why::PolicyChanged),
        Ok(target) => match gates::eviction(live) {
            None => Deed::AskEviction(target.pod.reference(&record.claim.namespace)),
            Some(Err(why)) => cancel(why),
            Some(Ok(())) => Deed::DeleteClaim(record.claim.clone()),
        },
    }
}

fn node_uid(record: &ReactionRecord) -> Option<&str> {
    record.node.as_ref().map(|node| node.uid.as_str())
}

/// Another lost claim of the same pod lives: if the pod came back now, that claim would tie it, and this volume's new
/// claim, to the node. One that has not begun may still do so for an interval.
fn is_other_claim_alive(volume: &MarkedVolume, record: &ReactionRecord, view: &ReactionView) -> bool {
    let may_begin = is_within(record.began, view.now, view.settings.recover_after);
    let others = view.volumes.iter().filter(|other| other.uid != volume.uid);
    others.into_iter().any(|other| match &other.record {
        Some(Ok(others)) => {
            let claim_lives = |live: &LiveFacts| {
                live.claim.as_ref().is_some_and(|claim| claim.uid == others.claim.uid && !claim.is_deleted)
            };
            others.volume == other.uid
                && others.claim.namespace == record.claim.namespace
                && others.pod == record.pod
                && view.live.get(&other.uid).is_none_or(claim_lives)
        }
        Some(Err(_)) => false,
        None => {
            let is_lost = other.is_bound() && !other.losses.is_empty();
            let is_its = gates::claim_of(other).is_some_and(|claim| record.may_be_of_pod(&claim));
            may_begin && is_lost && is_its && other.class.is_chosen && !other.is_paused
        }
    })
}

fn is_made(claim: &ClaimUid, set: &SetFacts, pod: &PodFacts) -> bool {
    set.claims_of(&pod.name).any(|name| name == claim.name)
}

impl PodFacts {
    pub fn reference(&self, namespace: &str) -> PodRef {
        PodRef {
            namespace: namespace.to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
        }
    }
}
