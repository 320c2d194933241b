//! Places on a disk in logical sectors, as the bytes of a GPT have them. Everywhere else a place or a size is in bytes,
//! so this is where the two could be mixed up.

use std::fmt;
use std::ops::Sub;

/// The number of a logical sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lba(pub u64);

impl Lba {
    /// Where the primary header is.
    pub const PRIMARY: Self = Self(1);

    /// The sector that begins at this byte.
    pub fn at(byte: u64, sector: u32) -> Self {
        Self(byte / u64::from(sector))
    }

    /// The last whole sector of a disk of `size` bytes.
    pub fn last_of(size: u64, sector: u32) -> Self {
        Self((size / u64::from(sector)).saturating_sub(1))
    }

    /// Its first byte. A number from a disk may be too large for that: then it is behind everything.
    pub fn start(self, sector: u32) -> u64 {
        self.0.saturating_mul(u64::from(sector))
    }

    /// The first byte behind it.
    pub fn end(self, sector: u32) -> u64 {
        Self(self.0.saturating_add(1)).start(sector)
    }
}

/// The sector that is this number of sectors before it.
impl Sub<u64> for Lba {
    type Output = Self;

    fn sub(self, sectors: u64) -> Self {
        Self(self.0 - sectors)
    }
}

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_is_the_bytes_from_its_start_to_its_end_and_a_number_from_a_disk_overflows_nothing() {
        for sector in [512, 4096] {
            let last = Lba::last_of(10 * u64::from(sector) + 1, sector);
            assert_eq!((last, last.end(sector)), (Lba(9), 10 * u64::from(sector)));
            assert_eq!(Lba::at(last.start(sector), sector), last);
            assert_eq!((Lba(u64::MAX).start(sector), Lba(u64::MAX).end(sector)), (u64::MAX, u64::MAX));
        }
        assert_eq!(Lba::last_of(511, 512), Lba(0));
    }
}
