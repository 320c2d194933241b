//! Requests to a disk that do not end. Pure: it takes the time as a value.

use std::time::Duration;

use crate::host::Requests;

/// The requests of a disk that wait, from one look to the next: it costs the disk nothing, and does not wake one that
/// sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    /// The fewest that waited at any look.
    least: Option<u64>,
    begin: Option<StallBegin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StallBegin {
    ended: u64,
    /// In monotonic time.
    since: Duration,
}

impl Stall {
    /// For how long, in monotonic time, requests wait of which none has ended.
    pub fn look(&mut self, counted: Option<Requests>, now: Duration) -> Duration {
        let Some(Requests { ended, waiting, is_exact }) = counted else {
            *self = Self::default();
            return Duration::ZERO;
        };
        let least = self.least.map_or(waiting, |least| least.min(waiting));
        self.least = Some(least);
        // A request that the kernel has forgotten to count as ended would wait for ever.
        let forgotten = if is_exact { 0 } else { least };
        let same = self.begin.filter(|before| before.ended == ended);
        self.begin = (waiting > forgotten).then(|| same.unwrap_or(StallBegin { ended, since: now }));
        self.begin.map_or(Duration::ZERO, |begin| now.saturating_sub(begin.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(stall: &mut Stall, is_exact: bool, (ended, waiting): (u64, u64), second: u64) -> u64 {
        stall.look(Some(Requests { ended, waiting, is_exact }), Duration::from_secs(second)).as_secs()
    }

    #[test]
    fn requests_stall_while_some_wait_and_none_ends() {
        let mut stall = Stall::default();
        let mut look = |ended, waiting, second| look(&mut stall, true, (ended, waiting), second);
        assert_eq!(look(7, 2, 100), 0);
        assert_eq!(look(7, 9, 160), 60, "also if they waited at the first look");
        assert_eq!(look(8, 9, 280), 0, "one has ended");
        assert_eq!(look(8, 9, 290), 10);
        assert_eq!(look(8, 0, 300), 0, "an idle disk");
        assert_eq!(look(8, 0, 400), 0);
        assert_eq!(look(8, 1, 410), 0);
        assert_eq!(look(8, 1, 420), 10);
        assert_eq!(stall.look(None, Duration::from_secs(430)), Duration::ZERO);
        assert_eq!(stall, Stall::default());
    }

    #[test]
    fn what_waits_at_each_look_at_a_device_without_queues_has_been_forgotten_by_the_kernel() {
        let mut stall = Stall::default();
        let mut look = |ended, waiting, second| look(&mut stall, false, (ended, waiting), second);
        assert_eq!(look(7, 2, 100), 0);
        assert_eq!(look(7, 2, 200), 0, "it is idle");
        assert_eq!(look(7, 3, 300), 0);
        assert_eq!(look(7, 3, 320), 20);
        assert_eq!(look(8, 2, 330), 0);
        assert_eq!(look(8, 2, 400), 0);
    }
}
