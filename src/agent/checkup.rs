//! The checkup of the pool: what its disks report of themselves, and what the kernel counts of them, and how
//! the mounts of its volumes are; the paths of local PersistentVolumes of other provisioners; and the filesystems that
//! an administrator named.
//!
//! Takes in the pool and the host; puts what it finds on the health board, and cordons disks for it. A disk that hangs
//! costs one thread and a moment of the first checkup that asks it; the others are asked as always.

mod arrays;
mod asking;
mod disk_memory;
mod filesystems;
mod heard;
pub(super) mod mounted;
mod paths;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

pub use self::asking::Answered;
use self::asking::{Answer, Asking};
use self::disk_memory::DiskMemory;
use self::filesystems::FilesystemCheckup;
use self::heard::{HeardMounts, SeenFilesystems};
use self::paths::PathCheckup;
use super::disk_health_cache::DiskHealthCache;
use crate::device::{DiskId, REMEMBERED_FOR, VolumeId};
use crate::health::{
    Board, CheckupResult, DiskObservation, Finding, HealthChange, TargetsByVolume, VolumeObservation,
    cordons_in_question,
};
use crate::host::{DiskReport, Host, Incarnation, RawDisk, chain, timeout};
use crate::pool::{Fitness, Pool, VolumeView};

/// A checkup at least this often: the counters of the kernel come with no event.
pub(super) const EVERY: Duration = Duration::from_secs(60);

/// Looks at the health of the disks and volumes of a pool, and at the paths that the controller wants checked.
pub struct Checkup {
    host: Arc<dyn Host>,
    pool: Arc<Pool>,
    board: Board,
    reports: DiskHealthCache,
    reporting: Asking<Incarnation, DiskReport>,
    filesystems: Asking<DiskId, SeenFilesystems>,
    heard: HeardMounts,
    disks: BTreeMap<DiskId, DiskMemory>,
    paths: PathCheckup,
    named_filesystems: FilesystemCheckup,
    /// What was seen last; it counts until the disk answers again.
    volumes: BTreeMap<VolumeId, VolumeObservation>,
    wall: fn() -> Timestamp,
}

impl Checkup {
    /// `reports` are those of the agent that keeps the pool.
    pub fn new(host: Arc<dyn Host>, pool: Arc<Pool>, board: Board, reports: DiskHealthCache) -> Self {
        Self {
            host,
            pool,
            board,
            reports,
            reporting: Asking::new(),
            filesystems: Asking::new(),
            heard: HeardMounts::default(),
            disks: BTreeMap::new(),
            paths: PathCheckup::new(),
            named_filesystems: FilesystemCheckup::new(),
            volumes: BTreeMap::new(),
            wall: Timestamp::now,
        }
    }

    /// Looks at everything once; gives what changed that people see.
    pub fn run(&mut self, answered: &Answered) -> HealthChange {
        if !self.pool.is_scanned() {
            // Which disks are here is not known: the first pass makes a checkup due.
            return HealthChange::default();
        }
        // Before the pool is looked at: a volume that it has made since is not missed.
        self.heard.targets(self.board.is_recalled());
        let expected = self.board.expected();
        let views = self.pool.volumes();
        let here: BTreeMap<DiskId, RawDisk> = self.pool.usable_disks().into_iter().collect();
        let incarnations: Vec<Incarnation> = here.values().map(RawDisk::incarnation).collect();
        self.reporting.forget(|whom| incarnations.contains(whom));
        // Those that an administrator mounted have no device that is asked.
        let mounted: Vec<DiskId> = self.pool.mounted_filesystems().iter().map(|one| one.id.clone()).collect();
        self.filesystems.forget(|whom| here.contains_key(whom) || mounted.contains(whom));
        let observed = self.observe_volumes(&views, &expected, &here, answered);
        let mut result = CheckupResult::default();
        let cordons_changed = self.look_at_disks(&here, answered, &mut result);
        // What was unmounted on purpose since.
        let still = self.board.expected();
        let still = |id: VolumeId, target: &PathBuf| still.get(&id).is_some_and(|targets| targets.contains(target));
        for view in &views {
            let findings = result.volumes.entry(view.id).or_default();
            findings.extend(Finding::of_volume(view));
            let answers = self.heard.of_volume(view.id, here.get(&view.disk).map(RawDisk::incarnation));
            result.answered_volumes.insert(view.id, answers);
            if let Some(observation) = observed.as_ref().and_then(|observed| observed.get(&view.id)) {
                let expected = expected.get(&view.id).into_iter().flatten();
                let expected = expected.filter(|target| still(view.id, target)).cloned().collect();
                findings.extend(observation.findings(&expected));
            }
        }
        result.gone = expected.into_keys().filter(|id| self.is_gone(*id, &result)).collect();
        result.paths = self.paths.check(&self.host, &self.board, answered);
        self.disks.retain(|id, _| result.disks.contains_key(id));
        self.heard.keep(|id| result.disks.contains_key(id), |id| result.volumes.contains_key(id));
        if let Some(observed) = observed {
            self.volumes = observed;
        }
        let mut change = self.board.update(result, (self.wall)(), self.host.monotonic());
        let on_these = views.iter().filter(|view| change.disks.contains(&view.disk));
        change.volumes.extend(on_these.map(|view| view.id));
        let named = self.board.filesystems();
        let named_changed = self.named_filesystems.check(&self.host, &self.pool, &named, answered);
        if named_changed {
            // The pool uses them by what was found.
            self.pool.nudge();
        }
        change.is_of_node |= cordons_changed | named_changed;
        change
    }

