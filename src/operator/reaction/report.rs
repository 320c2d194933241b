//! What people read: the Events of a step, or of what holds one back, and the condition `Reaction` of a PoolVolume.
//! Pure but for the clock of conditions.

use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::events::EventType;
use kube::{Resource, ResourceExt as _};

use super::gates::pvc_of;
use super::marked::MarkedVolume;
use super::record::{PvcUid, RETAIN, ReactionRecord};
use super::view::Deed;
use super::why::Why;
use crate::api::crd::PoolVolume;
use crate::operator::api_server::object_key::{ObjectName, Uid};
use crate::operator::event::EventNote;
use crate::operator::status::condition::condition;

/// The condition that says how far the reaction to a volume is. It is true while one is under way.
pub const REACTION: &str = "Reaction";

/// The report about one volume.
#[derive(Clone, Debug, PartialEq)]
pub struct ReactionReport {
    /// The reason of the condition.
    pub word: &'static str,
    pub is_under_way: bool,
    pub event: EventNote,
    /// The objects that the Event is about.
    pub about: Vec<ObjectReference>,
}

/// The report of a step that was done; `None`: it changes nothing.
pub fn of_deed(volume: &MarkedVolume, deed: &Deed) -> Option<ReactionReport> {
    let under_way = volume.record.as_ref().and_then(|record| record.as_ref().ok());
    let record = match deed {
        Deed::Begin(record) | Deed::Cancel(record, _) | Deed::Finish(record) | Deed::Stop(record, _) => Some(record),
        Deed::Read | Deed::AskEviction(_) | Deed::DeletePvc(_) | Deed::Evict(_) => under_way,
        Deed::DeleteVolume | Deed::Explain(_) => under_way,
    };
    let pod = record.map(|record| record.pod.as_str()).unwrap_or_default();
    let (word, note) = what_was_done(volume, deed, pod)?;
    let type_ = if matches!(deed, Deed::Stop(..)) { EventType::Warning } else { EventType::Normal };
    Some(ReactionReport {
        word,
        is_under_way: matches!(deed, Deed::Begin(_) | Deed::DeletePvc(_) | Deed::Evict(_)),
        event: EventNote { type_, reason: format!("Reaction{word}"), note },
        about: about(volume, record, audience(deed)),
    })
}

/// The word and the sentence.
fn what_was_done(volume: &MarkedVolume, deed: &Deed, pod: &str) -> Option<(&'static str, String)> {
    let name = volume.volume.name_any();
    Some(match deed {
        Deed::Begin(ReactionRecord { reason, stateful_set, pvc: PvcUid { name: pvc, .. }, .. }) => {
            let stateful_set = &stateful_set.name;
            let note = format!(
                "PersistentVolume {name} is lost ({reason}): it is retained, then claim {pvc} is deleted and pod {pod} is \
                 evicted, so that StatefulSet {stateful_set} makes both elsewhere"
            );
            ("Begun", note)
        }
        Deed::DeletePvc(PvcUid { name: pvc, .. }) => {
            ("ClaimDeleted", format!("claim {pvc} is deleted; PersistentVolume {name} stays, with its data"))
        }
        Deed::Evict(_) => {
            let note = format!("pod {pod} is evicted, so that its StatefulSet makes it again, with a new claim");
            ("PodEvicted", note)
        }
        Deed::Cancel(ReactionRecord { pvc, policy, .. }, why) => {
            let kept = format!("claim {} is kept: {}", pvc.name, why.sentence());
            let note = match policy.as_str() {
                RETAIN => kept,
                policy => format!(
                    "{kept} The policy of PersistentVolume {name} was {policy} and is Retain now: set it back by hand if you \
                     want that"
                ),
            };
            ("Cancelled", note)
        }
        Deed::Finish(_) => ("Finished", format!("pod {pod} is ready with a new volume. {}", remains(&name))),
        Deed::Stop(ReactionRecord { pvc, .. }, why) => {
            let (pvc, why, remains) = (&pvc.name, why.sentence(), remains(&name));
            let note = format!(
                "stopped after claim {pvc} was deleted: {why} If the StatefulSet wants pod {pod}: delete the pod, and both \
                 are made again. {remains}"
            );
            ("Stopped", note)
        }
        Deed::DeleteVolume => {
            ("VolumeDeleted", format!("PersistentVolume {name}, which nobody had, is deleted: what it names is lost"))
        }
        Deed::Read | Deed::AskEviction(_) | Deed::Explain(_) => return None,
    })
}

