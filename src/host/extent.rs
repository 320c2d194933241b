//! A range of bytes on a disk. Owns nothing, takes in and gives out plain numbers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// `start..end` in bytes from the start of the disk; `start <= end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Extent {
    pub start: u64,
    pub end: u64,
}

impl Extent {
    /// An extent of `len` bytes, or `None` if its end does not fit into a number.
    pub fn sized(start: u64, len: u64) -> Option<Self> {
        Some(Self { start, end: start.checked_add(len)? })
    }

    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the part of its bytes that lies in a buffer that was read at `offset`; no bytes are zeros.
    pub fn lay_over(&self, bytes: Option<&[u8]>, offset: u64, buf: &mut [u8]) {
        let (start, end) = (self.start.max(offset), self.end.min(offset.saturating_add(buf.len() as u64)));
        for at in start..end {
            let index = |from: u64| usize::try_from(at - from).ok();
            let byte = bytes.map_or(Some(0), |bytes| bytes.get(index(self.start)?).copied());
            if let (Some(place), Some(byte)) = (index(offset).and_then(|index| buf.get_mut(index)), byte) {
                *place = byte;
            }
        }
    }

    pub fn contains(&self, other: &Extent) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    pub fn overlaps(&self, other: &Extent) -> bool {
        self.start < other.end && other.start < self.end
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}
