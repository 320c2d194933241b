//! Whether calls can be answered, for CSI's Probe and for the probes of kubelet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// On a node, the first scan of the machine's disks is over; in the controller, it knows the cluster's objects.
#[derive(Clone, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    pub fn set_ready(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn set_not_ready(&self) {
        self.0.store(false, Ordering::Release);
    }

    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
