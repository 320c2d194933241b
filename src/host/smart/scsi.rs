//! What a SAS disk reports beyond its exceptions: the wear of a disk without turning parts, and data that it could not
//! read or write. Pure.
//!
//! Takes in the log pages that a disk answered with; gives out numbers. A page that is short, of another number or a
//! subpage says nothing.

use super::super::health::{DiskNumber, DiskReport};
use super::page::{PageAnswer, Unanswered};

/// As much of a page as is read.
const LENGTH: u8 = 252;
pub const PAGE: usize = LENGTH as usize;
/// The page that lists the pages. The others are asked for only if they are in it.
const LIST: u8 = 0x00;
/// Counters of errors: in writes, in reads, and when the disk verifies.
const ERRORS: [u8; 3] = [0x02, 0x03, 0x05];
const SOLID_STATE: u8 = 0x11;
/// Parameters of these pages.
const UNCORRECTED: u16 = 0x0006;
const USED: u16 = 0x0001;

/// LOG SENSE of the current values of a page.
const fn sense(page: u8) -> [u8; 10] {
    [0x4d, 0, (1 << 6) | page, 0, 0, 0, 0, 0, LENGTH, 0]
}

/// The report with the numbers that the disk has, if it answers all questions that it need not refuse.
pub fn complete(report: DiskReport, ask: impl FnMut(&[u8; 10]) -> PageAnswer) -> DiskReport {
    match numbers(ask) {
        Ok((media_errors, used_percent)) => DiskReport { media_errors, used_percent, ..report },
        Err(Unanswered) => DiskReport { unanswered: vec![DiskNumber::MediaErrors, DiskNumber::Wear], ..report },
    }
}

/// Errors that were not corrected, and how much of its endurance is used.
fn numbers(mut ask: impl FnMut(&[u8; 10]) -> PageAnswer) -> Result<(Option<u64>, Option<u8>), Unanswered> {
    let list = ask(&sense(LIST))?.unwrap_or_default();
    let listed = body(&list, LIST).unwrap_or_default().to_vec();
    let mut page_of = |page: u8| -> Result<Vec<u8>, Unanswered> {
        Ok(if listed.contains(&page) { ask(&sense(page))?.unwrap_or_default() } else { Vec::new() })
    };
    let mut errors: Option<u64> = None;
    for page in ERRORS {
        let answer = page_of(page)?;
        let more = parameter(&answer, page, UNCORRECTED).and_then(count);
        errors = more.map_or(errors, |more| Some(errors.unwrap_or(0).saturating_add(more)));
    }
    let wear = page_of(SOLID_STATE)?;
    Ok((errors, parameter(&wear, SOLID_STATE, USED).and_then(|value| value.get(3).copied())))
}

/// What is behind the header of a page, as long as the page says that it is.
fn body(page: &[u8], number: u8) -> Option<&[u8]> {
    match page {
        // The upper bit says that its values were saved.
        [head, 0, high, low, rest @ ..] if head & 0x7f == number => {
            rest.get(..usize::from(u16::from_be_bytes([*high, *low])))
        }
        _ => None,
    }
}

/// The value of a parameter: two bytes of number, control, length, and the value.
fn parameter(page: &[u8], number: u8, wanted: u16) -> Option<&[u8]> {
    // A page may be longer than what was read of it.
    let length = page.len().min(4 + usize::from(u16::from_be_bytes(*page.get(2..)?.first_chunk()?)));
    let [head, 0, _, _, rest @ ..] = page.get(..length)? else { return None };
    let mut rest = Some(rest).filter(|_| head & 0x7f == number)?;
    while let [high, low, _, length, values @ ..] = rest {
        let value = values.get(..usize::from(*length))?;
        if u16::from_be_bytes([*high, *low]) == wanted {
            return Some(value);
        }
        rest = &values[value.len()..];
    }
    None
}

