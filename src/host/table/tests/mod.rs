//! Tests of the table on a disk in memory: what is written reads back, and every edit keeps to its one entry.

mod crash;
mod hostile;

use std::io::Cursor;

use super::memory::{MemoryDisk, Op};
use super::*;
use crate::host::{BlockDevice, Extent, Geometry};
use uuid::Uuid;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 16 * MIB;
const DISK: Uuid = Uuid::from_u128(0xd15c);
const LABEL: Uuid = Uuid::from_u128(0x1abe1);
const VOLUME: Uuid = Uuid::from_u128(0x7010e);
const THEIRS: Uuid = Uuid::from_u128(0x7e15);
const OURS: Ours = Ours { label: LABEL, extent: Extent { start: MIB, end: 2 * MIB }, types: &[LABEL, VOLUME] };

fn entry(kind: Uuid, guid: u128, start: u64, end: u64) -> Entry {
    let extent = Extent { start, end };
    Entry { kind, guid: Uuid::from_u128(guid), extent, attributes: 0, name: Name::tail("data") }
}

/// An unknown partition with every bit of an entry in use, its name with half a surrogate and a tail after its end.
fn unknown_entry() -> Entry {
    let mut name = [0xd800; 36];
    name[3] = 0;
    Entry { attributes: u64::MAX, name: Name(name), ..entry(THEIRS, 0xf0, 12 * MIB, 14 * MIB) }
}

/// Label, one volume with a hole before its number, and an unknown partition in the last number.
fn sample(dev: &MemoryDisk) -> Table {
    let table = Table::new(DISK, dev.geometry()).unwrap();
    let table = table.with(1, Some(entry(LABEL, 1, MIB, 2 * MIB))).unwrap();
    let table = table.with(3, Some(entry(VOLUME, 3, 2 * MIB, 4 * MIB))).unwrap();
    table.with(128, Some(unknown_entry())).unwrap()
}

fn written(sector: u32) -> (MemoryDisk, Table) {
    let dev = MemoryDisk::new(SIZE, sector);
    let table = sample(&dev);
    write_first(&dev, &OURS, &table).unwrap();
    (dev.restarted(), table)
}

fn chosen(dev: &MemoryDisk) -> Choice {
    choose(&read_copies(dev), &OURS).unwrap()
}

fn refused(dev: &MemoryDisk) -> TableRefusal {
    choose(&read_copies(dev), &OURS).unwrap_err()
}

/// The bytes of one entry in the primary array.
fn raw_entry(dev: &MemoryDisk, number: u32) -> Vec<u8> {
    dev.bytes(2 * u64::from(dev.geometry().sector) + u64::from(number - 1) * 128, 128)
}

#[test]
fn what_is_written_reads_back_from_both_copies() {
    for sector in [512, 4096] {
        let (dev, table) = written(sector);
        let copies = read_copies(&dev);
        assert_eq!(copies.primary.as_ref().unwrap(), &table);
        assert_eq!(copies.backup.as_ref().unwrap(), &table);
        assert_eq!(copies.mbr.as_ref().unwrap(), &Mbr::Protective);
        assert_eq!(choose(&copies, &OURS).unwrap(), Choice { table, good: Part::Primary, stale: vec![] });
    }
}

#[test]
fn a_dos_table_says_how_many_of_its_records_are_in_use_and_a_boot_sector_has_none() {
    let dev = MemoryDisk::new(SIZE, 512);
    let mbr = |kinds: &[(usize, u8)]| {
        let mut sector = [0; 512];
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        kinds.iter().for_each(|(record, kind)| sector[446 + 16 * record + 4] = *kind);
        dev.poke(0, &sector);
        read_copies(&dev).mbr.unwrap()
    };
    assert_eq!(mbr(&[]), Mbr::Dos { records: 0 });
    assert_eq!(mbr(&[(3, 0x83)]), Mbr::Dos { records: 1 });
    assert_eq!(mbr(&[(0, 0x83), (2, 0x82)]), Mbr::Dos { records: 2 });
}

