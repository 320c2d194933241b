//! A durable effect on a disk in memory, and what of it a power cut leaves.

use super::bytes::SparseBytes;
use crate::host::extent::Extent;

#[derive(Clone)]
pub(super) enum Effect {
    Write(u64, Vec<u8>),
    Zero(Extent),
}

impl Effect {
    pub(super) fn apply(&self, content: &mut SparseBytes) {
        match self {
            Self::Write(offset, data) => content.write(*offset, data),
            Self::Zero(range) => content.zero(*range),
        }
    }

    /// The first half of it reaches the medium. Gives the last sector that did.
    pub(super) fn tear(&self, sector: u64, content: &mut SparseBytes) -> Extent {
        let (start, end) = match self {
            Self::Write(offset, data) => {
                let half = (data.len() as u64 / 2).next_multiple_of(sector);
                let keep = usize::try_from(half).unwrap_or(data.len()).min(data.len());
                content.write(*offset, &data[..keep]);
                (*offset, *offset + keep as u64)
            }
            Self::Zero(range) => {
                let kept = Extent { start: range.start, end: range.start + range.len() / 2 / sector * sector };
                content.zero(kept);
                (kept.start, kept.end)
            }
        };
        Extent { start: start.max(end.saturating_sub(sector)), end }
    }
}
