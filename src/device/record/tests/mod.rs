//! Tests of the record on a disk in memory: whatever a claim or a release leaves behind is recognised.

mod labels;

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::device::label::{
    ArrayLevel, ArrayPlace, DATA_START, ErasePolicy, EraseRecord, Hardware, LABEL_EXTENT, LABEL_TYPE, Layout, SetRef,
    VOLUME_TYPE, VolumeRecord, VolumeUsage,
};
use crate::device::set_name::SetName;
use crate::device::{HardwareId, VolumeId};
use crate::host::table::memory::{MemoryDisk, Torn};
use crate::host::table::{Entry, Name, repair, wipe_backup, wipe_primary, write_first, write_table};
use crate::host::{Extent, FsKind};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 16 * MIB;
const DISK: Uuid = Uuid::from_u128(0xd15c);
const OTHER: Uuid = Uuid::from_u128(0x07e4);
const A: u64 = MIB;
const B: u64 = MIB + MIB / 2;

fn label(disk: Uuid) -> Label {
    Label {
        disk,
        cluster: "standalone".into(),
        node: "node-1".into(),
        hardware: Hardware { id: HardwareId::named("wwid-naa.5000"), model: Some("X".into()), serial: None },
        set: SetRef::new(SetName::new("storage", "fast"), "u-1"),
        layout: Layout::Carved {},
        releasing: false,
        used: false,
        given_up: false,
        clean: vec![],
        volumes: BTreeMap::new(),
        erasing: BTreeMap::new(),
    }
}

fn volume(name: &str) -> VolumeRecord {
    let parameters = [
        ("csi.storage.k8s.io/pvc/name", "data-postgres-0"),
        ("csi.storage.k8s.io/pvc/namespace", "prod"),
        ("class", "local-fast"),
    ];
    VolumeRecord {
        name: name.into(),
        required: 10 << 30,
        limit: Some(20 << 30),
        parameters: parameters.into_iter().map(|(key, value)| (key.into(), value.into())).collect(),
        usage: VolumeUsage::Mount(FsKind::Ext4),
        fs_size: 0,
        found: false,
    }
}

fn with_volume() -> Label {
    Label { volumes: BTreeMap::from([(VolumeId::from_u128(3), volume("pvc-1"))]), ..label(DISK) }
}

fn erasing() -> Label {
    let erase = EraseRecord { was: VolumeId::from_u128(3), policy: ErasePolicy::Discard, cursor: 5 };
    Label { erasing: BTreeMap::from([(Uuid::from_u128(4), erase)]), ..label(DISK) }
}

fn releasing() -> Label {
    Label { releasing: true, ..label(DISK) }
}

fn table(dev: &MemoryDisk) -> Table {
    let entry = Entry {
        kind: LABEL_TYPE,
        guid: Uuid::from_u128(1),
        extent: LABEL_EXTENT,
        attributes: 0,
        name: Name::tail("label"),
    };
    Table::new(DISK, dev.geometry()).unwrap().with(1, Some(entry)).unwrap()
}

/// A claimed disk with a label in copy A.
fn claimed(sector: u32) -> (MemoryDisk, Table, NewestCopy) {
    let dev = MemoryDisk::new(SIZE, sector);
    let place = write_label(&dev, &label(DISK), None).unwrap();
    let table = table(&dev);
    write_first(&dev, &OURS, &table).unwrap();
    (dev.restarted(), table, place)
}

fn ours(dev: &MemoryDisk) -> Box<OurRecord> {
    match read_record(dev) {
        Record::Ours(own) => own,
        other => panic!("{other:?}"),
    }
}

fn broken(dev: &MemoryDisk) -> String {
    match read_record(dev) {
        Record::Broken(message) => message,
        other => panic!("{other:?}"),
    }
}

fn is_nothing(dev: &MemoryDisk) -> bool {
    matches!(read_record(dev), Record::Nothing)
}

/// A frame of our own making with a right header checksum.
fn poke_frame(dev: &MemoryDisk, at: u64, change: impl Fn(&mut [u8])) {
    let mut head = dev.bytes(at, 64);
    change(&mut head);
    head[48..52].fill(0);
    let crc = crc32fast::hash(&head);
    head[48..52].copy_from_slice(&crc.to_le_bytes());
    dev.poke(at, &head);
}