/// The report of a volume that waits.
pub fn of_why(volume: &MarkedVolume, why: Why) -> ReactionReport {
    let record = volume.record.as_ref().and_then(|record| record.as_ref().ok());
    let (type_, reason) = match why {
        Why::DryRun => (EventType::Normal, "ReactionWouldBegin"),
        Why::WaitsForPod | Why::WaitsForClaim | Why::WaitsForSet | Why::WaitsForBinding | Why::WaitsForReady => {
            (EventType::Normal, "ReactionHeld")
        }
        _ => (EventType::Warning, "ReactionHeld"),
    };
    let note = format!("{}: {}", why.word(), why.sentence());
    ReactionReport {
        word: why.word(),
        is_under_way: volume.record.is_some(),
        event: EventNote { type_, reason: reason.to_owned(), note },
        about: about(volume, record, Audience::ClaimAndVolume),
    }
}

/// Which objects have the Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    ClaimAndVolume,
    /// The StatefulSet as well.
    WithSet,
}

fn audience(deed: &Deed) -> Audience {
    match deed {
        Deed::DeletePvc(_) | Deed::Finish(_) => Audience::WithSet,
        Deed::Begin(_) | Deed::Evict(_) | Deed::Cancel(..) | Deed::Stop(..) | Deed::DeleteVolume => {
            Audience::ClaimAndVolume
        }
        Deed::Read | Deed::AskEviction(_) | Deed::Explain(_) => Audience::ClaimAndVolume,
    }
}

/// The next action of a person for the volume that stays.
fn remains(volume: &str) -> String {
    format!(
        "PersistentVolume {volume} keeps its data; docs/reaction.md, \"The data that stays\", says how to use or to erase it"
    )
}

fn about(volume: &MarkedVolume, record: Option<&ReactionRecord>, audience: Audience) -> Vec<ObjectReference> {
    let pvc = record.map(|record| record.pvc.clone()).or_else(|| pvc_of(volume));
    let stateful_set = record.filter(|_| audience == Audience::WithSet).map(|record| {
        let ReactionRecord { pvc, stateful_set, .. } = record;
        reference(Some(&pvc.namespace), stateful_set.name.as_str(), &stateful_set.uid)
    });
    let pvc = pvc.map(|pvc| reference(Some(&pvc.namespace), pvc.name.as_str(), &pvc.uid));
    let own = reference(None, &volume.volume.name_any(), &volume.uid);
    pvc.into_iter().chain([own]).chain(stateful_set).collect()
}

fn reference<K: Resource<DynamicType = ()>>(
    namespace: Option<&ObjectName<Namespace>>,
    name: &str,
    uid: &Uid<K>,
) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: namespace.map(ToString::to_string),
        name: Some(name.to_owned()),
        uid: Some(uid.to_string()),
        ..ObjectReference::default()
    }
}

/// The reason of the condition.
pub fn reported_by(volume: &PoolVolume) -> Option<&str> {
    let conditions = volume.status.as_ref()?.conditions.iter();
    conditions.into_iter().find(|condition| condition.type_ == REACTION).map(|condition| condition.reason.as_str())
}

/// Whether it says why something waits.
pub fn is_why(volume: &PoolVolume) -> bool {
    reported_by(volume).is_some_and(|word| Why::ALL.iter().any(|why| why.word() == word))
}

