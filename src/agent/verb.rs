//! What a person may ask of the agent.

use crate::claim::Rule;
use crate::device::{DiskId, VolumeId};
use crate::host::Lit;

/// Whether a verb is done, or says what it would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    Dry,
    Real,
}

impl Run {
    /// As people and requests say it.
    pub fn asked(dry_run: bool) -> Self {
        if dry_run { Self::Dry } else { Self::Real }
    }

    /// As requests say it.
    pub fn is_dry(self) -> bool {
        self == Self::Dry
    }

    /// `would wipe`, or `wiped`.
    pub fn tense(self, verb: &str, done: &str) -> String {
        match self {
            Self::Dry => format!("would {verb}"),
            Self::Real => done.to_owned(),
        }
    }
}

/// What an object can order for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskTask {
    /// Of a disk that is here.
    Release,
    /// Of a disk that is missing.
    GiveUp,
    /// Of another node's disk, one that was released, or one that was given up and is back.
    Adopt,
}

/// What a person may ask of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    ReleaseDisk {
        disk: String,
        run: Run,
    },
    /// Stops waiting for a disk that is missing, and for nothing else.
    GiveUpDisk {
        disk: String,
        run: Run,
    },
    AdoptDisk {
        disk: String,
        run: Run,
    },
    /// What an object orders for a disk. Stricter than the verbs: nobody has read what a dry run says.
    Order {
        disk: DiskId,
        task: DiskTask,
    },
    /// Turns the light of a disk's slot on or off.
    LocateDisk {
        disk: String,
        lit: Lit,
        run: Run,
    },
    /// Of several disks that have a volume, the one whose volume it is.
    SettleVolume {
        volume: VolumeId,
        keep: String,
        run: Run,
    },
    /// Begins a new journal beside a damaged one.
    SetAsideJournal {
        run: Run,
    },
    /// What these sets would take.
    PlanSets {
        sets: Vec<Rule>,
    },
}
