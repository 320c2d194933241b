//! Scans the machine's disks again and again, and touches none: what discovery does where no agent runs.
//!
//! Takes in the kernel's events, gives out the inventory after each scan. Events were subscribed to before the first
//! scan; lost ones, and a long silence, mean a scan of everything.

#![allow(clippy::disallowed_methods, reason = "it sleeps by its own clock; no rule is measured by it")]

use std::time::{Duration, Instant};

use super::burst::{self, Burst};
use super::inventory::inventory;
use super::reconciler::{PassReport, Reconciler};
use crate::device::DiscoveryError;
use crate::host::{Backoff, DeviceEvent, DeviceEvents, HostError, chain};
use crate::show::ListedDevice;

/// How long it waits before it asks whether it is still wanted.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// How many scans may fail one after another, and how long to wait in between.
const FAILURES: u32 = 3;
const RESCAN_AFTER: Duration = Duration::from_secs(1);
/// A blank disk that somebody has open, and one that hangs, are scanned again without an event, as none tells when
/// that is over. Each scan in vain doubles the time.
const RESCAN_AT_MOST: Duration = Duration::from_secs(300);

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    Still,
    NoMore,
}

/// Where events come from: the kernel, or a test.
pub trait EventSource {
    fn next(&self, timeout: Duration) -> Result<Option<DeviceEvent>, HostError>;
}

impl EventSource for DeviceEvents {
    fn next(&self, timeout: Duration) -> Result<Option<DeviceEvent>, HostError> {
        Self::next(self, timeout)
    }
}

/// Scans until nobody wants it any more, or the machine cannot be scanned.
pub fn observe(
    agent: &mut Reconciler,
    events: &impl EventSource,
    resync: Duration,
    mut found: impl FnMut(Vec<ListedDevice>),
    wanted: impl Fn() -> Interest,
) -> Result<(), DiscoveryError> {
    let mut failures = 0;
    let mut again = Backoff::new(RESCAN_AFTER, RESCAN_AT_MOST);
    while wanted() == Interest::Still {
        let began = Instant::now();
        let due = match agent.scan() {
            Ok(snapshot) => {
                failures = 0;
                let due = again.after(agent.must_rescan(&snapshot)).unwrap_or(resync);
                found(inventory(agent.pool(), &PassReport::of_scan(snapshot)));
                due.min(resync)
            }
            Err(error) => {
                failures += 1;
                if failures == FAILURES {
                    return Err(error);
                }
                tracing::warn!(error = %chain(&error), "the machine's disks could not be read; trying again");
                agent.events_lost();
                RESCAN_AFTER
            }
        };
        // A flood of events leaves the machine at least as much time as the scans take.
        let breath = began.elapsed();
        if !wait(agent, events, due, &wanted) && due == resync {
            agent.events_lost();
        }
        std::thread::sleep(breath.min(burst::AT_MOST));
    }
    Ok(())
}

