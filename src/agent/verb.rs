//! What a person may ask of the agent.

use uuid::Uuid;

use crate::claim::Rule;

/// What a person may ask of the agent, and whether only to say what it would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    ReleaseDisk {
        disk: String,
        dry_run: bool,
    },
    AdoptDisk {
        disk: String,
        dry_run: bool,
    },
    /// Of several disks that have a volume, the one whose volume it is.
    SettleVolume {
        volume: Uuid,
        keep: String,
        dry_run: bool,
    },
    /// Begins a new journal beside a damaged one.
    SetAsideJournal {
        dry_run: bool,
    },
    /// What these sets would take.
    PlanSets {
        sets: Vec<Rule>,
    },
}
