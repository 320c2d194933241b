//! WriteCounts that a device does not end, by what the kernel counts of them. Pure.
//!
//! A slow device ends some write, and any end counts: it is told from a device that has stopped by nothing else. A
//! kernel before 6.3 counts a write to a mapped device as it begins, so a device that gets new ones all the time looks
//! as if it ended some; it is never the other way round.

use std::time::Duration;

use crate::host::WriteCounts;

/// How long no write may end while some are under way: longer than the drivers of disks take to give one up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// So many looks in a row must have found it. A virtual machine that was paused has had no time, whatever its clock says.
const LOOKS: u32 = 3;

/// The writes of a device, from one look to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StalledWrites(Option<Stall>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stall {
    /// Monotonic time of the first look that found these writes.
    since: Duration,
    last: WriteCounts,
    looks: u32,
}

impl StalledWrites {
    /// Takes in a look, and its monotonic time. Gives whether the device does not end its writes.
    pub fn look(&mut self, writes: Option<WriteCounts>, now: Duration) -> bool {
        let under_way = writes.filter(|writes| writes.under_way > 0);
        self.0 = under_way.map(|writes| match self.0.take() {
            // Where the kernel counts what begins, fewer under way means that one has ended.
            Some(stall) if stall.last.counted == writes.counted && stall.last.under_way <= writes.under_way => {
                Stall { last: writes, looks: stall.looks + 1, ..stall }
            }
            _ => Stall { since: now, last: writes, looks: 1 },
        });
        let is_over = |stall: &Stall| stall.looks >= LOOKS && now.saturating_sub(stall.since) >= WRITE_TIMEOUT;
        self.0.as_ref().is_some_and(is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of these looks says: second, under way, counted.
    fn looks<const N: usize>(looks: [(u64, u64, u64); N]) -> [bool; N] {
        let mut stalled = StalledWrites::default();
        looks.map(|(second, under_way, counted)| {
            stalled.look(Some(WriteCounts { under_way, counted }), Duration::from_secs(second))
        })
    }

    #[test]
    fn a_device_whose_writes_never_end_is_found_after_a_minute_and_not_before() {
        assert_eq!(looks([(0, 1, 7), (30, 1, 7), (59, 2, 7), (60, 2, 7)]), [false, false, false, true]);
        assert_eq!(looks([(0, 1, 7), (60, 1, 7), (120, 1, 7)]), [false, false, true], "by the checkups of each minute");
    }

    #[test]
    fn a_device_that_is_only_slow_or_idle_is_not() {
        assert_eq!(looks([(0, 9, 7), (60, 9, 8), (120, 9, 9), (180, 9, 10), (240, 9, 11)]), [false; 5], "one a minute");
        assert_eq!(looks([(0, 0, 7), (60, 0, 7), (120, 0, 7), (180, 0, 7)]), [false; 4], "nobody writes");
        assert_eq!(looks([(0, 1, 7), (60, 0, 7), (120, 1, 7), (180, 1, 7)]), [false; 4], "it was idle in between");
        assert_eq!(
            looks([(0, 9, 7), (60, 8, 7), (120, 7, 7), (180, 6, 7)]),
            [false; 4],
            "an old kernel counts beginnings"
        );
    }

    #[test]
    fn it_is_over_with_the_first_write_that_ends_and_a_pause_of_the_machine_is_none() {
        assert_eq!(looks([(0, 1, 7), (60, 1, 7), (120, 1, 7), (121, 1, 8)]), [false, false, true, false]);
        assert_eq!(looks([(0, 1, 7), (1, 1, 7), (2, 1, 7), (3, 0, 8)]), [false; 4]);
        assert_eq!(looks([(0, 1, 7), (3600, 1, 7), (3660, 1, 8)]), [false; 3], "it had no time");
        let mut stalled = StalledWrites::default();
        assert!(!stalled.look(None, Duration::from_secs(600)), "the kernel counts none");
    }
}