/// A counter of one to eight bytes. One that is full stays there.
fn count(value: &[u8]) -> Option<u64> {
    let is_count = (1..=8).contains(&value.len());
    is_count.then(|| value.iter().fold(0, |count, byte| count << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::health::Health;

    fn page(number: u8, parameters: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (code, value) in parameters {
            body.extend(code.to_be_bytes());
            body.extend([0x03, u8::try_from(value.len()).expect("it is short")]);
            body.extend(*value);
        }
        let mut page = vec![number, 0];
        page.extend(u16::try_from(body.len()).expect("it is short").to_be_bytes());
        page.extend(body);
        page.resize(PAGE, 0);
        page
    }

    fn list(pages: &[u8]) -> Vec<u8> {
        let mut list = vec![LIST, 0, 0, u8::try_from(pages.len()).expect("a few")];
        list.extend(pages);
        list.resize(PAGE, 0);
        list
    }

    fn of(pages: &[(u8, Vec<u8>)]) -> (DiskReport, Vec<u8>) {
        let mut asked = Vec::new();
        let report = complete(DiskReport::of(Health::Passed), |command| {
            asked.push(command[2] & 0x3f);
            Ok(pages.iter().find(|(number, _)| sense(*number) == *command).map(|(_, page)| page.clone()))
        });
        (report, asked)
    }

    #[test]
    fn a_sas_disk_has_its_wear_and_its_uncorrected_errors_in_logs() {
        let errors = |number, count: &[u8]| page(number, &[(0, &[0, 9]), (5, &[0; 8]), (UNCORRECTED, count)]);
        let pages = [
            (LIST, list(&[0, 2, 3, 0x0d, 0x11, 0x2f])),
            (2, errors(2, &[0, 3])),
            (3, errors(3, &[0, 0, 1, 4])),
            (0x11, page(0x11, &[(1, &[0, 0, 0, 104])])),
        ];
        let (report, asked) = of(&pages);
        let wanted =
            DiskReport { media_errors: Some(0x107), used_percent: Some(104), ..DiskReport::of(Health::Passed) };
        assert_eq!((report, asked), (wanted, vec![LIST, 2, 3, 0x11]));
    }

    #[test]
    fn a_log_that_is_short_damaged_or_of_another_number_says_nothing() {
        let used = |page: Vec<u8>| {
            let report = of(&[(LIST, list(&[0x11])), (0x11, page)]).0;
            (report.media_errors, report.used_percent)
        };
        let good = page(0x11, &[(1, &[0, 0, 0, 7])]);
        assert_eq!(used(good.clone()), (None, Some(7)));
        let with = |at: usize, byte: u8| {
            let mut page = good.clone();
            page[at] = byte;
            page
        };
        // Another page, a subpage, another parameter, one that is short, and one that is longer than its page.
        for page in [with(0, 0x0d), with(1, 1), with(5, 2), with(7, 3), with(7, 9), good[..11].to_vec(), vec![]] {
            assert_eq!(used(page.clone()), (None, None), "{:x?}", page.get(..12));
        }
        assert_eq!(used(with(0, 0x91)), (None, Some(7)), "saved values");
        let counted = |value: &[u8]| of(&[(LIST, list(&[3])), (3, page(3, &[(UNCORRECTED, value)]))]).0.media_errors;
        assert_eq!([counted(&[]), counted(&[0xff; 8]), counted(&[0; 9])], [None, Some(u64::MAX), None]);
    }

    #[test]
    fn a_sas_disk_that_stops_answering_says_which_numbers_are_not_known() {
        let pages = [list(&[3, 0x11]), page(3, &[(UNCORRECTED, &[2])]), page(0x11, &[(1, &[0, 0, 0, 7])])];
        let warm = DiskReport { temperature_celsius: Some(31), ..DiskReport::of(Health::Passed) };
        for answered in 0..=pages.len() {
            let mut left = pages.iter().take(answered);
            let report = complete(warm.clone(), |_| left.next().cloned().map(Some).ok_or(Unanswered));
            let wanted = match answered {
                3 => DiskReport { media_errors: Some(2), used_percent: Some(7), ..warm.clone() },
                _ => DiskReport { unanswered: vec![DiskNumber::MediaErrors, DiskNumber::Wear], ..warm.clone() },
            };
            assert_eq!(report, wanted, "after {answered} answers");
        }
    }

    #[test]
    fn a_sas_disk_is_asked_for_no_page_that_it_does_not_list() {
        assert_eq!(of(&[]), (DiskReport::of(Health::Passed), vec![LIST]));
        for short in [vec![], vec![LIST], vec![LIST, 0, 0, 200, 0x11], vec![LIST, 1, 0, 1, 0x11], list(&[LIST, 0x2f])] {
            assert_eq!(of(&[(LIST, short)]).1, [LIST]);
        }
    }
}
