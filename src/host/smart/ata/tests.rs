//! Pages of disks, built byte by byte after the standard.

use super::*;
use crate::host::health::Health;

/// A page whose bytes add up to zero.
fn summed(mut page: Vec<u8>) -> Vec<u8> {
    page[SECTOR - 1] = 0;
    let sum = page.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    page[SECTOR - 1] = sum.wrapping_neg();
    page
}

fn identity(changes: &[(usize, u16)]) -> Vec<u8> {
    let mut page = vec![0; SECTOR];
    let words = [(0, 0x0040), (82, 1), (84, 0x4020), (85, 1), (87, 0x4020), (217, 1), (255, 0x00a5)];
    for (word, value) in words.iter().chain(changes) {
        page[2 * word..][..2].copy_from_slice(&value.to_le_bytes());
    }
    summed(page)
}

/// Number, normalized value, raw value.
fn attributes(entries: &[(u8, u8, [u8; 6])]) -> Vec<u8> {
    let mut page = vec![0; SECTOR];
    page[0] = 0x10;
    for (at, (number, value, raw)) in entries.iter().enumerate() {
        let entry = &mut page[2 + 12 * at..][..12];
        (entry[0], entry[1], entry[3], entry[4]) = (*number, 0x32, *value, *value);
        entry[5..11].copy_from_slice(raw);
    }
    summed(page)
}

const VALID: u8 = 0xc0;

/// A page of statistics: where, lowest bytes, flags.
fn statistics(number: u8, entries: &[(usize, u32, u8)]) -> Vec<u8> {
    let mut page = vec![0; SECTOR];
    (page[0], page[2]) = (1, number);
    for (at, value, flags) in entries {
        page[*at..][..4].copy_from_slice(&value.to_le_bytes());
        page[at + 7] = *flags;
    }
    page
}

fn list(pages: &[u8]) -> Vec<u8> {
    let mut page = statistics(LIST, &[]);
    page[8] = u8::try_from(pages.len()).unwrap();
    page[9..][..pages.len()].copy_from_slice(pages);
    page
}

fn directory() -> Vec<u8> {
    let mut page = vec![0; SECTOR];
    (page[0], page[2 * usize::from(STATISTICS)]) = (1, 8);
    page
}

fn passed() -> DiskReport {
    DiskReport::of(Health::Passed)
}

/// What a disk reports that answers with these pages, and what it was asked for.
fn of(pages: &[([u8; 16], Vec<u8>)]) -> (DiskReport, Vec<[u8; 16]>) {
    let mut asked = Vec::new();
    let report = complete(passed(), |command| {
        asked.push(*command);
        Ok(pages.iter().find(|(known, _)| known == command).map(|(_, page)| page.clone()))
    });
    (report, asked)
}

fn by_attributes(page: Vec<u8>) -> DiskReport {
    of(&[(IDENTIFY, identity(&[(84, 0), (87, 0)])), (ATTRIBUTES, page)]).0
}

fn by_statistics(attributes: &[u8], pages: &[(u8, Vec<u8>)]) -> DiskReport {
    let numbers: Vec<u8> = pages.iter().map(|(number, _)| *number).collect();
    let mut known = vec![
        (IDENTIFY, identity(&[])),
        (ATTRIBUTES, attributes.to_vec()),
        (log(DIRECTORY, 0), directory()),
        (log(STATISTICS, LIST), list(&numbers)),
    ];
    known.extend(pages.iter().map(|(number, page)| (log(STATISTICS, *number), page.clone())));
    of(&known).0
}

const NONE: [u8; 6] = [0; 6];

#[test]
fn the_commands_are_those_of_the_standard() {
    assert_eq!(IDENTIFY, [0x85, 0x08, 0x0e, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xec, 0]);
    assert_eq!(ATTRIBUTES, [0x85, 0x08, 0x0e, 0, 0xd0, 0, 1, 0, 0, 0, 0x4f, 0, 0xc2, 0, 0xb0, 0]);
    assert_eq!(log(STATISTICS, FLASH), [0x85, 0x09, 0x0e, 0, 0, 0, 1, 0, 4, 0, 7, 0, 0, 0, 0x2f, 0]);
}

#[test]
fn the_attributes_of_a_sata_disk_have_wear_temperature_and_lost_sectors() {
    let page = attributes(&[
        (5, 100, [3, 0, 0, 0, 0, 0]),
        (187, 100, [7, 1, 0, 0, 0, 0]),
        (194, 64, [36, 0, 12, 0, 51, 0]),
        (197, 100, [2, 0, 0, 0, 0, 0]),
        (202, 30, [70, 0, 0, 0, 0, 0]),
    ]);
    let wanted = DiskReport {
        media_errors: Some(0x107),
        pending_sectors: Some(2),
        reallocated_sectors: Some(3),
        used_percent: Some(70),
        temperature_celsius: Some(36),
        ..passed()
    };
    assert_eq!(by_attributes(page), wanted);
}

