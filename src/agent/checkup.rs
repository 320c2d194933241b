//! The checkup of the pool: what its disks report of themselves, and what the kernel counts of them, and how
//! the mounts of its volumes are; and the paths of local PersistentVolumes of other provisioners.
//!
//! Takes in the pool and the host; puts what it finds on the health board, and cordons disks for it. A disk that hangs
//! costs one thread and a moment of the first checkup that asks it; the others are asked as always.

mod asking;
mod mounted;
mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

pub use self::asking::Answered;
use self::asking::{Answer, Asking};
use self::mounted::Expected;
use self::paths::PathCheckup;
use super::reports::Reports;
use crate::device::{DiskId, REMEMBERED_FOR, VolumeId};
use crate::health::{Board, DiskCounters, DiskObservation, Finding, Look, StalledWrites, VolumeObservation};
use crate::host::{DiskReport, Health, Host, Incarnation, RawDisk, chain, timeout};
use crate::pool::{Fitness, Pool};

/// A checkup at least this often: the counters of the kernel come with no event.
pub(super) const EVERY: Duration = Duration::from_secs(60);

/// What is remembered of a disk, as long as it is the same device: another one counts from its own beginning.
struct DiskMemory {
    of: Incarnation,
    counters: DiskCounters,
    writes: StalledWrites,
    /// What it reported last; it counts until the disk answers again.
    report: Option<DiskReport>,
    /// It has answered at least once.
    answered: bool,
}

