//! A filesystem that a person mounted and named in a DevicePool: what keeps its volumes within their sizes, and what the
//! status says of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What keeps volumes that are folders within their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FolderQuota {
    Project,
    None,
}

/// A filesystem that a person has mounted and named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamedDiskStatus {
    /// The mount point, as in the spec.
    pub path: String,
    /// Which filesystem has this name: the UUID in its file `localpool-disk.cfg`.
    #[serde(
        rename = "diskUUID",
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::readable_ids::id"
    )]
    #[schemars(with = "Option<String>")]
    pub disk_uuid: Option<Uuid>,
    /// Its type, if one is mounted there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<String>,
    /// In bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// `Ready`: the filesystem with `diskUUID` is mounted at `path` and can be used. `Schedulable`: it takes new volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
