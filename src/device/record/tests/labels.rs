//! Tests of the label: two copies, of which one always survives.

use super::*;
use crate::host::table::memory::Op;

/// A label with something in each of its fields.
fn full() -> Label {
    Label {
        hardware: Hardware { serial: Some("S 1".into()), ..label(DISK).hardware },
        layout: Layout::Slots { size: Some(MIB), count: None },
        clean: vec![Extent { start: 5 * MIB, end: 6 * MIB }],
        volumes: with_volume().volumes,
        erasing: erasing().erasing,
        releasing: true,
        used: true,
        given_up: true,
        ..label(DISK)
    }
}

#[test]
fn a_label_of_this_format_is_read_and_written_byte_for_byte() {
    let text = include_str!("label-1.json").trim_end();
    assert_eq!(serde_json::from_str::<Label>(text).unwrap(), full());
    assert_eq!(serde_json::to_string(&full()).unwrap(), text);
}

#[test]
fn the_layout_of_a_member_of_an_array_is_read_and_written_byte_for_byte() {
    let text = concat!(
        r#"{"kind":"member","array":"01234567-89ab-4cde-8f10-32547698ba01","level":"raid0","place":1,"count":2,"#,
        r#""chunk":524288}"#
    );
    let array = Uuid::from_u128(0x0123_4567_89ab_4cde_8f10_3254_7698_ba01);
    let layout = Layout::Member(ArrayPlace { array, level: ArrayLevel::Raid0, place: 1, count: 2, chunk: 512 << 10 });
    assert_eq!(serde_json::from_str::<Layout>(text).unwrap(), layout);
    assert_eq!(serde_json::to_string(&layout).unwrap(), text);
    assert!(serde_json::from_str::<Layout>(&text.replace("raid0", "raid9")).is_err(), "of a later version");
}

#[test]
fn a_label_whose_array_has_fewer_members_than_its_place_says_is_refused() {
    let (dev, _, last) = claimed(512);
    let place = ArrayPlace { array: DISK, level: ArrayLevel::Raid0, place: 2, count: 2, chunk: 512 << 10 };
    let member = Label { layout: Layout::Member(place), ..label(DISK) };
    assert!(matches!(write_label(&dev, &member, Some(last)), Err(LabelError::Contradiction { .. })));
    assert_eq!(newest(&read_label(&dev), DISK).unwrap().0, &label(DISK), "nothing was written");
}

#[test]
fn labels_take_turns_and_the_newest_one_counts() {
    for sector in [512, 4096] {
        let (dev, _, mut place) = claimed(sector);
        assert_eq!(place, NewestCopy { half: Half::A, sequence: 1 });
        for turn in 2..10 {
            let next = Label { node: format!("node-{turn}").into(), ..label(DISK) };
            let last = place;
            place = write_label(&dev, &next, Some(last)).unwrap();
            assert_eq!(place, NewestCopy { half: last.half.other(), sequence: turn });
            let own = ours(&dev);
            assert_eq!((own.label, own.newest), (next, place));
            assert!(own.copies.a.is_ok() && own.copies.b.is_ok());
        }
    }
}

#[test]
fn a_label_is_one_aligned_write_of_just_its_length_and_a_sync() {
    let dev = MemoryDisk::new(SIZE, 512);
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
        full.volumes.insert(VolumeId::from_u128(n), record);
    }
    let dev = MemoryDisk::new(SIZE, 4096);
    write_label(&dev, &full, None).unwrap();
    let copies = read_label(&dev);
    assert_eq!(newest(&copies, DISK).unwrap().0, &full);
    let Some(Op::Write { len, .. }) = dev.ops().first().copied() else { panic!("nothing was written") };
    assert!(len > 400 << 10, "far above what Kubernetes sends: {len}");

    let typical: BTreeMap<_, _> = (0..127).map(|n| (VolumeId::from_u128(n), volume(&format!("{n:0>128}")))).collect();
    let bytes = serde_json::to_vec(&Label { volumes: typical, ..label(DISK) }).unwrap().len();
    assert!(bytes < 64 << 10, "a typical full label is {bytes} bytes");
}

#[test]
fn a_label_that_does_not_fit_is_refused_with_both_numbers_and_nothing_is_written() {
    let (dev, _, place) = claimed(512);
    let huge = Label { node: "n".repeat(600_000).into(), ..label(DISK) };
    let message = write_label(&dev, &huge, Some(place)).unwrap_err().to_string();
    assert!(message.starts_with("a label of 600") && message.ends_with(" bytes does not fit into 524224"), "{message}");
    let exhausted = NewestCopy { half: Half::A, sequence: u64::MAX };
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
        let new = Label { node: "n".repeat(20_000).into(), ..old.clone() };
        for sectors in 0..=24576 / u64::from(sector) {
            for torn in [Torn::Head, Torn::Tail] {
                let dev = dev.restarted().lose_power(0, sectors, torn);
                write_label(&dev, &new, Some(last)).unwrap_err();
                let dev = dev.restarted();
                let own = ours(&dev);
                assert!(own.label == old || own.label == new);
                assert_eq!(own.label == old, own.newest == last);
                let again = write_label(&dev, &new, Some(own.newest)).unwrap();
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
    assert!(matches!(content("{"), Err(LabelError::Content { disk: DISK, .. })));
    assert!(matches!(content(&"[".repeat(4000)), Err(LabelError::Content { disk: DISK, .. })));
    let good = serde_json::to_string(&label(DISK)).unwrap();
    assert!(content(&good).is_ok());
    let overlapping = good.replace("\"clean\":[]", "\"clean\":[{\"start\":0,\"end\":9},{\"start\":8,\"end\":10}]");
    assert!(matches!(content(&overlapping), Err(LabelError::Contradiction { .. })));
    let backwards = good.replace("\"clean\":[]", "\"clean\":[{\"start\":9,\"end\":0}]");
    assert!(matches!(content(&backwards), Err(LabelError::Contradiction { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_label_reads_back_as_it_was_written(node in ".{0,200}", names in proptest::collection::vec(".{1,128}", 0..20), sequence in 1..u64::MAX) {
        let volumes = (0..).zip(&names).map(|(n, name)| (VolumeId::from_u128(n), volume(name))).collect();
        let written = Label { node: node.into(), volumes, ..label(DISK) };
        let dev = MemoryDisk::new(SIZE, 512);
        let place = write_label(&dev, &written, Some(NewestCopy { half: Half::A, sequence })).unwrap();
        let copies = read_label(&dev);
        prop_assert_eq!(newest(&copies, DISK).unwrap(), (&written, place));
    }
}
