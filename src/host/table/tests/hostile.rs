//! Tables that somebody made to do harm, or that bit rot made: refused in words, never a panic, never an allocation of
//! a size that the disk names.

use proptest::prelude::*;

use super::*;

/// MBR, header and 128 entries of a disk with sectors of 512 bytes.
const LONGEST_READ: usize = 2 * 512 + 16384;
const ENTRY_BYTES: u64 = 128;

/// Recomputes the checksums of the header at sector `at`, over as many of the bytes that it names as exist.
fn seal(dev: &MemoryDisk, at: u64) {
    let start = at * u64::from(dev.geometry().sector);
    let word = |offset| u32::from_le_bytes(dev.bytes(start + offset, 4).try_into().unwrap());
    let array = u64::from_le_bytes(dev.bytes(start + 72, 8).try_into().unwrap());
    let length = (u64::from(word(80)) * u64::from(word(84))).min(16384);
    if let Some(from) = array.checked_mul(u64::from(dev.geometry().sector)).filter(|from| *from < SIZE - length) {
        dev.poke(start + 88, &crc32fast::hash(&dev.bytes(from, length)).to_le_bytes());
    }
    dev.poke(start + 16, &[0; 4]);
    let covered = dev.bytes(start, u64::from(word(12)).min(u64::from(dev.geometry().sector)));
    dev.poke(start + 16, &crc32fast::hash(&covered).to_le_bytes());
}

/// A disk whose primary header has `bytes` at `offset`, with checksums that are right.
fn with_header(offset: u64, bytes: &[u8]) -> MemoryDisk {
    let (dev, _) = written(512);
    dev.poke(512 + offset, bytes);
    seal(&dev, 1);
    dev
}

/// The same for an entry of the primary array.
fn with_entry(number: u64, offset: u64, bytes: &[u8]) -> MemoryDisk {
    let (dev, _) = written(512);
    dev.poke(1024 + (number - 1) * ENTRY_BYTES + offset, bytes);
    seal(&dev, 1);
    dev
}

fn says(dev: &MemoryDisk) -> String {
    let message = read_copies(dev).primary.unwrap_err().to_string();
    assert!(matches!(refused(dev), TableRefusal::OfOthers(_)), "{message}: a sealed table must not be written over");
    assert!(dev.largest_read() <= LONGEST_READ, "{} bytes were read", dev.largest_read());
    message
}

#[test]
fn a_sealed_copy_of_our_own_table_is_still_our_table() {
    assert_eq!(chosen(&with_header(0, b"EFI PART")).stale, []);
    assert_eq!(chosen(&with_entry(3, 48, &[0; 8])).stale, []);
}

#[test]
fn tables_of_another_shape_are_named_and_not_edited() {
    let began = "a GPT that localpool does not edit: ";
    assert_eq!(
        says(&with_header(80, &u32::MAX.to_le_bytes())),
        format!("{began}it has 4294967295 entries, not 1 to 128")
    );
    assert_eq!(says(&with_header(80, &129u32.to_le_bytes())), format!("{began}it has 129 entries, not 1 to 128"));
    assert_eq!(says(&with_header(80, &[0; 4])), format!("{began}it has 0 entries, not 1 to 128"));
    assert_eq!(says(&with_header(84, &256u32.to_le_bytes())), format!("{began}its entries have 256 bytes, not 128"));
    assert_eq!(says(&with_header(84, &[0; 4])), format!("{began}its entries have 0 bytes, not 128"));
    assert_eq!(says(&with_header(8, &[0, 0, 2, 0])), format!("{began}its revision is 0x00020000, not 1.0"));
    assert_eq!(says(&with_header(20, &[1])), format!("{began}its header has 92 bytes, with unknown fields"));
    assert_eq!(
        says(&with_header(12, &96u32.to_le_bytes())),
        format!("{began}its header has 96 bytes, with unknown fields")
    );
    assert_eq!(
        says(&with_header(24, &2u64.to_le_bytes())),
        format!("{began}its header says that it is at sector 2, but it is at 1")
    );
    assert_eq!(says(&with_header(72, &3u64.to_le_bytes())), format!("{began}its entries are at sector 3, not 2"));
    assert_eq!(
        says(&with_header(72, &u64::MAX.to_le_bytes())),
        format!("{began}its entries are at sector {}, not 2", u64::MAX)
    );
    assert_eq!(says(&with_header(32, &40u64.to_le_bytes())), format!("{began}its headers are at sectors 1 and 40"));
    assert_eq!(says(&with_header(32, &[0; 8])), format!("{began}its headers are at sectors 1 and 0"));
}

