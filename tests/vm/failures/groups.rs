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
const STUCK: &str = "failing-stuck";
/// A physical volume of LVM. Its logical volumes are devices of the pool, each with a class of its name; a check can
/// change what they are mapped to.
pub const LVM: &str = "failing-lvm";
pub const MAPPED: [(&str, Use); 3] =
    [("failing-ext4", Use::Ext4), ("failing-xfs", Use::Xfs), ("failing-btrfs", Use::Btrfs)];

/// An array, with a logical volume that is a device of the pool; its class has this name, too.
pub const ARRAY: &str = "failing-array";
pub const MEMBERS: [&str; 2] = ["failing-member-1", "failing-member-2"];

const FILESYSTEMS: [Use; 3] = [Use::Ext4, Use::Xfs, Use::Btrfs];

/// Failures that begin together, each with a volume of its own.
pub struct Group {
    pub name: &'static str,
    pub failures: Vec<Failure>,
    pub noticed: Noticed,
    pub gone: Noticed,
    pub repair: Repair,
}

pub struct Failure {
    pub class: &'static str,
    pub usage: Use,
    pub begins: Act,
    /// A command that succeeds as soon as the kernel itself knows of it.
    pub shows: &'static str,
    pub ends: Act,
    /// All that is said then, the worst first.
    pub reasons: &'static [&'static str],
    /// What is still said after the repair: a counter that has risen is held for ten minutes. Nothing makes
    /// them shorter here, as the product has no switch for it and its clock cannot be set; a unit test of the
    /// checkup sees their end.
    pub held: &'static [&'static str],
}

/// A script in the guest, with the paths STAGING and TARGET and the word CLASS; then something that only QEMU can do.
pub struct Act {
    pub script: &'static str,
    pub deed: fn(&mut Bench),
}

/// What makes the checkup due that has the news.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Noticed {
    /// The kernel tells it.
    ByEvent,
    /// Any event.
    AtNextCheckup,
    /// Any event, when there was silence for so many seconds, and other checkups saw it.
    AfterSilence(u32),
    /// Nothing but the time.
    ByTime,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// The end of the failure is enough.
    AtOnce,
    /// As kubelet does when no pod uses the volume any more, and then one does again.
    MountedAgain,
}

pub fn groups() -> [Group; 10] {
    [
        mounts(),
        shut_down(),
        error(),
        flakey(),
        no_answer(),
        array(),
        warnings(),
        refused(),
        pulled_out(),
        writes_stuck(),
    ]
}

/// Disks of the pool.
pub fn pooled() -> [Disk; 4] {
    [Disk::new(NVME, Bus::Nvme).mib(1000), scsi(), pulled(), stuck()]
}

/// Disks that devices of the pool are made of.
pub fn below() -> [Disk; 3] {
    let [one, other] = MEMBERS.map(|name| Disk::new(name, Bus::Scsi).mib(200));
    [Disk::new(LVM, Bus::Scsi).mib(1200), one, other]
}

fn scsi() -> Disk {
    Disk::new(SCSI, Bus::Scsi).mib(3000)
}

fn pulled() -> Disk {
    Disk::new(PULLED, Bus::Scsi).mib(1000)
}

/// Of virtio, whose writes the kernel counts as under way until they end.
fn stuck() -> Disk {
    Disk::new(STUCK, Bus::Virtio).mib(1000)
}

fn mounts() -> Group {
    let wrong = |usage, begins, ends| failure(SCSI, usage, [begins, ends], &["WrongDevice"]);
    let covered = |usage| wrong(usage, "mount -t tmpfs cover $TARGET", "umount $TARGET");
    let replace = "umount $TARGET; mkdir -p /run/other; mount --bind /run/other $TARGET";
    let replaced = |usage| wrong(usage, replace, "umount $TARGET; mount --bind $STAGING $TARGET");
    let remount = ["mount -o remount,ro $STAGING", "mount -o remount,rw $STAGING"];
    let read_only = |usage| failure(SCSI, usage, remount, &["FilesystemReadOnly"]);
    let above = wrong(Use::Ext4, "mount -t tmpfs cover ${TARGET%/*}", "umount ${TARGET%/*}");
    let of_each = FILESYSTEMS.into_iter().flat_map(|usage| [covered(usage), replaced(usage), read_only(usage)]);
    Group {
        name: "a mount that is hidden, replaced or made read-only is in the health of its volume by its event",
        failures: of_each.chain([above]).collect(),
        noticed: Noticed::ByEvent,
        gone: Noticed::ByEvent,
        repair: Repair::AtOnce,
    }
}

