//! The health of all disks and volumes of this node, shared by whoever looks and whoever reports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use jiff::Timestamp;

use super::answer::AnswerOf;
use super::change::HealthChange;
use super::condition::Condition;
use super::filesystem_board::FilesystemBoard;
use super::finding::Finding;
use super::history::History;
use super::mount_targets::{MountTargets, TargetsByVolume};
use super::path::{PathIdentity, PvUid, WatchedPath};
use super::reason::{HealthReason, REASONS};
use crate::device::{DiskId, VolumeId};
use crate::host::{DiskReport, Notifier};
use crate::pool::{DiskView, VolumeView};

/// What the checkups of this node's disks and volumes have found.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<SharedBoard>);

#[derive(Debug, Default)]
struct SharedBoard {
    histories: RwLock<Histories>,
    /// Tells that something has changed that the next process of the agent must know.
    to_keep: Notifier,
}

#[derive(Debug, Default)]
struct Histories {
    disks: BTreeMap<DiskId, History>,
    volumes: BTreeMap<VolumeId, History>,
    targets: MountTargets,
    /// Monotonic time of the first checkup; `None`: there was none.
    first_checkup: Option<Duration>,
    /// How long after that the last one was.
    looked_for: Option<Duration>,
    /// Who has answered this process. Of what is not named nobody has.
    answered_disks: BTreeMap<DiskId, BTreeSet<AnswerOf>>,
    answered_volumes: BTreeMap<VolumeId, BTreeSet<AnswerOf>>,
    reports: BTreeMap<DiskId, DiskReport>,
    /// What the controller wants checked, and what was found, by UID of the PersistentVolume.
    watched: Vec<WatchedPath>,
    paths: BTreeMap<PvUid, PathHistory>,
    filesystems: FilesystemBoard,
}

#[derive(Debug, Default)]
struct PathHistory {
    history: History,
    is_mount_point: bool,
    identity: Option<PathIdentity>,
}

/// Everything that one checkup found, by disk and by volume. What is not named has no entry any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckupResult {
    pub disks: BTreeMap<DiskId, Vec<Finding>>,
    pub volumes: BTreeMap<VolumeId, Vec<Finding>>,
    /// Who has answered about each disk, and about each volume besides its disk, since the process began.
    pub answered_disks: BTreeMap<DiskId, BTreeSet<AnswerOf>>,
    pub answered_volumes: BTreeMap<VolumeId, BTreeSet<AnswerOf>>,
    /// What each disk that is here has reported last.
    pub reports: BTreeMap<DiskId, DiskReport>,
    /// Volumes that were [`Board::expected`] somewhere before the pool was looked at, which does not have them.
    pub gone: BTreeSet<VolumeId>,
    /// By UID of the PersistentVolume. One that is not named keeps its entry.
    pub paths: BTreeMap<PvUid, PathResult>,
}

/// What one checkup of a watched path found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathResult {
    pub findings: Vec<Finding>,
    pub is_mount_point: bool,
    /// Which filesystem or device is there; `None`: none, nobody says, or no claim had the volume as the checkup began.
    pub identity: Option<PathIdentity>,
}

/// What is known of a watched path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReport {
    pub watched: WatchedPath,
    pub is_mount_point: bool,
    /// Which filesystem or device was seen there last.
    pub identity: Option<PathIdentity>,
    pub condition: Condition,
}

