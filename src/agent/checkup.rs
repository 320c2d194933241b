//! The checkup of the pool: what its disks report of themselves, and what the kernel counts of them.
//!
//! Takes in the pool and the host; puts what it finds on the health board. A disk that hangs costs one thread and a
//! moment of the first checkup that asks it; the others are asked as always.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::reports::Reports;
use crate::device::{DiskId, REMEMBERED_FOR};
use crate::health::{Board, DiskCounters, DiskObservation, Finding, Look};
use crate::host::timeout::{self, Timeouts};
use crate::host::{DiskReport, Host, Incarnation, RawDisk};
use crate::pool::Pool;

/// A checkup at least this often: the counters of the kernel come with no event.
pub(super) const EVERY: Duration = Duration::from_secs(60);
/// How long a checkup waits for the report of one disk before it goes on; the answer is asked for again.
const MOMENT: Duration = Duration::from_millis(500);

/// Looks at the health of the disks and volumes of a pool.
pub struct Checkup {
    host: Arc<dyn Host>,
    pool: Arc<Pool>,
    board: Board,
    reports: Reports,
    timeouts: Timeouts<Incarnation>,
    /// Since when a disk owes an answer, in monotonic time.
    silent: BTreeMap<Incarnation, Duration>,
    counters: BTreeMap<DiskId, DiskCounters>,
    wall: fn() -> Timestamp,
}

impl Checkup {
    /// `reports` are those of the agent that keeps the pool.
    pub fn new(host: Arc<dyn Host>, pool: Arc<Pool>, board: Board, reports: Reports) -> Self {
        Self {
            host,
            pool,
            board,
            reports,
            timeouts: Timeouts::new(MOMENT),
            silent: BTreeMap::new(),
            counters: BTreeMap::new(),
            wall: Timestamp::now,
        }
    }

    /// Looks at everything once; `answered` is called, later and on another thread, when a disk answers after all. Gives
    /// whether anything changed that people see.
    pub fn look(&mut self, answered: &(impl Fn() + Clone + Send + 'static)) -> bool {
        let here: BTreeMap<DiskId, RawDisk> = self.pool.usable_disks().into_iter().collect();
        let incarnations: Vec<Incarnation> = here.values().map(RawDisk::incarnation).collect();
        self.timeouts.forget(|whom| incarnations.contains(whom));
        self.silent.retain(|whom, _| incarnations.contains(whom));
        let mut look = Look::default();
        for view in self.pool.disk_views() {
            let mut findings = Finding::of_disk(&view);
            if let Some(raw) = here.get(&view.id) {
                let seen = self.observe(raw, answered);
                findings.extend(self.counters.entry(view.id.clone()).or_default().findings(&seen));
            }
            look.disks.insert(view.id, findings);
        }
        for view in self.pool.volumes() {
            look.volumes.entry(view.id).or_default().extend(Finding::of_volume(&view));
        }
        self.counters.retain(|id, _| look.disks.contains_key(id));
        self.board.look(look, (self.wall)(), self.host.monotonic())
    }

    fn observe(&mut self, raw: &RawDisk, answered: &(impl Fn() + Clone + Send + 'static)) -> DiskObservation {
        let report = self.report(raw, answered);
        let now = self.host.monotonic();
        let silent = self.silent.get(&raw.incarnation()).map(|since| now.saturating_sub(*since));
        // A disk that was asleep needs its time.
        let silent = silent.filter(|time| *time >= timeout::DEVICE_TIMEOUT).map(|_| {
            format!(
                "{} was asked for its health, and has not answered for more than {} s",
                raw.path.display(),
                timeout::DEVICE_TIMEOUT.as_secs()
            )
        });
        DiskObservation { report, io: self.host.io_errors(raw), silent }
    }

    /// `None`: it has not answered yet.
    fn report(&mut self, raw: &RawDisk, answered: &(impl Fn() + Clone + Send + 'static)) -> Option<DiskReport> {
        let asked_at = self.host.monotonic();
        if let Some(report) = self.reports.fresh(raw, asked_at, keep(raw)) {
            return Some(report);
        }
        let (host, asked) = (Arc::clone(&self.host), raw.clone());
        let answer = self.timeouts.errand(&raw.incarnation(), move || host.report(&asked), answered.clone());
        let Ok(report) = answer else {
            self.silent.entry(raw.incarnation()).or_insert(asked_at);
            return None;
        };
        self.silent.remove(&raw.incarnation());
        self.reports.keep(raw, asked_at, report.clone());
        Some(report)
    }
}

/// How long a report counts. The log of an NVMe disk costs one command to its controller, and Linux does not enable the
/// events that would announce a warning; the commands to other disks may wake one that sleeps.
fn keep(raw: &RawDisk) -> Duration {
    if raw.name.starts_with("nvme") { EVERY } else { REMEMBERED_FOR }
}

#[cfg(test)]
mod tests;
