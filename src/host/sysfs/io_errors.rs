//! The kernel's counters of a disk: the failed commands to it where its driver counts them (SCSI and ATA), and the
//! requests that wait.
//!
//! Takes in a scanned disk, gives out [`IoErrors`] and [`Requests`]. Reads sysfs only.

use std::path::Path;

use super::directory::Directory;
use super::disk::Uevent;
use crate::host::health::{IoErrors, Requests};
use crate::host::raw::RawDisk;

/// Fields of `stat`: what reads, writes, discards and flushes have ended, and what is in flight.
const ENDED: [usize; 4] = [0, 4, 11, 15];
const IN_FLIGHT: usize = 8;

/// `block` is /sys/block. `None` as well if the disk has gone, or another one has its name.
pub(super) fn read(block: &Path, disk: &RawDisk) -> Option<IoErrors> {
    let node = of_disk(block, disk)?;
    let count = |attribute: &str| {
        let text = node.text(attribute)?;
        u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    // Kernels before 5.17 have no counter of timeouts.
    Some(IoErrors { errors: count("device/ioerr_cnt")?, timeouts: count("device/iotmo_cnt").unwrap_or(0) })
}

pub(super) fn requests(block: &Path, disk: &RawDisk) -> Option<Requests> {
    let node = of_disk(block, disk)?;
    let text = node.text("stat")?;
    let fields: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    // Kernels before 5.5 count no flushes.
    let ended = ENDED.iter().filter_map(|field| fields.get(*field)).fold(0, |sum: u64, count| sum.wrapping_add(*count));
    Some(Requests { ended, waiting: *fields.get(IN_FLIGHT)?, is_exact: node.child("mq").is_ok() })
}

fn of_disk(block: &Path, disk: &RawDisk) -> Option<Directory> {
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
        let counted = |disk: &RawDisk| read(machine.path(), disk);
        assert_eq!(counted(&disk), None, "a driver that does not count");
        write("ioerr_cnt", "0x1f\n");
        assert_eq!(counted(&disk), Some(IoErrors { errors: 31, timeouts: 0 }), "an old kernel");
        write("iotmo_cnt", "0x10\n");
        assert_eq!(counted(&disk), Some(IoErrors { errors: 31, timeouts: 16 }));

        let waits = |disk: &RawDisk| requests(machine.path(), disk);
        let of = |ended, waiting, is_exact| Some(Requests { ended, waiting, is_exact });
        assert_eq!(waits(&disk), None, "no such attribute");
        write("../stat", "  7 0 64 9   20 0 8 3   2 50 60   300 0 0 0   4000 1\n");
        assert_eq!(waits(&disk), of(4327, 2, false));
        write("../stat", "7 0 64 9 20 0 8 3 2 50 60\n");
        fs::create_dir(device.with_file_name("mq")).unwrap();
        assert_eq!(waits(&disk), of(27, 2, true), "an old kernel");
        for text in ["", "7 0 64\n", "many"] {
            write("../stat", text);
            assert_eq!(waits(&disk), None, "{text}");
        }

        assert_eq!(counted(&RawDisk { diskseq: Some(8), ..disk.clone() }), None, "another disk has its name");
        assert_eq!(counted(&RawDisk { devno: DevNo { major: 104, minor: 16 }, ..disk.clone() }), None);
        assert_eq!(counted(&named("sda")), None, "it is gone");
        for text in ["", "0x", "many", "0xfffffffffffffffff"] {
            write("ioerr_cnt", text);
            assert_eq!(counted(&disk), None, "{text}");
        }
    }
}
