//! What a SATA disk reports beyond its own verdict: wear, temperature, and sectors that it lost or replaced. Pure.
//!
//! Takes in the pages that a disk answered with; gives out numbers. The statistics of the device have one meaning for
//! every maker (ACS-3 and later), so they count first; SMART's attributes are the makers' own, and only those are read
//! that nearly all of them use alike. A page that is short, damaged, of another number or of an unknown revision says
//! nothing, and neither does a value that no disk can have.

use super::super::health::{DiskNumber, DiskReport, DiskWarning};
use super::page::{PageAnswer, Unanswered};

pub const SECTOR: usize = 512;
/// The log that lists the logs, and the one of statistics.
const DIRECTORY: u8 = 0x00;
const STATISTICS: u8 = 0x04;
/// The first page of the statistics lists those that there are. The others are asked for only if they are in it.
const LIST: u8 = 0x00;
const MEDIA: u8 = 0x03;
const ERRORS: u8 = 0x04;
const TEMPERATURE: u8 = 0x05;
const FLASH: u8 = 0x07;
/// Pages of a later revision only have more at their end, as far as there are any.
const REVISIONS: std::ops::RangeInclusive<u16> = 1..=3;

/// ATA PASS-THROUGH (16) of a command that reads one sector: PIO data-in, its length in the sector count.
const fn reads(features: u8, lba: [u8; 4], extends: bool, command: u8) -> [u8; 16] {
    let [low, mid, high, middle_of_48] = lba;
    [0x85, (4 << 1) | extends as u8, 0x0e, 0, features, 0, 1, 0, low, middle_of_48, mid, 0, high, 0, command, 0]
}

/// IDENTIFY DEVICE.
pub const IDENTIFY: [u8; 16] = reads(0, [0; 4], false, 0xec);
/// SMART READ DATA.
pub const ATTRIBUTES: [u8; 16] = reads(0xd0, [0, 0x4f, 0xc2, 0], false, 0xb0);

/// READ LOG EXT of one page.
const fn log(log: u8, page: u8) -> [u8; 16] {
    reads(0, [log, page, 0, 0], true, 0x2f)
}

/// What a disk says that it can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AtaIdentity {
    has_attributes: bool,
    has_logs: bool,
    /// It has no turning parts.
    is_flash: bool,
}

impl AtaIdentity {
    fn of(page: &[u8]) -> Option<Self> {
        let word = |number: usize| Some(u16::from_le_bytes(page.get(2 * number..)?.first_chunk().copied()?));
        let is_signed = word(255)? & 0xff == 0xa5;
        if word(0)? & (1 << 15) != 0 || is_signed && !adds_up(page) {
            return None;
        }
        let has_logs = |word: u16| word >> 14 == 1 && word & (1 << 5) != 0;
        Some(Self {
            has_attributes: word(82)? & word(85)? & 1 != 0,
            has_logs: has_logs(word(84)?) || has_logs(word(87)?),
            is_flash: word(217)? == 1,
        })
    }
}

/// The bytes of a whole page add up to zero.
fn adds_up(page: &[u8]) -> bool {
    page.len() == SECTOR && page.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)) == 0
}

const ALL_NUMBERS: [DiskNumber; 5] = [
    DiskNumber::Temperature,
    DiskNumber::Wear,
    DiskNumber::MediaErrors,
    DiskNumber::PendingSectors,
    DiskNumber::ReallocatedSectors,
];

/// The numbers, as far as a disk has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    celsius: Option<i16>,
    /// Beyond these the disk is hotter, or colder, than its maker allows.
    celsius_at_most: Option<i16>,
    celsius_at_least: Option<i16>,
    used_percent: Option<u8>,
    uncorrectable: Option<u64>,
    pending: Option<u64>,
    reallocated: Option<u64>,
}

/// The report with the numbers that the disk has, if it answers all questions that it need not refuse. If not, none of
/// them is known: of one number two kinds may be asked for.
pub fn complete(report: DiskReport, ask: impl FnMut(&[u8; 16]) -> PageAnswer) -> DiskReport {
    match Numbers::ask(ask) {
        Ok(numbers) => numbers.into_report(report),
        Err(Unanswered) => DiskReport { unanswered: ALL_NUMBERS.to_vec(), ..report },
    }
}

/// The directory has the number of pages of each log, and a version of its own at log 0.
fn has_statistics(directory: &[u8]) -> bool {
    let pages = |log: u8| directory.get(2 * usize::from(log)..)?.first_chunk().copied().map(u16::from_le_bytes);
    pages(DIRECTORY) == Some(1) && pages(STATISTICS).is_some_and(|pages| pages > 0)
}

/// Whether a page of statistics is the one that was asked for, in a revision that is known.
fn is_page(page: &[u8], number: u8) -> bool {
    let revision = page.first_chunk().copied().map(u16::from_le_bytes);
    page.get(2) == Some(&number) && revision.is_some_and(|revision| REVISIONS.contains(&revision))
}

fn is_listed(list: &[u8], number: u8) -> bool {
    let listed = |count: &u8| list.get(9..9 + usize::from(*count)).is_some_and(|pages| pages.contains(&number));
    is_page(list, LIST) && list.get(8).is_some_and(listed)
}

