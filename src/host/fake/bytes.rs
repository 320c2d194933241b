//! Bytes of a disk that is mostly zeros: only pages that hold something take memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::extent::Extent;

const PAGE: u64 = 4096;
/// The smallest unit that can be unreadable; a larger sector is several of these.
const UNIT: u64 = 512;

/// A sparse disk content; unwritten bytes read as zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparseBytes {
    pages: BTreeMap<u64, Box<[u8]>>,
    /// The units that cannot be read until they are written.
    unreadable: BTreeSet<u64>,
}

impl SparseBytes {
    pub fn read(&self, offset: u64, buf: &mut [u8]) {
        each_page(offset, buf.len(), |page, within, at, len| match self.pages.get(&page) {
            Some(bytes) => buf[at..at + len].copy_from_slice(&bytes[within..within + len]),
            None => buf[at..at + len].fill(0),
        });
    }

    /// From now on that range cannot be read, until it is written.
    pub fn lose(&mut self, range: Extent) {
        self.unreadable.extend(range.start / UNIT..range.end.div_ceil(UNIT));
    }

    pub fn is_readable(&self, range: Extent) -> bool {
        range.is_empty() || self.unreadable.range(range.start / UNIT..range.end.div_ceil(UNIT)).next().is_none()
    }

    fn heal(&mut self, range: Extent) {
        self.unreadable.retain(|unit| !(range.start / UNIT..range.end.div_ceil(UNIT)).contains(unit));
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        self.heal(Extent { start: offset, end: offset + data.len() as u64 });
        each_page(offset, data.len(), |page, within, at, len| {
            let bytes = self.pages.entry(page).or_insert_with(|| vec![0; as_index(PAGE)].into_boxed_slice());
            bytes[within..within + len].copy_from_slice(&data[at..at + len]);
        });
    }

    pub fn zero(&mut self, range: Extent) {
        self.heal(range);
        let first_whole = range.start.div_ceil(PAGE);
        let end_whole = range.end / PAGE;
        if first_whole >= end_whole {
            return self.write(range.start, &vec![0; as_index(range.len())]);
        }
        self.write(range.start, &vec![0; as_index(first_whole * PAGE - range.start)]);
        self.write(end_whole * PAGE, &vec![0; as_index(range.end - end_whole * PAGE)]);
        let inside: Vec<u64> = self.pages.range(first_whole..end_whole).map(|(page, _)| *page).collect();
        for page in inside {
            self.pages.remove(&page);
        }
    }

    /// Forgets what is beyond `size`, as a smaller disk does.
    pub fn truncate(&mut self, size: u64) {
        let behind = self.pages.split_off(&size.div_ceil(PAGE));
        drop(behind);
        if let Some(last) = self.pages.get_mut(&(size / PAGE)) {
            last[as_index(size % PAGE)..].fill(0);
        }
    }

    /// True if every byte of the range is zero.
    pub fn is_zero(&self, range: Extent) -> bool {
        self.pages.range(range.start / PAGE..range.end.div_ceil(PAGE)).all(|(page, bytes)| {
            let start = range.start.saturating_sub(page * PAGE).min(PAGE);
            let end = range.end.saturating_sub(page * PAGE).min(PAGE);
            bytes[as_index(start)..as_index(end)].iter().all(|byte| *byte == 0)
        })
    }
}

/// Cuts `offset..offset+len` at page borders: page, offset within it, offset within the buffer, length.
fn each_page(offset: u64, len: usize, mut f: impl FnMut(u64, usize, usize, usize)) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let within = as_index(at % PAGE);
        let part = (as_index(PAGE) - within).min(len - done);
        f(at / PAGE, within, done, part);
        done += part;
    }
}

fn as_index(n: u64) -> usize {
    usize::try_from(n).expect("this code runs where usize is 64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_written_across_pages_read_back_and_zeroing_clears_only_its_range() {
        let mut bytes = SparseBytes::default();
        bytes.write(4000, &[7; 9000]);
        bytes.zero(Extent { start: 4100, end: 12500 });
        let mut back = vec![1; 9000];
        bytes.read(4000, &mut back);
        assert!(back[..100].iter().all(|b| *b == 7));
        assert!(back[100..8500].iter().all(|b| *b == 0));
        assert!(back[8500..].iter().all(|b| *b == 7));
        assert!(bytes.is_zero(Extent { start: 4100, end: 12500 }));
        assert!(!bytes.is_zero(Extent { start: 4099, end: 12500 }));
        assert!(!bytes.is_zero(Extent { start: 4100, end: 12501 }));
    }

    #[test]
    fn a_content_that_is_cut_keeps_what_is_before_and_is_zero_behind() {
        for size in [4096, 5000, 8192] {
            let mut bytes = SparseBytes::default();
            bytes.write(0, &[7; 12288]);
            bytes.truncate(size);
            let mut back = vec![1; 12288];
            bytes.read(0, &mut back);
            assert!(back[..as_index(size)].iter().all(|b| *b == 7), "{size}");
            assert!(bytes.is_zero(Extent { start: size, end: 12288 }), "{size}");
        }
    }
}
