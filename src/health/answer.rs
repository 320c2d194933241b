//! Who must answer before a reason that an earlier process of the agent found may go. Pure.
//!
//! Takes in a reason; gives out whose answer it needs. A disk has two questions that it may owe: its report, and the
//! state of its filesystems. What the kernel knows by itself it answers in each checkup; only of writes that were under
//! way as the process began it knows nothing before one ends.

use std::collections::BTreeSet;

use super::reason::{HealthReason, REASONS};

/// Whose answer says whether a reason holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnswerOf {
    /// The kernel's counters and its md arrays.
    Kernel,
    /// A write to the disk that has ended since the process began, or that none is under way.
    Writes,
    /// The report of the disk. A question that failed is none.
    Report,
    /// The same with all its numbers: some disks are asked for them apart.
    Numbers,
    /// All that was asked of the disk: each question has ended, and be it with an error.
    Questions,
    /// The table of mounts.
    Mounts,
    /// The filesystem of the volume, or its device. At one of its mounts is enough.
    Filesystem,
    /// The same at each mount of the volume.
    EachMount,
}

impl AnswerOf {
    pub const ALL: [Self; 8] = [
        Self::Kernel,
        Self::Writes,
        Self::Report,
        Self::Numbers,
        Self::Questions,
        Self::Mounts,
        Self::Filesystem,
        Self::EachMount,
    ];

    /// Those that are not among these.
    pub fn lacking(answered: &BTreeSet<Self>) -> BTreeSet<Self> {
        Self::ALL.into_iter().filter(|answer| !answered.contains(answer)).collect()
    }
}

impl HealthReason {
    /// `None`: no checkup finds it, or only one of a path. Each reason stands here, so that nobody adds one without
    /// saying it.
    pub fn needs(&self) -> Option<AnswerOf> {
        match self {
            Self::DiskReadOnly | Self::DiskFailing | Self::DiskSpareLow => Some(AnswerOf::Report),
            Self::DiskWornOut | Self::DiskTemperature | Self::DiskMediaErrors => Some(AnswerOf::Numbers),
            Self::DiskNotAnswering => Some(AnswerOf::Questions),
            Self::DiskIoErrors | Self::ArrayFailed | Self::ArrayDegraded => Some(AnswerOf::Kernel),
            Self::DiskWritesStuck => Some(AnswerOf::Writes),
            Self::NotMountPoint => Some(AnswerOf::Mounts),
            Self::WrongDevice => Some(AnswerOf::EachMount),
            Self::DeviceReadOnly
            | Self::CapacityAboveDevice
            | Self::FilesystemReadOnly
            | Self::FilesystemShutDown
            | Self::FilesystemErrors
            | Self::InodesExhausted => Some(AnswerOf::Filesystem),
            Self::DiskElsewhere
            | Self::DiskMissing
            | Self::DiskNotReady
            | Self::BackgroundWorkFails
            | Self::Conflict
            | Self::NotDescribed
            | Self::VolumeMissing
            | Self::HostPathNotExist
            | Self::MisMatchedVolSize
            | Self::AgentSilent
            | Self::NodeNotReady
            | Self::NodeGone
            | Self::Other(_) => None,
        }
    }
}

/// The words of the reasons that cordon a disk and of which nobody knows yet whether they hold.
pub fn cordons_in_question(answered: &BTreeSet<AnswerOf>) -> BTreeSet<&'static str> {
    let is_open =
        |reason: &HealthReason| reason.cordons() && reason.needs().is_some_and(|answer| !answered.contains(&answer));
    REASONS.iter().map(|row| row.word).filter(|word| is_open(&HealthReason::from((*word).to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::reason::{Source, Subject};
    use super::*;

    #[test]
    fn each_reason_that_a_checkup_of_disks_and_volumes_finds_needs_an_answer_and_no_other_does() {
        for row in REASONS {
            let reason = HealthReason::from(row.word.to_owned());
            let is_found = row.source == Source::Checkup && row.subject != Subject::PersistentVolume;
            assert_eq!(reason.needs().is_some(), is_found, "{}", row.word);
        }
    }

    #[test]
    fn a_disk_whose_reports_are_there_may_still_be_one_that_does_not_answer() {
        let answered = |answers: &[AnswerOf]| {
            cordons_in_question(&answers.iter().copied().collect()).into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(answered(&[]), "ArrayDegraded ArrayFailed DiskFailing DiskNotAnswering DiskReadOnly DiskSpareLow");
        assert_eq!(answered(&[AnswerOf::Kernel, AnswerOf::Report]), "DiskNotAnswering");
        assert_eq!(answered(&[AnswerOf::Kernel, AnswerOf::Questions]), "DiskFailing DiskReadOnly DiskSpareLow");
        assert_eq!(answered(&AnswerOf::ALL), "");
    }
}