/// All conditions of a PoolVolume, with this one; `None`: without it.
pub fn conditions(volume: &PoolVolume, reported: Option<&ReactionReport>) -> Vec<Condition> {
    let before = volume.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
    let next = reported.map(|reported| {
        let message = reported.event.note.clone();
        condition(before, REACTION, reported.is_under_way, reported.word, message, volume.metadata.generation)
    });
    before.iter().filter(|condition| condition.type_ != REACTION).cloned().chain(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::crd::Phase;
    use crate::operator::reaction::record::StatefulSetUid;
    use crate::operator::reaction::sample::{lost, minutes_ago};
    use crate::operator::volume::sample::{in_phase, status_condition};

    fn record(volume: &MarkedVolume) -> ReactionRecord {
        ReactionRecord {
            volume: volume.uid.clone(),
            pvc: pvc_of(volume).expect("it has one"),
            stateful_set: StatefulSetUid { name: "db".into(), uid: "set-db".into() },
            pod: "db-1".into(),
            node: None,
            reason: "DiskMissing".to_owned(),
            policy: "Delete".to_owned(),
            began: minutes_ago(1),
            ended: None,
        }
    }

    /// What the Event is about, by kind and name.
    fn objects(reported: &ReactionReport) -> Vec<String> {
        let text = |text: &Option<String>| text.clone().expect("it is set");
        reported.about.iter().map(|about| format!("{} {}", text(&about.kind), text(&about.name))).collect()
    }

    #[test]
    fn claim_and_volume_are_told_of_each_step_and_the_set_of_two() {
        let mut volume = lost("db", 1);
        let record = record(&volume);
        let begun = of_deed(&volume, &Deed::Begin(record.clone())).expect("a step");
        assert_eq!((begun.word, begun.event.reason.as_str(), begun.is_under_way), ("Begun", "ReactionBegun", true));
        assert_eq!(objects(&begun), ["PersistentVolumeClaim data-db-1", "PersistentVolume pv-db-1"]);
        volume.record = Some(Ok(record.clone()));
        let deleted = of_deed(&volume, &Deed::DeletePvc(record.pvc.clone())).expect("a step");
        assert_eq!(objects(&deleted)[2], "StatefulSet db");
        let finished = of_deed(&volume, &Deed::Finish(record.clone())).expect("a step");
        assert_eq!((objects(&finished).len(), finished.is_under_way), (3, false));
        assert!(finished.event.note.contains("keeps its data"), "{}", finished.event.note);
        let stopped = of_deed(&volume, &Deed::Stop(record, Why::SwitchedOff)).expect("a step");
        assert!(
            stopped.event.type_ == EventType::Warning && stopped.event.note.contains("wants pod db-1: delete the pod")
        );
        assert_eq!(of_deed(&volume, &Deed::Read), None);
    }

    #[test]
    fn what_holds_a_volume_back_is_told_with_its_word_first_and_a_dry_run_by_another_reason() {
        let volume = lost("db", 1);
        let held = of_why(&volume, Why::NodeNotFenced);
        assert!(held.event.note.starts_with("NodeNotFenced: ") && held.event.reason == "ReactionHeld");
        assert!(held.event.type_ == EventType::Warning && !held.is_under_way);
        let dry = of_why(&volume, Why::DryRun);
        assert!(dry.event.reason == "ReactionWouldBegin" && dry.event.type_ == EventType::Normal);
    }

    #[test]
    fn the_condition_comes_and_goes_beside_those_of_others() {
        let mut object = in_phase(Phase::Ready);
        let other = status_condition("Healthy", "False", "DiskMissing", "");
        object.status.as_mut().expect("set").conditions = vec![other.clone()];
        assert_eq!(reported_by(&object), None);
        let reported = of_why(&lost("db", 1), Why::Paused);
        let with = conditions(&object, Some(&reported));
        assert_eq!((with.len(), with[1].reason.as_str(), with[1].status.as_str()), (2, "Paused", "False"));
        object.status.as_mut().expect("set").conditions = with;
        assert_eq!(reported_by(&object), Some("Paused"));
        assert_eq!(conditions(&object, None), [other]);
    }
}