#[test]
fn an_independent_reader_sees_the_same_partitions_at_the_same_numbers() {
    for (sector, block) in [(512, gpt::disk::LogicalBlockSize::Lb512), (4096, gpt::disk::LogicalBlockSize::Lb4096)] {
        let (dev, table) = written(sector);
        let image = Cursor::new(dev.bytes(0, SIZE));
        let config = gpt::GptConfig::new().logical_block_size(block).only_valid_headers(true);
        let disk = config.open_from_device(image).unwrap();
        assert_eq!(*disk.guid(), DISK);
        assert_eq!(disk.partitions().keys().copied().collect::<Vec<_>>(), [1, 3, 128]);
        for (number, theirs) in disk.partitions() {
            let ours = table.get(*number).unwrap();
            assert_eq!((theirs.part_type_guid.guid, theirs.part_guid), (ours.kind, ours.guid));
            assert_eq!(theirs.bytes_start(block).unwrap(), ours.extent.start);
            assert_eq!(theirs.bytes_len(block).unwrap(), ours.extent.len());
            assert_eq!((theirs.flags, &theirs.name), (ours.attributes, &ours.name.to_string()));
        }
        let mbr = gpt::mbr::ProtectiveMBR::from_bytes(&dev.bytes(0, sector.into()), block).unwrap();
        let whole = u32::try_from(SIZE / u64::from(sector) - 1).unwrap();
        assert_eq!(mbr.partition(0), Some(gpt::mbr::PartRecord::new_protective(Some(whole))));
    }
}

#[test]
fn usable_space_begins_and_ends_where_every_tool_puts_it() {
    for (sector, first, behind) in [(512, 34, 33), (4096, 6, 5)] {
        let table = sample(&MemoryDisk::new(SIZE, sector));
        let sector = u64::from(sector);
        assert_eq!(table.usable(), Extent { start: first * sector, end: SIZE - behind * sector });
        assert_eq!(table.slots(), 128);
    }
}

#[test]
fn every_copy_is_one_write_and_is_synced_before_the_next() {
    for (sector, copy) in [(512u64, 33 * 512), (4096, 5 * 4096)] {
        let dev = MemoryDisk::new(SIZE, u32::try_from(sector).unwrap());
        let table = sample(&dev);
        write_first(&dev, &OURS, &table).unwrap();
        let backup = Op::Write { offset: SIZE - copy, len: copy };
        let primary = Op::Write { offset: sector, len: copy };
        let mbr = Op::Write { offset: 0, len: sector };
        assert_eq!(dev.ops(), [backup, Op::Sync, primary, Op::Sync, mbr, Op::Sync]);

        let dev = dev.restarted();
        write_table(&dev, &OURS, &table, &table.with(3, None).unwrap()).unwrap();
        assert_eq!(dev.ops(), [backup, Op::Sync, primary, Op::Sync]);

        let dev = MemoryDisk::new(SIZE, u32::try_from(sector).unwrap());
        let bare = table.with(128, None).unwrap();
        write_first(&dev, &OURS, &bare).unwrap();
        let dev = dev.restarted();
        wipe_primary(&dev, &OURS, &bare).unwrap();
        wipe_backup(&dev, &OURS, &bare).unwrap();
        let front = Op::Write { offset: 0, len: sector + copy };
        assert_eq!(dev.ops(), [front, Op::Sync, backup, Op::Sync]);
        assert_eq!(dev.bytes(0, SIZE), vec![0; usize::try_from(SIZE).unwrap()]);
        assert_eq!(refused(&dev), TableRefusal::Absent);
    }
}