#[test]
fn a_temperature_is_the_lowest_byte_whatever_the_maker_packs_above_it() {
    let celsius = |number, raw| by_attributes(attributes(&[(number, 60, raw)])).temperature_celsius;
    // Lowest and highest of its life, the same behind a padding, and a temperature below zero with its sign.
    for raw in [[40, 0, 18, 0, 55, 0], [40, 0, 0, 0, 18, 55], [40, 18, 55, 0, 0, 0]] {
        assert_eq!([celsius(194, raw), celsius(190, raw)], [Some(40); 2], "{raw:?}");
    }
    assert_eq!(celsius(194, [0xfb, 0xff, 0xff, 0xff, 0xff, 0xff]), Some(-5));
    assert_eq!([celsius(194, NONE), celsius(194, [0x80, 0, 0, 0, 0, 0])], [None; 2], "it has no sensor");
    let both = attributes(&[(190, 70, [30, 0, 0, 0, 0, 0]), (194, 60, [40, 0, 0, 0, 0, 0])]);
    assert_eq!(by_attributes(both).temperature_celsius, Some(40), "the disk's own, not that of the air");
}

#[test]
fn wear_is_what_is_left_by_the_normalized_value_and_only_of_a_disk_that_does_not_turn() {
    let used = |entries: &[(u8, u8)]| {
        let entries: Vec<_> = entries.iter().map(|(number, value)| (*number, *value, [9; 6])).collect();
        by_attributes(attributes(&entries)).used_percent
    };
    for number in [177, 202, 231, 233] {
        assert_eq!(used(&[(number, 100)]), Some(0), "{number}");
        assert_eq!(used(&[(number, 40)]), Some(60), "{number}");
        // It goes no lower.
        assert_eq!(used(&[(number, 1)]), Some(100), "{number}");
        assert_eq!([used(&[(number, 0)]), used(&[(number, 101)]), used(&[(number, 253)])], [None; 3], "{number}");
    }
    assert_eq!(used(&[(233, 100), (231, 95)]), Some(5), "the worst of them");
    assert_eq!(used(&[]), None);
    let page = attributes(&[(202, 40, NONE), (231, 40, NONE)]);
    let turns = identity(&[(84, 0), (87, 0), (217, 7200)]);
    assert_eq!(of(&[(IDENTIFY, turns), (ATTRIBUTES, page)]).0.used_percent, None, "it counts address marks there");
}

#[test]
fn attributes_that_are_short_damaged_or_no_counts_are_not_reported() {
    let good = attributes(&[(194, 60, [40, 0, 0, 0, 0, 0]), (197, 100, [2, 0, 0, 0, 0, 0])]);
    assert_eq!(by_attributes(good.clone()).pending_sectors, Some(2));
    let mut wrong = good.clone();
    wrong[200] ^= 1;
    for page in [wrong, good[..511].to_vec(), good[..14].to_vec(), Vec::new(), vec![0; SECTOR], vec![0xff; SECTOR]] {
        assert_eq!(by_attributes(page), passed());
    }
    let packed = attributes(&[(5, 100, [3, 0, 0, 0, 0, 9]), (197, 100, [2, 0, 0, 0, 1, 0]), (187, 100, [0xff; 6])]);
    assert_eq!(by_attributes(packed), passed());
    // A disk that turned SMART off has old ones.
    let off = identity(&[(84, 0), (87, 0), (85, 0)]);
    assert_eq!(of(&[(IDENTIFY, off), (ATTRIBUTES, good)]), (passed(), vec![IDENTIFY]));
}

#[test]
fn the_statistics_of_a_device_count_before_the_attributes_of_its_maker() {
    let page =
        attributes(&[(5, 100, [9; 6]), (187, 100, [9, 0, 0, 0, 0, 0]), (194, 1, [99, 0, 0, 0, 0, 0]), (202, 50, NONE)]);
    let pages = [
        (MEDIA, statistics(MEDIA, &[(0x20, 11, VALID), (0x38, 12, VALID)])),
        (ERRORS, statistics(ERRORS, &[(0x08, 70_000, VALID)])),
        (TEMPERATURE, statistics(TEMPERATURE, &[(0x08, 41, VALID), (0x58, 70, VALID), (0x68, 0xfb, VALID)])),
        (FLASH, statistics(FLASH, &[(0x08, 130, VALID)])),
    ];
    let wanted = DiskReport {
        media_errors: Some(70_000),
        pending_sectors: Some(12),
        reallocated_sectors: Some(11),
        used_percent: Some(130),
        temperature_celsius: Some(41),
        ..passed()
    };
    assert_eq!(by_statistics(&page, &pages), wanted);
}

