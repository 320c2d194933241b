//! Memory that O_DIRECT accepts: a subslice of a larger allocation. Takes in a length, gives out bytes.

use std::io;

/// Enough for the DMA alignment of every device, and the largest sector that we support.
const ALIGN: usize = 4096;

/// Zeroed bytes that begin at a multiple of 4096 in memory.
#[derive(Debug)]
pub(super) struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    pub(super) fn new(len: u64) -> io::Result<Self> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let len = usize::try_from(len).map_err(|_| too_large())?;
        let bytes = vec![0; len.checked_add(ALIGN).ok_or_else(too_large)?];
        // At most ALIGN - 1, as alignment of a byte pointer can always be reached byte by byte.
        let start = bytes.as_ptr().align_offset(ALIGN);
        Ok(Self { bytes, start, len })
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl AsMut<[u8]> for AlignedBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_any_length_begin_at_a_multiple_of_4096() {
        for len in [1, 511, 512, 4096, 17 * 1024, 1 << 20] {
            let buffer = AlignedBuffer::new(len).unwrap();
            assert_eq!(buffer.as_ref().as_ptr().addr() % 4096, 0);
            assert_eq!(buffer.as_ref().len() as u64, len);
        }
    }
}