#[test]
fn a_later_format_is_left_alone_and_never_taken_as_blank() {
    let (dev, table, place) = claimed(512);
    write_label(&dev, &label(DISK), Some(place)).unwrap();
    poke_frame(&dev, B, |head| head[8..12].copy_from_slice(&7u32.to_le_bytes()));
    assert!(matches!(read_label(&dev).b, Err(LabelError::NewerFormat { disk: DISK, format: 7 })));
    assert!(matches!(read_record(&dev), Record::Newer(7)), "though copy A is of this version");

    let bare = MemoryDisk::new(SIZE, 512);
    bare.poke(B, &dev.bytes(B, 4096));
    assert!(matches!(read_record(&bare), Record::Newer(7)), "though no table is there");
    assert!(matches!(write_label(&bare, &label(OTHER), None), Err(LabelError::NewerFormat { .. })));
    bare.poke(A, &dev.bytes(A, 4096));
    assert!(matches!(wipe_labels(&bare, DISK), Err(LabelError::InUse { .. })));
    assert_eq!(bare.ops(), []);

    // One of an earlier life of the disk does not matter once the table says otherwise.
    poke_frame(&dev, B, |head| head[16..32].copy_from_slice(&OTHER.to_bytes_le()));
    assert_eq!(ours(&dev).choice.table, table);
}

#[test]
fn a_label_that_is_whole_and_not_understood_is_a_later_versions_and_the_older_copy_does_not_speak_for_it() {
    let (dev, _, place) = claimed(512);
    write_label(&dev, &with_volume(), Some(place)).unwrap();
    let later = serde_json::to_string(&with_volume()).unwrap().replace("\"carved\"", "\"striped\"");
    dev.poke(B + 64, later.as_bytes());
    poke_frame(&dev, B, |head| {
        head[40..44].copy_from_slice(&u32::try_from(later.len()).unwrap().to_le_bytes());
        head[44..48].copy_from_slice(&crc32fast::hash(later.as_bytes()).to_le_bytes());
    });
    assert!(read_label(&dev).a.is_ok(), "copy A is of this version, and older");
    let Record::Newer(format) = read_record(&dev) else { panic!("{:?}", read_record(&dev)) };
    assert!(Record::Newer(format).to_string().contains("only a later version of localpool understands"));

    let bare = MemoryDisk::new(SIZE, 512);
    bare.poke(B, &dev.bytes(B, 4096));
    assert!(matches!(read_record(&bare), Record::Newer(_)), "though no table is there");
    assert!(write_label(&bare, &label(OTHER), None).is_err());
    assert_eq!(bare.ops(), []);
}

#[test]
fn a_label_of_another_disk_does_not_verify() {
    let (dev, _, _) = claimed(512);
    let copied = MemoryDisk::new(SIZE, 512);
    write_label(&copied, &label(OTHER), Some(NewestCopy { half: Half::B, sequence: 8 })).unwrap();
    dev.poke(A, &copied.bytes(A, 4096));
    let message = format!(
        "localpool's partition table without a label that verifies; A is of disk {OTHER}; B: there is no label"
    );
    assert_eq!(broken(&dev), message);
    // Nor does one whose header was changed to name this disk.
    poke_frame(&dev, A, |head| head[16..32].copy_from_slice(&DISK.to_bytes_le()));
    assert!(broken(&dev).contains("header and content name different disks"));
}

#[test]
fn blank_disks_other_tables_and_unreadable_disks_are_told_apart() {
    for sector in [512, 4096] {
        assert!(is_nothing(&MemoryDisk::new(SIZE, sector)));
        assert!(matches!(read_record(&MemoryDisk::new(0, sector)), Record::OtherTable(_)), "not one to claim");
        let dev = MemoryDisk::new(SIZE, sector);
        let unlabelled = table(&dev).with(1, None).unwrap();
        dev.poke(u64::from(sector), &crate::host::table::primary_bytes(&unlabelled));
        assert!(matches!(read_record(&dev), Record::OtherTable(text) if text == "a GPT without localpool's label"));
        let dev = MemoryDisk::new(SIZE, sector);
        dev.break_range(Extent { start: A, end: A + 4096 });
        assert!(matches!(read_record(&dev), Record::Unreadable(_)));
    }
}