    /// Whether a volume does not exist any more. One on a disk that is away, or was not read yet, is missed when that is
    /// here.
    fn is_gone(&self, id: VolumeId, seen: &CheckupResult) -> bool {
        // In this order: its disk may come at any time.
        !seen.volumes.contains_key(&id) && self.pool.may_be_called_deleted(id).is_ok() && self.pool.volume(id).is_err()
    }

    /// Looks at the disks of the pool, and cordons those that are not fit; gives whether a cordon changed.
    fn look_at_disks(
        &mut self,
        here: &BTreeMap<DiskId, RawDisk>,
        answered: &Answered,
        result: &mut CheckupResult,
    ) -> bool {
        let mut fitness = BTreeMap::new();
        let views = self.pool.disk_views();
        for view in &views {
            let (observed, fit) = match here.get(&view.id) {
                Some(raw) => self.of_disk(&view.id, raw, answered),
                None => (Vec::new(), Fitness::NotKnown),
            };
            let report = here.get(&view.id).and_then(|_| self.disks.get(&view.id)?.report.clone());
            result.reports.extend(report.map(|report| (view.id.clone(), report)));
            let answers = self.disks.get(&view.id).map(DiskMemory::answers).unwrap_or_default();
            result.answered_disks.insert(view.id.clone(), answers);
            fitness.insert(view.id.clone(), fit);
            let findings = Finding::of_disk(view).into_iter().chain(observed).collect();
            result.disks.insert(view.id.clone(), findings);
        }
        arrays::take_over(&views, result, &mut fitness);
        let in_question = result.answered_disks.iter().map(|(id, answers)| (id.clone(), cordons_in_question(answers)));
        let (now, in_question) = (self.host.monotonic(), in_question.collect());
        // In this order: a disk that is as unfit as before takes no new volume in between.
        self.pool.cordons().judge(fitness, now) | self.pool.cordons().hear(in_question, now)
    }

    /// What is wrong with a disk that is here, and whether it is fit for new volumes.
    fn of_disk(&mut self, id: &DiskId, raw: &RawDisk, answered: &Answered) -> (Vec<Finding>, Fitness) {
        let ended = self.report(raw, answered);
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
        let memory = self.disks.entry(id.clone()).or_insert_with(|| DiskMemory::of(of));
        if memory.of != of {
            *memory = DiskMemory::of(of);
        }
        memory.hear(ended, now);
        memory.has_filesystems = self.heard.has_filesystems(id, of);
        let is_stuck = memory.writes.observe(self.host.writes(raw), now);
        let stuck = is_stuck.then(|| format!("writes to {path} are under way, and none has ended for a minute"));
        let observation = DiskObservation {
            report: memory.report.clone(),
            io: self.host.io_errors(raw),
            silent,
            stuck,
            arrays: self.host.arrays(raw),
        };
        let findings = memory.counters.findings(&observation);
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

    /// The mounts and filesystems of all volumes that are in use, or were `expected` to be before their mounts were
    /// read: what is published meanwhile is not missed. `None`: the table of mounts cannot be read.
    fn observe_volumes(
        &mut self,
        views: &[VolumeView],
        expected: &TargetsByVolume,
        here: &BTreeMap<DiskId, RawDisk>,
        answered: &Answered,
    ) -> Option<BTreeMap<VolumeId, VolumeObservation>> {
        let table = match self.host.mounts().table() {
            Ok(table) => table,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "the mounts of volumes are not looked at");
                return None;
            }
        };
        let now = self.host.monotonic();
        let mut observed = BTreeMap::new();
        let by_disk = mounted::by_disk(self.host.as_ref(), views, &table, expected);
        self.heard.table(by_disk.keys().cloned().collect());
        for (disk, volumes) in by_disk {
            let placed: Vec<_> = volumes.iter().map(|volume| (volume.id, volume.places.clone())).collect();
            let (host, answered) = (Arc::clone(&self.host), Arc::clone(answered));
            let of = here.get(&disk).map(RawDisk::incarnation);
            let question = move || SeenFilesystems { of, volumes: mounted::observe(&host, volumes) };
            if let Some(answer) = self.filesystems.ask(&disk, now, question, move || answered()) {
                self.heard.filesystems(&disk, &answer.what);
                for (id, seen) in answer.what.volumes {
                    let seen = seen.after(self.volumes.get(&id));
                    self.volumes.insert(id, seen);
                }
            }
            for (id, places) in placed {
                let last = self.volumes.remove(&id).unwrap_or_default();
                observed.insert(id, last.now_at(places));
            }
        }
        Some(observed)
    }
}

/// How long a report counts. The log of an NVMe disk costs one command to its controller, and Linux does not enable the
/// events that would announce a warning. No event announces that a device without timeouts stops answering. The
/// commands to other disks may wake one that sleeps.
fn keep(raw: &RawDisk) -> Duration {
    if raw.name.starts_with("nvme") || !raw.has_timeouts() { EVERY } else { REMEMBERED_FOR }
}

#[cfg(test)]
pub(super) mod tests;