#[test]
fn a_number_never_changes_and_unknown_entries_stay_bit_for_bit() {
    for sector in [512, 4096] {
        let (dev, mut table) = written(sector);
        let theirs = raw_entry(&dev, 128);
        assert_eq!(theirs[48..56], u64::MAX.to_le_bytes());
        assert_eq!(theirs[56..64], [0, 0xd8, 0, 0xd8, 0, 0xd8, 0, 0]);
        let edits = [
            (2, Some(entry(VOLUME, 2, 6 * MIB, 7 * MIB))),
            (3, None),
            (127, Some(entry(VOLUME, 127, 2 * MIB, 3 * MIB))),
            (2, Some(Entry { attributes: 1 << 48, ..entry(VOLUME, 2, 6 * MIB, 9 * MIB) })),
        ];
        for (number, change) in edits {
            let new = table.with(number, change.clone()).unwrap();
            write_table(&dev, &OURS, &table, &new).unwrap();
            table = chosen(&dev).table;
            assert_eq!(table, new);
            assert_eq!(table.get(number), change.as_ref());
            assert_eq!(raw_entry(&dev, 128), theirs);
        }
        assert_eq!(table.entries().keys().copied().collect::<Vec<_>>(), [1, 2, 127, 128]);
    }
}

#[test]
fn an_edit_that_would_not_hold_together_is_refused_with_a_message() {
    let (_, table) = written(512);
    let at = |start, end| Some(entry(VOLUME, 9, start, end));
    let message_of = |number, entry| table.with(number, entry).unwrap_err().to_string();
    assert_eq!(message_of(0, at(5 * MIB, 6 * MIB)), "partition number 0 is not in 1..=128");
    assert_eq!(message_of(129, at(5 * MIB, 6 * MIB)), "partition number 129 is not in 1..=128");
    assert_eq!(message_of(129, None), "partition number 129 is not in 1..=128");
    assert_eq!(message_of(2, at(3 * MIB, 6 * MIB)), "partitions 3 and 2 overlap");
    assert_eq!(message_of(2, at(0, MIB)), "partition 2 at 0..1048576 is outside the usable space 17408..16760320");
    assert!(matches!(table.with(2, at(15 * MIB, SIZE)), Err(TableError::Outside { number: 2, .. })));
    assert!(matches!(table.with(2, at(5 * MIB, 5 * MIB)), Err(TableError::Bounds { number: 2, .. })));
    assert!(matches!(table.with(2, at(6 * MIB, 5 * MIB)), Err(TableError::Bounds { number: 2, .. })));
    assert!(matches!(table.with(2, at(5 * MIB + 1, 6 * MIB)), Err(TableError::Bounds { number: 2, .. })));
    assert!(matches!(table.with(2, at(5 * MIB, 6 * MIB + 511)), Err(TableError::Bounds { number: 2, .. })));
    let twin = entry(VOLUME, 3, 5 * MIB, 6 * MIB);
    assert!(matches!(table.with(2, Some(twin)), Err(TableError::Twice { .. })));
    let nil = Entry { guid: Uuid::nil(), ..entry(VOLUME, 9, 5 * MIB, 6 * MIB) };
    assert!(matches!(table.with(2, Some(nil)), Err(TableError::NilGuid { number: 2 })));
    assert!(table.with(2, at(4 * MIB, 12 * MIB)).is_ok());
}

#[test]
fn a_table_fits_only_on_a_disk_with_room_for_it() {
    let on = |size, sector, disk| Table::new(disk, Geometry { size, sector, offloads_zeroes: false });
    assert!(matches!(on(0, 512, DISK), Err(TableError::TooSmall { size: 0 })));
    assert!(matches!(on(67 * 512, 512, DISK), Err(TableError::TooSmall { .. })));
    assert_eq!(on(68 * 512, 512, DISK).unwrap().usable().len(), 512);
    assert!(matches!(on(SIZE, 520, DISK), Err(TableError::Sector { sector: 520 })));
    assert!(matches!(on(SIZE, 0, DISK), Err(TableError::Sector { sector: 0 })));
    assert!(matches!(on(SIZE, 512, Uuid::nil()), Err(TableError::NilDisk)));
}

#[test]
fn a_disk_beyond_32_bits_of_sectors_has_an_mbr_that_says_as_much_as_it_can() {
    let huge = Geometry { size: 16 << 40, sector: 512, offloads_zeroes: false };
    assert_eq!(mbr_bytes(&Table::new(DISK, huge).unwrap())[458..462], [0xff; 4]);
    let table = Table::new(DISK, huge).unwrap().with(1, Some(entry(LABEL, 1, (16 << 40) - MIB, (16 << 40) - 17408)));
    assert!(table.is_ok());
}

