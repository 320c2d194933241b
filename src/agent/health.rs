//! What disks said of their health, so that none is asked at each pass.
//!
//! Takes in the disks that an election wants to know of, asks each once, and believes its word for an hour or until an
//! event of it.

use std::sync::Arc;
use std::time::Duration;

use super::disk_health_cache::DiskHealthCache;
use crate::device::REMEMBERED_FOR;
use crate::host::{
    Health, Host, Incarnation, RawDisk, chain,
    timeout::{self, Timeouts},
};

#[derive(Debug)]
pub(super) struct Healths {
    reports: DiskHealthCache,
    timeouts: Timeouts<Incarnation>,
}

impl Default for Healths {
    fn default() -> Self {
        Self { reports: DiskHealthCache::default(), timeouts: Timeouts::new(timeout::DEVICE_TIMEOUT) }
    }
}

impl Healths {
    /// What the disks reported: whoever else asks them shares it.
    pub fn reports(&self) -> &DiskHealthCache {
        &self.reports
    }

    /// Those that are not here any more are waited for no more.
    pub fn forget(&mut self, here: impl Fn(&Incarnation) -> bool) {
        self.timeouts.forget(here);
    }

    /// A disk that does not answer in time is asked again when it has.
    pub fn of(&mut self, host: &Arc<dyn Host>, raw: &RawDisk, now: Duration) -> Health {
        if let Some(report) = self.reports.fresh(raw, now, REMEMBERED_FOR) {
            return report.health;
        }
        let asked = (Arc::clone(host), raw.clone());
        let report = match self.timeouts.ask(&raw.incarnation(), move || asked.0.report(&asked.1)) {
            Ok(report) => report,
            Err(error) => return Health::Unknown(chain(&error)),
        };
        self.reports.keep(raw, now, report.clone());
        report.health
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::reconciler::Reconciler;
    use crate::device::Owner;
    use crate::host::{Geometry, fake::FakeHost};
    use crate::pool::{Pool, Workers};

    #[test]
    fn a_disk_is_asked_once_and_again_after_an_event_or_an_hour_or_when_it_is_another() {
        let host = Arc::new(FakeHost::default());
        let asked_host: Arc<dyn Host> = host.clone();
        host.add_disk("fake0", "S", Geometry { size: 1 << 20, sector: 512, offloads_zeroes: true });
        let raw = host.scan().unwrap().remove(0);
        let mut healths = Healths::default();
        let hour = Duration::from_secs(3600);
        let expect = |healths: &mut Healths, raw: &RawDisk, now, asked| {
            let health = healths.of(&asked_host, raw, now);
            assert_eq!(host.health_asked(), asked);
            health
        };
        host.set_health("fake0", Health::Passed);
        assert_eq!(expect(&mut healths, &raw, Duration::ZERO, 1), Health::Passed);
        let failing = Health::Failing("it warns".to_owned());
        host.set_health("fake0", failing.clone());
        assert_eq!(expect(&mut healths, &raw, hour / 2, 1), Health::Passed);
        assert_eq!(expect(&mut healths, &raw, hour, 2), failing);
        healths.reports().changed(&"fake1".into());
        expect(&mut healths, &raw, hour, 2);
        healths.reports().changed(&"fake0".into());
        expect(&mut healths, &raw, hour, 3);
        expect(&mut healths, &RawDisk { diskseq: Some(99), ..raw.clone() }, hour, 4);
        healths.reports().all_changed();
        expect(&mut healths, &raw, hour, 5);
    }

    #[test]
    fn a_disk_that_hung_while_it_was_asked_and_is_gone_leaves_all_time_to_the_others() {
        let host = Arc::new(FakeHost::default());
        host.add_disk("fake0", "S", Geometry { size: 1 << 20, sector: 512, offloads_zeroes: true });
        let raw = host.scan().unwrap().remove(0);
        let owner = Owner { cluster: "c".to_owned(), node: "n".into() };
        let pool = Arc::new(Pool::open(host.clone(), owner, Workers::Caller).expect("a pool"));
        let mut agent = Reconciler::new(host.clone(), pool, Duration::ZERO, Vec::new());
        let short = Duration::from_millis(10);
        let (_end, ended) = std::sync::mpsc::channel::<()>();
        let timeouts = &mut agent.memory.healths.timeouts;
        *timeouts = Timeouts::new(short);
        timeouts.ask(&raw.incarnation(), move || ended.recv()).expect_err("it hangs");
        agent.pass().expect("a pass");
        assert_eq!(agent.memory.healths.timeouts.timeout(), short / 2, "it is here");
        host.unplug("fake0");
        agent.pass().expect("a pass");
        assert_eq!(agent.memory.healths.timeouts.timeout(), short);
    }
}
