//! Writes that a device does not end, by what the kernel counts of them. Pure.
//!
//! A slow device ends some write, and any end counts: nothing else distinguishes it from a device that has stopped. A
//! kernel before 6.3 counts a write to a mapped device as it begins, so a device that gets new ones all the time looks
//! as if it ended some; it is never the other way round.

use std::time::Duration;

use crate::host::WriteCounts;

/// How long no write may end while some are under way: longer than the drivers of disks take to give one up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// How much of the time since the last checkup counts: a virtual machine that was paused has had none of it, whatever
/// its clock says.
const MOST: Duration = Duration::from_secs(30);

/// The writes of a device, from one checkup to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StalledWrites {
    /// The least that were ever under way. A kernel that counts a write wrong never gets below that again.
    least: Option<u64>,
    stall: Option<Stall>,
    last: Option<WriteCounts>,
    has_moved: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stall {
    /// Monotonic time of the last checkup.
    at: Duration,
    last: WriteCounts,
    lasted: Duration,
}

impl StalledWrites {
    /// Takes in a checkup, and its monotonic time. Gives whether the device does not end its writes.
    pub fn observe(&mut self, writes: Option<WriteCounts>, now: Duration) -> bool {
        self.has_moved |= match (self.last, writes) {
            // A kernel that does not count them had nothing to say before either.
            (_, None) => true,
            (_, Some(now)) if now.under_way == 0 => true,
            (Some(last), Some(now)) => now.counted != last.counted || now.under_way < last.under_way,
            (None, Some(_)) => false,
        };
        self.last = writes;
        let least = self.least.into_iter().chain(writes.map(|writes| writes.under_way)).min();
        self.least = least;
        let under_way = writes.filter(|writes| Some(writes.under_way) > least);
        self.stall = under_way.map(|writes| match self.stall.take() {
            // Where the kernel counts what begins, fewer under way means that one has ended.
            Some(stall) if stall.last.counted == writes.counted && stall.last.under_way <= writes.under_way => {
                let lasted = stall.lasted + now.saturating_sub(stall.at).min(MOST);
                Stall { at: now, last: writes, lasted }
            }
            _ => Stall { at: now, last: writes, lasted: Duration::ZERO },
        });
        self.stall.as_ref().is_some_and(|stall| stall.lasted >= WRITE_TIMEOUT)
    }

    /// Whether a write has ended since the first checkup, or none was under way once. Until then those that are under way
    /// may have been stuck before: by their number alone nobody sees it.
    pub fn has_moved(&self) -> bool {
        self.has_moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of these checkups says after one of an idle device: second, under way, counted.
    fn checkups<const N: usize>(checkups: [(u64, u64, u64); N]) -> [bool; N] {
        let mut stalled = StalledWrites::default();
        let mut observe = |(second, under_way, counted)| {
            stalled.observe(Some(WriteCounts { under_way, counted }), Duration::from_secs(second))
        };
        observe((0, 0, 5));
        checkups.map(observe)
    }

    #[test]
    fn a_device_whose_writes_never_end_is_found_after_a_minute_and_not_before() {
        assert_eq!(checkups([(0, 1, 7), (30, 1, 7), (59, 2, 7), (60, 2, 7)]), [false, false, false, true]);
        assert_eq!(
            checkups([(0, 1, 7), (60, 1, 7), (120, 1, 7)]),
            [false, false, true],
            "by the checkups of each minute"
        );
    }

    #[test]
    fn a_device_that_is_only_slow_or_idle_is_not() {
        assert_eq!(
            checkups([(0, 9, 7), (60, 9, 8), (120, 9, 9), (180, 9, 10), (240, 9, 11)]),
            [false; 5],
            "one a minute"
        );
        assert_eq!(checkups([(0, 0, 7), (60, 0, 7), (120, 0, 7), (180, 0, 7)]), [false; 4], "nobody writes");
        assert_eq!(checkups([(0, 1, 7), (60, 0, 7), (120, 1, 7), (180, 1, 7)]), [false; 4], "it was idle in between");
        let old_kernel = checkups([(0, 9, 7), (60, 8, 7), (120, 7, 7), (180, 6, 7)]);
        assert_eq!(old_kernel, [false; 4], "it counts beginnings");
    }

    #[test]
    fn it_is_over_with_the_first_write_that_ends_and_a_pause_of_the_machine_is_none() {
        assert_eq!(checkups([(0, 1, 7), (60, 1, 7), (120, 1, 7), (121, 1, 8)]), [false, false, true, false]);
        assert_eq!(checkups([(0, 1, 7), (1, 1, 7), (2, 1, 7), (3, 0, 8)]), [false; 4]);
        assert_eq!(checkups([(0, 1, 7), (600, 1, 7), (601, 1, 7)]), [false; 3], "it had no time");
    }

    #[test]
    fn what_the_kernel_counts_wrong_from_the_beginning_is_no_write() {
        let mut stalled = StalledWrites::default();
        let mut observe = |second, under_way| {
            stalled.observe(Some(WriteCounts { under_way, counted: 9 }), Duration::from_secs(second))
        };
        assert_eq!([0, 60, 120, 180].map(|second| observe(second, 1)), [false; 4]);
        assert_eq!([240, 300, 360].map(|second| observe(second, 2)), [false, false, true], "one more than ever");
        assert!(!StalledWrites::default().observe(None, Duration::from_secs(600)), "the kernel counts none");
    }

    /// Whether it is known after each of these checkups, the first ones of a process, that the writes move.
    fn moves<const N: usize>(checkups: [Option<(u64, u64)>; N]) -> [bool; N] {
        let mut stalled = StalledWrites::default();
        checkups.map(|writes| {
            let writes = writes.map(|(under_way, counted)| WriteCounts { under_way, counted });
            stalled.observe(writes, Duration::ZERO);
            stalled.has_moved()
        })
    }

    #[test]
    fn writes_that_are_under_way_from_the_beginning_are_known_to_move_with_the_first_one_that_ends() {
        assert_eq!(moves([Some((2, 7)), Some((2, 7)), Some((3, 7)), Some((3, 8))]), [false, false, false, true]);
        assert_eq!(moves([Some((2, 7)), Some((1, 7)), Some((9, 7))]), [false, true, true], "a kernel before 6.3");
        assert_eq!(moves([Some((0, 7)), Some((2, 7))]), [true, true], "nothing was stuck");
        assert_eq!(moves([Some((2, 7)), Some((0, 7))]), [false, true]);
        assert_eq!(moves([None]), [true], "the kernel counts none");
    }

    #[test]
    fn with_the_first_write_that_ends_the_count_begins_again_at_what_is_under_way_then() {
        let mut stalled = StalledWrites::default();
        let mut observe = |second, under_way, counted| {
            stalled.observe(Some(WriteCounts { under_way, counted }), Duration::from_secs(second))
        };
        assert_eq!([0, 60, 120].map(|second| observe(second, 3, 7)), [false; 3], "they were there before this process");
        assert_eq!([180, 240, 300].map(|second| observe(second, 2, 8)), [false; 3], "two of them are as they were");
        assert_eq!([360, 420, 480].map(|second| observe(second, 3, 8)), [false, false, true], "one more than then");
    }
}
