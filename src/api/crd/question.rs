//! What an agent asks the controller about PersistentVolumes, and what the controller answers: the question is in the
//! status of the node's DevicePool, the answer in its spec.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::device::VolumeId;

/// A question of the agent. It has a token of its own: what was answered before it is no answer to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolQuestion {
    /// Names the question.
    pub token: String,
    /// Which paths of this node do PersistentVolumes of other provisioners promise?
    #[serde(default)]
    pub promises: bool,
    /// Which of these volumes does a PersistentVolume claim for this node?
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "super::readable_ids::ids")]
    #[schemars(with = "Vec<String>")]
    pub volumes: Vec<VolumeId>,
}

/// The answer to the question with the same token, from PersistentVolumes that were read after it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolAnswer {
    /// That of the question.
    pub token: String,
    /// The paths that PersistentVolumes of other provisioners promise on this node.
    #[serde(default)]
    pub promises: Vec<PromisedPath>,
    /// How many there are in addition, for which there is no room here. With any, nothing is claimed.
    #[serde(default)]
    pub promises_omitted: i64,
    /// The volumes that a PersistentVolume names for this node.
    #[serde(default, rename = "claimed")]
    pub named: Vec<NamedVolume>,
}

/// A path of this node that a PersistentVolume of another provisioner names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromisedPath {
    /// The name of the PersistentVolume.
    pub name: String,
    /// Who made it, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<String>,
    /// Where it is on the node.
    pub path: String,
}

/// A volume, and the PersistentVolume that names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamedVolume {
    /// The name of the PoolVolume.
    pub volume: String,
    /// The name of the PersistentVolume.
    pub persistent_volume: String,
}
