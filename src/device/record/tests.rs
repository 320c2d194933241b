//! Tests of label and record on a disk in memory.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::frame::{self, LabelError};
use super::*;
use crate::device::label::{
    DATA_START, ErasePolicy, EraseRecord, Hardware, LABEL_EXTENT, LABEL_TYPE, Layout, SetRef, VOLUME_TYPE,
    VolumeRecord, VolumeUsage,
};
use crate::host::table::memory::{Memory, Op, Torn};
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
        hardware: Hardware { id: "wwid-naa.5000".into(), model: Some("X".into()), serial: None },
        set: SetRef { namespace: "storage".into(), name: "fast".into(), uid: "u-1".into() },
        layout: Layout::Carved {},
        releasing: false,
        used: false,
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
        found: false,
    }
}

fn with_volume() -> Label {
    Label { volumes: BTreeMap::from([(Uuid::from_u128(3), volume("pvc-1"))]), ..label(DISK) }
}

fn erasing() -> Label {
    let erase = EraseRecord { was: Uuid::from_u128(3), policy: ErasePolicy::Discard, cursor: 5 };
    Label { erasing: BTreeMap::from([(Uuid::from_u128(4), erase)]), ..label(DISK) }
}

fn releasing() -> Label {
    Label { releasing: true, ..label(DISK) }
}

