//! What is wrong with a disk or a volume, as objects show it. docs/health.md has the words.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthEntry {
    /// One word for machines.
    pub reason: String,
    /// `Degraded`, `Inaccessible` or `DataLoss`.
    pub severity: String,
    /// A sentence for people.
    pub message: String,
    /// When the agent first saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Of a reason that says that a volume is lost: the process of the agent that has found it itself, by the name that
    /// it has as `agent` in the status of the DevicePool. What only an earlier process has found says nothing of now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_by: Option<String>,
}