#[test]
fn numbers_that_leave_the_disk_are_refused() {
    assert!(
        says(&with_header(32, &u64::MAX.to_le_bytes()))
            .starts_with("the table is for a disk of 18446744073709551615 bytes")
    );
    assert!(says(&with_header(40, &[0; 8])).contains("its usable space is from sector 0 to"));
    assert!(says(&with_header(48, &u64::MAX.to_le_bytes())).contains("to 18446744073709551615"));
    assert!(says(&with_header(48, &33u64.to_le_bytes())).contains("its usable space is from sector 34 to 33"));
    assert!(
        says(&with_header(48, &(SIZE / 512 - 33).to_le_bytes()))
            .contains("its usable space is from sector 34 to 32735")
    );
    assert_eq!(says(&with_header(56, &[0; 16])), "the disk GUID is nil");
    assert!(says(&with_entry(3, 32, &1u64.to_le_bytes())).starts_with("partition 3 at "));
    assert!(says(&with_entry(3, 40, &u64::MAX.to_le_bytes())).starts_with("partition 3 at "));
    assert!(says(&with_entry(3, 40, &(SIZE / 512 - 33).to_le_bytes())).starts_with("partition 3 at "));
    assert!(says(&with_entry(3, 40, &4095u64.to_le_bytes())).starts_with("partition 3 at "));
}

#[test]
fn entries_that_overlap_or_share_a_guid_are_refused() {
    assert_eq!(says(&with_entry(3, 32, &4000u64.to_le_bytes())), "partitions 1 and 3 overlap");
    let twin = Uuid::from_u128(1);
    assert_eq!(says(&with_entry(3, 16, &twin.to_bytes_le())), format!("partitions 1 and 3 both have the GUID {twin}"));
    assert_eq!(says(&with_entry(3, 16, &[0; 16])), "partition 3 has a nil GUID");
}

#[test]
fn bad_checksums_are_told_apart_and_fall_back_to_the_backup() {
    let (dev, table) = written(512);
    dev.flip(512 + 88, 1);
    assert!(matches!(read_copies(&dev).primary, Err(TableError::HeaderCrc { .. })));
    assert_eq!(chosen(&dev).table, table);
    let (dev, table) = written(512);
    dev.flip(1024 + 127 * ENTRY_BYTES, 0x80);
    assert!(matches!(read_copies(&dev).primary, Err(TableError::EntriesCrc { disk: DISK, .. })));
    assert_eq!(chosen(&dev).table, table);
    dev.flip(SIZE - 512 + 57, 1);
    let TableRefusal::OfOthers(message) = refused(&dev) else { panic!("two damaged copies are nobody's to mend") };
    assert!(message.starts_with("a damaged GPT: the checksum of the partition entries is "), "{message}");
}

#[test]
fn a_header_of_an_impossible_length_is_damage() {
    for bytes in [0, 91, 513, u32::MAX] {
        let (dev, table) = written(512);
        dev.poke(512 + 12, &bytes.to_le_bytes());
        assert!(matches!(read_copies(&dev).primary, Err(TableError::HeaderSize { .. })));
        assert_eq!(chosen(&dev).table, table);
    }
}

#[test]
fn every_flipped_byte_of_a_copy_is_noticed_and_the_other_copy_is_used() {
    for sector in [512, 4096] {
        let (dev, table) = written(sector);
        let sector = u64::from(sector);
        // Each byte of the header, of the used entries and of an empty one; every 61st of the other entries.
        let in_array =
            (0..4 * ENTRY_BYTES).chain((4 * ENTRY_BYTES..16384).step_by(61)).chain(16384 - ENTRY_BYTES..16384);
        let primary = (0..92).map(|at| sector + at).chain(in_array.clone().map(|at| 2 * sector + at));
        let backup = (0..92).map(|at| SIZE - sector + at).chain(in_array.map(|at| SIZE - sector - 16384 + at));
        for (offset, stale) in primary.map(|at| (at, Part::Primary)).chain(backup.map(|at| (at, Part::Backup))) {
            let mask = [1, 0x10, 0xff][usize::try_from(offset % 3).unwrap()];
            dev.flip(offset, mask);
            let choice = chosen(&dev);
            assert_eq!((choice.stale, choice.table == table), (vec![stale], true), "byte {offset}");
            dev.flip(offset, mask);
        }
        assert_eq!(chosen(&dev).stale, []);
    }
}

#[test]
fn a_lone_backup_counts_only_with_our_label() {
    for sector in [512, 4096] {
        let (dev, table) = written(sector);
        dev.poke(0, &vec![0; usize::try_from(2 * MIB).unwrap()]);
        assert_eq!(chosen(&dev), Choice { table, good: Part::Backup, stale: vec![Part::Primary, Part::Mbr] });

        let strange = Ours { label: THEIRS, ..OURS };
        let refusal = choose(&read_copies(&dev), &strange).unwrap_err();
        assert!(
            matches!(&refusal, TableRefusal::OfOthers(message) if message.starts_with("a backup GPT without localpool's label"))
        );
        let elsewhere = Ours { extent: Extent { start: MIB, end: 3 * MIB }, ..OURS };
        assert!(matches!(choose(&read_copies(&dev), &elsewhere), Err(TableRefusal::OfOthers(_))));
    }
}

