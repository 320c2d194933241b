//! The table of reasons: one row for each thing that can be wrong with a disk or a volume.
//!
//! Everything that names a reason is made from this table or checked against it: conditions, CSI's health calls,
//! metrics, the labels that alerts name, docs/health.md. To add a reason, add a row.

use std::fmt;
use std::time::Duration;

/// How bad it is, in CSI's words (`VolumeHealthErrorType`); the worst is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Usable, but worse than it should be.
    Degraded,
    /// Cannot be used now; the data may be whole.
    Inaccessible,
    /// Data is gone or wrong.
    DataLoss,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Self::Degraded => "Degraded",
            Self::Inaccessible => "Inaccessible",
            Self::DataLoss => "DataLoss",
        }
    }
}

/// What a reason is about. What is wrong with a disk is wrong with each volume on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Disk,
    Volume,
}

/// Who knows that a reason holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The pool, at every moment: no earlier look counts.
    Pool,
    /// A look at the disk, its driver, the mounts or the filesystem.
    Look,
    /// The protocol between the agent and the controller.
    Cluster,
}

/// A row of the table.
#[derive(Debug)]
pub struct ReasonRow {
    /// For machines: the reason of a condition, the label of a metric.
    pub word: &'static str,
    pub subject: Subject,
    pub source: Source,
    pub severity: Severity,
    /// What is wrong, for the documentation.
    pub meaning: &'static str,
    /// What a person does about it.
    pub action: &'static str,
    /// How long the cause must be away before the reason goes: zero where the cause is a state, and longer where it
    /// comes and goes.
    pub hold: Duration,
}

const AT_ONCE: Duration = Duration::ZERO;
/// A temperature, or a counter that stopped rising, must stay so for this time.
const TEN_MINUTES: Duration = Duration::from_secs(600);

