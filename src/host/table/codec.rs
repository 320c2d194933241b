//! Bytes of a GPT: header, entry array and protective MBR, to and from a [`Table`]. Pure; the numbers in a header are
//! checked before anything is read or allocated by them.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::error::TableError;
use super::lba::Lba;
use super::name::{Name, UNITS};
use super::partitions::{ENTRY, Entry, SLOTS, Table, array_sectors};
use crate::host::extent::Extent;

pub const SIGNATURE: &[u8; 8] = b"EFI PART";
/// The last two bytes of a boot sector.
pub const BOOT_SIGNATURE: [u8; 2] = [0x55, 0xaa];
/// The MBR partition type that protects a GPT.
pub const PROTECTIVE: u8 = 0xee;
const REVISION: u32 = 0x0001_0000;
/// Bytes of a header.
const HEADER: u32 = 92;

/// A header that is sound and of a shape that we edit; the entries are not looked at yet.
#[derive(Clone, Debug)]
pub struct Header {
    /// The GUID of its disk.
    pub disk: Uuid,
    /// First and last sector for partitions.
    usable: (Lba, Lba),
    slots: u32,
    crc: u32,
    /// First sector of the entry array.
    pub array: Lba,
    /// Sector of the other header.
    pub alternate: Lba,
    own: Lba,
}

/// Bytes of that many entries.
fn array_span(entries: u32) -> usize {
    entries as usize * ENTRY as usize
}

/// Reads the header in `block`, the sector `at` of a disk whose last sector is `last`.
pub fn header(block: &[u8], at: Lba, last: Lba) -> Result<Header, TableError> {
    if block.len() < HEADER as usize || !block.starts_with(SIGNATURE) {
        return Err(TableError::NoSignature { at });
    }
    let bytes = u32_at(block, 12);
    if bytes < HEADER || bytes as usize > block.len() {
        return Err(TableError::HeaderSize { bytes });
    }
    let (stored, computed) = (u32_at(block, 16), crc_without(&block[..bytes as usize], 16));
    if stored != computed {
        return Err(TableError::HeaderCrc { stored, computed });
    }
    shape(block, bytes)?;
    let found = Header {
        own: lba_at(block, 24),
        alternate: lba_at(block, 32),
        usable: (lba_at(block, 40), lba_at(block, 48)),
        disk: guid_at(block, 56),
        array: lba_at(block, 72),
        slots: u32_at(block, 80),
        crc: u32_at(block, 88),
    };
    place(&found, block.len(), at, last)?;
    Ok(found)
}

/// Refuses what the header alone shows to be wrong: another revision, other entry counts and sizes.
fn shape(block: &[u8], bytes: u32) -> Result<(), TableError> {
    let (revision, reserved) = (u32_at(block, 8), u32_at(block, 20));
    let (slots, entry) = (u32_at(block, 80), u32_at(block, 84));
    let why = if revision != REVISION {
        format!("its revision is {revision:#010x}, not 1.0")
    } else if bytes != HEADER || reserved != 0 {
        format!("its header has {bytes} bytes, with unknown fields")
    } else if entry != ENTRY {
        format!("its entries have {entry} bytes, not {ENTRY}")
    } else if slots == 0 || slots > SLOTS {
        format!("it has {slots} entries, not 1 to {SLOTS}")
    } else {
        return Ok(());
    };
    Err(TableError::NotEdited { why })
}

/// Compares a header with where it was found: both copies must lie where we would put them, inside the disk.
fn place(header: &Header, sector: usize, at: Lba, last: Lba) -> Result<(), TableError> {
    let refuse = |why: String| Err(TableError::NotEdited { why });
    let sector = u32::try_from(sector).map_err(|_| TableError::Sector { sector: u32::MAX })?;
    let array = array_sectors(header.slots, sector);
    let Header { own, alternate, usable: (first, end), .. } = *header;
    if own != at {
        return refuse(format!("its header says that it is at sector {own}, but it is at {at}"));
    }
    let end_of_table = own.max(alternate);
    if end_of_table > last {
        return Err(TableError::Shrunk { table: end_of_table.end(sector), disk: last.end(sector) });
    }
    if own.min(alternate) != Lba::PRIMARY || end_of_table < Lba(2 * array + 3) {
        return refuse(format!("its headers are at sectors {own} and {alternate}"));
    }
    let wanted = if own == Lba::PRIMARY { Lba(2) } else { own - array };
    if header.array != wanted {
        return refuse(format!("its entries are at sector {}, not {wanted}", header.array));
    }
    if first > end || end >= end_of_table - array || first < Lba(2 + array) {
        return refuse(format!("its usable space is from sector {first} to {end}"));
    }
    Ok(())
}

/// Bytes of the entry array that a header describes, in whole sectors: at most 16 KiB.
pub fn array_bytes(header: &Header, sector: u32) -> usize {
    array_span(header.slots).next_multiple_of(sector as usize)
}

/// The table of a header and its entry array.
pub fn table(header: &Header, array: &[u8], sector: u32) -> Result<Table, TableError> {
    let used = array.get(..array_span(header.slots)).ok_or(TableError::NoSignature { at: header.array })?;
    let computed = crc32fast::hash(used);
    if computed != header.crc {
        return Err(TableError::EntriesCrc { disk: header.disk, stored: header.crc, computed });
    }
    let mut entries = BTreeMap::new();
    for (number, bytes) in (1..).zip(used.chunks_exact(ENTRY as usize)) {
        if let Some(entry) = entry(number, bytes, sector, header.usable)? {
            entries.insert(number, entry);
        }
    }
    let table = Table {
        disk: header.disk,
        sector,
        size: header.own.max(header.alternate).end(sector),
        slots: header.slots,
        usable: extent(header.usable, sector),
        entries,
    };
    table.check()?;
    Ok(table)
}

