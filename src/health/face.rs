//! Where each reason is seen. docs/health.md has its table from here; beside each face, a test holds it to this. Pure.

use super::reason::{HealthReason, ReasonRow, Severity, Source, Subject};

/// A place where people and programs see a reason, and in which words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    Disk,
    /// Whether it makes the storage of a node unreachable that has no other disk.
    Storage {
        alone_unreachable: bool,
    },
    Volume(Severity),
    Claim,
    /// The annotation.
    Mark(&'static str),
    Cordon,
}

/// Each face, and what it is.
pub const FACES: [(&str, &str); 6] = [
    (
        "disk",
        "the DevicePool: `status.disks` has it in the `health` of the disk, and the worst one in the disk's condition \
         `Healthy`; the condition `DisksHealthy`; an Event. The metrics `localpool_disk_unhealthy` and \
         `localpool_pool_unhealthy_disks`",
    ),
    ("storage", "NodeGetStorageHealth, with this status; `StorageUnreachable` only if no disk of the pool can be used"),
    (
        "volume",
        "the PoolVolume: `status.health`, and the worst one in the condition `Healthy`. NodeGetVolumeHealth, \
         ControllerGetVolumeHealth and ControllerListVolumeHealth, with this status. VolumeCondition in \
         NodeGetVolumeStats, ControllerGetVolume and ListVolumes. The metric `localpool_controller_abnormal_volumes`, by \
         the worst one",
    ),
    ("claim", "an Event of the claim that has the volume"),
    (
        "mark",
        "an annotation of the PersistentVolume, and an Event of it; its name is the reason, if no other is given here. Of a \
         local PersistentVolume of another provisioner also `status.persistentVolumes` of the DevicePool, with the \
         sentence and since when. The metric `localpool_controller_marked_persistent_volumes` counts these, and of this \
         driver only those that promise more than their volume has",
    ),
    ("cordon", "the disk takes no new volumes"),
];

impl Face {
    /// As the table of reasons has it: the name, and the word that is shown there.
    pub fn text(self, row: &ReasonRow) -> String {
        match self {
            Self::Disk => "disk".to_owned(),
            Self::Storage { alone_unreachable: false } => "storage `StorageDegraded`".to_owned(),
            Self::Storage { alone_unreachable: true } => "storage `StorageDegraded` or `StorageUnreachable`".to_owned(),
            Self::Volume(severity) => format!("volume `{}`", severity.word()),
            Self::Claim => "claim".to_owned(),
            Self::Mark(word) if word == row.word => "mark".to_owned(),
            Self::Mark(word) => format!("mark `{word}`"),
            Self::Cordon => "cordon".to_owned(),
        }
    }
}

impl ReasonRow {
    /// All faces of the reason, in the order of [`FACES`].
    pub fn faces(&self) -> Vec<Face> {
        let reason = HealthReason::from(self.word.to_owned());
        let is_of_disk = self.subject == Subject::Disk;
        // What cannot be done on a disk in the background takes nothing from the volumes that are there.
        let is_of_volume = self.subject != Subject::PersistentVolume && reason != HealthReason::BackgroundWorkFails;
        // The agent writes these Events; it finds nothing of what only the controller knows.
        let is_of_agent = self.source != Source::Cluster || reason == HealthReason::VolumeMissing;
        let is_mark = self.marks() && (is_of_volume || self.subject == Subject::PersistentVolume);
        // The proposal's word for a device that is too small.
        let mark = if reason == HealthReason::CapacityAboveDevice { "MisMatchedVolSize" } else { self.word };
        let faces = [
            is_of_disk.then_some(Face::Disk),
            is_of_disk.then_some(Face::Storage { alone_unreachable: self.severity != Severity::Degraded }),
            is_of_volume.then_some(Face::Volume(self.severity)),
            (is_of_volume && is_of_agent).then_some(Face::Claim),
            is_mark.then_some(Face::Mark(mark)),
            (is_of_disk && reason.cordons()).then_some(Face::Cordon),
        ];
        faces.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::device::{DiskId, VolumeId};
    use crate::health::{Board, CheckupResult, Condition, Finding, REASONS};
    use crate::pool::sample::known_disk;
    use crate::pool::{DiskView, Standing, VolumeView};

    /// What a disk has with which only this is wrong, and what a volume on it has.
    fn found_of_disk(reason: &HealthReason) -> [Condition; 2] {
        let known = known_disk();
        let id = DiskId::named("gpt-1");
        let standing = match reason {
            HealthReason::DiskMissing => Standing::Missing,
            HealthReason::DiskNotReady => Standing::NotReady("words".to_owned()),
            _ => Standing::Ready,
        };
        let failing = (*reason == HealthReason::BackgroundWorkFails).then(|| "words".to_owned());
        let disk = DiskView { standing: standing.clone(), failing, ..DiskView::absent(id.clone(), known) };
        let volume = VolumeView {
            id: VolumeId::of_name("v"),
            record: None,
            size: 1,
            formatted: false,
            growable_to: 1,
            set: disk.set.clone(),
            disk: id.clone(),
            standing,
            given_up: false,
            conflict: None,
            node: Default::default(),
            directory: None,
        };
        let board = Board::default();
        let seen = if reason.is_known_to_pool() { vec![] } else { vec![Finding::new(reason.clone(), "words")] };
        board.update(
            CheckupResult { disks: [(id, seen)].into(), ..CheckupResult::default() },
            Timestamp::UNIX_EPOCH,
            Duration::ZERO,
        );
        [board.of_disk(&disk), board.of_volume(&volume)]
    }

    #[test]
    fn what_is_wrong_with_a_disk_is_wrong_with_its_volumes_if_its_faces_say_so() {
        for row in REASONS.iter().filter(|row| row.subject == Subject::Disk) {
            let reason = HealthReason::from(row.word.to_owned());
            let has = |condition: &Condition| condition.findings().iter().any(|finding| finding.reason == reason);
            let [of_disk, of_volume] = found_of_disk(&reason).map(|condition| has(&condition));
            let faces = row.faces();
            assert!(of_disk && faces.contains(&Face::Disk), "{}", row.word);
            assert_eq!(of_volume, faces.contains(&Face::Volume(row.severity)), "{}", row.word);
        }
    }

    #[test]
    fn a_face_is_said_in_the_words_of_its_list() {
        for row in REASONS {
            let faces = row.faces();
            assert!(!faces.is_empty(), "{}: nobody sees it", row.word);
            let said: Vec<String> = faces.iter().map(|face| face.text(row)).collect();
            let places = said.iter().map(|words| {
                let name = words.split(' ').next();
                FACES.iter().position(|(face, _)| Some(*face) == name)
            });
            let places: Option<Vec<usize>> = places.collect();
            assert!(places.is_some_and(|places| places.is_sorted()), "{}: {said:?}", row.word);
        }
    }
}
