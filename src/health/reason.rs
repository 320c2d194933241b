//! The table of reasons: one row for each thing that can be wrong with a disk or a volume.
//!
//! Everything that names a reason is made from this table or checked against it: conditions, CSI's health calls,
//! metrics, the labels that alerts name, docs/health.md. CONTRIBUTING says what a new reason needs besides a row.

use std::time::Duration;

use crate::device::word_enum;

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
    /// A PersistentVolume, whoever made it.
    PersistentVolume,
}

/// Who knows that a reason holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The pool, at every moment: no earlier checkup counts.
    Pool,
    /// A checkup of the disk, its driver, the mounts or the filesystem.
    Checkup,
    /// The protocol between the agent and the controller.
    Cluster,
}

/// For which volumes a reason says that the volume is lost where it is, as far as a machine can say: the reaction
/// (`operator/reaction`) counts it. Never: what is only worse than it should be, what comes and goes, what a new mount
/// heals with the data, and what a person has to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossScope {
    Never,
    /// Volumes of this driver.
    Own,
    /// Local PersistentVolumes of other provisioners.
    Paths,
    All,
}

/// Whether a disk takes new volumes while it has the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// The reason keeps none away. So does what comes and goes, and wear: in a fleet of one age all disks reach that at
    /// once, long before they fail.
    Open,
    /// The disk says itself that it will not keep data, or says nothing, or its array has no redundancy any more.
    Cordons,
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
    pub loss: LossScope,
    pub placing: Placing,
}

impl ReasonRow {
    /// Whether a PersistentVolume is marked for it: the word is then the key of an annotation. What comes and goes by
    /// nature is no mark.
    pub fn marks(&self) -> bool {
        self.hold == AT_ONCE
    }
}

const AT_ONCE: Duration = Duration::ZERO;
/// A temperature, a counter that stopped rising, or a free inode must stay so for this time.
const TEN_MINUTES: Duration = Duration::from_secs(600);

macro_rules! reasons {
    ($($reason:ident: $subject:ident, $source:ident, $severity:ident, $hold:ident, $loss:ident, $placing:ident,
        $meaning:literal, $action:literal;)+) => {
        word_enum! {
            /// What is wrong, in one word. A word of a later version is kept as it is.
            #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
            pub enum HealthReason {
                $($reason,)+
            }
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
            loss: LossScope::$loss,
            placing: Placing::$placing,
        },)+];
    };
}

