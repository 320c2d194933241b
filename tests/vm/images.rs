//! The bytes of the disks, seen from outside the guest: what the driver must not have written.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use nix::unistd::{Whence, lseek};

use crate::bench::Bench;
use crate::cases::Case;

/// A checksum of each image that nobody else writes to, by its name.
pub fn checksums(bench: &mut Bench, which: impl Fn(&Case) -> bool) -> BTreeMap<String, u32> {
    bench.guest.run("sync");
    let folder = bench.folder.join("images");
    let quiet = bench.cases.iter().filter(|case| !case.is_busy && which(case));
    let disks = quiet.flat_map(|case| &case.disks).filter(|disk| disk.mib > 0);
    disks.map(|disk| (disk.image.clone(), checksum(&folder.join(&disk.image)))).collect()
}

/// Covers the data outside of holes, and its place.
fn checksum(image: &Path) -> u32 {
    let file = File::open(image).unwrap();
    let size = i64::try_from(file.metadata().unwrap().len()).unwrap();
    let mut sum = crc32fast::Hasher::new();
    let mut block = vec![0; 1 << 20];
    let mut at = 0;
    while at < size {
        let Ok(data) = lseek(&file, at, Whence::SeekData) else { break };
        let end = lseek(&file, data, Whence::SeekHole).unwrap();
        at = data;
        while at < end {
            let length = usize::try_from((end - at).min(1 << 20)).unwrap();
            file.read_exact_at(&mut block[..length], u64::try_from(at).unwrap()).unwrap();
            // A reader cannot distinguish a hole from zeros.
            for (index, page) in block[..length].chunks(4096).enumerate() {
                if page.iter().any(|byte| *byte != 0) {
                    sum.update(&(at + i64::try_from(index * 4096).unwrap()).to_le_bytes());
                    sum.update(page);
                }
            }
            at += i64::try_from(length).unwrap();
        }
    }
    sum.finalize()
}

/// The names whose bytes have changed.
pub fn changed(before: &BTreeMap<String, u32>, after: &BTreeMap<String, u32>) -> Vec<String> {
    before.iter().filter(|(name, sum)| after.get(*name) != Some(sum)).map(|(name, _)| name.clone()).collect()
}
