//! Requests to the node's side of a volume, and its answers.

use super::publish::AccessType;
use crate::device::VolumeId;
use crate::health::Condition;
use crate::host::{FsUsage, TargetAccess};

/// NodeStageVolume, parsed.
#[derive(Clone, Debug)]
pub struct StageRequest {
    pub id: VolumeId,
    pub staging: String,
    pub access_type: AccessType,
}

/// NodePublishVolume, parsed.
#[derive(Clone, Debug)]
pub struct PublishRequest {
    pub id: VolumeId,
    pub staging: String,
    pub target: String,
    pub access_type: AccessType,
    pub access: TargetAccess,
    /// RWOP: a second target is refused.
    pub single_target: bool,
}

/// NodeGetVolumeStats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    pub size: u64,
    /// The usage of the filesystem; `None` for a raw block volume.
    pub usage: Option<FsUsage>,
    pub condition: Condition,
}
