//! The two ends of a disk, where tables are, each read at once.
//!
//! Takes in a disk, gives out its bytes. Looking at both copies means seven reads; on a rotating disk every change of
//! the end is a seek, and on any other each read is a wait of its own.

use super::partitions::{SECTORS, SLOTS, array_sectors};
use crate::host::block::{BlockDevice, Geometry, IoError};

/// A disk, with what has been read of its ends. Everything else is read from the disk.
pub(super) struct Ends<'d> {
    dev: &'d dyn BlockDevice,
    pieces: Vec<Piece>,
}

struct Piece {
    start: u64,
    bytes: Vec<u8>,
}

impl<'d> Ends<'d> {
    /// Nothing is read in advance.
    pub fn unread(dev: &'d dyn BlockDevice) -> Self {
        Self { dev, pieces: Vec::new() }
    }

    /// MBR and primary table, and the backup table in the last sectors. An end that cannot be read as a whole
    /// is read piece by piece later, so that one bad sector hides no more than itself.
    pub fn read(dev: &'d dyn BlockDevice) -> Self {
        let Geometry { size, sector, .. } = dev.geometry();
        if !SECTORS.contains(&sector) {
            return Self::unread(dev);
        }
        let size = size - size % u64::from(sector);
        let table = (array_sectors(SLOTS, sector) + 1) * u64::from(sector);
        let front = size.min(u64::from(sector) + table);
        let pieces = [(0, front), (size.saturating_sub(table), size)];
        let read = |(start, end): (u64, u64)| {
            let mut bytes = vec![0; usize::try_from(end - start).ok()?];
            dev.read_at(start, &mut bytes).ok().map(|()| Piece { start, bytes })
        };
        Self { dev, pieces: pieces.into_iter().filter_map(read).collect() }
    }

    pub fn geometry(&self) -> Geometry {
        self.dev.geometry()
    }

    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        match self.pieces.iter().find_map(|piece| piece.get(offset, buf.len())) {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => self.dev.read_at(offset, buf),
        }
    }
}

impl Piece {
    fn get(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(start..start.checked_add(len)?)
    }
}
