//! The requests of people to the agent.

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

/// An order that an object can have for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskTask {
    /// The disk is here, and is released.
    Release,
    /// The disk is missing, and is given up.
    GiveUp,
    /// The disk is another node's, was released, or was given up and is back; it is taken over.
    Adopt,
}

/// A request of a person to the agent.
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
    /// An order of an object for a disk. Stricter than the verbs: nobody has read what a dry run says.
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
    /// Several disks have a volume, and this one is the disk whose volume it is.
    SettleVolume {
        volume: VolumeId,
        keep: String,
        run: Run,
    },
    /// Begins a new journal beside a damaged one.
    SetAsideJournal {
        run: Run,
    },
    /// Says which devices these sets would take.
    PlanSets {
        sets: Vec<Rule>,
    },
}
