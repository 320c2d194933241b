//! Which steps follow. Pure: no client, clock or memory.

use super::in_flight::InFlight;
use super::live::LiveFacts;
use super::marked::MarkedVolume;
use super::record::{HowEnded, NodeUid, RETAIN, ReactionRecord, StatefulSetUid};
use super::settings::ReactionMode;
use super::view::{Deed, ReactionStep, ReactionView};
use super::why::Why;
use super::{gates, under_way};
use crate::operator::api_server::object_key::Uid;
use crate::operator::kube_volume::{Backing, BindingPhase, PROVISIONED_BY};
use crate::operator::persistent_volume::reserve::is_reservation;

/// How many volumes that have not begun are read in a pass. No other is deleted in it.
const READS: usize = 10;

/// At most one step for each volume. After the reads that it asks for, it is asked again.
pub fn decide(view: &ReactionView) -> Vec<ReactionStep> {
    let (mut steps, mut has_begun) = (Vec::new(), false);
    let others = InFlight::of(view);
    let mut reads = READS.saturating_sub(view.volumes.iter().filter(|volume| is_read(volume, view)).count());
    for volume in &view.volumes {
        let deed = match &volume.record {
            Some(Err(_)) => Some(Deed::Explain(Why::RecordUnreadable)),
            Some(Ok(record)) => once_read(volume, view, |live| under_way::next(volume, record, live, view, &others)),
            None if view.settings.mode == ReactionMode::Off => None,
            None => fresh(volume, view, &others),
        };
        let Some(deed) = deed else { continue };
        let is_due = match &deed {
            Deed::Read if volume.record.is_none() => take(&mut reads),
            // The next pass counts it.
            Deed::Begin(_) => !std::mem::replace(&mut has_begun, true),
            Deed::Read | Deed::AskEviction(_) | Deed::DeletePvc(_) | Deed::Evict(_) | Deed::Cancel(..) => true,
            Deed::Finish(_) | Deed::Stop(..) | Deed::DeleteVolume | Deed::Explain(_) => true,
        };
        if is_due {
            steps.push(ReactionStep { volume: volume.uid.clone(), deed });
        }
    }
    steps
}

fn is_read(volume: &MarkedVolume, view: &ReactionView) -> bool {
    volume.record.is_none() && view.live.contains_key(&volume.uid)
}

fn take(left: &mut usize) -> bool {
    let is_left = *left > 0;
    *left = left.saturating_sub(1);
    is_left
}

/// Asks for a read; once there is one, decides by it, if it is of the state of the volume that the rest is decided by.
fn once_read(volume: &MarkedVolume, view: &ReactionView, decide: impl FnOnce(&LiveFacts) -> Deed) -> Option<Deed> {
    let Some(live) = view.live.get(&volume.uid) else { return Some(Deed::Read) };
    let found = live.volume.as_ref()?;
    let is_it = Uid::of(&**found).as_ref() == Some(&volume.uid)
        && found.metadata.resource_version == volume.volume.metadata.resource_version;
    is_it.then(|| decide(live))
}

/// The next step for a volume that has not begun.
fn fresh(volume: &MarkedVolume, view: &ReactionView, others: &InFlight<'_>) -> Option<Deed> {
    if volume.losses.is_empty() || volume.volume.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let is_path = matches!(volume.backing, Backing::Path(_));
    let deed = match volume.volume.phase {
        BindingPhase::Bound => begin(volume, view, others),
        BindingPhase::Available if is_path => delete(volume, view),
        BindingPhase::Released if is_path && volume.class.is_chosen && volume.reacted.is_none() => Err(Why::HasData),
        BindingPhase::Pending | BindingPhase::Available | BindingPhase::Released | BindingPhase::Failed => Ok(None),
    };
    deed.unwrap_or_else(|why| Some(Deed::Explain(why)))
}

fn begin(volume: &MarkedVolume, view: &ReactionView, others: &InFlight<'_>) -> Result<Option<Deed>, Why> {
    let reason = gates::lost(volume, view)?;
    gates::calm(view)?;
    if !gates::pvc_of(volume).is_some_and(|pvc| others.may_be_of_pod(&pvc)) {
        others.budget(view)?;
    }
    if volume.is_paused {
        return Err(Why::Paused);
    }
    if volume.class.is_immediate {
        return Err(Why::ImmediateBinding);
    }
    let decide = |live: &LiveFacts| {
        let target = gates::live(volume, live, view, others)?;
        if !others.has_pod(&target.stateful_set.uid, &target.pod.name) {
            others.budget(view)?;
        }
        if view.settings.mode == ReactionMode::DryRun {
            return Err(Why::DryRun);
        }
        let pod = target.pod.reference(&target.pvc.namespace);
        match gates::eviction(live) {
            None => return Ok(Deed::AskEviction(pod)),
            Some(answer) => answer?,
        }
        // What was taken back has left Retain: the policy before is in what ended.
        let is_cancelled = |record: &&ReactionRecord| {
            record.volume == volume.uid && record.ended.as_ref().is_some_and(|end| end.how == HowEnded::Cancelled)
        };
        let before = volume.reacted.as_ref().filter(is_cancelled).filter(|_| volume.policy() == RETAIN);
        let node = live.node.clone().map(|uid| NodeUid { name: volume.node.clone(), uid });
        Ok(Deed::Begin(ReactionRecord {
            volume: volume.uid.clone(),
            pvc: target.pvc,
            stateful_set: StatefulSetUid {
                name: target.stateful_set.name.clone(),
                uid: target.stateful_set.uid.clone(),
            },
            pod: target.pod.name.clone(),
            node,
            reason: reason.word().to_owned(),
            policy: before.map_or_else(|| volume.policy().to_owned(), |record| record.policy.clone()),
            began: view.now,
            ended: None,
        }))
    };
    Ok(once_read(volume, view, |live| decide(live).unwrap_or_else(Deed::Explain)))
}

/// A local PersistentVolume that nobody has is deleted, if somebody makes it again.
fn delete(volume: &MarkedVolume, view: &ReactionView) -> Result<Option<Deed>, Why> {
    gates::lost(volume, view)?;
    gates::calm(view)?;
    if volume.is_paused {
        return Err(Why::Paused);
    }
    // Somebody is about to bind it again.
    if volume.reacted.is_some() {
        return Err(Why::HasData);
    }
    let annotations = volume.volume.metadata.annotations.as_ref();
    if annotations.is_none_or(|all| !all.contains_key(PROVISIONED_BY)) {
        return Err(Why::MadeByHand);
    }
    if !volume.volume.pvc.as_ref().is_none_or(is_reservation) {
        return Err(Why::ClaimElsewhere);
    }
    let decide = |live: &LiveFacts| match gates::still_lost(volume, live, view) {
        Err(why) => Deed::Explain(why),
        Ok(()) if view.settings.mode == ReactionMode::DryRun => Deed::Explain(Why::DryRun),
        Ok(()) => Deed::DeleteVolume,
    };
    Ok(once_read(volume, view, decide))
}

#[cfg(test)]
mod tests;