impl Numbers {
    fn ask(mut ask: impl FnMut(&[u8; 16]) -> PageAnswer) -> Result<Self, Unanswered> {
        // No disk is asked for what it does not have: the kernel counts each refusal as an error of it.
        let Some(identity) = ask(&IDENTIFY)?.as_deref().and_then(AtaIdentity::of) else { return Ok(Self::default()) };
        let mut page_if = |is_there: bool, command: &[u8; 16]| -> Result<Vec<u8>, Unanswered> {
            Ok(if is_there { ask(command)?.unwrap_or_default() } else { Vec::new() })
        };
        let attributes = page_if(identity.has_attributes, &ATTRIBUTES)?;
        let mut numbers = of_attributes(&attributes, identity.is_flash);
        let directory = page_if(identity.has_logs, &log(DIRECTORY, 0))?;
        let list = page_if(has_statistics(&directory), &log(STATISTICS, LIST))?;
        for page in [MEDIA, ERRORS, TEMPERATURE, FLASH] {
            numbers.add(page, &page_if(is_listed(&list, page), &log(STATISTICS, page))?);
        }
        Ok(numbers)
    }

    /// What a page of statistics has counts more than what is known.
    fn add(&mut self, number: u8, page: &[u8]) {
        if !is_page(page, number) {
            return;
        }
        // Eight bytes each; the last says whether the disk has it, and whether it is valid now.
        let entry = |at: usize| -> Option<[u8; 8]> {
            page.get(at..)?.first_chunk().copied().filter(|entry: &[u8; 8]| entry[7] & 0xc0 == 0xc0)
        };
        let count = |at| entry(at).map(|[a, b, c, d, ..]| u64::from(u32::from_le_bytes([a, b, c, d])));
        let celsius = |at| entry(at).and_then(|entry| possible(entry[0]));
        match number {
            MEDIA => {
                self.reallocated = count(0x20).or(self.reallocated);
                self.pending = count(0x38).or(self.pending);
            }
            ERRORS => self.uncorrectable = count(0x08).or(self.uncorrectable),
            TEMPERATURE => {
                self.celsius = celsius(0x08).or(self.celsius);
                (self.celsius_at_most, self.celsius_at_least) = (celsius(0x58), celsius(0x68));
            }
            FLASH => self.used_percent = entry(0x08).map(|entry| entry[0]).or(self.used_percent),
            _ => {}
        }
    }

    fn into_report(self, report: DiskReport) -> DiskReport {
        let Self { celsius, celsius_at_most, celsius_at_least, used_percent, uncorrectable, pending, reallocated } =
            self;
        let mut report = DiskReport {
            media_errors: uncorrectable,
            pending_sectors: pending,
            reallocated_sectors: reallocated,
            used_percent,
            temperature_celsius: celsius,
            ..report
        };
        let is_beyond = celsius.is_some_and(|celsius| {
            celsius_at_most.is_some_and(|most| celsius > most) || celsius_at_least.is_some_and(|least| celsius < least)
        });
        report.warnings.extend(is_beyond.then_some(DiskWarning::Temperature));
        report
    }
}

/// A byte with a sign, in degrees. -128 stands for none, and 0 is what disks without a sensor have.
fn possible(byte: u8) -> Option<i16> {
    Some(i16::from(byte.cast_signed())).filter(|celsius| ![0, -128].contains(celsius))
}

/// Thirty entries: number, two bytes of flags, the normalized value and the worst it has been, and six bytes of the
/// maker's own.
fn of_attributes(page: &[u8], is_flash: bool) -> Numbers {
    if !adds_up(page) {
        return Numbers::default();
    }
    let entries: Vec<&[u8; 12]> = page[2..362].as_chunks().0.iter().collect();
    let entry = |number: u8| entries.iter().find(|entry| entry[0] == number).copied();
    // Where the upper bytes are used, the maker has packed something else into them, so that it is no count.
    let count = |number| {
        let [_, _, _, _, _, a, b, c, d, 0, 0, _] = *entry(number)? else { return None };
        Some(u64::from(u32::from_le_bytes([a, b, c, d])))
    };
    // The lowest byte; the others may have the lowest and highest of the disk's life.
    let celsius = |number| entry(number).and_then(|entry| possible(entry[5]));
    // By the standard a value is from 1 to 253, and for what is left of a life it begins at 100. One that is at its end
    // is worn out, whether or not its maker would let it go to zero, which is no value.
    let left = [177, 202, 231, 233].into_iter().filter_map(|number| entry(number).map(|entry| entry[3]));
    let least = left.filter(|left| (1..=100).contains(left)).min();
    let used = |left: u8| if left == 1 { 100 } else { 100 - left };
    Numbers {
        celsius: celsius(194).or_else(|| celsius(190)),
        // Disks that turn have other things by these numbers.
        used_percent: least.filter(|_| is_flash).map(used),
        uncorrectable: count(187).or_else(|| count(198)),
        pending: count(197),
        reallocated: count(5),
        ..Numbers::default()
    }
}

#[cfg(test)]
mod tests;