/// Looks at the health of the disks and volumes of a pool, and at the paths that the controller wants checked.
pub struct Checkup {
    host: Arc<dyn Host>,
    pool: Arc<Pool>,
    board: Board,
    reports: Reports,
    reporting: Asking<Incarnation, DiskReport>,
    filesystems: Asking<DiskId, Vec<(VolumeId, VolumeObservation)>>,
    disks: BTreeMap<DiskId, DiskMemory>,
    paths: PathCheckup,
    /// What was seen last; it counts until the disk answers again.
    volumes: BTreeMap<VolumeId, VolumeObservation>,
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
            disks: BTreeMap::new(),
            paths: PathCheckup::new(),
            volumes: BTreeMap::new(),
            wall: Timestamp::now,
        }
    }

    /// Looks at everything once; Gives whether anything changed that people see.
    pub fn look(&mut self, answered: &Answered) -> bool {
        if !self.pool.is_looked_at() {
            // Which disks are here is not known: the first pass makes a checkup due.
            return false;
        }
        let here: BTreeMap<DiskId, RawDisk> = self.pool.usable_disks().into_iter().collect();
        let incarnations: Vec<Incarnation> = here.values().map(RawDisk::incarnation).collect();
        self.reporting.forget(|whom| incarnations.contains(whom));
        self.filesystems.forget(|whom| here.contains_key(whom));
        let observed = self.observe_volumes(answered);
        let (mut look, mut fitness) = (Look::default(), BTreeMap::new());
        for view in self.pool.disk_views() {
            let (observed, fit) = match here.get(&view.id) {
                Some(raw) => self.of_disk(&view.id, raw, answered),
                None => (Vec::new(), Fitness::NotKnown),
            };
            let report = here.get(&view.id).and_then(|_| self.disks.get(&view.id)?.report.clone());
            look.reports.extend(report.map(|report| (view.id.clone(), report)));
            fitness.insert(view.id.clone(), fit);
            let findings = Finding::of_disk(&view).into_iter().chain(observed).collect();
            look.disks.insert(view.id, findings);
        }
        let cordons_changed = self.pool.cordons().judge(fitness, self.host.monotonic());
        for view in self.pool.volumes() {
            let findings = look.volumes.entry(view.id).or_default();
            findings.extend(Finding::of_volume(&view));
            if let Some((observation, expected)) = observed.get(&view.id) {
                // Unmounted on purpose since.
                let still = self.board.targets(view.id);
                findings.extend(observation.findings(&expected.intersection(&still).cloned().collect()));
            }
        }
        look.paths = self.paths.look(&self.host, &self.board, answered);
        self.disks.retain(|id, _| look.disks.contains_key(id));
        let health_changed = self.board.look(look, (self.wall)(), self.host.monotonic());
        cordons_changed || health_changed
    }

    /// What is wrong with a disk that is here, and whether it is fit for new volumes.
    fn of_disk(&mut self, id: &DiskId, raw: &RawDisk, answered: &Answered) -> (Vec<Finding>, Fitness) {
        let report = self.report(raw, answered);
        let has_answered = report.is_some();
        let now = self.host.monotonic();
        let seconds = timeout::DEVICE_TIMEOUT.as_secs();
        let asked = if self.reporting.is_overdue(&raw.incarnation(), now) {
            Some("for its health")
        } else {
            self.filesystems.is_overdue(id, now).then_some("for the state of its filesystems")
        };
        let path = raw.path.display();
        let silent =
            asked.map(|what| format!("{path} was asked {what}, and has not answered for more than {seconds} s"));
        let of = raw.incarnation();
        let new = || DiskMemory {
            of,
            counters: DiskCounters::default(),
            writes: StalledWrites::default(),
            report: None,
            answered: false,
        };
        let memory = self.disks.entry(id.clone()).or_insert_with(new);
        if memory.of != of {
            *memory = new();
        }
        let is_stuck = memory.writes.look(self.host.writes(raw), now);
        let stuck = is_stuck.then(|| format!("writes to {path} are under way, and none has ended for a minute"));
        // A question that failed once says nothing new: what the disk reported before counts until it reports again.
        let report = report.filter(|report| !matches!(report.health, Health::Unknown(_)));
        memory.report = report.or(memory.report.take());
        let observation = DiskObservation {
            report: memory.report.clone(),
            io: self.host.io_errors(raw),
            silent,
            stuck,
            arrays: self.host.arrays(raw),
        };
        let findings = memory.counters.findings(&observation);
        // A busy disk answers later than this checkup ends; silence is a finding of its own.
        memory.answered |= has_answered;
        let fit = if memory.answered { Fitness::Fit } else { Fitness::NotKnown };
        let unfit = findings.iter().find(|finding| finding.reason.cordons());
        let fitness = unfit.map_or(fit, |finding| Fitness::Unfit(finding.to_string()));
        (findings, fitness)
    }

    /// `None`: it has not answered yet.
    fn report(&mut self, raw: &RawDisk, answered: &Answered) -> Option<DiskReport> {
        let now = self.host.monotonic();
        if let Some(report) = self.reports.fresh(raw, now, keep(raw)) {
            return Some(report);
        }
        let (host, asked, answered) = (Arc::clone(&self.host), raw.clone(), Arc::clone(answered));
        let question = move || host.report(&asked);
        let Answer { what, asked } = self.reporting.ask(&raw.incarnation(), now, question, move || answered())?;
        self.reports.keep(raw, asked, what.clone());
        Some(what)
    }

    /// The mounts and filesystems of all volumes, and where each was expected before its mounts were read: what is
    /// published meanwhile is not missed.
    fn observe_volumes(&mut self, answered: &Answered) -> BTreeMap<VolumeId, (VolumeObservation, BTreeSet<PathBuf>)> {
        let views = self.pool.volumes();
        let mut expected: Expected = views.iter().map(|view| (view.id, self.board.targets(view.id))).collect();
        let table = match self.host.mounts().table() {
            Ok(table) => table,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "the mounts of volumes are not looked at");
                return BTreeMap::new();
            }
        };
        let now = self.host.monotonic();
        let mut observed = BTreeMap::new();
        for (disk, volumes) in mounted::by_disk(self.host.as_ref(), &views, &table, &expected) {
            let placed: Vec<_> = volumes.iter().map(|volume| (volume.id, volume.places.clone())).collect();
            let (host, answered) = (Arc::clone(&self.host), Arc::clone(answered));
            let question = move || mounted::observe(&host, volumes);
            if let Some(answer) = self.filesystems.ask(&disk, now, question, move || answered()) {
                self.volumes.extend(answer.what);
            }
            for (id, places) in placed {
                let last = self.volumes.remove(&id).unwrap_or_default();
                observed.insert(id, (last.now_at(places), expected.remove(&id).unwrap_or_default()));
            }
        }
        self.volumes = observed.iter().map(|(id, (observation, _))| (*id, observation.clone())).collect();
        observed
    }
}

/// How long a report counts. The log of an NVMe disk costs one command to its controller, and Linux does not enable the
/// events that would announce a warning. No event announces that a device without timeouts stops answering. The commands
/// to other disks may wake one that sleeps.
fn keep(raw: &RawDisk) -> Duration {
    if raw.name.starts_with("nvme") || !raw.has_timeouts() { EVERY } else { REMEMBERED_FOR }
}

#[cfg(test)]
mod tests;