impl Board {
    /// Takes in a checkup, the wall clock and the monotonic clock; gives what changed that people see. The first
    /// checkup is always a change: until then what an earlier process has found is shown. What is not there any more is
    /// none: whoever removed it knows.
    pub fn update(&self, result: CheckupResult, wall: Timestamp, now: Duration) -> HealthChange {
        let CheckupResult { disks, volumes, answered_disks, answered_volumes, reports, gone, paths } = result;
        self.change_targets(|targets| targets.forget(&gone));
        let mut histories = self.write();
        let mut change = HealthChange {
            disks: take_in(&mut histories.disks, disks, wall, now),
            volumes: take_in(&mut histories.volumes, volumes, wall, now),
            is_of_node: histories.update_paths(paths, wall, now),
        };
        // What an object had before may go now, also where this process has found nothing all the time.
        change.disks.extend(replaced(&mut histories.answered_disks, answered_disks));
        change.volumes.extend(replaced(&mut histories.answered_volumes, answered_volumes));
        // Figures that only metrics show are no change.
        histories.reports = reports;
        let looked_for = now.saturating_sub(*histories.first_checkup.get_or_insert(now));
        let before = histories.looked_for.replace(looked_for);
        change.is_of_node |= before.is_none();
        // So it may where it was held.
        if before.is_some_and(|before| REASONS.iter().any(|row| before < row.hold && row.hold <= looked_for)) {
            change.disks.extend(histories.disks.keys().cloned());
            change.volumes.extend(histories.volumes.keys().copied());
        }
        change
    }

    /// The filesystems that an administrator named.
    pub fn filesystems(&self) -> FilesystemBoard {
        self.read().filesystems.clone()
    }

    /// The paths to look at from now on; gives whether they are others than before.
    pub fn watch(&self, watched: Vec<WatchedPath>) -> bool {
        let mut histories = self.write();
        if histories.watched == watched {
            return false;
        }
        histories.paths.retain(|uid, _| watched.iter().any(|path| path.uid == *uid));
        histories.watched = watched;
        true
    }

    pub fn watched(&self) -> Vec<WatchedPath> {
        self.read().watched.clone()
    }

    /// The watched paths that were looked at; `None`: there was no checkup yet.
    pub fn paths(&self) -> Option<Vec<PathReport>> {
        let histories = self.read();
        let report = |watched: &WatchedPath| {
            let PathHistory { history, is_mount_point, identity } = histories.paths.get(&watched.uid)?;
            let (condition, is_mount_point) = (Condition::of(history.findings().collect()), *is_mount_point);
            Some(PathReport { watched: watched.clone(), is_mount_point, identity: identity.clone(), condition })
        };
        histories.first_checkup.map(|_| histories.watched.iter().filter_map(report).collect())
    }

    /// What a disk of the pool that is here has reported last.
    pub fn report(&self, disk: &DiskId) -> Option<DiskReport> {
        self.read().reports.get(disk).cloned()
    }

    /// How many targets were unmounted on purpose: read before the mount table is, and given to [`Board::mounted`].
    pub fn unmounts(&self) -> u64 {
        self.read().targets.unmounts()
    }

    /// A volume is mounted at a target for kubelet, and should be until [`Board::unmounted`]. What was seen before the
    /// last unmount does not count: it may be that one.
    pub fn mounted(&self, volume: VolumeId, target: &Path, unmounts: u64) {
        self.change_targets(|targets| targets.mounted(volume, target, unmounts));
    }

    /// Said before a target of a volume is unmounted on purpose.
    pub fn unmounted(&self, volume: VolumeId, target: &Path) {
        self.change_targets(|targets| targets.unmounted(volume, target));
    }

    /// What an earlier process left of them: until then nobody knows where else a volume is missed.
    pub fn recall(&self, left: TargetsByVolume) {
        self.change_targets(|targets| {
            targets.recall(left);
            true
        });
    }

    pub fn is_recalled(&self) -> bool {
        self.read().targets.is_recalled()
    }

    /// Where a volume should be mounted.
    pub fn targets(&self, volume: VolumeId) -> BTreeSet<PathBuf> {
        self.read().targets.of(volume)
    }

    /// Where each volume should be mounted that was mounted once.
    pub fn expected(&self) -> TargetsByVolume {
        self.read().targets.all().clone()
    }

    /// The same, for the next process; with the number of its last change.
    pub fn targets_to_keep(&self) -> (u64, TargetsByVolume) {
        let histories = self.read();
        (histories.targets.changes(), histories.targets.all().clone())
    }

