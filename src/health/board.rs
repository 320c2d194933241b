//! The health of all disks and volumes of this node, shared by whoever looks and whoever reports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;

use super::condition::Condition;
use super::finding::Finding;
use super::history::History;
use super::path::WatchedPath;
use super::reason::HealthReason;
use crate::device::{DiskId, VolumeId};
use crate::host::DiskReport;
use crate::pool::{DiskView, VolumeView};

/// What the looks at this node's disks and volumes have found.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<RwLock<Histories>>);

#[derive(Debug, Default)]
struct Histories {
    disks: BTreeMap<DiskId, History>,
    volumes: BTreeMap<VolumeId, History>,
    /// Where each volume is mounted for kubelet, until kubelet has it unmounted.
    mounted: BTreeMap<VolumeId, BTreeSet<PathBuf>>,
    unmounts: u64,
    looked: bool,
    reports: BTreeMap<DiskId, DiskReport>,
    /// What the controller wants checked, and what was found, by UID of the PersistentVolume.
    watched: Vec<WatchedPath>,
    paths: BTreeMap<String, PathHistory>,
}

#[derive(Debug, Default)]
struct PathHistory {
    history: History,
    is_mount_point: bool,
}

/// Everything that one look found, by disk and by volume. What is not named has no entry any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    pub disks: BTreeMap<DiskId, Vec<Finding>>,
    pub volumes: BTreeMap<VolumeId, Vec<Finding>>,
    /// What each disk that is here has reported last.
    pub reports: BTreeMap<DiskId, DiskReport>,
    /// By UID of the PersistentVolume. One that is not named keeps its entry.
    pub paths: BTreeMap<String, PathLook>,
}

/// What one look at a watched path found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathLook {
    pub findings: Vec<Finding>,
    pub is_mount_point: bool,
}

/// What is known of a watched path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReport {
    pub watched: WatchedPath,
    pub is_mount_point: bool,
    pub condition: Condition,
}

impl Board {
    /// Takes in a look, the wall clock and the monotonic clock; gives whether anything changed that people see.
    /// The first look always does: until then what an earlier process has found is shown.
    pub fn look(&self, look: Look, wall: Timestamp, now: Duration) -> bool {
        let mut histories = self.0.write().unwrap_or_else(PoisonError::into_inner);
        histories.mounted.retain(|volume, _| look.volumes.contains_key(volume));
        let disks = take_in(&mut histories.disks, look.disks, wall, now);
        let volumes = take_in(&mut histories.volumes, look.volumes, wall, now);
        let paths = histories.look_at_paths(look.paths, wall, now);
        // Figures that only metrics show are no change.
        histories.reports = look.reports;
        let first = !std::mem::replace(&mut histories.looked, true);
        disks || volumes || paths || first
    }

    /// The paths to look at from now on; gives whether they are others than before.
    pub fn watch(&self, watched: Vec<WatchedPath>) -> bool {
        let mut histories = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if histories.watched == watched {
            return false;
        }
        histories.paths.retain(|uid, _| watched.iter().any(|path| path.uid == *uid));
        histories.watched = watched;
        true
    }

    pub fn watched(&self) -> Vec<WatchedPath> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).watched.clone()
    }

    /// The watched paths that were looked at; `None`: there was no look yet.
    pub fn paths(&self) -> Option<Vec<PathReport>> {
        let histories = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let report = |watched: &WatchedPath| {
            let PathHistory { history, is_mount_point } = histories.paths.get(&watched.uid)?;
            let (condition, is_mount_point) = (Condition::of(history.findings().collect()), *is_mount_point);
            Some(PathReport { watched: watched.clone(), is_mount_point, condition })
        };
        histories.looked.then(|| histories.watched.iter().filter_map(report).collect())
    }

    /// What a disk of the pool that is here has reported last.
    pub fn report(&self, disk: &DiskId) -> Option<DiskReport> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).reports.get(disk).cloned()
    }

    /// How many targets were unmounted on purpose: read before the mount table is, and given to [`Board::mounted`].
    pub fn unmounts(&self) -> u64 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).unmounts
    }

    /// A volume is mounted at a target for kubelet, and should be until [`Board::unmounted`]. What was seen before the
    /// last unmount does not count: it may be that one.
    pub fn mounted(&self, volume: VolumeId, target: &Path, unmounts: u64) {
        let mut histories = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if histories.unmounts == unmounts {
            histories.mounted.entry(volume).or_default().insert(target.to_owned());
        }
    }

    /// Said before a target of a volume is unmounted on purpose.
    pub fn unmounted(&self, volume: VolumeId, target: &Path) {
        let mut histories = self.0.write().unwrap_or_else(PoisonError::into_inner);
        histories.unmounts += 1;
        if let Some(targets) = histories.mounted.get_mut(&volume) {
            targets.remove(target);
        }
    }

    /// Where a volume should be mounted.
    pub fn targets(&self, volume: VolumeId) -> BTreeSet<PathBuf> {
        let histories = self.0.read().unwrap_or_else(PoisonError::into_inner);
        histories.mounted.get(&volume).cloned().unwrap_or_default()
    }

    /// What is wrong with a disk: what the pool knows this very moment, and what the last look observed.
    pub fn of_disk(&self, view: &DiskView) -> Condition {
        let histories = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let all = joined(Finding::of_disk(view), histories.disks.get(&view.id), &[]);
        Condition::of(all).awaiting_look(!histories.looked)
    }

    /// What is wrong with a volume, which includes what is wrong with its disk.
    pub fn of_volume(&self, view: &VolumeView) -> Condition {
        let histories = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let disk = histories.disks.get(&view.disk).into_iter().flat_map(History::findings);
        let disk = disk.filter(|finding| !finding.reason.is_known_to_pool());
        let named =
            |finding: Finding| Finding { message: format!("disk {}: {}", view.disk, finding.message), ..finding };
        let disk: Vec<Finding> = disk.map(named).collect();
        let all = joined(Finding::of_volume(view), histories.volumes.get(&view.id), &disk);
        Condition::of(all).awaiting_look(!histories.looked)
    }
}

