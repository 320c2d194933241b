//! The reactions that are under way, and those that ended a while ago: what they leave to others.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;

use super::record::{HowEnded, PvcUid, ReactionRecord};
use super::view::ReactionView;
use super::why::Why;
use crate::operator::api_server::object_key::{ObjectName, Uid};
use crate::operator::persistent_volume::marks::SKEW;

/// How long the volumes of other pods of a StatefulSet are left alone: the one that was moved may still copy its data.
const COPYING: SignedDuration = SignedDuration::from_hours(1);

#[derive(Debug)]
pub struct InFlight<'a> {
    records: Vec<&'a ReactionRecord>,
    /// With those that cannot be read: of these, nobody knows which pod they are of.
    count: usize,
    /// Finished or stopped a while ago: the pod may still copy.
    ended: Vec<&'a ReactionRecord>,
}

impl<'a> InFlight<'a> {
    pub fn of(view: &'a ReactionView) -> Self {
        let all = || view.volumes.iter().filter_map(|volume| volume.record.as_ref());
        let ended = view.volumes.iter().filter_map(|volume| volume.reacted.as_ref()).chain(&view.past.ended);
        Self {
            records: all().filter_map(|record| record.as_ref().ok()).collect(),
            count: all().count(),
            ended: ended.filter(|record| is_copying(record, view.now)).collect(),
        }
    }

    /// Whether it may be a claim of a pod that is under way.
    pub fn may_be_of_pod(&self, pvc: &PvcUid) -> bool {
        self.records.iter().any(|record| record.may_be_of_pod(pvc))
    }

    /// Whether another claim of this pod is under way: the pod cannot be whole before all of its lost claims have gone.
    pub fn has_pod(&self, stateful_set: &Uid<StatefulSet>, pod: &ObjectName<Pod>) -> bool {
        self.records.iter().any(|record| record.stateful_set.uid == *stateful_set && record.pod == *pod)
    }

    /// Whether another pod of the StatefulSet is, or may still copy its data.
    pub fn is_busy(&self, stateful_set: &Uid<StatefulSet>, pod: &ObjectName<Pod>) -> bool {
        self.records
            .iter()
            .chain(&self.ended)
            .any(|record| record.stateful_set.uid == *stateful_set && record.pod != *pod)
    }

    pub fn budget(&self, view: &ReactionView) -> Result<(), Why> {
        if self.count >= view.settings.at_once {
            Err(Why::TooManyAtOnce)
        } else if view.past.lately >= view.settings.per_hour {
            Err(Why::TooManyInAnHour)
        } else {
            Ok(())
        }
    }
}

/// Whether its pod may still copy its data.
pub fn is_copying(record: &ReactionRecord, now: Timestamp) -> bool {
    let end = record.ended.as_ref().filter(|end| end.how != HowEnded::Cancelled);
    end.is_some_and(|end| is_within(end.at, now, COPYING))
}

/// Whether a time is not longer ago than this. One that lies ahead is of a clock that was wrong, and says nothing.
pub fn is_within(at: Timestamp, now: Timestamp, span: SignedDuration) -> bool {
    let age = now.duration_since(at);
    age >= -SKEW && age < span
}
