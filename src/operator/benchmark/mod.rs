//! The measured speed of disks, kept for those who tune by it (docs/node-disk-setup.md, ADR 20).
//!
//! Takes in NodeDiskSetups, PersistentVolumes and PoolVolumes, the DevicePools and the ConfigMaps with results; gives out
//! requests to agents in the DevicePools, results in the ConfigMaps, the sets of NodeDiskSetups, and statuses. The leader
//! decides and writes (`recorder`), the agent of a node measures (`pool::benchmarks`), or says when a command may run in the
//! pod that waits, which the leader does then (`pod_runs`).
//!
//! ```text
//! disk_setup::setups (which object is for which node), consent (of each claim) ─▶ due (what is written for one volume)
//!   ─▶ plan (for all), with asked (of each agent) and in_pod (how far its command is) ─▶ recorder ─▶ writer (to the API server)
//! recorder ─▶ pod_runs (pod_choice: in which container) ─▶ pod_exec (through the API server)
//! ```
//!
//! All but `recorder`, `writer`, `pod_runs` and `pod_exec` is pure.

mod asked;
mod consent;
mod due;
mod in_pod;
mod io_properties;
mod plan;
mod pod_choice;
mod pod_exec;
mod pod_runs;
mod precomputed;
mod recorded_write;
mod recorder;
mod result_map;
#[cfg(test)]
mod sample;
mod setup_status;
mod writer;

pub use self::pod_choice::PodTarget;
pub use self::pod_exec::{CommandEnd, PodExec};
pub use self::pod_runs::PodCommands;
pub use self::recorder::{BenchmarkRecorder, DiskSetupSettings};