#[test]
fn a_table_has_room_for_128_partitions() {
    let (_, mut table) = written(512);
    let mut start = 4 * MIB;
    let free: Vec<u32> = (1..=table.slots()).filter(|number| table.get(*number).is_none()).collect();
    for number in free {
        table = table.with(number, Some(entry(VOLUME, u128::from(number) << 64, start, start + 4096))).unwrap();
        start += 4096;
    }
    assert_eq!(table.entries().len(), 128);
    assert_eq!(table.find(Uuid::from_u128(3)).unwrap().0, 3);
}

#[test]
fn a_table_that_changed_underneath_is_not_written_over() {
    let (dev, table) = written(512);
    let new = table.with(3, None).unwrap();
    let message_of = |other: &Table| {
        let dev = MemoryDisk::new(SIZE, 512);
        write_first(&dev, &OURS, other).unwrap();
        let dev = dev.restarted();
        let error = write_table(&dev, &OURS, &table, &new).unwrap_err();
        assert_eq!(dev.ops(), []);
        error.to_string()
    };
    let began = "another program has changed the table: partition ";
    assert_eq!(
        message_of(&table.with(7, Some(entry(THEIRS, 7, 5 * MIB, 6 * MIB))).unwrap()),
        format!("{began}7 is new")
    );
    assert_eq!(message_of(&table.with(3, None).unwrap()), format!("{began}3 is gone"));
    let renamed = Entry { name: Name::tail("x"), ..unknown_entry() };
    assert_eq!(message_of(&table.with(128, Some(renamed)).unwrap()), format!("{began}128 is a different one"));
    write_table(&dev, &OURS, &table, &new).unwrap();
}

#[test]
fn a_write_that_touches_what_is_not_ours_is_refused_before_anything_is_written() {
    let (dev, table) = written(512);
    let edit = |number, entry| write_table(&dev, &OURS, &table, &table.with(number, entry).unwrap()).unwrap_err();
    let a_change_is_refused =
        |error| assert!(matches!(error, TableWriteError::EntryOfOthers { number: 128 }), "{error}");
    a_change_is_refused(edit(128, None));
    a_change_is_refused(edit(128, Some(Entry { attributes: 0, ..unknown_entry() })));
    a_change_is_refused(edit(128, Some(Entry { name: Name::tail("x"), ..unknown_entry() })));
    a_change_is_refused(edit(128, Some(Entry { kind: VOLUME, ..unknown_entry() })));
    let added = edit(9, Some(entry(THEIRS, 9, 5 * MIB, 6 * MIB)));
    assert!(matches!(added, TableWriteError::EntryOfOthers { number: 9 }));
    let converted = edit(3, Some(Entry { kind: THEIRS, ..table.get(3).unwrap().clone() }));
    assert!(matches!(converted, TableWriteError::EntryOfOthers { number: 3 }));
    assert!(matches!(edit(1, None), TableWriteError::Shape { .. }));
    let moved = table.with(3, None).unwrap().with(4, table.get(3).cloned()).unwrap();
    let renumbered = write_table(&dev, &OURS, &table, &moved).unwrap_err();
    assert!(matches!(renumbered, TableWriteError::Renumbered { from: 3, to: 4, .. }));
    assert_eq!(dev.ops(), []);
}