#[test]
fn a_table_for_the_other_sector_size_is_seen() {
    for (sector, other) in [(512, 4096), (4096, 512)] {
        let (source, _) = written(other);
        let dev = MemoryDisk::new(SIZE, sector);
        dev.poke(0, &source.bytes(0, MIB));
        dev.poke(SIZE - MIB, &source.bytes(SIZE - MIB, MIB));
        dev.poke(510, &[0; 2]);
        let message = format!("a GPT for sectors of {other} bytes");
        assert_eq!(refused(&dev), TableRefusal::OfOthers(message.clone()));
        dev.poke(0, &vec![0; usize::try_from(MIB).unwrap()]);
        assert_eq!(refused(&dev), TableRefusal::OfOthers(message), "a lone backup");
    }
}

#[test]
fn an_mbr_with_partitions_beside_our_table_is_refused() {
    let (dev, _) = written(512);
    dev.poke(462, &[0x80, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0]);
    assert_eq!(refused(&dev), TableRefusal::Broken("localpool's table under a hybrid MBR".into()));
    dev.poke(446, &[0; 16]);
    assert_eq!(
        refused(&dev),
        TableRefusal::Broken("localpool's table under a DOS partition table or boot sector".into())
    );
    assert!(matches!(repair(&dev, &OURS, &sample(&dev)), Err(TableWriteError::Refused(_))));
    assert_eq!(dev.ops(), []);
}

#[test]
fn two_tables_of_two_disks_are_not_mended_into_one() {
    let (dev, _) = written(512);
    let (other, _) = written(512);
    other.poke(SIZE - 512 + 56, &Uuid::from_u128(0xbad).to_bytes_le());
    seal(&other, SIZE / 512 - 1);
    dev.poke(SIZE - MIB, &other.bytes(SIZE - MIB, MIB));
    assert!(
        matches!(refused(&dev), TableRefusal::Broken(message) if message.starts_with("two partition tables, of disk "))
    );
    dev.flip(1024, 1);
    assert!(matches!(refused(&dev), TableRefusal::Broken(_)), "a primary with torn entries still says whose it is");
}

#[test]
fn a_protective_mbr_alone_is_not_a_blank_disk() {
    let (dev, _) = written(512);
    dev.poke(512, &vec![0; 33 * 512]);
    dev.poke(SIZE - 33 * 512, &vec![0; 33 * 512]);
    assert_eq!(refused(&dev), TableRefusal::OfOthers("a protective MBR without a GPT".into()));
}

/// Every sector of both ends of a disk: of the MBR, of the primary, of the backup.
fn sectors_of_tables(sector: u64) -> Vec<Extent> {
    let copy = 1 + (128 * 128_u64).div_ceil(sector);
    let ends = (0..=copy).chain(SIZE / sector - copy..SIZE / sector);
    ends.map(|n| Extent { start: n * sector, end: (n + 1) * sector }).collect()
}

#[test]
fn each_sector_of_our_tables_that_cannot_be_read_is_written_again_from_the_other_copy() {
    for sector in [512, 4096] {
        for lost in sectors_of_tables(u64::from(sector)) {
            let (dev, table) = written(sector);
            dev.break_range(lost);
            let choice = chosen(&dev);
            assert_eq!(choice.table, table, "{lost}");
            assert_eq!(choice.stale.len(), 1, "{lost}: {choice:?}");
            repair(&dev, &OURS, &table).unwrap();
            assert_eq!(chosen(&dev), Choice { table, good: Part::Primary, stale: vec![] }, "{lost}");
        }
    }
    // What a drive with large physical sectors loses at once at the front.
    let (dev, table) = written(512);
    dev.break_range(Extent { start: 0, end: 4096 });
    repair(&dev, &OURS, &table).unwrap();
    assert_eq!(chosen(&dev), Choice { table, good: Part::Primary, stale: vec![] });
}

