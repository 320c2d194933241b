//! A disk in memory for tests: sparse, counts what is done to it, and can lose power in the middle of a write.

use std::sync::Mutex;

use crate::host::block::{BlockDevice, Geometry, IoError};
use crate::host::extent::Extent;
use crate::host::fake::SparseBytes;

/// What was done to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Write { offset: u64, len: u64 },
    Sync,
}

#[derive(Debug)]
pub struct MemoryDisk {
    geometry: Geometry,
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    content: SparseBytes,
    ops: Vec<Op>,
    /// Writes that go through whole, then sectors of the next one; afterwards everything fails.
    power: Option<(usize, u64, Torn)>,
    largest_read: usize,
    reads: usize,
}

/// Which end of a torn write reached the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Torn {
    Head,
    Tail,
}

impl MemoryDisk {
    pub fn new(size: u64, sector: u32) -> Self {
        Self { geometry: Geometry { size, sector, offloads_zeroes: false }, state: Mutex::default() }
    }

    /// The same bytes, as they would be found after a restart.
    pub fn restarted(&self) -> Self {
        self.resized(self.geometry.size)
    }

    /// The same bytes on a disk of another size.
    pub fn resized(&self, size: u64) -> Self {
        let mut content = self.lock().content.clone();
        content.truncate(size);
        Self { geometry: Geometry { size, ..self.geometry }, state: Mutex::new(State { content, ..State::default() }) }
    }

    /// The power is cut after `writes` writes and `sectors` sectors of the next.
    pub fn lose_power(self, writes: usize, sectors: u64, torn: Torn) -> Self {
        self.lock().power = Some((writes, sectors, torn));
        self
    }

    /// Reads of that range fail until it is written.
    pub fn break_range(&self, range: Extent) {
        self.lock().content.lose(range);
    }

    pub fn ops(&self) -> Vec<Op> {
        self.lock().ops.clone()
    }

    /// Bytes of the largest read so far: what a disk made us allocate.
    pub fn largest_read(&self) -> usize {
        self.lock().largest_read
    }

    /// How many reads succeeded so far.
    pub fn reads(&self) -> usize {
        self.lock().reads
    }

    pub fn bytes(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut buf = vec![0; usize::try_from(len).unwrap()];
        self.lock().content.read(offset, &mut buf);
        buf
    }

    /// Changes bytes behind everybody's back, aligned or not.
    pub fn poke(&self, offset: u64, data: &[u8]) {
        self.lock().content.write(offset, data);
    }

    pub fn flip(&self, offset: u64, mask: u8) {
        let old = self.bytes(offset, 1)[0];
        self.poke(offset, &[old ^ mask]);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn failed(&self, what: &'static str, range: Extent) -> IoError {
        IoError { what, disk: "memory".into(), range, source: std::io::Error::from_raw_os_error(5) }
    }
}

impl BlockDevice for MemoryDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        let range = Extent::sized(offset, buf.len() as u64).unwrap();
        let sector = u64::from(self.geometry.sector);
        assert!(offset.is_multiple_of(sector) && range.len().is_multiple_of(sector), "unaligned read of {range}");
        let mut state = self.lock();
        if range.end > self.geometry.size || !state.content.is_readable(range) {
            return Err(self.failed("read", range));
        }
        state.content.read(offset, buf);
        state.largest_read = state.largest_read.max(buf.len());
        state.reads += 1;
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        let range = Extent::sized(offset, data.len() as u64).unwrap();
        let sector = u64::from(self.geometry.sector);
        assert!(offset.is_multiple_of(sector) && range.len().is_multiple_of(sector), "unaligned write of {range}");
        let mut state = self.lock();
        if range.end > self.geometry.size {
            return Err(self.failed("write", range));
        }
        match &mut state.power {
            Some((0, sectors, torn)) => {
                let kept = usize::try_from(*sectors * sector).unwrap().min(data.len());
                let (torn, lost) = (*torn, data.len() - kept);
                *sectors = 0;
                match torn {
                    Torn::Head => state.content.write(offset, &data[..kept]),
                    Torn::Tail => state.content.write(offset + lost as u64, &data[lost..]),
                }
                return Err(self.failed("write", range));
            }
            Some((writes, _, _)) => *writes -= 1,
            None => {}
        }
        state.content.write(offset, data);
        state.ops.push(Op::Write { offset, len: range.len() });
        Ok(())
    }

    fn zero(&self, range: Extent) -> Result<(), IoError> {
        self.write_at(range.start, &vec![0; usize::try_from(range.len()).unwrap()])
    }

    fn discard(&self, _range: Extent) -> Result<(), IoError> {
        Ok(())
    }

    fn sync(&self) -> Result<(), IoError> {
        self.lock().ops.push(Op::Sync);
        Ok(())
    }
}
