//! The content of files and images: patterns to write, and what is there now.

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use nix::unistd::{Whence, lseek64};

/// The content of a file: a hash of each block that is not all zeros, with its place.
pub fn fingerprint(image: &Path) -> u64 {
    let mut hash = DefaultHasher::new();
    each_block(image, 0, fs::metadata(image).unwrap().size(), |at, block| {
        if block.iter().any(|byte| *byte != 0) {
            (at, block).hash(&mut hash);
        }
    });
    hash.finish()
}

/// The first byte of a range that is not zero.
pub fn first_dirty(image: &Path, from: u64, to: u64) -> Option<u64> {
    let zeros = vec![0; usize::try_from(BLOCK).expect("a block fits")];
    let mut found = None;
    each_block(image, from, to, |at, block| {
        if found.is_none() && block != &zeros[..block.len()] {
            found = Some(at + block.iter().position(|byte| *byte != 0).unwrap() as u64);
        }
    });
    found
}

const BLOCK: u64 = 64 << 10;

/// The blocks of a range that are not holes of the file.
fn each_block(image: &Path, from: u64, to: u64, mut each: impl FnMut(u64, &[u8])) {
    let file = File::open(image).unwrap();
    let mut at = from;
    while at < to {
        let Ok(data) = lseek64(&file, i64::try_from(at).unwrap(), Whence::SeekData) else { return };
        let data = u64::try_from(data).unwrap().max(at);
        if data >= to {
            return;
        }
        // Blocks have the same boundaries wherever the file's holes are.
        let start = (data / BLOCK * BLOCK).max(at);
        let end = to.min(start / BLOCK * BLOCK + BLOCK);
        let mut block = vec![0; usize::try_from(end - start).unwrap()];
        file.read_exact_at(&mut block, start).unwrap();
        each(start, &block);
        at = end;
    }
}

/// Bytes that are unique to their place: each word says where it is.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let words = (0..len as u64 / 8).flat_map(|n| (n ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes());
    words.collect()
}

pub fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
