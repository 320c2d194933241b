//! What fails: disks, logical volumes, filesystems and mounts, how, and the reasons that each failure has.

use serde_json::json;

use crate::bench::Bench;
use crate::csi::Use;
use crate::disks::{Bus, Disk};
use crate::guest::LIMIT;
use crate::hotplug::await_ours;

/// Each of these disks has a set of its name.
const NVME: &str = "failing-nvme";
const SCSI: &str = "failing-scsi";
const PULLED: &str = "failing-pulled";
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
    pub begins: Act,
    pub ends: Act,
    /// All that is said then, the worst first.
    pub reasons: &'static [&'static str],
    /// What is still said after the repair: a counter that has risen is held for ten minutes.
    pub held: &'static [&'static str],
}

/// A script in the guest, with the paths STAGING and TARGET and the word CLASS; then something that only QEMU can do.
pub struct Act {
    pub script: &'static str,
    pub deed: fn(&mut Bench),
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

pub fn groups() -> [Group; 6] {
    [mounts(), shut_down(), error(), flakey(), delay(), of_disks()]
}

pub fn disks() -> [Disk; 4] {
    [Disk::new(NVME, Bus::Nvme).mib(1000), scsi(), pulled(), Disk::new(LVM, Bus::Scsi).mib(1200)]
}

fn scsi() -> Disk {
    Disk::new(SCSI, Bus::Scsi).mib(1500)
}

fn pulled() -> Disk {
    Disk::new(PULLED, Bus::Scsi).mib(1000)
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

fn delay() -> Group {
    let (class, usage) = MAPPED[0];
    let (begins, ends) = ("write; remap 'delay BELOW 600000'", "remap 'linear BELOW'; stop");
    Group {
        name: "a mapping that answers no request is in the health of its volume",
        failures: vec![failure(class, usage, begins, ends, &["DiskNotAnswering"])],
        seen: Seen::AtNextCheckup,
        repair: Repair::AtOnce,
    }
}

fn mapped(begins: &'static str, reasons: [&'static [&'static str]; 3]) -> Vec<Failure> {
    let of = |((class, usage), reasons)| failure(class, usage, begins, "remap 'linear BELOW'; stop", reasons);
    MAPPED.into_iter().zip(reasons).map(of).collect()
}

fn of_disks() -> Group {
    let of = |class, usage, [script, after]: [&'static str; 2], [begins, ends]: [fn(&mut Bench); 2], reasons, held| {
        let scripts = failure(class, usage, script, after, reasons);
        let (begins, ends) = (Act { deed: begins, ..scripts.begins }, Act { deed: ends, ..scripts.ends });
        Failure { begins, ends, held, ..scripts }
    };
    let refused: &[_] = &["FilesystemReadOnly", "DiskIoErrors", "FilesystemErrors"];
    Group {
        name: "a disk that warns, refuses writes or is pulled out under load is in the health of its volume",
        failures: vec![
            of(NVME, Use::Ext4, [ANNOUNCE, ""], [warn, warn_no_more], &["DiskReadOnly", "DiskSpareLow"], &[]),
            of(SCSI, Use::Ext4, ["write", "stop"], [|_| {}; 2], refused, &["DiskIoErrors"]),
            of(
                SCSI,
                Use::Block,
                ["overwrite", "stop"],
                [refuse_writes, accept_writes],
                &["DiskIoErrors"],
                &["DiskIoErrors"],
            ),
            of(PULLED, Use::Ext4, ["write", "stop"], [pull, plug], &["DiskMissing"], &[]),
        ],
        seen: Seen::AtNextCheckup,
        repair: Repair::MountedAgain,
    }
}

/// Enables the events of an NVMe controller for critical warnings, which Linux leaves off: Set Features (09h),
/// Asynchronous Event Configuration (0Bh).
const ANNOUNCE: &str = r#"
    D=$(disk $CLASS); C=/dev/$(basename $(readlink -f /sys/block/${D#/dev/}/device))
    perl -e 'open my $f, "<", $ARGV[0] or die $!;
        my $command = pack "C x39 L2 x24", 0x09, 0x0b, 0x1ff;
        my $answer = ioctl $f, 0xc0484e41, $command;
        defined $answer && $answer == 0 or die "$answer: $!"' $C
"#;

/// Bits of the critical warning in NVMe's SMART log: the spare space is low, the media are read-only.
fn warn(bench: &mut Bench) {
    bench.guest.set(NVME, "smart_critical_warning", 0b1001);
}

fn warn_no_more(bench: &mut Bench) {
    bench.guest.set(NVME, "smart_critical_warning", 0);
}

fn refuse_writes(bench: &mut Bench) {
    let rule = |kind| json!({"event": "none", "iotype": kind, "errno": 5});
    bench.guest.reopen(
        &scsi(),
        |file| json!({"driver": "blkdebug", "image": file, "inject-error": [rule("write"), rule("write-zeroes")]}),
    );
}

fn accept_writes(bench: &mut Bench) {
    bench.guest.reopen(&scsi(), |file| file);
}

fn pull(bench: &mut Bench) {
    bench.guest.unplug(&pulled());
}

fn plug(bench: &mut Bench) {
    if bench.guest.try_run(&format!("disk {PULLED}"), LIMIT).is_err() {
        bench.guest.plug(&pulled());
    }
    await_ours(bench, PULLED);
}

fn failure(
    class: &'static str,
    usage: Use,
    begins: &'static str,
    ends: &'static str,
    reasons: &'static [&'static str],
) -> Failure {
    let act = |script| Act { script, deed: |_| {} };
    Failure { class, usage, begins: act(begins), ends: act(ends), reasons, held: &[] }
}