#[test]
fn a_first_table_goes_only_where_there_is_none() {
    let (dev, table) = written(512);
    let other = Table::new(Uuid::from_u128(0xbad), dev.geometry()).unwrap();
    let other = other.with(1, Some(entry(LABEL, 1, MIB, 2 * MIB))).unwrap();
    assert!(matches!(write_first(&dev, &OURS, &other), Err(TableWriteError::Occupied { .. })));
    assert!(matches!(write_first(&dev, &OURS, &table.with(1, None).unwrap()), Err(TableWriteError::Shape { .. })));
    let dos = MemoryDisk::new(SIZE, 512);
    dos.poke(446, &[0x80, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0]);
    dos.poke(510, &[0x55, 0xaa]);
    let message = write_first(&dos, &OURS, &table).unwrap_err().to_string();
    assert_eq!(message, "the disk already holds a DOS partition table or boot sector");
    assert_eq!((dev.ops(), dos.ops()), (vec![], vec![]));
    write_first(&dev, &OURS, &table).unwrap();
}

#[test]
fn a_release_wipes_no_unknown_partition_and_no_other_disk() {
    let (dev, table) = written(512);
    assert!(matches!(wipe_primary(&dev, &OURS, &table), Err(TableWriteError::EntryOfOthers { number: 128 })));
    let bare = table.with(128, None).unwrap();
    assert!(matches!(wipe_primary(&dev, &OURS, &bare), Err(TableWriteError::EntryOfOthers { number: 128 })));
    let other = Table::new(Uuid::from_u128(0xbad), dev.geometry()).unwrap();
    assert!(matches!(wipe_primary(&dev, &OURS, &other), Err(TableWriteError::EntryOfOthers { number: 128 })));
    assert!(matches!(wipe_backup(&dev, &OURS, &bare), Err(TableWriteError::Occupied { .. })));
    assert_eq!(dev.ops(), []);

    let dev = MemoryDisk::new(SIZE, 512);
    write_first(&dev, &OURS, &bare).unwrap();
    assert!(matches!(wipe_primary(&dev, &OURS, &other), Err(TableWriteError::Occupied { .. })));
    wipe_primary(&dev, &OURS, &bare).unwrap();
    assert!(matches!(wipe_backup(&dev, &OURS, &other), Err(TableWriteError::Occupied { .. })));
    wipe_backup(&dev, &OURS, &bare).unwrap();
}

#[test]
fn a_grown_disk_keeps_its_table_until_the_table_is_grown_too() {
    for sector in [512, 4096] {
        let (small, old) = written(sector);
        let dev = small.resized(2 * SIZE);
        let copies = read_copies(&dev);
        assert_eq!(copies.backup_at, Lba::last_of(SIZE, sector));
        assert_eq!(choose(&copies, &OURS).unwrap(), Choice { table: old.clone(), good: Part::Primary, stale: vec![] });
        let edited = old.with(3, None).unwrap();
        write_table(&dev, &OURS, &old, &edited).unwrap();

        let new = edited.grown(dev.geometry().size).unwrap();
        let both = new.with(2, Some(entry(VOLUME, 2, SIZE, SIZE + MIB))).unwrap();
        assert!(matches!(write_table(&dev, &OURS, &edited, &both), Err(TableWriteError::Shape { .. })));
        write_table(&dev, &OURS, &edited, &new).unwrap();
        assert_eq!(chosen(&dev), Choice { table: new.clone(), good: Part::Primary, stale: vec![] });
        assert_eq!(new.usable().end, 2 * SIZE - (SIZE - old.usable().end));
        let behind = SIZE - old.usable().end;
        assert!(dev.bytes(old.usable().end, behind).iter().all(|byte| *byte == 0), "the old backup is left behind");
        write_table(&dev, &OURS, &new, &both).unwrap();
        assert!(matches!(new.grown(SIZE), Err(TableError::Shrunk { .. })));
    }
}

#[test]
fn a_disk_that_shrank_is_refused() {
    let (dev, _) = written(512);
    let message = refused(&dev.resized(SIZE / 2));
    assert_eq!(
        message,
        TableRefusal::OfOthers("the table is for a disk of 16777216 bytes, but this disk has 8388608".into())
    );
}

#[test]
fn looking_at_both_copies_reads_each_end_of_the_disk_once() {
    for sector in [512, 4096] {
        let (dev, table) = written(sector);
        assert_eq!(chosen(&dev).table, table);
        assert_eq!(dev.reads(), 2, "sectors of {sector} bytes");
    }
}
