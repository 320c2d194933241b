//! When a burst of events is over, so that one scan serves all of it. Pure.

use std::time::{Duration, Instant};

/// How long no event of a device comes at the end of a burst of them.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest burst of device events.
pub const AT_MOST: Duration = Duration::from_secs(1);

/// A burst that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    pause: Duration,
    until: Instant,
}

impl Burst {
    /// A burst of events of devices: it ends with a pause, and soon however many come.
    pub fn of_devices(now: Instant) -> Self {
        Self { pause: PAUSE, until: now + AT_MOST }
    }

    /// It ends after that time, and not before.
    pub fn lasting(now: Instant, time: Duration) -> Self {
        Self { pause: time, until: now + time }
    }

    /// How long to wait for its next event. `None`: it has lasted long enough.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let left = self.until.saturating_duration_since(now);
        (!left.is_zero()).then(|| left.min(self.pause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_ends_with_a_pause_and_lasts_no_longer_than_it_may_however_many_events_come() {
        let began = Instant::now();
        let waits = |burst: Burst| [0, 500, 980, 1000, 5000].map(|at| burst.wait(began + Duration::from_millis(at)));
        let ms = |time| Some(Duration::from_millis(time));
        assert_eq!(waits(Burst::of_devices(began)), [ms(50), ms(50), ms(20), None, None]);
        let fixed = Burst::lasting(began, Duration::from_secs(1));
        assert_eq!(waits(fixed), [ms(1000), ms(500), ms(20), None, None], "a pause does not end it");
    }
}
