//! What one decision takes in, and the steps that it gives out.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::live::LiveFacts;
use super::marked::MarkedVolume;
use super::record::{ClaimUid, ReactionRecord};
use super::settings::ReactionSettings;
use super::tally::NodeTally;
use super::why::Why;
use crate::operator::steady::Lasting;

/// Maps are by the UID of the PersistentVolume.
#[derive(Debug)]
pub struct ReactionView {
    pub now: Timestamp,
    pub settings: ReactionSettings,
    /// In the order in which they are looked at: those whose last look is longest ago first.
    pub volumes: Vec<MarkedVolume>,
    pub nodes: NodeTally,
    pub past: ReactionPast,
    /// What was read in this pass.
    pub live: BTreeMap<String, LiveFacts>,
}

/// What this process remembers.
#[derive(Debug)]
pub struct ReactionPast {
    /// Whether this process has seen the volume lost for the interval, its node being as it is now.
    pub seen: BTreeMap<String, Lasting<()>>,
    /// Whether the bad nodes have been few for the interval.
    pub calm: Lasting<()>,
    /// Whether wall clock and monotonic clock have agreed for the interval.
    pub clock: Lasting<()>,
    /// How many have begun within an hour, as far as this process knows.
    pub lately: usize,
    /// What ended a while ago, also of PersistentVolumes that were deleted since.
    pub ended: Vec<ReactionRecord>,
    /// Those of which a step was refused for another reason than a budget.
    pub refused: BTreeSet<String>,
}

/// A pod as it was read: another one of that name, or a later state of this one, is not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

/// What is done about one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Read `LiveFacts`, and decide again.
    Look,
    /// Ask whether the pod could be evicted, and decide again.
    AskEviction(PodRef),
    /// Keep the data (policy `Retain`), and write the record.
    Begin(ReactionRecord),
    DeleteClaim(ClaimUid),
    Evict(PodRef),
    /// Take it back: the claim lives. The policy stays `Retain`: a deletion of the claim that was sent earlier may still
    /// arrive.
    Cancel(ReactionRecord, Why),
    /// The pod is whole elsewhere: the record becomes `reacted`.
    Finish(ReactionRecord),
    /// Nobody wants it any more, and the claim is deleted already: the record becomes `reacted`, and says that it stopped.
    Stop(ReactionRecord, Why),
    /// Delete the PersistentVolume, which nobody has.
    DeleteVolume,
    Report(Why),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReactionStep {
    /// The UID of the PersistentVolume.
    pub volume: String,
    pub deed: Deed,
}