impl Histories {
    fn look_at_paths(&mut self, look: BTreeMap<String, PathLook>, wall: Timestamp, now: Duration) -> bool {
        let mut changed = false;
        for (uid, PathLook { findings, is_mount_point }) in look {
            // The controller may have taken it from the list meanwhile.
            if !self.watched.iter().any(|path| path.uid == uid) {
                continue;
            }
            changed |= !self.paths.contains_key(&uid);
            let path = self.paths.entry(uid).or_default();
            changed |= path.history.look(findings, wall, now) || path.is_mount_point != is_mount_point;
            path.is_mount_point = is_mount_point;
        }
        changed
    }
}

fn take_in<K: Ord>(
    histories: &mut BTreeMap<K, History>,
    look: BTreeMap<K, Vec<Finding>>,
    wall: Timestamp,
    now: Duration,
) -> bool {
    let before = histories.len();
    histories.retain(|key, _| look.contains_key(key));
    let mut changed = histories.len() != before;
    for (key, findings) in look {
        changed |= histories.entry(key).or_default().look(findings, wall, now);
    }
    changed
}

/// What the pool knows now, with the times of the history; then what only a look can find.
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

    fn words(condition: &Condition) -> Vec<&str> {
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
        board.look(Look::default(), Timestamp::UNIX_EPOCH, Duration::ZERO);
        assert_eq!(board.targets(id), [].into(), "the volume is deleted");
    }

    #[test]
    fn a_volume_has_what_is_wrong_with_it_and_with_its_disk_and_what_the_pool_says_now_counts() {
        let board = Board::default();
        let disk =
            vec![Finding::new(HealthReason::DiskTemperature, "hot"), Finding::new(HealthReason::DiskMissing, "gone")];
        let other = vec![Finding::new(HealthReason::DiskWornOut, "worn")];
        let look = Look {
            disks: [(DiskId::named("gpt-1"), disk), (DiskId::named("gpt-2"), other)].into(),
            volumes: [(VolumeId::of_name("v"), vec![Finding::new(HealthReason::InodesExhausted, "no inode")])].into(),
            ..Look::default()
        };
        let wall = Timestamp::from_second(5).expect("a time");
        assert!(board.look(look.clone(), wall, Duration::from_secs(1)));
        assert!(!board.look(look, wall, Duration::from_secs(2)), "nothing changed");
        let condition = board.of_volume(&view("gpt-1", Standing::Ready));
        assert_eq!(
            words(&condition),
            ["NotDescribed", "DiskTemperature", "InodesExhausted"],
            "the disk is back by now"
        );
        assert_eq!(condition.findings()[1].message, "disk gpt-1: hot");
        let condition = board.of_volume(&view("gpt-1", Standing::Missing));
        assert_eq!(words(&condition)[0], "DiskMissing");
        assert_eq!(words(&board.of_volume(&view("gpt-3", Standing::Ready))), ["NotDescribed", "InodesExhausted"]);
        assert!(board.look(Look::default(), wall, Duration::from_secs(3)), "neither is here any more");
        assert_eq!(words(&board.of_volume(&view("gpt-1", Standing::Ready))), ["NotDescribed"]);
    }

    #[test]
    fn a_path_is_known_after_its_first_look_until_it_is_not_watched_any_more() {
        let board = Board::default();
        let path = |uid: &str| WatchedPath {
            volume: uid.to_owned(),
            uid: uid.to_owned(),
            path: "/mnt/x".into(),
            capacity: 1,
            kind: super::super::path::PathKind::Filesystem,
            is_mounted: false,
        };
        assert!(board.watch(vec![path("a"), path("b")]) && !board.watch(vec![path("a"), path("b")]));
        assert_eq!(board.paths(), None);
        let look = |uid: &str, findings: Vec<Finding>, is_mount_point| {
            let paths = [(uid.to_owned(), PathLook { findings, is_mount_point })].into();
            board.look(Look { paths, ..Look::default() }, Timestamp::UNIX_EPOCH, Duration::ZERO)
        };
        let uids = || -> Vec<String> {
            board
                .paths()
                .expect("looked")
                .into_iter()
                .map(|path| format!("{} {}", path.watched.uid, path.condition.word()))
                .collect()
        };
        assert!(look("a", vec![], true) && !look("a", vec![], true));
        assert_eq!(uids(), ["a Healthy"]);
        assert!(look("b", vec![Finding::new(HealthReason::HostPathNotExist, "gone")], false));
        assert!(look("a", vec![], false), "it is no mount point any more");
        assert!(!look("c", vec![], false), "nobody asked for it");
        assert_eq!(uids(), ["a Healthy", "b HostPathNotExist"]);
        assert!(board.watch(vec![path("a")]));
        assert_eq!(uids(), ["a Healthy"]);
    }
}