#[test]
fn a_disk_with_a_sector_of_its_tables_that_cannot_be_read_is_released_all_the_same() {
    for sector in [512, 4096] {
        for lost in sectors_of_tables(u64::from(sector)) {
            let (dev, table) = written(sector);
            let table = table.with(128, None).unwrap();
            let dev = MemoryDisk::new(dev.geometry().size, sector);
            write_first(&dev, &OURS, &table).unwrap();
            dev.break_range(lost);
            wipe_primary(&dev, &OURS, &table).unwrap_or_else(|e| panic!("{lost}: {e}"));
            wipe_backup(&dev, &OURS, &table).unwrap_or_else(|e| panic!("{lost}: {e}"));
            assert_eq!(refused(&dev), TableRefusal::Absent, "{lost}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_not_written_over_where_nothing_beside_it_is_ours() {
    for lost in sectors_of_tables(512).into_iter().filter(|lost| lost.start < SIZE / 2) {
        let dev = MemoryDisk::new(SIZE, 512);
        dev.break_range(lost);
        assert!(matches!(refused(&dev), TableRefusal::Unreadable(_) | TableRefusal::Absent), "{lost}");
    }
    let header = Extent { start: 512, end: 1024 };
    let dev = MemoryDisk::new(SIZE, 512);
    let other = sample(&dev).with(1, None).unwrap();
    dev.poke(SIZE - 33 * 512, &backup_bytes(&other));
    dev.break_range(header);
    assert!(matches!(refused(&dev), TableRefusal::Unreadable(_)), "the backup is somebody's");

    let (dev, table) = written(512);
    dev.break_range(header);
    dev.poke(SIZE - 512, &[0; 512]);
    assert!(matches!(refused(&dev), TableRefusal::Unreadable(_)), "no copy is left");
    assert!(repair(&dev, &OURS, &table).is_err() && wipe_primary(&dev, &OURS, &table).is_err());
    assert_eq!(dev.ops(), []);

    // A primary whose header names another disk is that disk's, though its entries cannot be read.
    let (dev, _) = written(512);
    dev.poke(512 + 56, &Uuid::from_u128(0xbad).to_bytes_le());
    seal(&dev, 1);
    dev.break_range(Extent { start: 1024, end: 1536 });
    assert!(matches!(refused(&dev), TableRefusal::Broken(_)));
}

#[test]
fn disks_too_small_for_anything_are_refused_and_not_read_past_their_end() {
    for sector in [512, 4096] {
        for sectors in 0..70 {
            let dev = MemoryDisk::new(sectors * u64::from(sector), sector);
            read_copies(&dev);
            assert!(choose(&read_copies(&dev), &OURS).is_err());
        }
    }
    assert!(matches!(read_copies(&MemoryDisk::new(SIZE, 520)).primary, Err(TableError::Sector { sector: 520 })));
}

/// Bytes at places where a table has meaning, with values that are near a limit or anything.
fn pokes() -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
    let places =
        prop_oneof![512u64..604, 1024u64..1536, SIZE - 512..SIZE - 420, SIZE - 33 * 512..SIZE - 31 * 512, 446u64..512];
    let number = prop_oneof![Just(0u64), Just(u64::MAX), Just(SIZE / 512), Just(33), any::<u64>()];
    let bytes =
        prop_oneof![number.prop_map(|n| n.to_le_bytes().to_vec()), proptest::collection::vec(any::<u8>(), 1..16)];
    proptest::collection::vec((places, bytes), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_reading_panic_or_allocate_much(pokes in pokes(), sealed in any::<[bool; 2]>()) {
        let (dev, _) = written(512);
        for (offset, bytes) in &pokes {
            dev.poke(*offset, &bytes[..bytes.len().min(usize::try_from(SIZE - offset).unwrap())]);
        }
        for (at, sealed) in [1, SIZE / 512 - 1].into_iter().zip(sealed) {
            if sealed {
                seal(&dev, at);
            }
        }
        let copies = read_copies(&dev);
        prop_assert!(dev.largest_read() <= LONGEST_READ);
        for table in [&copies.primary, &copies.backup].into_iter().flatten() {
            prop_assert!(table.check().is_ok());
            prop_assert_eq!(primary_bytes(table).len(), 512 + usize::try_from(table.slots()).unwrap().div_ceil(4) * 512);
        }
        if let Ok(choice) = choose(&copies, &OURS) {
            prop_assert!(choice.table.is_ours(&OURS));
            repair(&dev, &OURS, &choice.table).unwrap();
            prop_assert_eq!(chosen(&dev), Choice { good: Part::Primary, stale: vec![], ..choice });
        }
    }

    #[test]
    fn no_sector_at_all_makes_the_header_reader_panic(block in proptest::collection::vec(any::<u8>(), 0..600), at in any::<u64>(), last in any::<u64>()) {
        let mut block = block;
        let _ = codec::header(&block, Lba(at), Lba(last));
        if block.len() >= 92 {
            block[..8].copy_from_slice(b"EFI PART");
            block[12..16].copy_from_slice(&92u32.to_le_bytes());
            block[16..20].fill(0);
            let crc = crc32fast::hash(&block[..92]);
            block[16..20].copy_from_slice(&crc.to_le_bytes());
            let read = codec::header(&block, Lba(at), Lba(last));
            let sealed = !matches!(read, Err(TableError::HeaderCrc { .. } | TableError::NoSignature { .. }));
            prop_assert!(sealed);
        }
    }
}