fn shut_down() -> Group {
    let of = |usage| failure(SCSI, usage, ["xfs_io -x -c shutdown $TARGET", ""], &["FilesystemShutDown"]);
    Group {
        name: "a filesystem that is shut down is in the health of its volume until it is mounted again",
        failures: vec![of(Use::Ext4), of(Use::Xfs)],
        noticed: Noticed::AtNextCheckup,
        gone: Noticed::ByEvent,
        repair: Repair::MountedAgain,
    }
}

/// Of ext4, xfs and btrfs, whose writes fail.
const WRITES_FAIL: [&[&str]; 3] =
    [&["FilesystemReadOnly", "FilesystemErrors"], &["FilesystemShutDown"], &["FilesystemReadOnly", "FilesystemErrors"]];
/// The kernel refuses writes to the filesystem. Each try makes a new file: ext4 whose journal has aborted still lets
/// the times of a file that exists be set, and forgets them.
const REFUSES: &str = "! mktemp $TARGET/refused.XXXXXX >/dev/null";

fn error() -> Group {
    Group {
        name: "filesystems on a mapping whose requests all fail are in the health of their volumes",
        failures: mapped("write; remap error", REFUSES, WRITES_FAIL),
        noticed: Noticed::AtNextCheckup,
        gone: Noticed::ByEvent,
        repair: Repair::MountedAgain,
    }
}

fn flakey() -> Group {
    Group {
        name: "filesystems on a mapping whose writes fail are in the health of their volumes",
        failures: mapped("write; remap 'flakey BELOW 0 3600 1 error_writes'", REFUSES, WRITES_FAIL),
        noticed: Noticed::AtNextCheckup,
        gone: Noticed::ByEvent,
        repair: Repair::MountedAgain,
    }
}

fn no_answer() -> Group {
    Group {
        name: "a mapping that answers no request is in the health of its volume, whichever filesystem it has",
        failures: mapped("write; remap 'delay BELOW 600000'", "true", [&["DiskNotAnswering"]; 3]),
        noticed: Noticed::AfterSilence(25),
        // Late answers are events.
        gone: Noticed::ByEvent,
        repair: Repair::AtOnce,
    }
}

fn array() -> Group {
    let fail = "mdadm --quiet /dev/md/$CLASS --fail $(disk failing-member-2)";
    let add = "grep -q '(F)' /proc/mdstat || exit 0
        D=$(disk failing-member-2); A=/dev/md/$CLASS
        mdadm --quiet $A --remove $D; mdadm --quiet $A --add $D; mdadm --quiet --wait $A || true";
    Group {
        name: "an array that lacks a member is in the health of its volume by its event, until it has one again",
        failures: vec![failure(ARRAY, Use::Ext4, [fail, add], &["ArrayDegraded"])],
        noticed: Noticed::ByEvent,
        gone: Noticed::ByEvent,
        repair: Repair::AtOnce,
    }
}

fn mapped(begins: &'static str, shows: &'static str, reasons: [&'static [&'static str]; 3]) -> Vec<Failure> {
    let of = |((class, usage), reasons)| Failure {
        shows,
        ..failure(class, usage, [begins, "remap 'linear BELOW'; stop"], reasons)
    };
    MAPPED.into_iter().zip(reasons).map(of).collect()
}

