//! Where volumes are mounted for kubelet, until kubelet has them unmounted. Pure.
//!
//! Takes in each mount and unmount, and what an earlier process of the agent left; gives out where each volume is
//! expected, and a number that grows with each change that the next process has to know.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::device::VolumeId;

/// Targets by volume; no volume has none.
pub type TargetsByVolume = BTreeMap<VolumeId, BTreeSet<PathBuf>>;

/// Where each volume is expected to be mounted.
#[derive(Debug, Default)]
pub struct MountTargets {
    by_volume: TargetsByVolume,
    /// How many were unmounted on purpose.
    unmounts: u64,
    /// How often what is expected has changed.
    changes: u64,
    left: LeftTargets,
}

/// What an earlier process left.
#[derive(Debug)]
enum LeftTargets {
    /// Nobody knows yet; these were unmounted on purpose meanwhile.
    Unread {
        unmounted: BTreeSet<(VolumeId, PathBuf)>,
    },
    Known,
}

impl Default for LeftTargets {
    fn default() -> Self {
        Self::Unread { unmounted: BTreeSet::new() }
    }
}

impl MountTargets {
    pub fn unmounts(&self) -> u64 {
        self.unmounts
    }

    pub fn changes(&self) -> u64 {
        self.changes
    }

    pub fn all(&self) -> &TargetsByVolume {
        &self.by_volume
    }

    pub fn of(&self, volume: VolumeId) -> BTreeSet<PathBuf> {
        self.by_volume.get(&volume).cloned().unwrap_or_default()
    }

    /// What was seen before the last unmount does not count: it may be that one. Gives whether it is a change.
    pub fn mounted(&mut self, volume: VolumeId, target: &Path, unmounts: u64) -> bool {
        let is_new = self.unmounts == unmounts && self.add(volume, target.to_owned());
        if is_new && let LeftTargets::Unread { unmounted } = &mut self.left {
            unmounted.remove(&(volume, target.to_owned()));
        }
        self.changed(is_new)
    }

    /// Gives whether it is a change.
    pub fn unmounted(&mut self, volume: VolumeId, target: &Path) -> bool {
        self.unmounts += 1;
        if let LeftTargets::Unread { unmounted } = &mut self.left {
            unmounted.insert((volume, target.to_owned()));
        }
        let Some(targets) = self.by_volume.get_mut(&volume) else { return false };
        let was_there = targets.remove(target);
        if targets.is_empty() {
            self.by_volume.remove(&volume);
        }
        self.changed(was_there)
    }

    /// These volumes do not exist any more. Gives whether it is a change.
    pub fn forget(&mut self, gone: &BTreeSet<VolumeId>) -> bool {
        let before = self.by_volume.len();
        self.by_volume.retain(|volume, _| !gone.contains(volume));
        self.changed(self.by_volume.len() != before)
    }

    /// What an earlier process left, but for what was unmounted since. It is known from now on.
    pub fn recall(&mut self, left: TargetsByVolume) {
        let LeftTargets::Unread { unmounted } = std::mem::replace(&mut self.left, LeftTargets::Known) else { return };
        for (volume, targets) in left {
            for target in targets {
                if !unmounted.contains(&(volume, target.clone())) {
                    self.add(volume, target);
                }
            }
        }
        self.changes += 1;
    }

    /// Whether it is known what an earlier process left: until then a volume may be missed somewhere that nobody knows.
    pub fn is_recalled(&self) -> bool {
        matches!(self.left, LeftTargets::Known)
    }

    fn add(&mut self, volume: VolumeId, target: PathBuf) -> bool {
        self.by_volume.entry(volume).or_default().insert(target)
    }

    fn changed(&mut self, changed: bool) -> bool {
        self.changes += u64::from(changed);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(volume: &str, targets: &[&str]) -> TargetsByVolume {
        [(VolumeId::of_name(volume), targets.iter().map(PathBuf::from).collect())].into()
    }

    #[test]
    fn what_an_earlier_process_left_is_expected_but_for_what_was_unmounted_before_it_was_read() {
        let mut targets = MountTargets::default();
        let (id, [a, b, c]) = (VolumeId::of_name("v"), ["/a", "/b", "/c"].map(Path::new));
        assert!(!targets.is_recalled());
        assert!(!targets.unmounted(id, a), "nobody knew of it");
        assert!(!targets.unmounted(id, b));
        assert!(targets.mounted(id, b, targets.unmounts()), "and it is mounted again");
        targets.recall(of("v", &["/a", "/b", "/c"]));
        assert!(targets.is_recalled());
        assert_eq!(targets.of(id), [b, c].map(Path::to_owned).into());
        targets.recall(of("v", &["/a"]));
        assert_eq!(targets.of(id), [b, c].map(Path::to_owned).into(), "it is read once");
    }

    #[test]
    fn only_what_the_next_process_must_know_is_a_change_and_a_volume_without_a_target_is_none() {
        let mut targets = MountTargets::default();
        targets.recall(TargetsByVolume::new());
        let (id, target) = (VolumeId::of_name("v"), Path::new("/a"));
        let before = targets.changes();
        assert!(targets.mounted(id, target, 0) && !targets.mounted(id, target, 0));
        assert!(targets.unmounted(id, target) && !targets.unmounted(id, target));
        assert!(!targets.mounted(id, target, 0), "the table was read before the unmount");
        assert_eq!((targets.changes() - before, targets.all().len()), (2, 0));
        assert!(targets.mounted(id, target, 2) && targets.forget(&[id].into()) && !targets.forget(&[id].into()));
        assert!(targets.all().is_empty());
    }
}
