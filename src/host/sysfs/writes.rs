//! The kernel's counters of writes to a device.
//!
//! Takes in a scanned device, gives out [`WriteCounts`]. Reads sysfs only.

use std::path::Path;

use super::io_errors::folder;
use crate::host::health::WriteCounts;
use crate::host::raw::RawDisk;

/// Fields of `stat`: writes, and discards, which `inflight` has among the writes. Kernels before 4.18 count no discards.
const WRITES: usize = 4;
const DISCARDS: usize = 11;

/// `block` is /sys/block. `None` as well if the device has gone, or another one has its name.
pub(super) fn read(block: &Path, disk: &RawDisk) -> Option<WriteCounts> {
    let node = folder(block, disk)?;
    let numbers = |attribute: &str| -> Option<Vec<u64>> {
        node.text(attribute)?.split_whitespace().map(|number| number.parse().ok()).collect()
    };
    let (under_way, counted) = (numbers("inflight")?, numbers("stat")?);
    let counted = counted.get(WRITES)?.saturating_add(*counted.get(DISCARDS).unwrap_or(&0));
    Some(WriteCounts { under_way: *under_way.get(1)?, counted })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host::raw::{DevNo, DeviceKind};

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
        let counted = |disk: &RawDisk| read(machine.path(), disk);
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
}