/// Waits for an event and the end of its burst; false where none came in time.
fn wait(agent: &mut Reconciler, events: &impl EventSource, due: Duration, wanted: &impl Fn() -> Interest) -> bool {
    let due = Instant::now() + due;
    let mut burst: Option<Burst> = None;
    loop {
        let now = Instant::now();
        let wait =
            burst.map_or_else(|| Some(due.saturating_duration_since(now).min(ASK_INTERVAL)), |burst| burst.wait(now));
        let Some(timeout) = wait else { return true };
        let event = events.next(timeout).unwrap_or_else(|error| {
            tracing::warn!(error = %chain(&error), "device events cannot be read; scanning all devices instead");
            std::thread::sleep(RESCAN_AFTER);
            Some(DeviceEvent::Overflow)
        });
        let is_due = match event {
            Some(DeviceEvent::Changed { name }) => agent.event(&name),
            Some(DeviceEvent::Described { name }) => agent.described(&name),
            // Nobody asks here how a disk is.
            Some(DeviceEvent::Reported { .. }) => false,
            Some(DeviceEvent::Overflow) => agent.events_lost(),
            None if burst.is_some() => return true,
            None if now >= due || wanted() == Interest::NoMore => return false,
            None => false,
        };
        if is_due {
            burst.get_or_insert(Burst::of_devices(Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::sync::Arc;

    use super::*;
    use crate::device::{Owner, Reason, Verdict};
    use crate::host::{Geometry, Host, fake::FakeHost};
    use crate::pool::{Pool, Workers};

    const GEOMETRY: Geometry = Geometry { size: 1 << 30, sector: 512, offloads_zeroes: true };

    /// Events that a test thought of; an empty list lets the time pass at once.
    #[derive(Default)]
    struct Script {
        events: RefCell<VecDeque<Result<Option<DeviceEvent>, ()>>>,
    }

    impl EventSource for Script {
        fn next(&self, timeout: Duration) -> Result<Option<DeviceEvent>, HostError> {
            match self.events.borrow_mut().pop_front() {
                Some(Ok(event)) => Ok(event),
                Some(Err(())) => Err(HostError::Unsupported { what: "no events".to_owned() }),
                None => {
                    std::thread::sleep(timeout.min(Duration::from_millis(5)));
                    Ok(None)
                }
            }
        }
    }

    fn machine() -> (Arc<FakeHost>, Reconciler) {
        let host = Arc::new(FakeHost::default());
        host.add_disk("sda", "A", GEOMETRY);
        let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
        let real: Arc<dyn Host> = Arc::clone(&host) as Arc<dyn Host>;
        let pool = Arc::new(Pool::open(Arc::clone(&real), owner, Workers::Caller).unwrap());
        (host, Reconciler::new(real, pool, Duration::MAX, Vec::new()))
    }

    /// The names that each scan finds, with what happens after it, until there are this many.
    fn scans(
        events: Vec<Result<Option<DeviceEvent>, ()>>,
        resync: Duration,
        most: usize,
        after: impl Fn(&FakeHost, usize),
    ) -> Vec<Vec<crate::host::KernelName>> {
        let (host, mut agent) = machine();
        let script = Script { events: RefCell::new(events.into()) };
        let scans = RefCell::new(Vec::new());
        let found = |shown: Vec<ListedDevice>| {
            scans.borrow_mut().push(shown.into_iter().map(|shown| shown.device.raw.name).collect());
            after(&host, scans.borrow().len());
        };
        let wanted = || if scans.borrow().len() < most { Interest::Still } else { Interest::NoMore };
        observe(&mut agent, &script, resync, found, wanted).unwrap();
        scans.into_inner()
    }

    const FOREVER: Duration = Duration::from_secs(3600);

    fn changed(name: &str) -> Result<Option<DeviceEvent>, ()> {
        Ok(Some(DeviceEvent::Changed { name: name.into() }))
    }

    #[test]
    fn a_disk_that_comes_after_the_first_scan_is_in_the_second() {
        let plug = |host: &FakeHost, scans| {
            if scans == 1 {
                host.add_disk("sdb", "B", GEOMETRY);
            }
        };
        assert_eq!(scans(vec![changed("sdb")], FOREVER, 2, plug), [vec!["sda"], vec!["sda", "sdb"]]);
        assert_eq!(scans(vec![Ok(Some(DeviceEvent::Overflow))], FOREVER, 2, plug)[1], ["sda", "sdb"], "lost events");
        assert_eq!(scans(vec![Err(())], FOREVER, 2, plug)[1], ["sda", "sdb"], "events that cannot be read");
        assert_eq!(scans(vec![], Duration::from_millis(20), 2, plug)[1], ["sda", "sdb"], "no event, but time");
    }

    #[test]
    fn a_disk_that_somebody_had_open_is_found_free_without_an_event() {
        let (host, mut agent) = machine();
        let platter = host.platter("sda").unwrap();
        platter.set_in_use(0, true);
        let verdicts = RefCell::new(Vec::new());
        let found = |shown: Vec<ListedDevice>| {
            verdicts.borrow_mut().push(shown[0].device.verdict.clone());
            platter.set_in_use(0, false);
        };
        let wanted = || if verdicts.borrow().len() < 2 { Interest::Still } else { Interest::NoMore };
        observe(&mut agent, &Script::default(), FOREVER, found, wanted).unwrap();
        assert_eq!(verdicts.into_inner(), [Verdict::Theirs(Reason::Busy), Verdict::Unclaimed]);
    }

    #[test]
    fn a_flood_of_events_is_served_by_few_scans() {
        let events = (0..20_000).map(|n| changed(&format!("sd{n}"))).collect();
        let count = Cell::new(0);
        let began = Instant::now();
        let (_host, mut agent) = machine();
        let script = Script { events: RefCell::new(events) };
        let done =
            || if script.events.borrow().is_empty() && count.get() > 1 { Interest::NoMore } else { Interest::Still };
        observe(&mut agent, &script, FOREVER, |_| count.set(count.get() + 1), done).unwrap();
        // One at first, and then at most one in each time of settling.
        let most = 3 + usize::try_from(began.elapsed().as_secs()).unwrap();
        assert!(count.get() <= most, "{} scans", count.get());
    }

    #[test]
    fn nothing_is_ever_written_to_a_disk() {
        let (host, mut agent) = machine();
        let platter = host.platter("sda").unwrap();
        let count = Cell::new(0);
        let script = Script { events: RefCell::new((0..5).map(|_| changed("sda")).collect()) };
        let wanted = || if count.get() < 2 { Interest::Still } else { Interest::NoMore };
        observe(&mut agent, &script, Duration::from_millis(1), |_| count.set(count.get() + 1), wanted).unwrap();
        assert_eq!(platter.write_count(), 0);
    }
}
