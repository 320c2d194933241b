//! What localpool reads of a PersistentVolume, and the one place that reads it.
//!
//! Takes in PersistentVolumes as the API server has them; gives out a [`PersistentVolume`], by one conversion, to
//! whoever reads one: the watch of the leader (`leader/stores`), an answer to a write, and [`LivePersistentVolumes`].
//! Whose it is, which nodes it names and which claim has it are questions to that value, and are asked nowhere else by
//! hand.
//!
//! All but `live` is pure.

mod affinity;
mod annotation;
mod live;
mod object;

pub use self::affinity::{HOSTNAME, NODE_LABELS, NodeAffinity};
pub use self::annotation::{FIRST_MARK_TIME, PROVISIONED_BY, is_mark};
pub use self::live::LivePersistentVolumes;
pub use self::object::{Backing, BindingPhase, PersistentVolume, PvcReference};