#[test]
fn an_unreadable_primary_is_ours_only_where_backup_and_label_say_so() {
    let lost = Extent { start: 512, end: 1024 };
    let (dev, _, _) = claimed(512);
    dev.break_range(lost);
    assert_eq!(ours(&dev).choice.good, Part::Backup);
    let (dev, _, _) = claimed(512);
    dev.break_range(lost);
    dev.poke(A, &[0; 4096]);
    assert!(matches!(read_record(&dev), Record::Unreadable(_)), "no label");
    write_label(&dev, &label(OTHER), None).unwrap();
    assert!(matches!(read_record(&dev), Record::Unreadable(_)), "another disk's label");
}

#[test]
fn our_table_without_any_label_is_broken_and_one_bad_copy_is_not() {
    let (dev, _, place) = claimed(512);
    write_label(&dev, &with_volume(), Some(place)).unwrap();
    dev.flip(B + 70, 1);
    let own = ours(&dev);
    assert_eq!(own.label, label(DISK));
    assert!(matches!(own.copies.b, Err(LabelError::Payload { .. })));
    dev.flip(A, 1);
    let message = broken(&dev);
    assert!(
        message.starts_with(
            "localpool's partition table without a label that verifies; A: there is no label; B: the label's checksum"
        ),
        "{message}"
    );
    dev.break_range(Extent { start: B, end: B + 4096 });
    assert!(matches!(read_record(&dev), Record::Unreadable(_)));
}

#[test]
fn a_claim_stopped_anywhere_is_nothing_or_is_rolled_forward() {
    for sector in [512u32, 4096] {
        let claim = |dev: &MemoryDisk| -> Option<()> {
            write_label(dev, &label(DISK), None).ok()?;
            write_first(dev, &OURS, &table(dev)).ok()
        };
        let blank = MemoryDisk::new(SIZE, sector);
        let mut counts = [0; 4];
        for writes in 0..4 {
            for sectors in 0..=34 {
                for torn in [Torn::Head, Torn::Tail] {
                    let dev = blank.restarted().lose_power(writes, sectors, torn);
                    assert_eq!(claim(&dev), None);
                    let dev = dev.restarted();
                    counts[go_on_with_claim(&dev)] += 1;
                    assert_eq!(ours(&dev).choice.stale, []);
                }
            }
        }
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    }
}

