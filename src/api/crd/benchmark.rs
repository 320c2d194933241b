//! What is measured of a disk of a DevicePool: the request in the spec, which the controller writes, and the result in
//! the status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::device::{DiskId, VolumeId};
use crate::host::DiskFigures;

/// A disk that the node's agent is asked to measure, when it is idle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BenchmarkRequest {
    /// Id of the disk.
    #[schemars(with = "String")]
    pub disk: DiskId,
    /// When the controller asked for it.
    pub requested: Time,
    /// The volumes on it whose pods wait for the result, by the names of their PoolVolumes. If another one is mounted, the
    /// disk is in use.
    #[serde(default, deserialize_with = "super::readable_ids::ids")]
    #[schemars(with = "Vec<String>")]
    pub volumes: Vec<VolumeId>,
    /// The controller runs a command in a pod that waits, as soon as the agent says that the disk is idle. Absent: the agent
    /// measures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodBenchmark>,
}

/// How far a command in a pod is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodBenchmark {
    /// How often it has begun.
    #[serde(default)]
    pub tries: i64,
    /// It has begun, and nobody has seen its end yet. Written before it begins, so that no other controller begins it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<CommandBegun>,
    /// What came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<CommandEnded>,
}

/// Where a command runs, and how long at most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandBegun {
    /// Namespace and name.
    pub pod: String,
    /// The container of the pod.
    pub container: String,
    /// When it is over even if nobody saw its end.
    pub until: Time,
}

/// What came of a command: figures, or why there are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandEnded {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<DiskFigures>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What became of the last request to measure a disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskBenchmark {
    /// When the controller asked for it.
    pub requested: Time,
    /// Waiting: it is tried again by itself. Measuring. Measured. Failed: it is not tried again until the controller asks again.
    pub state: BenchmarkState,
    /// What it waits for, or why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<DiskFigures>,
    /// It waits for the command in a pod, and the disk is idle: the command may begin.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BenchmarkState {
    // It is tried again by itself.
    Waiting,
    // Written before anything is done to the disk. If the agent ends meanwhile, the next one says that it failed: it may
    // be what ended the agent, or the machine.
    Measuring,
    Measured,
    // It failed, or the disk was not idle in time: it is not tried again until the controller asks again.
    Failed,
}

impl BenchmarkState {
    /// Whether the request has its result.
    pub fn is_over(self) -> bool {
        match self {
            Self::Waiting | Self::Measuring => false,
            Self::Measured | Self::Failed => true,
        }
    }
}
