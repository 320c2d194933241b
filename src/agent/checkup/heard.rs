//! Who has answered this process: the filesystems of which disks, and of which volumes, and the table of mounts.
//!
//! An answer counts for the incarnation of the disk that was asked. Another one has answered nothing yet.

use std::collections::{BTreeMap, BTreeSet};

use crate::device::{DiskId, VolumeId};
use crate::health::{AnswerOf, AnsweredAt, VolumeObservation};
use crate::host::Incarnation;

/// What the filesystems of one disk answered.
#[derive(Debug)]
pub struct SeenFilesystems {
    /// Whom it was asked of; `None`: it was away already.
    pub of: Option<Incarnation>,
    pub volumes: Vec<(VolumeId, VolumeObservation)>,
}

#[derive(Debug, Default)]
pub struct HeardMounts {
    /// The table of mounts was read at least once.
    has_table: bool,
    /// It is known where an earlier process had volumes mounted. Until then the table does not say that none is missed.
    knows_targets: bool,
    /// The disks that the last table gave something to ask.
    asked: BTreeSet<DiskId>,
    /// Whose question has ended.
    disks: BTreeMap<DiskId, Incarnation>,
    /// Where the volumes have answered at best.
    volumes: BTreeMap<VolumeId, (Incarnation, AnsweredAt)>,
}

impl HeardMounts {
    /// The table of mounts was read, and these disks have something that they can be asked.
    pub fn table(&mut self, asked: BTreeSet<DiskId>) {
        (self.has_table, self.asked) = (true, asked);
    }

    /// Whether it is known where volumes were mounted before this process began.
    pub fn targets(&mut self, are_known: bool) {
        self.knows_targets = are_known;
    }

    /// The question to a disk has ended.
    pub fn filesystems(&mut self, disk: &DiskId, seen: &SeenFilesystems) {
        let Some(of) = seen.of else { return };
        self.disks.insert(disk.clone(), of);
        for (volume, observation) in &seen.volumes {
            let (last, at) = self.volumes.entry(*volume).or_insert((of, AnsweredAt::NoMount));
            let before = if *last == of { *at } else { AnsweredAt::NoMount };
            (*last, *at) = (of, before.max(observation.answered));
        }
    }

    /// Whether the disk owes no answer about its filesystems.
    pub fn has_filesystems(&self, disk: &DiskId, of: Incarnation) -> bool {
        self.has_table && (!self.asked.contains(disk) || self.disks.get(disk) == Some(&of))
    }

    /// Who has answered about a volume, besides its disk. `of`: its disk; `None`: that is away.
    pub fn of_volume(&self, volume: VolumeId, of: Option<Incarnation>) -> BTreeSet<AnswerOf> {
        let asked = self.volumes.get(&volume).filter(|(asked, _)| of.is_none_or(|of| of == *asked));
        let answers: &[AnswerOf] = match asked.map_or(AnsweredAt::NoMount, |(_, at)| *at) {
            AnsweredAt::NoMount => &[],
            AnsweredAt::SomeMount => &[AnswerOf::Filesystem],
            AnsweredAt::EachMount => &[AnswerOf::Filesystem, AnswerOf::EachMount],
        };
        let mounts = (self.has_table && self.knows_targets).then_some(AnswerOf::Mounts);
        answers.iter().copied().chain(mounts).collect()
    }

    /// Forgets all others.
    pub fn keep(&mut self, is_disk: impl Fn(&DiskId) -> bool, is_volume: impl Fn(&VolumeId) -> bool) {
        self.disks.retain(|disk, _| is_disk(disk));
        self.volumes.retain(|volume, _| is_volume(volume));
    }
}