/// What a restarted agent does: starts again if nothing counts, or completes what was begun. Says which it was.
fn go_on_with_claim(dev: &MemoryDisk) -> usize {
    let again = |dev: &MemoryDisk| {
        let place = write_label(dev, &label(OTHER), None).unwrap();
        let entry = table(dev).get(1).cloned();
        write_first(dev, &OURS, &Table::new(OTHER, dev.geometry()).unwrap().with(1, entry).unwrap()).unwrap();
        assert_eq!(ours(dev).newest, place);
    };
    match read_record(dev) {
        Record::Nothing => {
            again(dev);
            0
        }
        Record::TornClaim { table, .. } => {
            wipe_backup(dev, &OURS, &table).unwrap();
            assert!(is_nothing(dev));
            again(dev);
            1
        }
        Record::UnfinishedClaim(own) => {
            repair(dev, &OURS, &own.choice.table).unwrap();
            2
        }
        Record::Ours(_) => 3,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_release_stopped_anywhere_goes_on_to_nothing_and_the_disk_can_be_claimed_again() {
    for sector in [512u32, 4096] {
        let (dev, table, first) = claimed(sector);
        let second = write_label(&dev, &erasing(), Some(first)).unwrap();
        write_label(&dev, &releasing(), Some(second)).unwrap();
        let release = |dev: &MemoryDisk, table: &Table| -> Option<()> {
            wipe_primary(dev, &OURS, table).ok()?;
            wipe_backup(dev, &OURS, table).ok()?;
            wipe_labels(dev, DISK).ok()
        };
        for writes in 0..4 {
            for sectors in (0..=36).chain([127, 128, 1023, 1024]) {
                for torn in [Torn::Head, Torn::Tail] {
                    let dev = dev.restarted().lose_power(writes, sectors, torn);
                    release(&dev, &table);
                    let dev = dev.restarted();
                    match read_record(&dev) {
                        Record::UnfinishedRelease { table, label } => {
                            assert!(label.releasing && writes < 2);
                            release(&dev, &table).unwrap();
                        }
                        Record::Nothing => wipe_labels(&dev, DISK).unwrap(),
                        other => panic!("after {writes} writes and {sectors} sectors from the {torn:?}: {other:?}"),
                    }
                    assert!(is_nothing(&dev));
                    assert!(dev.bytes(A, MIB).iter().all(|byte| *byte == 0));
                }
            }
        }
    }
}

#[test]
fn what_a_release_left_behind_does_not_disturb_the_next_claim() {
    for last in [Half::A, Half::B] {
        let dev = MemoryDisk::new(SIZE, 512);
        write_label(&dev, &erasing(), Some(NewestCopy { half: last, sequence: 8 })).unwrap();
        write_label(&dev, &releasing(), Some(NewestCopy { half: last.other(), sequence: 9 })).unwrap();
        assert!(is_nothing(&dev));
        let place = write_label(&dev, &label(OTHER), None).unwrap();
        assert_eq!(place, NewestCopy { half: last.other(), sequence: 1 }, "the older copy goes first");
        assert!(is_nothing(&dev), "a claim that has only begun");
    }
}

#[test]
fn a_label_with_volumes_and_no_table_waits_for_a_person() {
    for lost in [with_volume(), erasing()] {
        let (dev, _, place) = claimed(512);
        write_label(&dev, &lost, Some(place)).unwrap();
        dev.poke(0, &vec![0; usize::try_from(MIB).unwrap()]);
        assert!(
            matches!(read_record(&dev), Record::UnfinishedClaim(own) if own.label == lost),
            "the backup brings it back"
        );
        dev.flip(SIZE - 512 - 16384 + 5, 1);
        assert!(broken(&dev).contains("but no partition table"), "a torn backup of a disk with volumes");
        dev.poke(SIZE - MIB, &vec![0; usize::try_from(MIB).unwrap()]);
        assert!(broken(&dev).contains("but no partition table"));
        assert!(matches!(wipe_labels(&dev, DISK), Err(LabelError::InUse { .. })));
    }
}

#[test]
fn labels_are_not_wiped_under_a_table() {
    let (dev, table, place) = claimed(512);
    write_label(&dev, &releasing(), Some(place)).unwrap();
    let message = wipe_labels(&dev, DISK).unwrap_err().to_string();
    assert_eq!(message, "the label cannot be wiped: its partition table is still there");
    let volume = Entry {
        kind: VOLUME_TYPE,
        guid: Uuid::from_u128(3),
        extent: Extent { start: DATA_START, end: 3 * MIB },
        attributes: 0,
        name: Name::tail("v"),
    };
    write_table(&dev, &OURS, &table, &table.with(2, Some(volume)).unwrap()).unwrap();
    assert!(matches!(wipe_labels(&dev, DISK), Err(LabelError::InUse { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_bytes_make_a_record_panic_or_allocate_much(
        pokes in proptest::collection::vec((prop_oneof![A..A + 64, B..B + 64, A + 64..A + 600, 512..1536u64, SIZE - 512..SIZE], any::<[u8; 8]>()), 0..4),
        seal in any::<bool>(),
    ) {
        let (dev, _, place) = claimed(512);
        write_label(&dev, &with_volume(), Some(place)).unwrap();
        for (offset, bytes) in pokes {
            dev.poke(offset, &bytes[..usize::try_from((SIZE - offset).min(8)).unwrap()]);
        }
        if seal {
            poke_frame(&dev, A, |_| {});
            poke_frame(&dev, B, |_| {});
        }
        let record = read_record(&dev);
        prop_assert!(dev.largest_read() <= 512 << 10);
        prop_assert!(!matches!(record, Record::Nothing), "two tables and two labels are never nothing");
    }
}
