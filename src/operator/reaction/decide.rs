//! Which steps follow. Pure: no client, clock or memory.

use super::in_flight::InFlight;
use super::live::LiveFacts;
use super::marked::MarkedVolume;
use super::record::{HowEnded, NamedUid, RETAIN, ReactionRecord};
use super::settings::ReactionMode;
use super::view::{Deed, ReactionStep, ReactionView};
use super::why::Why;
use super::{gates, under_way};
use crate::operator::persistent_volume::object::Backing;
use crate::operator::persistent_volume::reserve::is_reservation;
use crate::operator::volume::persistent_volumes::PROVISIONED_BY;

/// How many volumes that have not begun are looked at in a pass. No other is deleted in it.
const LOOKS: usize = 10;

/// At most one step for each volume. After the reads that it asks for, it is asked again.
pub fn decide(view: &ReactionView) -> Vec<ReactionStep> {
    let (mut steps, mut has_begun) = (Vec::new(), false);
    let others = InFlight::of(view);
    let mut looks = LOOKS.saturating_sub(view.volumes.iter().filter(|volume| is_looked_at(volume, view)).count());
    for volume in &view.volumes {
        let deed = match &volume.record {
            Some(Err(_)) => Some(Deed::Report(Why::RecordUnreadable)),
            Some(Ok(record)) => looked(volume, view, |live| under_way::next(volume, record, live, view, &others)),
            None if view.settings.mode == ReactionMode::Off => None,
            None => fresh(volume, view, &others),
        };
        let Some(deed) = deed else { continue };
        let is_due = match &deed {
            Deed::Look if volume.record.is_none() => take(&mut looks),
            // The next pass counts it.
            Deed::Begin(_) => !std::mem::replace(&mut has_begun, true),
            _ => true,
        };
        if is_due {
            steps.push(ReactionStep { volume: volume.uid.clone(), deed });
        }
    }
    steps
}

fn is_looked_at(volume: &MarkedVolume, view: &ReactionView) -> bool {
    volume.record.is_none() && view.live.contains_key(&volume.uid)
}

fn take(left: &mut usize) -> bool {
    let is_left = *left > 0;
    *left = left.saturating_sub(1);
    is_left
}

/// Decides by what was read, if it was read of the state of the volume that the rest is decided by.
fn looked(volume: &MarkedVolume, view: &ReactionView, decide: impl FnOnce(&LiveFacts) -> Deed) -> Option<Deed> {
    let Some(live) = view.live.get(&volume.uid) else { return Some(Deed::Look) };
    let found = live.volume.as_ref()?;
    let is_it = found.metadata.uid.as_ref() == Some(&volume.uid)
        && found.metadata.resource_version == volume.volume.metadata.resource_version;
    is_it.then(|| decide(live))
}

/// What follows for a volume that has not begun.
fn fresh(volume: &MarkedVolume, view: &ReactionView, others: &InFlight<'_>) -> Option<Deed> {
    if volume.losses.is_empty() || volume.volume.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let is_path = matches!(volume.backing, Backing::Path(_));
    let deed = match volume.phase() {
        "Bound" => begin(volume, view, others),
        "Available" if is_path => delete(volume, view),
        "Released" if is_path && volume.class.is_chosen && volume.reacted.is_none() => Err(Why::HasData),
        _ => Ok(None),
    };
    deed.unwrap_or_else(|why| Some(Deed::Report(why)))
}

fn begin(volume: &MarkedVolume, view: &ReactionView, others: &InFlight<'_>) -> Result<Option<Deed>, Why> {
    let reason = gates::lost(volume, view)?;
    gates::calm(view)?;
    if !gates::claim_of(volume).is_some_and(|claim| others.may_be_of_pod(&claim)) {
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
        if !others.has_pod(&target.set.uid, &target.pod.name) {
            others.budget(view)?;
        }
        if view.settings.mode == ReactionMode::DryRun {
            return Err(Why::DryRun);
        }
        let pod = target.pod.reference(&target.claim.namespace);
        match gates::eviction(live) {
            None => return Ok(Deed::AskEviction(pod)),
            Some(answer) => answer?,
        }
        // What was taken back has left Retain: the policy before is in what ended.
        let is_cancelled = |record: &&ReactionRecord| {
            record.volume == volume.uid && record.ended.as_ref().is_some_and(|end| end.how == HowEnded::Cancelled)
        };
        let before = volume.reacted.as_ref().filter(is_cancelled).filter(|_| volume.policy() == RETAIN);
        let node = live.node.clone().map(|uid| NamedUid { name: volume.node.to_string(), uid });
        Ok(Deed::Begin(ReactionRecord {
            volume: volume.uid.clone(),
            claim: target.claim,
            set: NamedUid { name: target.set.name.clone(), uid: target.set.uid.clone() },
            pod: target.pod.name.clone(),
            node,
            reason: reason.word().to_owned(),
            policy: before.map_or_else(|| volume.policy().to_owned(), |record| record.policy.clone()),
            began: view.now,
            ended: None,
        }))
    };
    Ok(looked(volume, view, |live| decide(live).unwrap_or_else(Deed::Report)))
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
    let claim = volume.volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    if !claim.is_none_or(is_reservation) {
        return Err(Why::ClaimElsewhere);
    }
    let decide = |live: &LiveFacts| match gates::still_lost(volume, live, view) {
        Err(why) => Deed::Report(why),
        Ok(()) if view.settings.mode == ReactionMode::DryRun => Deed::Report(Why::DryRun),
        Ok(()) => Deed::DeleteVolume,
    };
    Ok(looked(volume, view, decide))
}

#[cfg(test)]
mod tests;
