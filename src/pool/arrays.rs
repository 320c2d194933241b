//! What keeps arrays of the pool's disks from being used, as the last pass has said it.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use uuid::Uuid;

use super::view::DiskView;

/// Why arrays cannot be used now, as text, by their UUIDs.
#[derive(Debug, Default)]
pub struct ArrayProblems(RwLock<BTreeMap<Uuid, String>>);

impl ArrayProblems {
    /// All that a pass has found.
    pub fn settle(&self, found: BTreeMap<Uuid, String>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// Those of a disk that is an array, or a member of one.
    pub fn of(&self, view: &DiskView) -> Option<String> {
        let array = view.array.or_else(|| view.member_of())?;
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&array).cloned()
    }
}
