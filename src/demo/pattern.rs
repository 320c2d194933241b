//! Bytes that nothing has by chance: written to a volume, and read back later past the page cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::host::Extent;

const PIECE: usize = 1 << 20;

/// An endless stream of bytes, a different one for each seed.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    seed: u64,
}

/// What was found in place of a pattern.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    #[error("byte {at} is not what was written")]
    Differs { at: u64 },
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Pattern {
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Writes the stream's bytes at these places, durably; returns their CRC-32.
    pub fn write(self, file: &File, places: &[Extent]) -> io::Result<u32> {
        let mut crc = crc32fast::Hasher::new();
        self.each_piece(places, |at, bytes| {
            crc.update(bytes);
            file.write_all_at(bytes, at)
        })?;
        file.sync_all()?;
        Ok(crc.finalize())
    }

    /// Reads these places from the medium and compares each byte; returns their CRC-32.
    pub fn verify(self, file: &File, places: &[Extent]) -> Result<u32, PatternError> {
        posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).map_err(io::Error::from)?;
        let mut crc = crc32fast::Hasher::new();
        let mut found = vec![0; PIECE];
        self.each_piece(places, |at, bytes| {
            let found = &mut found[..bytes.len()];
            file.read_exact_at(found, at)?;
            crc.update(found);
            if found == bytes {
                return Ok(());
            }
            let same = found.iter().zip(bytes).take_while(|(found, wanted)| found == wanted).count();
            Err(PatternError::Differs { at: at + same as u64 })
        })?;
        Ok(crc.finalize())
    }

    fn each_piece<E>(self, places: &[Extent], mut act: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut bytes = vec![0; PIECE];
        for place in places {
            let mut at = place.start;
            while at < place.end {
                let piece = &mut bytes[..usize::try_from(place.end - at).unwrap_or(PIECE).min(PIECE)];
                self.fill(at, piece);
                act(at, piece)?;
                at += piece.len() as u64;
            }
        }
        Ok(())
    }

    /// Each 8 bytes are their offset, mixed with the seed (the finalizer of splitmix64).
    fn fill(self, at: u64, bytes: &mut [u8]) {
        for (index, word) in (0_u64..).zip(bytes.chunks_mut(8)) {
            let mut mixed = self.seed.wrapping_add((at / 8 + index).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            word.copy_from_slice(&mixed.to_le_bytes()[..word.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_recognised_and_one_changed_byte_is_named() {
        let file = tempfile::tempfile().expect("a file");
        let places = [Extent { start: 0, end: 3 << 20 }, Extent { start: 8 << 20, end: (8 << 20) + 8 }];
        let wrote = Pattern::new(7).write(&file, &places).expect("written");
        assert_eq!(Pattern::new(7).verify(&file, &places).expect("the same"), wrote);
        assert!(matches!(Pattern::new(8).verify(&file, &places), Err(PatternError::Differs { at: 0 })));
        let mut byte = [0];
        file.read_exact_at(&mut byte, 1_500_000).expect("read");
        file.write_all_at(&[byte[0] ^ 1], 1_500_000).expect("changed");
        assert!(matches!(Pattern::new(7).verify(&file, &places), Err(PatternError::Differs { at: 1_500_000 })));
    }
}
