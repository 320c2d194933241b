//! Whether a background worker is busy with a disk.

use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub struct WorkerFlag(AtomicBool);

impl WorkerFlag {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// `false` if a worker was on it already.
    pub fn begin(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }

    pub fn end(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}
