//! The kernel's counters of failed commands to a SCSI or ATA disk.
//!
//! Takes in a scanned disk, gives out [`IoErrors`]. Reads sysfs only; other drivers do not count.

use std::path::Path;

use super::directory::Directory;
use super::disk::Uevent;
use crate::host::health::IoErrors;
use crate::host::raw::RawDisk;

/// `block` is /sys/block. `None` as well if the disk has gone, or another one has its name.
pub(super) fn read(block: &Path, disk: &RawDisk) -> Option<IoErrors> {
    let node = folder(block, disk)?;
    let count = |attribute: &str| {
        let text = node.text(attribute)?;
        u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    // Kernels before 5.17 have no counter of timeouts.
    Some(IoErrors { errors: count("device/ioerr_cnt")?, timeouts: count("device/iotmo_cnt").unwrap_or(0) })
}

/// The folder of this very disk.
pub(super) fn folder(block: &Path, disk: &RawDisk) -> Option<Directory> {
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

        assert_eq!(counted(&RawDisk { diskseq: Some(8), ..disk.clone() }), None, "another disk has its name");
        assert_eq!(counted(&RawDisk { devno: DevNo { major: 104, minor: 16 }, ..disk.clone() }), None);
        assert_eq!(counted(&named("sda")), None, "it is gone");
        for text in ["", "0x", "many", "0xfffffffffffffffff"] {
            write("ioerr_cnt", text);
            assert_eq!(counted(&disk), None, "{text}");
        }
    }
}
