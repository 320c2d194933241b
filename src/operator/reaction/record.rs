//! The record of a reaction that has begun: an annotation of the PersistentVolume, in JSON. All else is looked up, so
//! that a controller that takes over goes on with what is.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};

use crate::device::NodeName;
use crate::operator::api_server::object_key::{ObjectName, Uid};
use crate::operator::kube_volume::PersistentVolume;

/// A reaction that is under way.
pub const RECORD: &str = "localpool.dev/reaction";
/// The last one that ended.
pub const REACTED: &str = "localpool.dev/reacted";

/// The policy by which the deletion of a claim deletes nothing else.
pub const RETAIN: &str = "Retain";

/// A StatefulSet in the namespace of the claim that the record names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StatefulSetUid {
    pub name: ObjectName<StatefulSet>,
    pub uid: Uid<StatefulSet>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeUid {
    pub name: NodeName,
    pub uid: Uid<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PvcUid {
    pub namespace: ObjectName<Namespace>,
    pub name: ObjectName<PersistentVolumeClaim>,
    pub uid: Uid<PersistentVolumeClaim>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReactionRecord {
    /// The UID of the PersistentVolume that it was written into: annotations are copied, by people and by backups.
    pub volume: Uid<PersistentVolume>,
    #[serde(rename = "claim")]
    pub pvc: PvcUid,
    #[serde(rename = "set")]
    pub stateful_set: StatefulSetUid,
    /// The name of the StatefulSet's pod that uses the claim.
    pub pod: ObjectName<Pod>,
    /// `None`: the Node does not exist any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeUid>,
    /// The mark that counted.
    pub reason: String,
    /// The reclaim policy of the PersistentVolume before.
    pub policy: String,
    pub began: Timestamp,
    /// `None`: it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<ReactionEnd>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReactionEnd {
    pub at: Timestamp,
    pub how: HowEnded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HowEnded {
    /// The pod was ready with another volume.
    Finished,
    /// The claim was deleted, and nobody goes on.
    Stopped,
    /// The claim is as it was.
    Cancelled,
}

impl ReactionRecord {
    #[must_use]
    pub fn ended(&self, how: HowEnded, at: Timestamp) -> Self {
        Self { ended: Some(ReactionEnd { at, how }), ..self.clone() }
    }

    /// Whether it may be a claim of the same pod, by the names that a StatefulSet gives its claims. Another StatefulSet
    /// may have a longer name that ends so.
    pub fn may_be_of_pod(&self, pvc: &PvcUid) -> bool {
        self.pvc.namespace == pvc.namespace
            && pvc.name.as_str().strip_suffix(self.pod.as_str()).is_some_and(|stem| stem.ends_with('-'))
    }

    /// The value of the annotation.
    pub fn written(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The record is there and cannot be read, so nobody knows what was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableRecord;

/// The record of the reaction that is under way.
pub fn under_way(volume: &PersistentVolume) -> Option<Result<ReactionRecord, UnreadableRecord>> {
    volume.annotations().get(RECORD).map(|text| serde_json::from_str(text).map_err(|_| UnreadableRecord))
}

/// The last one that ended, if it can be read.
pub fn reacted(volume: &PersistentVolume) -> Option<ReactionRecord> {
    volume.annotations().get(REACTED).and_then(|text| serde_json::from_str(text).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(value: &str) -> PersistentVolume {
        let value = json!({"metadata": {"name": "pv", "annotations": {RECORD: value, REACTED: value}}});
        serde_json::from_value(value).expect("a PersistentVolume")
    }

    #[test]
    fn a_record_is_read_as_it_is_written_and_an_unknown_one_is_an_error() {
        let record = ReactionRecord {
            volume: "v".into(),
            pvc: PvcUid { namespace: "db".into(), name: "data-db-1".into(), uid: "c".into() },
            stateful_set: StatefulSetUid { name: "db".into(), uid: "s".into() },
            pod: "db-1".into(),
            node: Some(NodeUid { name: "n".into(), uid: "u".into() }),
            reason: "DiskMissing".into(),
            policy: "Delete".into(),
            began: "2026-01-01T00:00:00Z".parse().expect("a time"),
            ended: None,
        };
        let written = record.written();
        assert!(!written.contains("ended"), "{written}");
        let read = under_way(&with(&written)).expect("a record").expect("it can be read");
        assert_eq!((&read, reacted(&with(&written)).as_ref()), (&record, Some(&record)));
        let gone = ReactionRecord { node: None, ..record.ended(HowEnded::Stopped, record.began) };
        assert_eq!(reacted(&with(&gone.written())), Some(gone));
        assert!(under_way(&with("yes")).expect("there is one").is_err());
        assert_eq!(reacted(&with("yes")), None);
        assert!(under_way(&PersistentVolume::default()).is_none());
    }
}
