//! How much is zeroed at a time: as much as a device can in a moment, so that others who want it wait no longer than
//! that.

use std::time::{Duration, Instant};

use super::block::{BlockDevice, IoError};
use super::extent::Extent;

const MIB: u64 = 1 << 20;
/// How much is zeroed between two looks at the clock.
const PIECE: u64 = 16 * MIB;
/// A moment, and the most to zero in one, for a device that only makes a note of it.
pub const MOMENT: Duration = Duration::from_millis(100);
const AT_MOST: u64 = 1 << 30;
/// How long one caller waits, and for how much; the rest is zeroed in the background.
const CALL: Duration = Duration::from_secs(5);
const CALL_AT_MOST: u64 = 8 << 30;

/// Zeroes from the start of `range` for a moment, and syncs. Gives what reads as zeros then: some of it at least.
pub fn zero_for_a_moment(disk: &dyn BlockDevice, range: Extent) -> Result<Extent, IoError> {
    let begun = Instant::now();
    let last = range.end.min(range.start.saturating_add(AT_MOST));
    let mut done = Extent { start: range.start, end: range.start };
    while done.end < last && (done.is_empty() || begun.elapsed() < MOMENT) {
        // Whole MiB, as space is given in.
        let end = last.min(done.end.saturating_add(PIECE) / MIB * MIB);
        disk.zero(Extent { start: done.end, end })?;
        done.end = end;
    }
    disk.sync()?;
    Ok(done)
}

/// The zeroing that one caller waits for.
pub struct ZeroingBudget {
    begun: Instant,
    zeroed: u64,
}

impl ZeroingBudget {
    pub fn begin() -> Self {
        Self { begun: Instant::now(), zeroed: 0 }
    }

    pub fn has_zeroed(&mut self, bytes: u64) {
        self.zeroed = self.zeroed.saturating_add(bytes);
    }

    /// The caller need not wait for more.
    pub fn is_over(&self) -> bool {
        self.zeroed >= CALL_AT_MOST || self.zeroed > 0 && self.begun.elapsed() >= CALL
    }
}
