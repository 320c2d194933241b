//! What somebody made where a table was: the signatures that filesystems, volume groups and arrays have at the start of
//! a disk.
//!
//! Reads only, and decides nothing. Asked when a table or its MBR is damaged: something that a person made there is not
//! damage. A few well-known signatures are enough, as people seldom make anything else over a table; libblkid has the
//! whole list, but reads a device, not bytes.

use super::ends::Ends;
use crate::host::block::Geometry;

/// Name, place in bytes, and the bytes; none crosses a sector.
const KNOWN: [(&str, u64, &[u8]); 16] = [
    ("ext2, ext3 or ext4", 1080, &[0x53, 0xef]),
    ("xfs", 0, b"XFSB"),
    ("btrfs", 65600, b"_BHRfS_M"),
    ("f2fs", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    ("an LVM physical volume", 0, b"LABELONE"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("an LVM physical volume", 1024, b"LABELONE"),
    ("an LVM physical volume", 1536, b"LABELONE"),
    ("a member of an md array", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("a member of an md array", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("LUKS", 0, b"LUKS\xba\xbe"),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("bcache", 4120, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca]),
    ("a BlueStore device", 0, b"bluestore block device"),
    ("iso9660", 32769, b"CD001"),
    ("exfat", 3, b"EXFAT   "),
];

/// The first that is found. What cannot be read shows nothing.
pub(super) fn find(dev: &Ends<'_>) -> Option<&'static str> {
    let Geometry { size, sector, .. } = dev.geometry();
    let sector = u64::from(sector);
    let is_there = |at: u64, magic: &[u8]| {
        // Whole sectors only, as O_DIRECT wants.
        let start = at - at % sector;
        let mut block = vec![0; usize::try_from(sector).unwrap_or(0)];
        let within = usize::try_from(at - start).unwrap_or(block.len());
        start + sector <= size && dev.read_at(start, &mut block).is_ok() && block[within..].starts_with(magic)
    };
    KNOWN.iter().find(|(_, at, magic)| is_there(*at, magic)).map(|(name, ..)| *name)
}