fn warnings() -> Group {
    // A temperature comes and goes, so it is held.
    let held: &[_] = &["DiskTemperature"];
    let reasons = &["DiskReadOnly", "DiskFailing", "DiskSpareLow", "DiskTemperature"];
    let of = |usage| Failure { held, ..failure(NVME, usage, ["", ""], reasons) };
    let [ext4, xfs, btrfs] = FILESYSTEMS.map(of);
    let [begins, ends] = [Act { script: ANNOUNCE, deed: warn }, Act { script: "", deed: warn_no_more }];
    Group {
        name: "an NVMe disk that warns is in the health of its volumes, and no event tells that it warns no more",
        failures: vec![ext4, xfs, Failure { begins, ends, ..btrfs }],
        noticed: Noticed::ByEvent,
        gone: Noticed::ByTime,
        repair: Repair::AtOnce,
    }
}

fn refused() -> Group {
    let held: &[_] = &["DiskIoErrors"];
    let of = |usage, reasons| Failure { shows: REFUSES, held, ..failure(SCSI, usage, ["write", "stop"], reasons) };
    let [begins, ends] =
        [Act { script: "overwrite", deed: refuse_writes }, Act { script: "stop", deed: accept_writes }];
    Group {
        name: "a disk that refuses writes is in the health of its volumes, with what it makes of their filesystems",
        failures: vec![
            of(Use::Ext4, &["FilesystemReadOnly", "DiskIoErrors", "FilesystemErrors"]),
            of(Use::Xfs, &["FilesystemShutDown", "DiskIoErrors"]),
            of(Use::Btrfs, &["FilesystemReadOnly", "DiskIoErrors", "FilesystemErrors"]),
            Failure { shows: "true", begins, ends, ..of(Use::Block, held) },
        ],
        noticed: Noticed::AtNextCheckup,
        gone: Noticed::ByEvent,
        repair: Repair::MountedAgain,
    }
}

fn pulled_out() -> Group {
    let of = |usage| failure(PULLED, usage, ["write", "stop"], &["DiskMissing"]);
    let [ext4, xfs, btrfs] = FILESYSTEMS.map(of);
    let [begins, ends] = [Act { script: "write", deed: pull }, Act { script: "stop", deed: plug }];
    Group {
        name: "a disk that is pulled out under load is in the health of its volumes by its event",
        failures: vec![ext4, xfs, Failure { begins, ends, ..btrfs }],
        noticed: Noticed::ByEvent,
        gone: Noticed::ByEvent,
        repair: Repair::MountedAgain,
    }
}

fn writes_stuck() -> Group {
    let held: &[_] = &["DiskWritesStuck"];
    let of = |usage| Failure { held, ..failure(STUCK, usage, ["write", ""], held) };
    let [ext4, xfs, btrfs] = FILESYSTEMS.map(of);
    let [begins, ends] = [Act { script: "write", deed: freeze_writes }, Act { script: "", deed: thaw }];
    Group {
        name: "a disk that answers reads and ends no write is in the health of its volumes after a minute",
        failures: vec![ext4, xfs, Failure { begins, ends, ..btrfs }],
        noticed: Noticed::AfterSilence(62),
        gone: Noticed::ByEvent,
        repair: Repair::AtOnce,
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

/// Bits 0 to 3 of the critical warning in NVMe's SMART log: the spare space is low, the temperature is beyond its limits,
/// media errors degrade the reliability, the media are read-only.
fn warn(bench: &mut Bench) {
    bench.guest.set(NVME, "smart_critical_warning", 0b1111);
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

fn freeze_writes(bench: &mut Bench) {
    bench.guest.freeze_writes(&stuck());
}

/// Writers that wait for a write cannot be stopped.
fn thaw(bench: &mut Bench) {
    bench.guest.thaw(&stuck());
    bench.guest.run("systemctl stop 'writer-*'");
}

fn failure(
    class: &'static str,
    usage: Use,
    [begins, ends]: [&'static str; 2],
    reasons: &'static [&'static str],
) -> Failure {
    let act = |script| Act { script, deed: |_| {} };
    Failure { class, usage, begins: act(begins), shows: "true", ends: act(ends), reasons, held: &[] }
}
