//! The annotations of a PersistentVolume that localpool reads. Pure.

use crate::health::REASONS;

/// Names the provisioner.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The time of the first mark of any kind, as Kubernetes' proposal has it.
pub const FIRST_MARK_TIME: &str = "FirstMarkTime";
/// What all annotations of localpool begin with.
const LOCALPOOL: &str = "localpool.dev/";

/// Whether only the monitor writes the annotation.
pub fn is_mark(key: &str) -> bool {
    key == FIRST_MARK_TIME || REASONS.iter().any(|row| row.word == key && row.marks())
}

/// Whether anything here reads the annotation.
pub fn is_read(key: &str) -> bool {
    is_mark(key) || key == PROVISIONED_BY || key.starts_with(LOCALPOOL)
}
