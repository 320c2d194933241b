//! What statuses are made of: conditions, times, the health of disks and volumes, and what counts only when it has lasted.

pub(in crate::operator) mod condition;
pub(in crate::operator) mod health;
pub(in crate::operator) mod ready;
pub(in crate::operator) mod second;
pub(in crate::operator) mod steady;
