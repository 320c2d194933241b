//! The facts of one volume's claim, pods and StatefulSet, read from the API server itself, right before anything is
//! decided about them: watches may be late. Pure but for the reader, which fills it in.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};

use super::marked::HomeState;
use crate::device::NodeName;
use crate::health::HealthReason;
use crate::operator::api_server::object_key::{ObjectName, Uid};
use crate::operator::kube_volume::PersistentVolume;

/// In mode `Off` only `volume` and `pvc` are read.
#[derive(Clone, Debug, Default)]
pub struct LiveFacts {
    /// `None`: it is gone.
    pub volume: Option<Arc<PersistentVolume>>,
    pub namespace: NamespaceFacts,
    /// The volume's Node, or the one that its pod is on; `None`: there is no such Node.
    pub node: Option<Uid<Node>>,
    /// The volume's node now; `None`: not read.
    pub home: Option<HomeState>,
    /// Since when its Node is ready and its agent answers.
    pub ready_since: Option<Timestamp>,
    /// The losses that its agent reports now and has found itself.
    pub losses: BTreeSet<HealthReason>,
    /// The claim by the name that the volume's claimRef or record has, whatever its UID.
    pub pvc: Option<PvcFacts>,
    /// The StatefulSet of the record, or the one that controls the pod that uses the claim.
    pub stateful_set: Option<StatefulSetFacts>,
    /// The pods that use the claim, and those of the StatefulSet.
    pub pods: Vec<PodFacts>,
    /// The answer to an eviction as a dry run; `None`: not asked yet.
    pub eviction: Option<EvictionAnswer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionAnswer {
    Allowed,
    Refused,
    /// The API server does not answer, or does not know.
    Failed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// It has the label.
    pub is_chosen: bool,
    pub is_paused: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PvcFacts {
    pub uid: Uid<PersistentVolumeClaim>,
    pub resource_version: String,
    /// `spec.volumeName`
    pub volume: Option<ObjectName<PersistentVolume>>,
    pub is_bound: bool,
    pub is_deleted: bool,
    pub is_paused: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatefulSetFacts {
    pub name: ObjectName<StatefulSet>,
    pub uid: Uid<StatefulSet>,
    pub is_deleted: bool,
    pub is_paused: bool,
    pub replicas: i32,
    /// `spec.ordinals.start`
    pub first_ordinal: i32,
    /// The names of its volumeClaimTemplates.
    pub templates: Vec<String>,
    /// It makes a pod only when all before it are ready (podManagementPolicy OrderedReady).
    pub is_ordered: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    pub name: ObjectName<Pod>,
    pub uid: Uid<Pod>,
    pub resource_version: String,
    /// The StatefulSet that controls it; `None`: somebody else does, or nobody.
    pub stateful_set: Option<Uid<StatefulSet>>,
    /// `spec.nodeName`
    pub node: Option<NodeName>,
    pub is_deleted: bool,
    pub is_ready: bool,
    /// It names the claim in its volumes.
    pub uses_pvc: bool,
}