    /// The number of the last change of where volumes should be mounted.
    pub fn targets_changed(&self) -> u64 {
        self.read().targets.changes()
    }

    /// Looks, and again after each such change and each [`Board::wake`], for that long.
    pub fn await_change<T>(&self, timeout: Duration, look: impl FnMut() -> Option<T>) -> Option<T> {
        self.0.to_keep.attempt(timeout, look)
    }

    /// Has whoever waits for a change look again.
    pub fn wake(&self) {
        self.0.to_keep.notify();
    }

    fn change_targets(&self, change: impl FnOnce(&mut MountTargets) -> bool) {
        if change(&mut self.write().targets) {
            self.wake();
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Histories> {
        self.0.histories.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Histories> {
        self.0.histories.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is wrong with a disk: what the pool knows this very moment, and what the last checkup observed.
    pub fn of_disk(&self, view: &DiskView) -> Condition {
        let histories = self.read();
        let all = joined(Finding::of_disk(view), histories.disks.get(&view.id), &[]);
        let answered = histories.answered_disks.get(&view.id).cloned().unwrap_or_default();
        Condition::of(all).awaiting(AnswerOf::lacking(&answered)).looked_for(histories.looked_for)
    }

    /// What is wrong with a volume, which includes what is wrong with its disk.
    pub fn of_volume(&self, view: &VolumeView) -> Condition {
        let histories = self.read();
        let disk = histories.disks.get(&view.disk).into_iter().flat_map(History::findings);
        let disk = disk.filter(|finding| !finding.reason.is_known_to_pool());
        let named =
            |finding: Finding| Finding { message: format!("disk {}: {}", view.disk, finding.message), ..finding };
        let disk: Vec<Finding> = disk.map(named).collect();
        let all = joined(Finding::of_volume(view), histories.volumes.get(&view.id), &disk);
        let of_disk = histories.answered_disks.get(&view.disk).into_iter().flatten();
        let answered = of_disk.chain(histories.answered_volumes.get(&view.id).into_iter().flatten()).copied().collect();
        Condition::of(all).awaiting(AnswerOf::lacking(&answered)).looked_for(histories.looked_for)
    }
}

impl Histories {
    fn update_paths(&mut self, result: BTreeMap<PvUid, PathResult>, wall: Timestamp, now: Duration) -> bool {
        let mut changed = false;
        for (uid, PathResult { findings, is_mount_point, identity }) in result {
            // The controller may have taken it from the list meanwhile.
            if !self.watched.iter().any(|path| path.uid == uid) {
                continue;
            }
            changed |= !self.paths.contains_key(&uid);
            let path = self.paths.entry(uid).or_default();
            changed |= path.history.update(findings, wall, now) || path.is_mount_point != is_mount_point;
            path.is_mount_point = is_mount_point;
            changed |= path.identity != identity;
            path.identity = identity;
        }
        changed
    }
}

/// Gives those that have something else than before.
fn take_in<K: Ord + Clone>(
    histories: &mut BTreeMap<K, History>,
    result: BTreeMap<K, Vec<Finding>>,
    wall: Timestamp,
    now: Duration,
) -> BTreeSet<K> {
    histories.retain(|key, _| result.contains_key(key));
    let mut changed = BTreeSet::new();
    for (key, findings) in result {
        if histories.entry(key.clone()).or_default().update(findings, wall, now) {
            changed.insert(key);
        }
    }
    changed
}

/// Gives those of which others have answered than before.
fn replaced<K: Ord + Clone>(
    before: &mut BTreeMap<K, BTreeSet<AnswerOf>>,
    now: BTreeMap<K, BTreeSet<AnswerOf>>,
) -> BTreeSet<K> {
    let is_other = |(key, answers): &(&K, &BTreeSet<AnswerOf>)| before.get(*key) != Some(*answers);
    let changed = now.iter().filter(is_other).map(|(key, _)| key.clone()).collect();
    *before = now;
    changed
}

/// What the pool knows now, with the times of the history; then what only a checkup can find.
fn joined(known: Vec<Finding>, history: Option<&History>, of_disk: &[Finding]) -> Vec<Finding> {
    let since = |reason: &HealthReason| history.and_then(|history| history.since(reason));
    let known = known.into_iter().map(|finding| Finding { since: since(&finding.reason), ..finding });
    let observed = history.into_iter().flat_map(History::findings).filter(|finding| !finding.reason.is_known_to_pool());
    known.chain(observed).chain(of_disk.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{SetName, label::SetRef};
    use crate::pool::Standing;

    fn view(disk: &str, standing: Standing) -> VolumeView {
        VolumeView {
            id: VolumeId::of_name("v"),
            record: None,
            size: 1,
            formatted: false,
            growable_to: 1,
            set: SetRef::new(SetName::new("d", "s"), "u"),
            disk: DiskId::named(disk),
            standing,
            given_up: false,
            conflict: None,
            node: Default::default(),
            directory: None,
        }
    }

    fn reasons(condition: &Condition) -> Vec<&str> {
        condition.findings().iter().map(|finding| finding.reason.word()).collect()
    }

    #[test]
    fn a_target_is_expected_until_it_is_unmounted_on_purpose_and_an_old_sight_of_it_does_not_count() {
        let board = Board::default();
        let (id, target) = (VolumeId::of_name("v"), Path::new("/target"));
        let before = board.unmounts();
        board.mounted(id, target, before);
        assert_eq!(board.targets(id), [target.to_owned()].into());
        board.unmounted(id, target);
        assert_eq!(board.targets(id), [].into());
        board.mounted(id, target, before);
        assert_eq!(board.targets(id), [].into(), "the table was read before the unmount");
        board.mounted(id, target, board.unmounts());
        assert_eq!(board.targets(id), [target.to_owned()].into());
        let update = |gone: BTreeSet<VolumeId>| {
            board.update(CheckupResult { gone, ..CheckupResult::default() }, Timestamp::UNIX_EPOCH, Duration::ZERO)
        };
        update([].into());
        assert_eq!(board.targets(id), [target.to_owned()].into(), "it was made after the pool was looked at");
        update([id].into());
        assert_eq!(board.targets(id), [].into(), "the volume is deleted");
    }

    #[test]
    fn a_volume_has_what_is_wrong_with_it_and_with_its_disk_and_what_the_pool_says_now_counts() {
        let board = Board::default();
        let disk =
            vec![Finding::new(HealthReason::DiskTemperature, "hot"), Finding::new(HealthReason::DiskMissing, "gone")];
        let other = vec![Finding::new(HealthReason::DiskWornOut, "worn")];
        let result = CheckupResult {
            disks: [(DiskId::named("gpt-1"), disk), (DiskId::named("gpt-2"), other)].into(),
            volumes: [(VolumeId::of_name("v"), vec![Finding::new(HealthReason::InodesExhausted, "no inode")])].into(),
            ..CheckupResult::default()
        };
        let wall = Timestamp::from_second(5).expect("a time");
        board.update(result.clone(), wall, Duration::from_secs(1));
        assert!(board.update(result, wall, Duration::from_secs(2)).is_empty(), "nothing changed");
        let condition = board.of_volume(&view("gpt-1", Standing::Ready));
        assert_eq!(
            reasons(&condition),
            ["NotDescribed", "DiskTemperature", "InodesExhausted"],
            "the disk is back by now"
        );
        assert_eq!(condition.findings()[1].message, "disk gpt-1: hot");
        let condition = board.of_volume(&view("gpt-1", Standing::Missing));
        assert_eq!(reasons(&condition)[0], "DiskMissing");
        assert_eq!(reasons(&board.of_volume(&view("gpt-3", Standing::Ready))), ["NotDescribed", "InodesExhausted"]);
        board.update(CheckupResult::default(), wall, Duration::from_secs(3));
        assert_eq!(
            reasons(&board.of_volume(&view("gpt-1", Standing::Ready))),
            ["NotDescribed"],
            "neither is here any more"
        );
    }

    #[test]
    fn a_checkup_names_what_is_otherwise_than_before_and_nothing_that_came_or_went_beside_it() {
        let (board, of_all) = (Board::default(), BTreeSet::from(AnswerOf::ALL));
        let id = |name: &str| VolumeId::of_name(name);
        let update = |volumes: &[(&str, &[HealthReason])], disk: &[HealthReason]| {
            let found = |reasons: &[HealthReason]| -> Vec<Finding> {
                reasons.iter().map(|reason| Finding::new(reason.clone(), "words")).collect()
            };
            let result = CheckupResult {
                disks: [(DiskId::named("gpt-1"), found(disk)), (DiskId::named("gpt-2"), Vec::new())].into(),
                volumes: volumes.iter().map(|(name, reasons)| (id(name), found(reasons))).collect(),
                answered_volumes: volumes.iter().map(|(name, _)| (id(name), of_all.clone())).collect(),
                ..CheckupResult::default()
            };
            board.update(result, Timestamp::UNIX_EPOCH, Duration::ZERO)
        };
        let (well, sick): (&[HealthReason], _) = (&[], &[HealthReason::FilesystemReadOnly][..]);
        let named = |volumes: &[&str], is_of_node| HealthChange {
            volumes: volumes.iter().map(|name| id(name)).collect(),
            is_of_node,
            ..HealthChange::default()
        };
        assert_eq!(update(&[("a", well), ("b", sick)], &[]), named(&["a", "b"], true), "the first one");
        assert_eq!(update(&[("a", well), ("b", sick)], &[]), HealthChange::default());
        assert_eq!(update(&[("a", sick), ("b", sick)], &[]), named(&["a"], false));
        assert_eq!(update(&[("a", sick), ("b", sick), ("c", well)], &[]), named(&["c"], false), "it is new");
        assert_eq!(update(&[("a", sick), ("c", well)], &[]), HealthChange::default(), "one was deleted");
        let disk = update(&[("a", sick), ("c", well)], &[HealthReason::DiskWornOut]);
        assert_eq!((disk.volumes.len(), disk.disks), (0, BTreeSet::from([DiskId::named("gpt-1")])));
    }

    #[test]
    fn a_path_is_known_after_its_first_checkup_until_it_is_not_watched_any_more() {
        let board = Board::default();
        let path = |uid: &str| WatchedPath {
            volume: uid.into(),
            uid: uid.into(),
            path: "/mnt/x".into(),
            capacity: 1,
            kind: super::super::path::PathKind::Filesystem,
            is_mounted: false,
            claim: None,
        };
        assert!(board.watch(vec![path("a"), path("b")]) && !board.watch(vec![path("a"), path("b")]));
        assert_eq!(board.paths(), None);
        let update = |uid: &str, findings: Vec<Finding>, is_mount_point| {
            let paths = [(uid.into(), PathResult { findings, is_mount_point, identity: None })].into();
            let result = CheckupResult { paths, ..CheckupResult::default() };
            !board.update(result, Timestamp::UNIX_EPOCH, Duration::ZERO).is_empty()
        };
        let uids = || -> Vec<String> {
            board
                .paths()
                .expect("a checkup")
                .into_iter()
                .map(|path| format!("{} {}", path.watched.uid, path.condition.word()))
                .collect()
        };
        assert!(update("a", vec![], true) && !update("a", vec![], true));
        assert_eq!(uids(), ["a Healthy"]);
        assert!(update("b", vec![Finding::new(HealthReason::HostPathNotExist, "gone")], false));
        assert!(update("a", vec![], false), "it is no mount point any more");
        assert!(!update("c", vec![], false), "nobody asked for it");
        assert_eq!(uids(), ["a Healthy", "b HostPathNotExist"]);
        assert!(board.watch(vec![path("a")]));
        assert_eq!(uids(), ["a Healthy"]);
    }
}
