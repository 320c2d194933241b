//! The kernel's counters of a device: failed commands, writes, and for how long it was busy.
//!
//! Takes in a scanned device. `block` is /sys/block. `None` as well if the device has gone, or another one has its name.
//! Reads sysfs only.

use std::path::Path;
use std::time::Duration;

use super::directory::Directory;
use super::disk::Uevent;
use crate::host::health::{IoErrors, WriteCounts};
use crate::host::raw::RawDisk;

/// Fields of `stat`: writes, and discards, which `inflight` has among the writes. Kernels before 4.18
/// count no discards.
const WRITES: usize = 4;
const DISCARDS: usize = 11;
/// Field of `stat`: milliseconds in which at least one request was under way.
const IO_TICKS: usize = 9;

/// Failed commands to a SCSI or ATA disk; other drivers do not count.
pub(super) fn io_errors(block: &Path, disk: &RawDisk) -> Option<IoErrors> {
    let node = folder(block, disk)?;
    let count = |attribute: &str| {
        let text = node.text(attribute)?;
        u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    // Kernels before 5.17 have no counter of timeouts.
    Some(IoErrors { errors: count("device/ioerr_cnt")?, timeouts: count("device/iotmo_cnt").unwrap_or(0) })
}

/// Writes to a device.
pub(super) fn writes(block: &Path, disk: &RawDisk) -> Option<WriteCounts> {
    let node = folder(block, disk)?;
    let numbers = |attribute: &str| -> Option<Vec<u64>> {
        node.text(attribute)?.split_whitespace().map(|number| number.parse().ok()).collect()
    };
    let (under_way, counted) = (numbers("inflight")?, numbers("stat")?);
    let counted = counted.get(WRITES)?.saturating_add(*counted.get(DISCARDS).unwrap_or(&0));
    Some(WriteCounts { under_way: *under_way.get(1)?, counted })
}

/// For how long a device was busy.
pub(super) fn busy_time(block: &Path, disk: &RawDisk) -> Option<Duration> {
    let node = folder(block, disk)?;
    let ticks = node.text("stat")?.split_whitespace().nth(IO_TICKS)?.parse().ok()?;
    Some(Duration::from_millis(ticks))
}

/// The folder of this very disk.
fn folder(block: &Path, disk: &RawDisk) -> Option<Directory> {
    let node = Directory::open(&block.join(disk.name.replace('/', "!"))).ok()?;
    let uevent = Uevent::read(&node);
    (uevent.devno == Some(disk.devno) && uevent.diskseq(&node) == disk.diskseq).then_some(node)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host::raw::{DevNo, DeviceKind};

    #[test]
    fn the_counters_of_the_very_disk_are_read_where_there_are_any() {
        let machine = tempfile::tempdir().unwrap();
        let device = machine.path().join("cciss!c0d0/device");
        fs::create_dir_all(&device).unwrap();
        let write = |file: &str, text: &str| fs::write(device.join(file), text).unwrap();
        write("../uevent", "MAJOR=104\nMINOR=0\nDISKSEQ=7\n");
        let devno = DevNo { major: 104, minor: 0 };
        let named = |name: &str| RawDisk {
            diskseq: Some(7),
            ..RawDisk::named(name.into(), "/dev/x".into(), devno, DeviceKind::Disk)
        };
        let disk = named("cciss/c0d0");
        let counted = |disk: &RawDisk| io_errors(machine.path(), disk);
        assert_eq!(counted(&disk), None, "a driver that does not count");
        write("ioerr_cnt", "0x1f\n");
        assert_eq!(counted(&disk), Some(IoErrors { errors: 31, timeouts: 0 }), "an old kernel");
        write("iotmo_cnt", "0x10\n");
        assert_eq!(counted(&disk), Some(IoErrors { errors: 31, timeouts: 16 }));

        assert_eq!(counted(&RawDisk { diskseq: Some(8), ..disk.clone() }), None, "another disk has its name");
        assert_eq!(counted(&RawDisk { devno: DevNo { major: 104, minor: 16 }, ..disk.clone() }), None);
        assert_eq!(counted(&named("sda")), None, "it is gone");
        for text in ["", "0x", "many", "0xfffffffffffffffff"] {
            write("ioerr_cnt", text);
            assert_eq!(counted(&disk), None, "{text}");
        }
    }

    #[test]
    fn the_writes_of_the_very_device_are_read_and_discards_are_some() {
        let machine = tempfile::tempdir().unwrap();
        let node = machine.path().join("dm-3");
        fs::create_dir(&node).unwrap();
        let write = |file: &str, text: &str| fs::write(node.join(file), text).unwrap();
        write("uevent", "MAJOR=253\nMINOR=3\nDISKSEQ=7\n");
        write("inflight", "       1        2\n");
        write("stat", "  90 0 720 4 30 0 240 8 2 40 12 5 0 160 1 9 3\n");
        let devno = DevNo { major: 253, minor: 3 };
        let raw = RawDisk::named("dm-3".into(), "/dev/dm-3".into(), devno, DeviceKind::Disk);
        let disk = RawDisk { diskseq: Some(7), ..raw };
        let counted = |disk: &RawDisk| writes(machine.path(), disk);
        assert_eq!(counted(&disk), Some(WriteCounts { under_way: 2, counted: 35 }));
        assert_eq!(counted(&RawDisk { diskseq: Some(8), ..disk.clone() }), None, "another device has its name");
        write("stat", "  90 0 720 4 30 0 240 8 2 40 12\n");
        assert_eq!(counted(&disk), Some(WriteCounts { under_way: 2, counted: 30 }), "an old kernel");
        for (file, text) in [("stat", "90 0\n"), ("stat", "many\n"), ("inflight", "1\n"), ("inflight", "")] {
            let was = fs::read_to_string(node.join(file)).unwrap();
            write(file, text);
            assert_eq!(counted(&disk), None, "{text}");
            write(file, &was);
        }
    }

    #[test]
    fn the_time_of_the_very_device_is_read() {
        let machine = tempfile::tempdir().unwrap();
        let node = machine.path().join("sda");
        fs::create_dir(&node).unwrap();
        let write = |file: &str, text: &str| fs::write(node.join(file), text).unwrap();
        write("uevent", "MAJOR=8\nMINOR=0\nDISKSEQ=7\n");
        write("stat", "  90 0 720 4 30 0 240 8 2 1040 12 5 0 160 1 9 3\n");
        let devno = DevNo { major: 8, minor: 0 };
        let raw = RawDisk::named("sda".into(), "/dev/sda".into(), devno, DeviceKind::Disk);
        let disk = RawDisk { diskseq: Some(7), ..raw };
        assert_eq!(busy_time(machine.path(), &disk), Some(Duration::from_millis(1040)));
        assert_eq!(busy_time(machine.path(), &RawDisk { diskseq: Some(8), ..disk.clone() }), None);
        write("stat", "90 0\n");
        assert_eq!(busy_time(machine.path(), &disk), None);
    }
}
