//! How far a disk is with erasing deleted volumes: what this process has counted, and what is left.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What this process has erased on one disk.
#[derive(Debug, Default)]
pub struct ErasureCount {
    volumes: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

impl ErasureCount {
    /// Zeroes a part of a volume by `zero`, and measures how long that takes.
    #[allow(clippy::disallowed_methods, reason = "no rule is measured by it: it says how fast a disk is")]
    pub fn timed<E>(&self, bytes: u64, zero: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let began = Instant::now();
        zero()?;
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        self.nanoseconds.fetch_add(took, Ordering::SeqCst);
        Ok(())
    }

    /// A volume is erased.
    pub fn volume(&self) {
        self.volumes.fetch_add(1, Ordering::SeqCst);
    }

    /// `left`: bytes that are still to be zeroed.
    pub fn view(&self, left: u64) -> Erasure {
        Erasure {
            volumes: self.volumes.load(Ordering::SeqCst),
            bytes: self.bytes.load(Ordering::SeqCst),
            time: Duration::from_nanos(self.nanoseconds.load(Ordering::SeqCst)),
            left,
        }
    }
}

/// The same as people see it. `volumes`, `bytes` and the `time` that they took are those of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erasure {
    pub volumes: u64,
    pub bytes: u64,
    pub time: Duration,
    /// Bytes of deleted volumes that are still to be zeroed.
    pub left: u64,
}

impl Erasure {
    /// Bytes a second; `None`: nothing was erased yet.
    pub fn rate(&self) -> Option<u64> {
        let rate = u128::from(self.bytes) * 1_000_000_000 / self.time.as_nanos().max(1);
        u64::try_from(rate).ok().filter(|rate| *rate > 0)
    }

    /// The time that what is left takes at this rate.
    pub fn remaining(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.left.div_ceil(self.rate()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_takes_as_long_as_as_much_took_before() {
        let erasure = |bytes, seconds, left| Erasure { volumes: 0, bytes, time: Duration::from_secs(seconds), left };
        assert_eq!(erasure(0, 0, 5).remaining(), None, "nobody knows yet");
        assert_eq!(erasure(100, 10, 0).remaining(), Some(Duration::ZERO));
        assert_eq!(erasure(100, 10, 45).remaining(), Some(Duration::from_secs(5)), "up to the next second");
        assert_eq!(erasure(u64::MAX, 1, u64::MAX).remaining(), Some(Duration::from_secs(1)));
    }
}