#[test]
fn a_disk_beyond_the_temperatures_that_its_maker_allows_warns() {
    let report = |celsius: u32, most: u8, least: u8| {
        let entries = [(0x08, celsius, VALID), (0x58, 70, most), (0x68, 0xfb, least)];
        by_statistics(&[], &[(TEMPERATURE, statistics(TEMPERATURE, &entries))])
    };
    for celsius in [70, 40, 0xfb] {
        assert_eq!(report(celsius, VALID, VALID).warnings, [], "{celsius}");
    }
    for (celsius, degrees) in [(71, 71), (0xfa, -6)] {
        let warned = report(celsius, VALID, VALID);
        assert_eq!(
            (&warned.warnings[..], warned.temperature_celsius),
            (&[DiskWarning::Temperature][..], Some(degrees))
        );
        assert_eq!(warned.health, Health::Passed);
    }
    assert_eq!((report(71, 0x80, VALID).warnings, report(0xfa, VALID, 0).warnings), (vec![], vec![]), "no limits");
    let failing = DiskReport::of(Health::Failing("it fails".to_owned()));
    let hot = Numbers { celsius: Some(71), celsius_at_most: Some(70), ..Numbers::default() };
    let both = hot.into_report(failing);
    assert_eq!((both.health, both.warnings), (Health::Failing("it fails".to_owned()), vec![DiskWarning::Temperature]));
}

#[test]
fn a_page_of_statistics_that_is_short_of_another_number_or_of_an_unknown_revision_says_nothing() {
    let attributes = attributes(&[(202, 50, NONE)]);
    let used = |page: Vec<u8>| by_statistics(&attributes, &[(FLASH, page)]).used_percent;
    let good = statistics(FLASH, &[(0x08, 7, VALID)]);
    assert_eq!(used(good.clone()), Some(7));
    let with = |at: usize, byte: u8| {
        let mut page = good.clone();
        page[at] = byte;
        page
    };
    // Revision 0 and 4 and 257, another page, not valid now, not supported, and cut.
    let bad =
        [with(0, 0), with(0, 4), with(1, 1), with(2, 3), with(15, 0x80), with(15, 0x40), good[..15].to_vec(), vec![]];
    for page in bad {
        assert_eq!(used(page.clone()), Some(50), "{:x?}", page.get(..16));
    }
    assert_eq!(used(with(0, 2)), Some(7));
}

#[test]
fn a_disk_is_not_asked_for_what_it_does_not_have() {
    let asked = |pages: &[([u8; 16], Vec<u8>)]| of(pages).1;
    assert_eq!(asked(&[]), [IDENTIFY]);
    // A device that is no disk, and an answer that was damaged on its way.
    let mut damaged = identity(&[]);
    damaged[164] ^= 1;
    for page in [identity(&[(0, 0x8000)]), damaged, identity(&[])[..400].to_vec()] {
        assert_eq!(asked(&[(IDENTIFY, page)]), [IDENTIFY]);
    }
    assert_eq!(asked(&[(IDENTIFY, identity(&[(84, 0), (87, 0)]))]), [IDENTIFY, ATTRIBUTES]);
    let logs = [IDENTIFY, ATTRIBUTES, log(DIRECTORY, 0)];
    let know = identity(&[(255, 0)]);
    assert_eq!(asked(&[(IDENTIFY, know.clone())]), logs);
    assert_eq!(asked(&[(IDENTIFY, know.clone()), (log(DIRECTORY, 0), vec![0; SECTOR])]), logs);
    let few = [(IDENTIFY, know), (log(DIRECTORY, 0), directory()), (log(STATISTICS, LIST), list(&[LIST, 1, FLASH]))];
    assert_eq!(asked(&few), [&logs[..], &[log(STATISTICS, LIST), log(STATISTICS, FLASH)]].concat());
    let mut far = list(&[FLASH]);
    far[8] = 0xff;
    let far = [few[0].clone(), few[1].clone(), (log(STATISTICS, LIST), far[..200].to_vec())];
    assert_eq!(asked(&far).len(), 4, "a list that goes beyond its page");
}

#[test]
fn a_disk_that_stops_answering_reports_no_number_of_another_kind_than_before() {
    let entries = attributes(&[(187, 100, [9, 0, 0, 0, 0, 0]), (202, 50, NONE)]);
    let known = [
        (IDENTIFY, identity(&[])),
        (ATTRIBUTES, entries),
        (log(DIRECTORY, 0), directory()),
        (log(STATISTICS, LIST), list(&[ERRORS])),
        (log(STATISTICS, ERRORS), statistics(ERRORS, &[(0x08, 2, VALID)])),
    ];
    for answered in 0..=known.len() {
        let mut left = answered;
        let report = complete(passed(), |command| {
            left = left.checked_sub(1).ok_or(Unanswered)?;
            Ok(known.iter().find(|(known, _)| known == command).map(|(_, page)| page.clone()))
        });
        let wanted = match answered {
            5 => DiskReport { media_errors: Some(2), used_percent: Some(50), ..passed() },
            _ => DiskReport { unanswered: ALL_NUMBERS.to_vec(), ..passed() },
        };
        assert_eq!(report, wanted, "after {answered} answers");
    }
}
