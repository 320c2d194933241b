//! The checkup of the pool: what its disks report of themselves, and what the kernel counts of them, and how
//! the mounts of its volumes are.
//!
//! Takes in the pool and the host; puts what it finds on the health board. A disk that hangs costs one thread and a
//! moment of the first checkup that asks it; the others are asked as always.

mod asking;
mod mounted;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use self::asking::Asking;
use super::reports::Reports;
use crate::device::{DiskId, REMEMBERED_FOR, VolumeId};
use crate::health::{Board, DiskCounters, DiskObservation, Finding, Look, VolumeObservation};
use crate::host::{DiskReport, Host, Incarnation, RawDisk, chain, timeout};
use crate::pool::Pool;

/// A checkup at least this often: the counters of the kernel come with no event.
pub(super) const EVERY: Duration = Duration::from_secs(60);

/// Called, on another thread, when something answers that was asked by an earlier checkup.
pub type Answered = Arc<dyn Fn() + Send + Sync>;

/// Looks at the health of the disks and volumes of a pool.
pub struct Checkup {
    host: Arc<dyn Host>,
    pool: Arc<Pool>,
    board: Board,
    reports: Reports,
    reporting: Asking<Incarnation>,
    filesystems: Asking<DiskId>,
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
            reporting: Asking::new(),
            filesystems: Asking::new(),
            counters: BTreeMap::new(),
            wall: Timestamp::now,
        }
    }

    /// Looks at everything once; Gives whether anything changed that people see.
    pub fn look(&mut self, answered: &Answered) -> bool {
        let here: BTreeMap<DiskId, RawDisk> = self.pool.usable_disks().into_iter().collect();
        let incarnations: Vec<Incarnation> = here.values().map(RawDisk::incarnation).collect();
        self.reporting.forget(|whom| incarnations.contains(whom));
        self.filesystems.forget(|whom| here.contains_key(whom));
        let observed = self.observe_volumes(answered);
        let mut look = Look::default();
        for view in self.pool.disk_views() {
            let mut findings = Finding::of_disk(&view);
            if let Some(raw) = here.get(&view.id) {
                let seen = self.observe(&view.id, raw, answered);
                findings.extend(self.counters.entry(view.id.clone()).or_default().findings(&seen));
            }
            look.disks.insert(view.id, findings);
        }
        for view in self.pool.volumes() {
            let findings = look.volumes.entry(view.id).or_default();
            findings.extend(Finding::of_volume(&view));
            if let Some(seen) = observed.get(&view.id) {
                findings.extend(seen.findings(&self.board.targets(view.id)));
            }
        }
        self.counters.retain(|id, _| look.disks.contains_key(id));
        self.board.look(look, (self.wall)(), self.host.monotonic())
    }

    fn observe(&mut self, id: &DiskId, raw: &RawDisk, answered: &Answered) -> DiskObservation {
        let report = self.report(raw, answered);
        let now = self.host.monotonic();
        let seconds = timeout::DEVICE_TIMEOUT.as_secs();
        let asked = if self.reporting.is_overdue(&raw.incarnation(), now) {
            Some("for its health")
        } else {
            self.filesystems.is_overdue(id, now).then_some("for the state of its filesystems")
        };
        let silent = asked.map(|what| {
            format!("{} was asked {what}, and has not answered for more than {seconds} s", raw.path.display())
        });
        DiskObservation { report, io: self.host.io_errors(raw), silent }
    }

    /// `None`: it has not answered yet.
    fn report(&mut self, raw: &RawDisk, answered: &Answered) -> Option<DiskReport> {
        let now = self.host.monotonic();
        if let Some(report) = self.reports.fresh(raw, now, keep(raw)) {
            return Some(report);
        }
        let (host, asked, answered) = (Arc::clone(&self.host), raw.clone(), Arc::clone(answered));
        let report = self.reporting.ask(&raw.incarnation(), now, move || host.report(&asked), move || answered())?;
        self.reports.keep(raw, now, report.clone());
        Some(report)
    }

    /// The mounts and filesystems of all volumes whose disk answers.
    fn observe_volumes(&mut self, answered: &Answered) -> BTreeMap<VolumeId, VolumeObservation> {
        let table = match self.host.mounts().table() {
            Ok(table) => table,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "the mounts of volumes are not looked at");
                return BTreeMap::new();
            }
        };
        let now = self.host.monotonic();
        let mut observed = BTreeMap::new();
        for (disk, volumes) in mounted::by_disk(&self.pool.volumes(), &table) {
            let (host, answered) = (Arc::clone(&self.host), Arc::clone(answered));
            let question = move || mounted::observe(&host, volumes);
            observed.extend(self.filesystems.ask(&disk, now, question, move || answered()).into_iter().flatten());
        }
        observed
    }
}

/// How long a report counts. The log of an NVMe disk costs one command to its controller, and Linux does not enable the
/// events that would announce a warning; the commands to other disks may wake one that sleeps.
fn keep(raw: &RawDisk) -> Duration {
    if raw.name.starts_with("nvme") { EVERY } else { REMEMBERED_FOR }
}

#[cfg(test)]
mod tests;
