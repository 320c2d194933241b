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
}
