//! What a disk can do, and what can be said of the machine that it is in. Values.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many requests and bytes of each kind a disk does in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskFigures {
    /// Random reads of 4 KiB in a second.
    #[schemars(with = "i64")]
    pub read_iops: u64,
    /// Bytes in a second that are read in a row.
    #[schemars(with = "i64")]
    pub read_bandwidth: u64,
    /// Random writes of 4 KiB in a second.
    #[schemars(with = "i64")]
    pub write_iops: u64,
    /// Bytes in a second that are written in a row.
    #[schemars(with = "i64")]
    pub write_bandwidth: u64,
}

/// What the firmware says of the machine (DMI), if there is such firmware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineModel {
    /// Who made it: `sys_vendor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// What it is: `product_name`. Machines of a cloud have the name of their type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// `bios_version`: under Xen, it names the cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bios: Option<String>,
}

/// How much a benchmark may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchmarkBounds {
    /// The largest file, in bytes.
    pub most_bytes: u64,
    /// Of each of the four runs.
    pub run: Duration,
}

impl Default for BenchmarkBounds {
    fn default() -> Self {
        Self { most_bytes: 1 << 30, run: Duration::from_secs(10) }
    }
}
