//! The next step for a volume that has a record. The steps are found by what is there: one that was done is not done
//! again, whoever did it.

use k8s_openapi::api::core::v1::Namespace;

use super::gates;
use super::in_flight::{InFlight, is_within};
use super::live::{LiveFacts, PodFacts, StatefulSetFacts};
use super::marked::MarkedVolume;
use super::record::{PvcUid, RETAIN, ReactionRecord};
use super::settings::ReactionMode;
use super::view::{Deed, PodRef, ReactionView};
use super::why::Why;
use crate::operator::api_server::object_key::ObjectName;
use crate::operator::status::steady::Lasting;

pub fn next(
    volume: &MarkedVolume,
    record: &ReactionRecord,
    live: &LiveFacts,
    view: &ReactionView,
    others: &InFlight<'_>,
) -> Deed {
    if record.volume != volume.uid {
        return Deed::Explain(Why::RecordUnreadable);
    }
    let old = live.pvc.as_ref().filter(|pvc| pvc.uid == record.pvc.uid);
    if old.is_some_and(|pvc| !pvc.is_deleted) {
        return pvc_lives(volume, record, live, view, others);
    }
    if let Err(why) = goes_on(volume, record, live, view) {
        return Deed::Stop(record.clone(), why);
    }
    let stateful_set = live.stateful_set.as_ref().filter(|stateful_set| stateful_set.ordinal(&record.pod).is_some());
    let Some(stateful_set) = stateful_set else { return Deed::Stop(record.clone(), Why::SetEnds) };
    let of_set = |pod: &&PodFacts| pod.name == record.pod && pod.stateful_set.as_ref() == Some(&stateful_set.uid);
    let pod = live.pods.iter().find(of_set);
    match (old, &live.pvc, pod) {
        (_, None, None) => Deed::Explain(Why::WaitsForSet),
        (Some(_), _, None) => Deed::Explain(Why::WaitsForClaim),
        (Some(_), _, Some(pod)) if pod.node.is_none() => Deed::Explain(Why::WaitsForClaim),
        (None, Some(pvc), _) if !pvc.is_bound => Deed::Explain(Why::WaitsForBinding),
        (None, Some(_), Some(pod)) if pod.is_ready && !pod.is_deleted => Deed::Finish(record.clone()),
        (None, Some(_), _) => Deed::Explain(Why::WaitsForReady),
        (_, _, Some(pod)) if pod.is_deleted => Deed::Explain(Why::WaitsForPod),
        (_, _, Some(_)) if gates::is_paused(volume, live) => Deed::Explain(Why::Paused),
        (_, _, Some(_)) if is_other_pvc_alive(volume, record, view) => Deed::Explain(Why::WaitsForClaim),
        (_, _, Some(pod)) if !pod.uses_pvc && !is_made(&record.pvc, stateful_set, pod) => {
            Deed::Stop(record.clone(), Why::NotFromTemplate)
        }
        (_, _, Some(pod)) if !pod.uses_pvc => Deed::Explain(Why::NoPod),
        // It runs and holds the old claim; or it is Pending and its claim has gone, and no event makes the StatefulSet
        // look.
        (_, _, Some(pod)) => match may_go(pod, live, record, view) {
            Ok(()) => Deed::Evict(pod.reference(&record.pvc.namespace)),
            Err(why) => Deed::Explain(why),
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
    let is_its = gates::pvc_of(volume).is_some_and(|pvc| pvc.uid == record.pvc.uid);
    if is_its { Ok(()) } else { Err(Why::ClaimElsewhere) }
}

/// A pod that is ready still serves: while others of its StatefulSet are away, it can wait.
fn may_go(pod: &PodFacts, live: &LiveFacts, record: &ReactionRecord, view: &ReactionView) -> Result<(), Why> {
    let Some(stateful_set) = live.stateful_set.as_ref().filter(|_| pod.is_ready) else { return Ok(()) };
    gates::calm(view)?;
    gates::may_lose(pod, stateful_set, &record.pvc.namespace, live, view)
}

/// The claim is still there, so all can be taken back.
fn pvc_lives(
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
    if !gates::is_seen(volume, view) && volume.is_lost() {
        // A node or an agent that comes and goes must not hold the place of others.
        let is_late = !is_within(record.began, view.now, view.settings.recover_after * 2);
        return if is_late { cancel(Why::Recovering) } else { Deed::Explain(Why::Recovering) };
    }
    if view.past.clock != Lasting::Yes(()) {
        return Deed::Explain(Why::ClockJumped);
    }
    if let Err(why) = gates::lost(volume, view) {
        return cancel(why);
    }
    match gates::live(volume, live, view, others) {
        Err(why) => cancel(why),
        Ok(target) if target.pod.name != record.pod || target.stateful_set.uid != record.stateful_set.uid => {
            cancel(Why::ClaimElsewhere)
        }
        Ok(_) if record.node.as_ref().map(|node| &node.uid) != live.node.as_ref() => cancel(Why::NodeIsBack),
        // The deletion of the claim would delete the volume.
        Ok(_) if volume.policy() != RETAIN => cancel(Why::PolicyChanged),
        // The same calm as for the beginning: a leader may have taken over more of the volume's time than of that.
        Ok(target) => match gates::calm(view).map(|()| gates::eviction(live)) {
            Err(why) => Deed::Explain(why),
            Ok(None) => Deed::AskEviction(target.pod.reference(&record.pvc.namespace)),
            Ok(Some(Err(why))) => cancel(why),
            Ok(Some(Ok(()))) => Deed::DeletePvc(record.pvc.clone()),
        },
    }
}

/// Another lost claim of the same pod lives: if the pod came back now, that claim would tie it, and this volume's new
/// claim, to the node. One that has not begun may still do so for an interval.
fn is_other_pvc_alive(volume: &MarkedVolume, record: &ReactionRecord, view: &ReactionView) -> bool {
    let may_begin = is_within(record.began, view.now, view.settings.recover_after);
    let others = view.volumes.iter().filter(|other| other.uid != volume.uid);
    others.into_iter().any(|other| match &other.record {
        Some(Ok(others)) => {
            let pvc_lives =
                |live: &LiveFacts| live.pvc.as_ref().is_some_and(|pvc| pvc.uid == others.pvc.uid && !pvc.is_deleted);
            others.volume == other.uid
                && others.pvc.namespace == record.pvc.namespace
                && others.pod == record.pod
                && view.live.get(&other.uid).is_none_or(pvc_lives)
        }
        Some(Err(_)) => false,
        None => {
            let is_lost = other.is_bound() && !other.losses.is_empty();
            let is_its = gates::pvc_of(other).is_some_and(|pvc| record.may_be_of_pod(&pvc));
            may_begin && is_lost && is_its && other.class.is_chosen && !other.is_paused
        }
    })
}

fn is_made(pvc: &PvcUid, stateful_set: &StatefulSetFacts, pod: &PodFacts) -> bool {
    stateful_set.pvcs_of(&pod.name).any(|name| name == pvc.name)
}

impl PodFacts {
    pub fn reference(&self, namespace: &ObjectName<Namespace>) -> PodRef {
        PodRef {
            namespace: namespace.clone(),
            name: self.name.to_string(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
        }
    }
}
