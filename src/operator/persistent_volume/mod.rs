//! PersistentVolumes with which something is wrong are marked, as Kubernetes' proposal for monitoring local volumes has
//! it (docs/health.md, "Marks on PersistentVolumes").
//!
//! Takes in PersistentVolumes, PoolVolumes, DevicePools and Nodes by watches; gives out annotations that name what is
//! wrong, Events, in the spec of each DevicePool the local PersistentVolumes of other provisioners that the node's agent
//! looks at, and a condition of PoolVolumes that no PersistentVolume names. Only the leader does this. Annotations are
//! all that it writes into a PersistentVolume, unless the administrator wants marked ones reserved (`reserve`).
//!
//! ```text
//! object (whose it is) ─▶ home (its node) ─▶ judgement (what is wrong) ─▶ marks (which annotations change) ─▶ monitor
//! ```
//!
//! All but `monitor` are pure.

pub(in crate::operator) mod home;
mod judgement;
mod mark_time;
pub(in crate::operator) mod marks;
mod monitor;
pub(in crate::operator) mod object;
pub(in crate::operator) mod plan;
pub(in crate::operator) mod refusals;
pub(in crate::operator) mod reserve;
mod unclaimed;
pub(in crate::operator) mod view;
mod volume_plan;
mod watch_list;

pub use self::monitor::Monitor;
pub use self::reserve::ReservePolicy;
