//! What fails: disks, logical volumes, filesystems and mounts, how, and the reasons that each failure has.

use crate::csi::Use;
use crate::disks::{Bus, Disk};

/// Its set has the same name.
const SCSI: &str = "failing-scsi";
/// A physical volume of LVM. Its logical volumes are devices of the pool, each with a class of its name; a check can
/// change what they are mapped to.
pub const LVM: &str = "failing-lvm";
pub const MAPPED: [(&str, Use); 3] =
    [("failing-ext4", Use::Ext4), ("failing-xfs", Use::Xfs), ("failing-btrfs", Use::Btrfs)];
/// Failures that begin together, each with a volume of its own.
pub struct Group {
    pub name: &'static str,
    pub failures: Vec<Failure>,
    pub seen: Seen,
    pub repair: Repair,
}

pub struct Failure {
    pub class: &'static str,
    pub usage: Use,
    /// Scripts in the guest, with the paths STAGING and TARGET and the word CLASS.
    pub begins: &'static str,
    pub ends: &'static str,
    /// All that is said then, the worst first.
    pub reasons: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    ByEvent,
    AtNextCheckup,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// The end of the failure is enough.
    AtOnce,
    /// As kubelet does when no pod uses the volume any more, and then one does again.
    MountedAgain,
}

pub fn groups() -> [Group; 4] {
    [mounts(), shut_down(), error(), flakey()]
}

pub fn disks() -> [Disk; 2] {
    [Disk::new(SCSI, Bus::Scsi).mib(1500), Disk::new(LVM, Bus::Scsi).mib(1200)]
}

fn mounts() -> Group {
    let covered = |usage| failure(SCSI, usage, "mount -t tmpfs cover $TARGET", "umount $TARGET", &["WrongDevice"]);
    let above = failure(SCSI, Use::Ext4, "mount -t tmpfs cover ${TARGET%/*}", "umount ${TARGET%/*}", &["WrongDevice"]);
    let replace = "umount $TARGET; mkdir -p /run/other; mount --bind /run/other $TARGET";
    let replaced = failure(SCSI, Use::Ext4, replace, "umount $TARGET; mount --bind $STAGING $TARGET", &["WrongDevice"]);
    let remount = ["mount -o remount,ro $STAGING", "mount -o remount,rw $STAGING"];
    let read_only = failure(SCSI, Use::Xfs, remount[0], remount[1], &["FilesystemReadOnly"]);
    Group {
        name: "a mount that is hidden, replaced or made read-only is in the health of its volume by its event",
        failures: vec![covered(Use::Ext4), covered(Use::Btrfs), above, replaced, read_only],
        seen: Seen::ByEvent,
        repair: Repair::AtOnce,
    }
}

fn shut_down() -> Group {
    let of = |usage| failure(SCSI, usage, "xfs_io -x -c shutdown $TARGET", "", &["FilesystemShutDown"]);
    Group {
        name: "a filesystem that is shut down is in the health of its volume until it is mounted again",
        failures: vec![of(Use::Ext4), of(Use::Xfs)],
        seen: Seen::AtNextCheckup,
        repair: Repair::MountedAgain,
    }
}

fn error() -> Group {
    let reasons: [&[_]; 3] = [
        &["FilesystemReadOnly", "FilesystemErrors"],
        &["FilesystemShutDown"],
        &["FilesystemReadOnly", "FilesystemErrors"],
    ];
    Group {
        name: "filesystems on a mapping whose requests all fail are in the health of their volumes",
        failures: mapped("write; remap error", reasons),
        seen: Seen::AtNextCheckup,
        repair: Repair::MountedAgain,
    }
}

fn flakey() -> Group {
    let reasons: [&[_]; 3] = [
        &["FilesystemReadOnly", "FilesystemErrors"],
        &["FilesystemShutDown"],
        &["FilesystemReadOnly", "FilesystemErrors"],
    ];
    Group {
        name: "filesystems on a mapping whose writes fail are in the health of their volumes",
        failures: mapped("write; remap 'flakey BELOW 0 3600 1 error_writes'", reasons),
        seen: Seen::AtNextCheckup,
        repair: Repair::MountedAgain,
    }
}

fn mapped(begins: &'static str, reasons: [&'static [&'static str]; 3]) -> Vec<Failure> {
    let of = |((class, usage), reasons)| failure(class, usage, begins, "remap 'linear BELOW'; stop", reasons);
    MAPPED.into_iter().zip(reasons).map(of).collect()
}

fn failure(
    class: &'static str,
    usage: Use,
    begins: &'static str,
    ends: &'static str,
    reasons: &'static [&'static str],
) -> Failure {
    Failure { class, usage, begins, ends, reasons }
}