fn table(dev: &Memory) -> Table {
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
fn claimed(sector: u32) -> (Memory, Table, Place) {
    let dev = Memory::new(SIZE, sector);
    let place = write_label(&dev, &label(DISK), None).unwrap();
    let table = table(&dev);
    write_first(&dev, &MARK, &table).unwrap();
    (dev.restarted(), table, place)
}

fn ours(dev: &Memory) -> Box<Own> {
    match read_record(dev) {
        Record::Ours(own) => own,
        other => panic!("{other:?}"),
    }
}

fn broken(dev: &Memory) -> String {
    match read_record(dev) {
        Record::Broken(words) => words,
        other => panic!("{other:?}"),
    }
}

fn is_nothing(dev: &Memory) -> bool {
    matches!(read_record(dev), Record::Nothing)
}

#[test]
fn labels_take_turns_and_the_newest_one_counts() {
    for sector in [512, 4096] {
        let (dev, _, mut place) = claimed(sector);
        assert_eq!(place, Place { half: Half::A, sequence: 1 });
        for turn in 2..10 {
            let next = Label { node: format!("node-{turn}"), ..label(DISK) };
            let last = place;
            place = write_label(&dev, &next, Some(last)).unwrap();
            assert_eq!(place, Place { half: last.half.other(), sequence: turn });
            let own = ours(&dev);
            assert_eq!((own.label, own.place), (next, place));
            assert!(own.copies.a.is_ok() && own.copies.b.is_ok());
        }
    }
}

#[test]
fn a_label_is_one_aligned_write_of_just_its_length_and_a_sync() {
    let dev = Memory::new(SIZE, 512);
    let place = write_label(&dev, &label(DISK), None).unwrap();
    write_label(&dev, &label(DISK), Some(place)).unwrap();
    let write = |offset| Op::Write { offset, len: 4096 };
    assert_eq!(dev.ops(), [write(A), Op::Sync, write(B), Op::Sync]);
}

#[test]
fn a_full_disk_of_volumes_with_the_longest_names_fits() {
    let mut full = label(DISK);
    full.clean = (0..128).map(|n| Extent { start: (2 * n) << 40, end: (2 * n + 1) << 40 }).collect();
    for n in 0..127u128 {
        let record = VolumeRecord {
            parameters: (0..16).map(|key| (format!("parameter.example.com/{key:042}"), "v".repeat(128))).collect(),
            ..volume(&format!("{n:0>128}"))
        };
        full.volumes.insert(Uuid::from_u128(n), record);
    }
    let dev = Memory::new(SIZE, 4096);
    write_label(&dev, &full, None).unwrap();
    let copies = read_label(&dev);
    assert_eq!(newest(&copies, DISK).unwrap().0, &full);
    let Some(Op::Write { len, .. }) = dev.ops().first().copied() else { panic!("nothing was written") };
    assert!(len > 400 << 10, "far above what Kubernetes sends: {len}");

    let typical: BTreeMap<_, _> = (0..127).map(|n| (Uuid::from_u128(n), volume(&format!("{n:0>128}")))).collect();
    let bytes = serde_json::to_vec(&Label { volumes: typical, ..label(DISK) }).unwrap().len();
    assert!(bytes < 64 << 10, "a typical full label is {bytes} bytes");
}

#[test]
fn a_label_that_does_not_fit_is_refused_with_both_numbers_and_nothing_is_written() {
    let (dev, _, place) = claimed(512);
    let huge = Label { node: "n".repeat(600_000), ..label(DISK) };
    let said = write_label(&dev, &huge, Some(place)).unwrap_err().to_string();
    assert!(said.starts_with("a label of 600") && said.ends_with(" bytes does not fit into 524224"), "{said}");
    let exhausted = Place { half: Half::A, sequence: u64::MAX };
    assert!(matches!(write_label(&dev, &label(DISK), Some(exhausted)), Err(LabelError::Exhausted)));
    let unsorted = Label { clean: vec![Extent { start: 9, end: 10 }, Extent { start: 0, end: 5 }], ..label(DISK) };
    assert!(matches!(write_label(&dev, &unsorted, Some(place)), Err(LabelError::Contradiction { .. })));
    assert_eq!(dev.ops(), []);
}

#[test]
fn a_torn_label_leaves_the_last_one() {
    for sector in [512u32, 4096] {
        let (dev, _, first) = claimed(sector);
        let old = with_volume();
        let last = write_label(&dev, &old, Some(first)).unwrap();
        let new = Label { node: "n".repeat(20_000), ..old.clone() };
        for sectors in 0..=24576 / u64::from(sector) {
            for torn in [Torn::Head, Torn::Tail] {
                let dev = dev.restarted().lose_power(0, sectors, torn);
                write_label(&dev, &new, Some(last)).unwrap_err();
                let dev = dev.restarted();
                let own = ours(&dev);
                assert!(own.label == old || own.label == new);
                assert_eq!(own.label == old, own.place == last);
                let again = write_label(&dev, &new, Some(own.place)).unwrap();
                assert!(again.sequence > last.sequence);
                assert_eq!(ours(&dev).label, new);
            }
        }
    }
}

#[test]
fn every_flipped_byte_of_a_label_is_noticed_and_the_other_copy_is_used() {
    let (dev, _, first) = claimed(512);
    let old = label(DISK);
    let last = write_label(&dev, &with_volume(), Some(first)).unwrap();
    assert_eq!(last.half, Half::B);
    let span = 64 + serde_json::to_vec(&with_volume()).unwrap().len() as u64;
    for offset in 0..span {
        for mask in [1, 0x80, 0xff] {
            dev.flip(B + offset, mask);
            let copies = read_label(&dev);
            assert!(copies.b.is_err(), "byte {offset}");
            assert_eq!(newest(&copies, DISK).unwrap(), (&old, first), "byte {offset}");
            dev.flip(B + offset, mask);
        }
    }
    assert_eq!(ours(&dev).label, with_volume());
}

/// A frame of our own making with a right header checksum.
fn poke_frame(dev: &Memory, at: u64, change: impl Fn(&mut [u8])) {
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

    let bare = Memory::new(SIZE, 512);
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
fn a_label_of_another_disk_does_not_verify() {
    let (dev, _, _) = claimed(512);
    let copied = Memory::new(SIZE, 512);
    write_label(&copied, &label(OTHER), Some(Place { half: Half::B, sequence: 8 })).unwrap();
    dev.poke(A, &copied.bytes(A, 4096));
    let words =
        format!("our partition table without a label that verifies; A is of disk {OTHER}; B: no label is there");
    assert_eq!(broken(&dev), words);
    // Nor does one whose header was changed to name this disk.
    poke_frame(&dev, A, |head| head[16..32].copy_from_slice(&DISK.to_bytes_le()));
    assert!(broken(&dev).contains("header and content name different disks"));
}

#[test]
fn hostile_labels_are_refused_and_never_read_at_their_word() {
    let (dev, _, _) = claimed(512);
    for length in [ROOM + 1, u32::MAX] {
        poke_frame(&dev, A, |head| head[40..44].copy_from_slice(&length.to_le_bytes()));
        assert!(matches!(read_label(&dev).a, Err(LabelError::Length { says, room: ROOM }) if says == length));
    }
    poke_frame(&dev, A, |head| head[40..44].copy_from_slice(&ROOM.to_le_bytes()));
    assert!(matches!(read_label(&dev).a, Err(LabelError::Payload { .. })));
    for span in [0u32, 63, 4097, u32::MAX] {
        dev.poke(A + 12, &span.to_le_bytes());
        assert!(matches!(read_label(&dev).a, Err(LabelError::Header { .. })));
    }
    assert!(dev.largest_read() <= 512 << 10);
    assert!(broken(&dev).contains("A: the label header is damaged: its length is impossible"));

    let content = |json: &str| {
        let (dev, _, _) = claimed(512);
        dev.poke(A + 64, json.as_bytes());
        poke_frame(&dev, A, |head| {
            head[40..44].copy_from_slice(&u32::try_from(json.len()).unwrap().to_le_bytes());
            head[44..48].copy_from_slice(&crc32fast::hash(json.as_bytes()).to_le_bytes());
        });
        read_label(&dev).a
    };
    assert!(matches!(content("{"), Err(LabelError::Content(_))));
    assert!(matches!(content(&"[".repeat(4000)), Err(LabelError::Content(_))));
    let good = serde_json::to_string(&label(DISK)).unwrap();
    assert!(content(&good).is_ok());
    let overlapping = good.replace("\"clean\":[]", "\"clean\":[{\"start\":0,\"end\":9},{\"start\":8,\"end\":10}]");
    assert!(matches!(content(&overlapping), Err(LabelError::Contradiction { .. })));
    let backwards = good.replace("\"clean\":[]", "\"clean\":[{\"start\":9,\"end\":0}]");
    assert!(matches!(content(&backwards), Err(LabelError::Contradiction { .. })));
}

#[test]
fn blank_foreign_and_unreadable_disks_are_told_apart() {
    for sector in [512, 4096] {
        assert!(is_nothing(&Memory::new(SIZE, sector)));
        assert!(matches!(read_record(&Memory::new(0, sector)), Record::Foreign(_)), "not one to claim");
        let dev = Memory::new(SIZE, sector);
        let foreign = table(&dev).with(1, None).unwrap();
        dev.poke(u64::from(sector), &crate::host::table::primary_bytes(&foreign));
        assert!(matches!(read_record(&dev), Record::Foreign(words) if words == "a GPT without our label"));
        let dev = Memory::new(SIZE, sector);
        dev.break_range(Extent { start: A, end: A + 4096 });
        assert!(matches!(read_record(&dev), Record::Unreadable(_)));
    }
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
    let words = broken(&dev);
    assert!(
        words.starts_with(
            "our partition table without a label that verifies; A: no label is there; B: the label's checksum"
        ),
        "{words}"
    );
    dev.break_range(Extent { start: B, end: B + 4096 });
    assert!(matches!(read_record(&dev), Record::Unreadable(_)));
}

#[test]
fn a_claim_stopped_anywhere_is_nothing_or_is_rolled_forward() {
    for sector in [512u32, 4096] {
        let claim = |dev: &Memory| -> Option<()> {
            write_label(dev, &label(DISK), None).ok()?;
            write_first(dev, &MARK, &table(dev)).ok()
        };
        let blank = Memory::new(SIZE, sector);
        let mut seen = [0; 4];
        for writes in 0..4 {
            for sectors in 0..=34 {
                for torn in [Torn::Head, Torn::Tail] {
                    let dev = blank.restarted().lose_power(writes, sectors, torn);
                    assert_eq!(claim(&dev), None);
                    let dev = dev.restarted();
                    seen[go_on_with_claim(&dev)] += 1;
                    assert_eq!(ours(&dev).choice.stale, []);
                }
            }
        }
        assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    }
}

/// What a restarted agent does: starts again where nothing counts, mends what was begun. Says which it was.
fn go_on_with_claim(dev: &Memory) -> usize {
    let again = |dev: &Memory| {
        let place = write_label(dev, &label(OTHER), None).unwrap();
        let entry = table(dev).get(1).cloned();
        write_first(dev, &MARK, &Table::new(OTHER, dev.geometry()).unwrap().with(1, entry).unwrap()).unwrap();
        assert_eq!(ours(dev).place, place);
    };
    match read_record(dev) {
        Record::Nothing => {
            again(dev);
            0
        }
        Record::TornClaim { table, .. } => {
            wipe_backup(dev, &MARK, &table).unwrap();
            assert!(is_nothing(dev));
            again(dev);
            1
        }
        Record::UnfinishedClaim(own) => {
            repair(dev, &MARK, &own.choice).unwrap();
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
        let release = |dev: &Memory, table: &Table| -> Option<()> {
            wipe_primary(dev, &MARK, table).ok()?;
            wipe_backup(dev, &MARK, table).ok()?;
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
        let dev = Memory::new(SIZE, 512);
        write_label(&dev, &erasing(), Some(Place { half: last, sequence: 8 })).unwrap();
        write_label(&dev, &releasing(), Some(Place { half: last.other(), sequence: 9 })).unwrap();
        assert!(is_nothing(&dev));
        let place = write_label(&dev, &label(OTHER), None).unwrap();
        assert_eq!(place, Place { half: last.other(), sequence: 1 }, "the older copy goes first");
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
    let said = wipe_labels(&dev, DISK).unwrap_err().to_string();
    assert_eq!(said, "the label cannot be wiped: its partition table is still there");
    let volume = Entry {
        kind: VOLUME_TYPE,
        guid: Uuid::from_u128(3),
        extent: Extent { start: DATA_START, end: 3 * MIB },
        attributes: 0,
        name: Name::tail("v"),
    };
    write_table(&dev, &MARK, &table, &table.with(2, Some(volume)).unwrap()).unwrap();
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

    #[test]
    fn a_label_reads_back_as_it_was_written(node in ".{0,200}", names in proptest::collection::vec(".{1,128}", 0..20), sequence in 1..u64::MAX) {
        let volumes = (0..).zip(&names).map(|(n, name)| (Uuid::from_u128(n), volume(name))).collect();
        let written = Label { node, volumes, ..label(DISK) };
        let dev = Memory::new(SIZE, 512);
        let place = write_label(&dev, &written, Some(Place { half: Half::A, sequence })).unwrap();
        let copies = read_label(&dev);
        prop_assert_eq!(frame::newest(&copies, DISK).unwrap(), (&written, place));
    }
}
