//! What CreateVolume is measured against: the tools that an administrator has, and the bare disk.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::lab::{Disk, Image, Lab};
use crate::measure::Samples;
use crate::pace::Size;

/// A second each; more of them say nothing more.
const SGDISK_BATCH: Size = Size { full: 4, short: 1 };
const TIMEOUT: Duration = Duration::from_secs(2);
/// 128 entries of 128 bytes and the header's sector: one copy of the table.
const TABLE_COPY: u64 = 33 * 512;
const ALIGNMENT: usize = 4096;

/// sgdisk with partx on a disk of its own.
pub struct Sgdisk {
    disk: Disk,
    partitions: u32,
    volume: u64,
    pub create: Samples,
    pub delete: Samples,
}

/// The bytes of CreateVolume, written by O_DIRECT and synced by nobody in particular.
pub struct Bare {
    file: File,
    /// Offset and length: a label, the backup and the primary table.
    writes: [(u64, u64); 3],
    pub one: Samples,
    /// In a second, with many threads.
    pub many_rate: Samples,
    // After the file: it is detached when nobody has it open any more.
    _disk: Disk,
}

impl Sgdisk {
    pub fn new(lab: &Lab, disk_size: u64, volume: u64) -> Result<Self> {
        let disk = lab.disk("sgdisk.img", disk_size, Image::Allocated)?;
        lab.run("sgdisk", &["--clear", disk.text()])?;
        Ok(Self { disk, partitions: 0, volume, create: Samples::default(), delete: Samples::default() })
    }

    /// Makes partitions one by one and tells the kernel of each.
    pub fn create(&mut self, lab: &Lab) -> Result<()> {
        let disk = self.disk.text();
        for _ in 0..lab.pace().of(SGDISK_BATCH) {
            self.partitions += 1;
            let wanted = format!("{}:0:+{}M", self.partitions, self.volume >> 20);
            let began = Instant::now();
            lab.run("sgdisk", &["-n", &wanted, disk])?;
            lab.run("partx", &["-u", disk])?;
            self.create.push(began.elapsed());
        }
        Ok(())
    }

    /// Deletes what `create` made.
    pub fn delete(&mut self, lab: &Lab) -> Result<()> {
        let disk = self.disk.text();
        for number in (1..=std::mem::take(&mut self.partitions)).map(|number| number.to_string()) {
            let began = Instant::now();
            // Busy while anybody has it open, such as one who looks at all devices of the machine.
            while let Err(error) = lab.run("partx", &["-d", "--nr", &number, disk]) {
                if began.elapsed() > TIMEOUT {
                    return Err(error);
                }
            }
            lab.run("sgdisk", &["-d", &number, disk])?;
            self.delete.push(began.elapsed());
        }
        Ok(())
    }

    /// Making and deleting, together.
    pub fn both(&self) -> Samples {
        let mut both = Samples::default();
        for (create, delete) in self.create.values().iter().zip(self.delete.values()) {
            both.push_value(create + delete);
        }
        both
    }
}

impl Bare {
    pub fn new(lab: &Lab, disk_size: u64, bytes: u64) -> Result<Self> {
        let disk = lab.disk("bare.img", disk_size, Image::Allocated)?;
        let label =
            bytes.checked_sub(2 * TABLE_COPY).ok_or_else(|| anyhow!("{bytes} bytes are less than two tables"))?;
        let writes = [(1 << 20, label), (disk_size - TABLE_COPY, TABLE_COPY), (512, TABLE_COPY)];
        let file = open(&disk)?;
        // The first write to a block that was only allocated costs the filesystem below more.
        for _ in 0..8 {
            write_all(&file, &writes)?;
        }
        Ok(Self { file, writes, one: Samples::default(), many_rate: Samples::default(), _disk: disk })
    }

    pub fn one(&mut self, rounds: usize) -> Result<()> {
        for _ in 0..rounds {
            self.one.push(write_all(&self.file, &self.writes)?);
        }
        Ok(())
    }

    pub fn many(&mut self, threads: usize, rounds: usize) -> Result<()> {
        let began = Instant::now();
        let each = rounds / threads;
        let (file, writes) = (&self.file, &self.writes);
        std::thread::scope(|scope| {
            let work = || (0..each).try_for_each(|_| write_all(file, writes).map(drop));
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
        })?;
        self.many_rate.push_value((each * threads) as f64 / began.elapsed().as_secs_f64());
        Ok(())
    }
}

fn open(disk: &Disk) -> Result<File> {
    Ok(OpenOptions::new().write(true).custom_flags(nix::libc::O_DIRECT).open(disk.path())?)
}

fn write_all(file: &File, writes: &[(u64, u64)]) -> Result<Duration> {
    let mut buffers = Vec::new();
    for (_, length) in writes {
        buffers.push(vec![0x5a; usize::try_from(*length)? + ALIGNMENT]);
    }
    let began = Instant::now();
    for ((at, length), buffer) in writes.iter().zip(&buffers) {
        let start = buffer.as_ptr().align_offset(ALIGNMENT);
        file.write_all_at(&buffer[start..start + usize::try_from(*length)?], *at)?;
        file.sync_data()?;
    }
    Ok(began.elapsed())
}
