//! What one decision takes in, and the steps that it gives out.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Pod};

use super::live::LiveFacts;
use super::marked::MarkedVolume;
use super::record::{PvcUid, ReactionRecord};
use super::settings::ReactionSettings;
use super::tally::NodeTally;
use super::why::Why;
use crate::operator::api_server::object_key::{ObjectName, Uid};
use crate::operator::kube_volume::PersistentVolume;
use crate::operator::status::steady::Lasting;

/// All that one decision knows.
#[derive(Debug)]
pub struct ReactionView {
    pub now: Timestamp,
    pub settings: ReactionSettings,
    /// In the order in which they are read: those whose last read is longest ago first.
    pub volumes: Vec<MarkedVolume>,
    pub nodes: NodeTally,
    pub past: ReactionPast,
    /// The facts that were read in this pass.
    pub live: BTreeMap<Uid<PersistentVolume>, LiveFacts>,
}

impl ReactionView {
    /// How long a time that an object has must be ago.
    pub fn interval(&self) -> SignedDuration {
        self.settings.recover_after + self.past.unwatched
    }
}

/// The memory of this process, and what was handed over to it.
#[derive(Debug)]
pub struct ReactionPast {
    /// Whether the volume was seen lost for the interval, its node being as it is now.
    pub seen: BTreeMap<Uid<PersistentVolume>, Lasting<()>>,
    /// Whether the bad nodes have been few for the interval.
    pub calm: Lasting<()>,
    /// Whether wall clock and monotonic clock have agreed for the interval.
    pub clock: Lasting<()>,
    /// How much of the time before nobody has watched: the times that objects have count that much later.
    pub unwatched: SignedDuration,
    /// How many have begun within an hour, as far as this process knows.
    pub lately: usize,
    /// Reactions that ended a while ago, also to PersistentVolumes that were deleted since.
    pub ended: Vec<ReactionRecord>,
    /// Those of which a step was refused for another reason than a budget.
    pub refused: BTreeSet<Uid<PersistentVolume>>,
}

/// A pod as it was read: another one of that name, or a later state of this one, is not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    pub namespace: ObjectName<Namespace>,
    pub name: String,
    pub uid: Uid<Pod>,
    pub resource_version: String,
}

/// The deed for one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Read `LiveFacts`, and decide again.
    Read,
    /// Ask whether the pod could be evicted, and decide again.
    AskEviction(PodRef),
    /// Keep the data (policy `Retain`), and write the record.
    Begin(ReactionRecord),
    DeletePvc(PvcUid),
    Evict(PodRef),
    /// Take it back: the claim lives. The policy stays `Retain`: a deletion of the claim that was sent
    /// earlier may still arrive.
    Cancel(ReactionRecord, Why),
    /// The pod is whole elsewhere: the record becomes `reacted`.
    Finish(ReactionRecord),
    /// Nobody wants it any more, and the claim is deleted already: the record becomes `reacted`, and
    /// says that it stopped.
    Stop(ReactionRecord, Why),
    /// Delete the PersistentVolume, which nobody has.
    DeleteVolume,
    Explain(Why),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReactionStep {
    pub volume: Uid<PersistentVolume>,
    pub deed: Deed,
}
