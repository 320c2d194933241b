//! Which steps follow. Pure: no client, clock or memory.

use super::live::{EvictionAnswer, LiveFacts};
use super::marked::MarkedVolume;
use super::record::{NamedUid, ReactionRecord};
use super::settings::ReactionMode;
use super::view::{Deed, ReactionStep, ReactionView};
use super::why::Why;
use super::{gates, under_way};
use crate::operator::persistent_volume::object::Backing;
use crate::operator::persistent_volume::reserve::is_reservation;
use crate::operator::volume::persistent_volumes::PROVISIONED_BY;

/// How many volumes that have not begun are looked at in a pass, and how many unbound ones are deleted.
const LOOKS: usize = 10;
const DELETIONS: usize = 10;

/// At most one step for each volume. After the reads that it asks for, it is asked again.
pub fn decide(view: &ReactionView) -> Vec<ReactionStep> {
    let (mut steps, mut has_begun, mut deleted) = (Vec::new(), false, 0);
    let mut looks = LOOKS.saturating_sub(view.volumes.iter().filter(|volume| is_looked_at(volume, view)).count());
    for volume in &view.volumes {
        let deed = match &volume.record {
            Some(Err(_)) => Some(Deed::Report(Why::RecordUnreadable)),
            Some(Ok(record)) => looked(volume, view, |live| under_way::next(volume, record, live, view)),
            None if view.settings.mode == ReactionMode::Off => None,
            None => fresh(volume, view),
        };
        let Some(deed) = deed else { continue };
        let is_due = match &deed {
            Deed::Look if volume.record.is_none() => take(&mut looks),
            // The next pass counts it.
            Deed::Begin(_) => !std::mem::replace(&mut has_begun, true),
            Deed::DeleteVolume => {
                deleted += 1;
                deleted <= DELETIONS
            }
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
fn fresh(volume: &MarkedVolume, view: &ReactionView) -> Option<Deed> {
    if volume.losses.is_empty() || volume.volume.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let is_path = matches!(volume.backing, Backing::Path(_));
    match volume.phase() {
        "Bound" => begin(volume, view).unwrap_or_else(|why| Some(Deed::Report(why))),
        "Available" if is_path => Some(match unbound(volume, view) {
            Ok(()) if view.settings.mode == ReactionMode::DryRun => Deed::Report(Why::DryRun),
            Ok(()) => Deed::DeleteVolume,
            Err(why) => Deed::Report(why),
        }),
        "Released" if is_path && volume.class.is_chosen && volume.reacted.is_none() => Some(Deed::Report(Why::HasData)),
        _ => None,
    }
}

fn begin(volume: &MarkedVolume, view: &ReactionView) -> Result<Option<Deed>, Why> {
    let reason = gates::lost(volume, view)?;
    gates::cluster(volume, view)?;
    if volume.is_paused {
        return Err(Why::Paused);
    }
    if volume.class.is_immediate {
        return Err(Why::ImmediateBinding);
    }
    let decide = |live: &LiveFacts| {
        let target = gates::live(volume, live, view)?;
        if view.settings.mode == ReactionMode::DryRun {
            return Err(Why::DryRun);
        }
        let pod = target.pod.reference(&target.claim.namespace);
        match live.eviction {
            None => return Ok(Deed::AskEviction(pod)),
            Some(EvictionAnswer::Refused) => return Err(Why::BudgetExhausted),
            Some(EvictionAnswer::Allowed) => {}
        }
        let spec = volume.volume.spec.as_ref();
        let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.clone());
        let node = live.node.clone().map(|uid| NamedUid { name: volume.node.to_string(), uid });
        Ok(Deed::Begin(ReactionRecord {
            claim: target.claim,
            set: NamedUid { name: target.set.name.clone(), uid: target.set.uid.clone() },
            pod: target.pod.name.clone(),
            node,
            reason: reason.word().to_owned(),
            policy: policy.unwrap_or_else(|| "Retain".to_owned()),
            began: view.now,
            stopped: false,
        }))
    };
    Ok(looked(volume, view, |live| decide(live).unwrap_or_else(Deed::Report)))
}

/// Whether a local PersistentVolume that nobody has is deleted. There is no interval: nobody loses anything.
fn unbound(volume: &MarkedVolume, view: &ReactionView) -> Result<(), Why> {
    if !volume.class.is_chosen {
        return Err(Why::ClassNotChosen);
    }
    gates::cause(volume)?;
    gates::few_nodes_bad(view)?;
    if volume.is_paused {
        return Err(Why::Paused);
    }
    let annotations = volume.volume.metadata.annotations.as_ref();
    if annotations.is_none_or(|all| !all.contains_key(PROVISIONED_BY)) {
        return Err(Why::MadeByHand);
    }
    let claim = volume.volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    if claim.is_none_or(is_reservation) { Ok(()) } else { Err(Why::ClaimElsewhere) }
}

#[cfg(test)]
mod tests;