macro_rules! reasons {
    ($($reason:ident: $subject:ident, $source:ident, $severity:ident, $hold:ident, $meaning:literal, $action:literal;)+) => {
        /// What is wrong, in one word. A word of a later version is kept as it is.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum HealthReason {
            $($reason,)+
            Other(String),
        }

        /// All rows, in the order in which the documentation shows them.
        pub const REASONS: &[ReasonRow] = &[$(ReasonRow {
            word: stringify!($reason),
            subject: Subject::$subject,
            source: Source::$source,
            severity: Severity::$severity,
            meaning: $meaning,
            action: $action,
            hold: $hold,
        },)+];

        impl HealthReason {
            pub fn word(&self) -> &str {
                match self {
                    $(Self::$reason => stringify!($reason),)+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<String> for HealthReason {
            fn from(word: String) -> Self {
                match word.as_str() {
                    $(stringify!($reason) => Self::$reason,)+
                    _ => Self::Other(word),
                }
            }
        }
    };
}

reasons! {
    DiskMissing: Disk, Pool, Inaccessible, AT_ONCE,
        "The node does not have the disk now.",
        "Plug it in again, or find out why the kernel lost it (`dmesg`). If it is dead: `localpool disk release`.";
    DiskNotReady: Disk, Pool, Inaccessible, AT_ONCE,
        "The disk is there and cannot be used: another program holds it, or what is on it cannot be read.",
        "The message has the reason; it is tried again as long as the disk is there.";
    DiskNotAnswering: Disk, Look, Inaccessible, AT_ONCE,
        "A request to the disk, or to its driver, has not ended in time.",
        "Look for its name in `dmesg`. A hung disk often comes back only after a power cycle.";
    DiskReadOnly: Disk, Look, Inaccessible, AT_ONCE,
        "The disk reports that it accepts no writes any more.",
        "Copy the data away, and replace the disk.";
    DiskFailing: Disk, Look, Degraded, AT_ONCE,
        "The disk reports that it fails, or predicts it.",
        "Move the workloads to other disks, and replace it.";
    DiskMediaErrors: Disk, Look, Degraded, TEN_MINUTES,
        "The disk has found more data that it cannot read or correct since the last look.",
        "Run a check of the application's data. If the counter keeps rising, replace the disk.";
    DiskIoErrors: Disk, Look, Degraded, TEN_MINUTES,
        "The kernel has counted more failed or timed-out requests to the disk since the last look.",
        "Look for its name in `dmesg`; check cable, slot and controller. If the counter keeps rising, replace the disk.";
    DiskSpareLow: Disk, Look, Degraded, AT_ONCE,
        "The disk has less spare space than its own threshold.",
        "Plan its replacement.";
    DiskWornOut: Disk, Look, Degraded, AT_ONCE,
        "The disk has used up the endurance that its maker rates it for.",
        "Plan its replacement.";
    DiskTemperature: Disk, Look, Degraded, TEN_MINUTES,
        "The disk reports that it is too hot or too cold.",
        "Check the cooling of the node.";
    BackgroundWorkFails: Disk, Pool, Degraded, AT_ONCE,
        "Erasing, zeroing or the second copy of the label fails on this disk, and is tried again.",
        "The message has the error. Space that was not erased is not offered.";
    Conflict: Volume, Pool, Inaccessible, AT_ONCE,
        "The volume is, or may be, on two disks.",
        "`localpool volumes` shows both; `localpool volume settle` says which one counts.";
    NotDescribed: Volume, Pool, Inaccessible, AT_ONCE,
        "The label of the disk has lost the volume's description. Its data is kept.",
        "Copy the data away by hand, then delete the claim.";
    VolumeMissing: Volume, Cluster, DataLoss, AT_ONCE,
        "The disk is there, and the volume is not on it any more.",
        "Restore it from a backup. Somebody has written to the disk past localpool.";
    NotMountPoint: Volume, Look, Inaccessible, AT_ONCE,
        "The volume was mounted for its pod, and is not mounted there any more.",
        "Delete the pod: kubelet mounts the volume again. Find out what unmounted it.";
    WrongDevice: Volume, Look, Inaccessible, AT_ONCE,
        "Another device or filesystem is mounted where the volume was mounted for its pod.",
        "Stop the pod: it writes to something else. Unmount what hides the volume, and find out what mounted it.";
    FilesystemReadOnly: Volume, Look, Inaccessible, AT_ONCE,
        "The kernel has made the filesystem read-only, as it does after an error.",
        "Delete the pod: the volume is checked and mounted again. Look at the disk's health first.";
    FilesystemShutDown: Volume, Look, Inaccessible, AT_ONCE,
        "The filesystem has shut down after an error, and answers nothing until it is mounted again.",
        "Delete the pod: the volume is mounted again. Look at the disk's health first.";
    FilesystemErrors: Volume, Look, Degraded, AT_ONCE,
        "The filesystem has counted errors in its own structure.",
        "Stop the pod and check the filesystem (`fsck`); the count goes with a repair.";
    InodesExhausted: Volume, Look, Degraded, AT_ONCE,
        "The filesystem has no free inode: no file can be made, though there may be free space.",
        "Delete files, or expand the volume if its filesystem makes more inodes with more space.";
    NodeGone: Volume, Cluster, Inaccessible, AT_ONCE,
        "The Node of the volume's disk does not exist any more.",
        "If the node comes back under its name, so does the volume. If not: `localpool volume abandon`.";
}

impl HealthReason {
    /// `None` for a word of a later version.
    pub fn row(&self) -> Option<&'static ReasonRow> {
        REASONS.iter().find(|row| row.word == self.word())
    }

    /// A word that is not known here says that the volume cannot be used: the careful reading.
    pub fn severity(&self) -> Severity {
        self.row().map_or(Severity::Inaccessible, |row| row.severity)
    }

    /// Whether the pool knows it without a look.
    pub fn is_known_to_pool(&self) -> bool {
        self.row().is_some_and(|row| row.source == Source::Pool)
    }

    pub fn hold(&self) -> Duration {
        self.row().map_or(AT_ONCE, |row| row.hold)
    }
}

impl fmt::Display for HealthReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_word_is_read_as_it_is_written_and_one_of_a_later_version_is_kept() {
        for row in REASONS {
            let reason = HealthReason::from(row.word.to_owned());
            assert!(!matches!(reason, HealthReason::Other(_)), "{}", row.word);
            assert_eq!((reason.word(), reason.severity(), reason.hold()), (row.word, row.severity, row.hold));
        }
        let later = HealthReason::from("TooWarm".to_owned());
        assert_eq!((later.word(), later.severity()), ("TooWarm", Severity::Inaccessible));
    }

    #[test]
    fn a_row_says_in_sentences_what_is_wrong_and_what_to_do() {
        let words: BTreeSet<&str> = REASONS.iter().map(|row| row.word).collect();
        assert_eq!(words.len(), REASONS.len());
        for row in REASONS {
            assert!(row.meaning.ends_with('.') && row.action.ends_with('.'), "{row:?}");
            assert!(
                row.subject == Subject::Volume || row.word.starts_with("Disk") || row.word == "BackgroundWorkFails"
            );
        }
        assert!(Severity::Degraded < Severity::Inaccessible && Severity::Inaccessible < Severity::DataLoss);
    }
}