reasons! {
    // Before what the node that lost the disk finds: a person who read that one first would give the disk up for dead.
    DiskElsewhere: Volume, Cluster, Inaccessible, AT_ONCE, Never, Open,
        "Another node has the disk of the volume than the one that the PoolVolume names.",
        "The disk was moved, or is a copy. docs/troubleshooting.md, \"A disk moves to another node\", has the steps. It \
         is not dead: nothing of it is lost.";
    DiskMissing: Disk, Pool, Inaccessible, AT_ONCE, Own, Open,
        "The node does not have the disk now.",
        "Plug it in again, or find out why the kernel lost it (`dmesg`). If it is dead: `localpool disk give-up`, or \
         the order GiveUp, as docs/troubleshooting.md, \"A disk is missing, and stays so\", says.";
    DiskNotReady: Disk, Pool, Inaccessible, AT_ONCE, Own, Open,
        "The disk is there and cannot be used. The message says why.",
        "Look the message up in docs/troubleshooting.md, \"A set takes no disks\". A disk that could not be read, or \
         that another program held, is tried again automatically.";
    DiskNotAnswering: Disk, Checkup, Inaccessible, AT_ONCE, Own, Cordons,
        "A request to the disk, to its driver or to a filesystem on it has not ended in time.",
        "Look for its name in `dmesg`; check cable, slot and controller. A hung disk often comes back only after a \
         power cycle. Drain the node before that: pods on the hung disk do not end, all others do.";
    // No loss: an old kernel may count a write that has ended, and nobody tells the two apart from outside.
    DiskWritesStuck: Disk, Checkup, Degraded, TEN_MINUTES, Never, Open,
        "The kernel counts writes to the disk that are under way, and none has ended for a minute or longer.",
        "Look for its name in `dmesg`, and whether its pods hang in a write. If they do: drain the node, and start it again. \
         If nothing hangs, the kernel's counter is wrong, and nothing needs to be done.";
    DiskReadOnly: Disk, Checkup, Inaccessible, AT_ONCE, Own, Cordons,
        "The disk reports that it accepts no writes any more.",
        "Copy the data away while its pods run: a filesystem may not mount again without writes. Then: \
         docs/health.md, \"Replace a disk\".";
    DiskFailing: Disk, Checkup, Degraded, AT_ONCE, Never, Cordons,
        "The disk reports that it fails, or predicts it.",
        "Copy the data away soon: docs/health.md, \"Replace a disk\".";
    ArrayFailed: Disk, Checkup, Inaccessible, AT_ONCE, Own, Cordons,
        "The md array that the disk is built on lacks more members than it can, or has stopped.",
        "Stop the pods of its volumes, and look at `/proc/mdstat` and `dmesg`: members that only lost their connection \
         come back with it, and `mdadm --assemble --force` takes those that are nearly up to date. Never make the array \
         again with `mdadm --create`. If members are dead: docs/health.md, \"Replace a disk\", and a backup.";
    ArrayDegraded: Disk, Checkup, Degraded, AT_ONCE, Never, Cordons,
        "The md array that the disk is built on lacks a member, or rebuilds one. The next loss may be the last.",
        "`cat /proc/mdstat` and `mdadm --detail /dev/mdN` on the node name the member. Replace it with `mdadm --remove` \
         and `mdadm --add`, and wait until it is rebuilt. Until then the disk takes no new volumes.";
    DiskMediaErrors: Disk, Checkup, Degraded, TEN_MINUTES, Never, Open,
        "The disk has found more data that it cannot read or correct since the last checkup.",
        "Run a check of the application's data, and of its backup. If the counter keeps rising: docs/health.md, \
         \"Replace a disk\".";
    DiskIoErrors: Disk, Checkup, Degraded, TEN_MINUTES, Never, Open,
        "The kernel has counted a timed-out request to the disk, or at least 20 more failed ones, since the last checkup.",
        "Look for its name in `dmesg`; check cable, slot and controller. If the counter keeps rising: \
         docs/health.md, \"Replace a disk\".";
    DiskSpareLow: Disk, Checkup, Degraded, AT_ONCE, Never, Cordons,
        "The disk has less spare space than its own threshold.",
        "Plan its replacement: docs/health.md, \"Replace a disk\".";
    DiskWornOut: Disk, Checkup, Degraded, AT_ONCE, Never, Open,
        "The disk has used up the endurance that its maker rates it for.",
        "Plan its replacement: docs/health.md, \"Replace a disk\".";
    DiskTemperature: Disk, Checkup, Degraded, TEN_MINUTES, Never, Open,
        "The disk reports that it is too hot or too cold.",
        "Check the cooling of the node.";
    BackgroundWorkFails: Disk, Pool, Degraded, AT_ONCE, Never, Open,
        "Erasing, zeroing or the second copy of the label fails on this disk, and is tried again.",
        "The message has the error. Space that was not erased is not offered. If the disk cannot be written any \
         more: docs/health.md, \"Replace a disk\".";
    Conflict: Volume, Pool, Inaccessible, AT_ONCE, Never, Open,
        "The volume is, or may be, on two disks.",
        "Inspect both, then say which one counts: docs/troubleshooting.md, \"A volume is in conflict\".";
    NotDescribed: Volume, Pool, Inaccessible, AT_ONCE, Never, Open,
        "The label of the disk has lost the volume's description. Its data is kept.",
        "Copy the data away by hand before you delete the claim. The deletion waits: docs/troubleshooting.md, \"A \
         volume does not go away\".";
    VolumeMissing: Volume, Cluster, DataLoss, AT_ONCE, Own, Open,
        "The disk is there, and the volume is not on it any more. Or, as a mark of a PersistentVolume: its PoolVolume does \
         not exist.",
        "If the node's agent is silent, bring it back first: it writes a missing PoolVolume again. Else bring back the \
         disk that was in use last. If that is impossible, delete the claim, which erases nothing, \
         and restore a backup into a new one.";
    NotMountPoint: Volume, Checkup, Inaccessible, AT_ONCE, Paths, Open,
        "The volume was mounted for its pod, and is not mounted there any more.",
        "Stop its pods before a container restarts: it would write to the node's own filesystem. docs/health.md, \
         \"Mount a volume again\", says how. Find out what unmounted it.";
    WrongDevice: Volume, Checkup, Inaccessible, AT_ONCE, Never, Open,
        "Where the volume is mounted for its pod is something else now: another mount covers it, or its device has left \
         and come back as another one. At the path of a local PersistentVolume of another provisioner: another \
         filesystem or device than the one that was there first.",
        "Stop its pods. If another mount covers the volume, a container that started since then writes to that one: copy \
         what it wrote there, unmount the other one, and find out what mounted it. Then: docs/health.md, \"Mount a volume \
         again\".";
    DeviceReadOnly: Volume, Checkup, Inaccessible, AT_ONCE, Never, Open,
        "The kernel refuses writes to the device of the volume, which is mounted for writing.",
        "Look at the disk's health and at `dmesg` first. If somebody set the flag, `blockdev --setrw` clears it; if the \
         disk is at fault, copy the data away while it can be read.";
    CapacityAboveDevice: Volume, Checkup, Inaccessible, AT_ONCE, Never, Open,
        "The device of the volume is smaller than the volume or its filesystem: what is beyond its end is out of reach.",
        "Stop its pods, and find out who made the disk or its partition smaller (a LUN, a virtual disk). Give it its size \
         back before anything is written: a filesystem check would cut the data off. If the volume was being expanded, \
         `dmesg` says why the kernel did not take the new size.";
    FilesystemReadOnly: Volume, Checkup, Inaccessible, AT_ONCE, Never, Open,
        "The filesystem has become read-only, as the kernel makes it after an error.",
        "Look at the disk's health and at `dmesg` first. If the disk is at fault, copy the data away while it can be \
         read. Then: docs/health.md, \"Mount a volume again\".";
    FilesystemShutDown: Volume, Checkup, Inaccessible, AT_ONCE, Never, Open,
        "The filesystem has shut down after an error, and answers with errors until it is mounted again.",
        "Look at the disk's health and at `dmesg` first. Then: docs/health.md, \"Mount a volume again\".";
    FilesystemErrors: Volume, Checkup, Degraded, AT_ONCE, Never, Open,
        "The filesystem has counted errors: ext4 in its own structure, btrfs in what it reads and writes.",
        "Back the data up first. ext4: docs/health.md, \"Mount a volume again\", checks it and clears the count. \
         btrfs: `btrfs scrub start`, then `btrfs device stats --reset`.";
    InodesExhausted: Volume, Checkup, Degraded, TEN_MINUTES, Never, Open,
        "The filesystem has no free inode: no file can be made, though there may be free space.",
        "Delete files that nobody needs, or expand the volume if it can grow. Of a volume that is a folder the files of \
         all volumes of its filesystem count, and to expand it helps nothing: docs/filesystem-pools.md, \"When it has no \
         inodes\".";
    HostPathNotExist: PersistentVolume, Checkup, Inaccessible, AT_ONCE, Paths, Open,
        "The path of a local PersistentVolume of another provisioner leads to nothing, or not to what the volume is: a \
         directory, or a block device.",
        "Find out who removed it, and whether its disk is there. Its pods cannot start; those that run keep what they \
         have open.";
    MisMatchedVolSize: PersistentVolume, Checkup, Degraded, AT_ONCE, Never, Open,
        "A PersistentVolume promises more than its volume or its device has; or more is used than a local one of another \
         provisioner promises.",
        "Make a PersistentVolume of the right capacity, or move its data: the pods find the disk full too early.";
    AgentSilent: Volume, Cluster, Degraded, AT_ONCE, Never, Open,
        "The agent of the volume's node does not answer. Pods that have the volume keep it; others cannot begin to use \
         it. What else is wrong with it is not known.",
        "`kubectl -n localpool get pods -o wide -l app.kubernetes.io/component=node` shows the node's pod; `kubectl \
         describe` and `kubectl logs --previous` say why it does not run.";
    NodeNotReady: Volume, Cluster, Inaccessible, AT_ONCE, All, Open,
        "The volume's node is not ready: its kubelet does not answer, or says that it cannot run pods.",
        "`kubectl describe node` says why. The volume is back when the node is back. Keep its Node object and its \
         claims: the data is on its disk. If the node never comes back: docs/troubleshooting.md, \"A node never comes \
         back\".";
    NodeGone: Volume, Cluster, Inaccessible, AT_ONCE, All, Open,
        "The Node of the volume's disk does not exist any more.",
        "If the node comes back under its name, so does the volume. If it never does: docs/troubleshooting.md, \"A \
         node never comes back\".";
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

    /// Whether the pool knows it without a checkup.
    pub fn is_known_to_pool(&self) -> bool {
        self.row().is_some_and(|row| row.source == Source::Pool)
    }

    /// Whether a PersistentVolume is marked for it. A word that is not known here marks nothing:
    /// nobody could remove it.
    pub fn marks(&self) -> bool {
        self.row().is_some_and(ReasonRow::marks)
    }

    /// Whether a disk takes no new volumes because of it. A word that is not known here keeps none away.
    pub fn cordons(&self) -> bool {
        self.row().is_some_and(|row| row.placing == Placing::Cordons)
    }

    /// A word that is not known here is no loss: what it means, its version knows.
    pub fn loss(&self) -> LossScope {
        self.row().map_or(LossScope::Never, |row| row.loss)
    }

    pub fn lasts_at_least(&self) -> Duration {
        self.row().map_or(AT_ONCE, |row| row.hold)
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
            assert_eq!((reason.word(), reason.severity(), reason.lasts_at_least()), (row.word, row.severity, row.hold));
        }
        let later = HealthReason::from("TooWarm".to_owned());
        assert_eq!((later.word(), later.severity()), ("TooWarm", Severity::Inaccessible));
    }

    #[test]
    fn what_is_only_worse_or_comes_and_goes_is_no_loss() {
        for row in REASONS {
            let reason = HealthReason::from(row.word.to_owned());
            if reason.loss() != LossScope::Never {
                assert!(row.severity >= Severity::Inaccessible && row.marks(), "{}", row.word);
            }
        }
        let lost = |scope: LossScope| {
            let words = REASONS.iter().filter(|row| row.loss == scope).map(|row| row.word);
            words.collect::<Vec<_>>().join(" ")
        };
        let own = "DiskMissing DiskNotReady DiskNotAnswering DiskReadOnly ArrayFailed VolumeMissing";
        assert_eq!(lost(LossScope::Own), own, "claims of these may be deleted: docs/reaction.md says so");
        assert_eq!(lost(LossScope::Paths), "NotMountPoint HostPathNotExist");
        assert_eq!(lost(LossScope::All), "NodeNotReady NodeGone");
        assert_eq!(HealthReason::from("TooWarm".to_owned()).loss(), LossScope::Never);
    }

    #[test]
    fn a_row_says_in_sentences_what_is_wrong_and_what_to_do() {
        let words: BTreeSet<&str> = REASONS.iter().map(|row| row.word).collect();
        assert_eq!(words.len(), REASONS.len());
        for row in REASONS {
            assert!(row.meaning.ends_with('.') && row.action.ends_with('.'), "{row:?}");
            let is_of_disk = |word: &str| word.starts_with("Disk") || word.starts_with("Array");
            assert!(row.subject != Subject::Disk || is_of_disk(row.word) || row.word == "BackgroundWorkFails");
        }
        assert!(Severity::Degraded < Severity::Inaccessible && Severity::Inaccessible < Severity::DataLoss);
    }
}
