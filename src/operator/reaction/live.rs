//! What is read of one volume's claim, pods and set from the API server itself, right before anything is decided about
//! them: watches may be late. Pure but for the reader, which fills it in.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;

use super::marked::HomeState;
use crate::health::HealthReason;

/// In mode `Off` only `volume` and `claim` are read.
#[derive(Clone, Debug, Default)]
pub struct LiveFacts {
    /// `None`: it is gone.
    pub volume: Option<Arc<PersistentVolume>>,
    pub namespace: NamespaceFacts,
    /// The UID of the volume's Node, or of the one that its pod is on; `None`: there is no such Node.
    pub node: Option<String>,
    /// The volume's node now; `None`: not read.
    pub home: Option<HomeState>,
    /// Since when its Node is ready and its agent answers.
    pub ready_since: Option<Timestamp>,
    /// What its agent says of the volume now, as far as it says that the volume is lost.
    pub losses: BTreeSet<HealthReason>,
    /// The claim by the name that the volume's claimRef or record has, whatever its UID.
    pub claim: Option<ClaimFacts>,
    /// The StatefulSet of the record, or the one that controls the pod that uses the claim.
    pub set: Option<SetFacts>,
    /// The pods that use the claim, and those of the set.
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
pub struct ClaimFacts {
    pub uid: String,
    pub resource_version: String,
    /// `spec.volumeName`
    pub volume: Option<String>,
    pub is_bound: bool,
    pub is_deleted: bool,
    pub is_paused: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetFacts {
    pub name: String,
    pub uid: String,
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
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    /// The UID of the StatefulSet that controls it; `None`: somebody else does, or nobody.
    pub set: Option<String>,
    /// `spec.nodeName`
    pub node: Option<String>,
    pub is_deleted: bool,
    pub is_ready: bool,
    /// It names the claim in its volumes.
    pub uses_claim: bool,
}
