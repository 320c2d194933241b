//! Which writes a pass makes. Pure: the steps, what is reported to people, and conditions that are not true any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::marked::MarkedVolume;
use super::memory::ReactionMemory;
use super::report;
use super::settings::ReactionMode;
use super::teller::{is_reported, object_of};
use super::view::{Deed, ReactionStep, ReactionView};
use super::why::Why;
use crate::api::crd::PoolVolume;
use crate::operator::api_server::object_key::Uid;
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::persistent_volume::view::View;

/// One write of a pass.
pub enum ReactionWrite<'v> {
    Act(&'v MarkedVolume, &'v Deed),
    Tell(&'v MarkedVolume, Why),
    /// The condition is not true any more.
    Forget(Arc<PoolVolume>),
}

/// By which it is known whether a write was refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReactionKey {
    Act(Uid<PersistentVolume>),
    Tell(Uid<PersistentVolume>),
    Forget(Uid<PoolVolume>),
}

impl ReactionWrite<'_> {
    pub fn key(&self) -> Option<ReactionKey> {
        match self {
            Self::Act(volume, _) => Some(ReactionKey::Act(volume.uid.clone())),
            Self::Tell(volume, _) => Some(ReactionKey::Tell(volume.uid.clone())),
            Self::Forget(volume) => Uid::of(&**volume).map(ReactionKey::Forget),
        }
    }
}

/// The steps first: what is only reported can wait.
pub fn writes<'v>(
    cluster: &View,
    view: &'v ReactionView,
    steps: &'v [ReactionStep],
    memory: &ReactionMemory,
) -> Vec<ReactionWrite<'v>> {
    let (mut acts, mut others, at) = (Vec::new(), Vec::new(), index(view));
    for ReactionStep { volume: uid, deed } in steps {
        let Some(volume) = at.get(uid).map(|at| &view.volumes[*at]) else { continue };
        let object = object_of(cluster, volume);
        match deed {
            Deed::Read | Deed::AskEviction(_) => {}
            // It comes back with each restart.
            Deed::Explain(Why::Recovering) => {}
            Deed::Explain(why) if why.is_reported() => {
                let is_written = object.is_none_or(|object| report::reported_by(object) == Some(why.word()));
                if !is_written || !is_reported(object, memory, uid, *why) {
                    others.push(ReactionWrite::Tell(volume, *why));
                }
            }
            Deed::Explain(_) => {
                let reported = object.filter(|object| report::reported_by(object).is_some());
                others.extend(reported.map(|object| ReactionWrite::Forget(Arc::clone(object))));
            }
            Deed::Begin(_)
            | Deed::DeletePvc(_)
            | Deed::Evict(_)
            | Deed::Cancel(..)
            | Deed::Finish(_)
            | Deed::Stop(..)
            | Deed::DeleteVolume => acts.push(ReactionWrite::Act(volume, deed)),
        }
    }
    others.extend(out_of_date(cluster, view).map(ReactionWrite::Forget));
    acts.extend(others);
    acts
}

/// Those whose condition nobody keeps any more.
fn out_of_date(cluster: &View, view: &ReactionView) -> impl Iterator<Item = Arc<PoolVolume>> {
    let is_off = view.settings.mode == ReactionMode::Off;
    let is_kept = |volume: &&MarkedVolume| match object_of(cluster, volume) {
        // What became of it stays; why it waited does not, once it does not wait any more.
        Some(object) if volume.reacted.is_some() => volume.waits() || !report::is_why(object),
        Some(_) | None => volume.waits() && (!is_off || volume.record.is_some()),
    };
    let kept = view.volumes.iter().filter(is_kept);
    let kept: BTreeSet<Uid<PoolVolume>> = kept.filter_map(|volume| Uid::of(&**object_of(cluster, volume)?)).collect();
    let reported = cluster.volumes.values().filter(|object| report::reported_by(object).is_some()).cloned();
    reported.filter(move |object| Uid::of(&**object).is_none_or(|uid| !kept.contains(&uid)))
}

/// Where each volume is: there may be thousands.
pub fn index(view: &ReactionView) -> BTreeMap<Uid<PersistentVolume>, usize> {
    view.volumes.iter().enumerate().map(|(at, volume)| (volume.uid.clone(), at)).collect()
}