fn entry(number: u32, bytes: &[u8], sector: u32, usable: (Lba, Lba)) -> Result<Option<Entry>, TableError> {
    let kind = guid_at(bytes, 0);
    if kind.is_nil() {
        return Ok(None);
    }
    let (first, last) = (lba_at(bytes, 32), lba_at(bytes, 40));
    let place = extent((first, last), sector);
    if first > last || first < usable.0 || last > usable.1 {
        return Err(TableError::Outside { number, extent: place, usable: extent(usable, sector) });
    }
    let mut name = [0; UNITS];
    for (unit, pair) in name.iter_mut().zip(bytes[56..].chunks_exact(2)) {
        *unit = u16::from_le_bytes([pair[0], pair[1]]);
    }
    Ok(Some(Entry { kind, guid: guid_at(bytes, 16), extent: place, attributes: u64_at(bytes, 48), name: Name(name) }))
}

/// Header and entries, for one write at sector 1.
pub fn primary_bytes(table: &Table) -> Vec<u8> {
    let array = array_of(table);
    let last = Lba::last_of(table.size, table.sector);
    let mut bytes = header_of(table, &array, Lba::PRIMARY, last, Lba(2));
    bytes.extend_from_slice(&array);
    bytes
}

/// Entries and header, for one write that ends at the table's size.
pub fn backup_bytes(table: &Table) -> Vec<u8> {
    let mut bytes = array_of(table);
    let last = Lba::last_of(table.size, table.sector);
    let header = header_of(table, &bytes, last, Lba::PRIMARY, last - array_sectors(table.slots, table.sector));
    bytes.extend_from_slice(&header);
    bytes
}

/// The protective MBR: sector 0, with one record over the whole disk.
pub fn mbr_bytes(table: &Table) -> Vec<u8> {
    let mut block = vec![0; table.sector as usize];
    let sectors = u32::try_from(Lba::last_of(table.size, table.sector).0).unwrap_or(u32::MAX);
    // Not active; from head 0, sector 2, cylinder 0 (sector 1 of the disk) to the end of CHS.
    block[446..454].copy_from_slice(&[0, 0, 2, 0, PROTECTIVE, 0xff, 0xff, 0xff]);
    block[454..458].copy_from_slice(&1u32.to_le_bytes());
    block[458..462].copy_from_slice(&sectors.to_le_bytes());
    block[510..512].copy_from_slice(&BOOT_SIGNATURE);
    block
}

fn array_of(table: &Table) -> Vec<u8> {
    let mut bytes = vec![0; array_span(table.slots).next_multiple_of(table.sector as usize)];
    for (number, entry) in &table.entries {
        let Entry { kind, guid, extent, attributes, name } = entry;
        let written = &mut bytes[array_span(*number - 1)..array_span(*number)];
        written[..16].copy_from_slice(&kind.to_bytes_le());
        written[16..32].copy_from_slice(&guid.to_bytes_le());
        let (first, last) = sectors(extent, table.sector);
        written[32..40].copy_from_slice(&first.0.to_le_bytes());
        written[40..48].copy_from_slice(&last.0.to_le_bytes());
        written[48..56].copy_from_slice(&attributes.to_le_bytes());
        for (pair, unit) in written[56..].chunks_exact_mut(2).zip(name.0) {
            pair.copy_from_slice(&unit.to_le_bytes());
        }
    }
    bytes
}

fn header_of(table: &Table, array: &[u8], own: Lba, alternate: Lba, array_at: Lba) -> Vec<u8> {
    let (first, last) = sectors(&table.usable, table.sector);
    let mut block = vec![0; table.sector as usize];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, SIGNATURE);
    put(8, &REVISION.to_le_bytes());
    put(12, &HEADER.to_le_bytes());
    put(24, &own.0.to_le_bytes());
    put(32, &alternate.0.to_le_bytes());
    put(40, &first.0.to_le_bytes());
    put(48, &last.0.to_le_bytes());
    put(56, &table.disk.to_bytes_le());
    put(72, &array_at.0.to_le_bytes());
    put(80, &table.slots.to_le_bytes());
    put(84, &ENTRY.to_le_bytes());
    put(88, &crc32fast::hash(&array[..array_span(table.slots)]).to_le_bytes());
    let crc = crc32fast::hash(&block[..HEADER as usize]);
    block[16..20].copy_from_slice(&crc.to_le_bytes());
    block
}

/// The bytes of these sectors and of all between them.
fn extent((first, last): (Lba, Lba), sector: u32) -> Extent {
    Extent { start: first.start(sector), end: last.end(sector) }
}

/// The first and the last sector of an extent.
fn sectors(extent: &Extent, sector: u32) -> (Lba, Lba) {
    (Lba::at(extent.start, sector), Lba::last_of(extent.end, sector))
}

/// CRC32 of `bytes` with the four at `at` taken as zero: a checksum that lies in what it covers.
fn crc_without(bytes: &[u8], at: usize) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&bytes[..at]);
    crc.update(&[0; 4]);
    crc.update(&bytes[at + 4..]);
    crc.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes are four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes are eight bytes"))
}

fn lba_at(bytes: &[u8], at: usize) -> Lba {
    Lba(u64_at(bytes, at))
}

fn guid_at(bytes: &[u8], at: usize) -> Uuid {
    Uuid::from_bytes_le(bytes[at..at + 16].try_into().expect("sixteen bytes are sixteen bytes"))
}
