//! PersistentVolumes with which something is wrong are marked, as Kubernetes' proposal for monitoring local volumes has
//! it (docs/health.md, "Marks on PersistentVolumes").
//!
//! Takes in PersistentVolumes (`kube_volume`), PoolVolumes, DevicePools and Nodes by watches; gives out annotations
//! that name what is wrong, Events, in the spec of each DevicePool the local PersistentVolumes of other provisioners
//! that the node's agent looks at, what PersistentVolumes say of PoolVolumes, and answers to what agents ask about
//! PersistentVolumes. Only the leader does this. Annotations are all that it writes into a PersistentVolume, unless the
//! administrator wants marked ones reserved (`reserve`).
//!
//! ```text
//! home (its node) ─▶ judgement (what is wrong) ─▶ marks (which annotations change) ─▶ monitor
//! open_questions (who is answered now) ─▶ answer (what is said to them) ─▶ answerer
//! ```
//!
//! All but `monitor`, `mark_events` and `answerer` are pure.

mod answer;
mod answerer;
pub(in crate::operator) mod home;
mod judgement;
mod mark_events;
mod mark_time;
pub(in crate::operator) mod marks;
mod monitor;
mod open_questions;
pub(in crate::operator) mod plan;
pub(in crate::operator) mod pod_pvcs;
pub(in crate::operator) mod refusals;
pub(in crate::operator) mod reserve;
mod unclaimed;
pub(in crate::operator) mod view;
mod volume_plan;
mod watch_list;

pub use self::answerer::Answerer;
pub use self::monitor::Monitor;
pub use self::reserve::ReservePolicy;
