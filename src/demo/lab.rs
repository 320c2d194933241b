//! Everything that the demo has on the machine: a directory, loop disks on images in it, mounts below it.
//!
//! Mounts are found by looking at the machine, never by a list, so that a stop at any moment is tidied up.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, umount2};

use super::disks::LoopDisk;
use super::error::DemoError;
use crate::device::Size;
use crate::host::{Mount, Mounts, RealMounts, chain};

/// The most that the images can grow to: the journals and logs of four filesystems, and the data on them.
const ROOM: u64 = 1 << 30;
/// A set's `paths` are patterns, in which these mean something.
const PATTERN_CHARACTERS: &[char] = &['*', '?', '[', ']', '{', '}', '\\'];

#[derive(Debug)]
pub struct Lab {
    dir: PathBuf,
    disks: Vec<LoopDisk>,
    tidy: Tidy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tidy {
    NotYet,
    Done,
}

impl Lab {
    /// An empty lab, if there is room.
    pub fn new() -> Result<Self, DemoError> {
        let base = std::env::temp_dir();
        let base = fs::canonicalize(&base).map_err(DemoError::io("find the directory", base.display()))?;
        if base.to_str().is_none_or(|text| text.contains(PATTERN_CHARACTERS)) {
            let message = format!("{} has characters that the demo cannot use: set TMPDIR to another", base.display());
            return Err(DemoError::Place(message));
        }
        let free = RealMounts.usage(&base).map_err(DemoError::host("see how much room there is"))?.available;
        if free < ROOM {
            return Err(DemoError::Place(format!(
                "{} has {} free, and the demo needs {}: make room, or set TMPDIR to a directory that has it",
                base.display(),
                Size(free),
                Size(ROOM)
            )));
        }
        let dir = make_dir(&base).map_err(DemoError::io("make a directory in", base.display()))?;
        Ok(Self { dir, disks: Vec::new(), tidy: Tidy::NotYet })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn attach(&mut self, name: &str, size: u64) -> Result<(), DemoError> {
        let disk = LoopDisk::attach(self.path(&format!("{name}.img")), size)?;
        self.disks.push(disk);
        Ok(())
    }

    pub fn disks(&self) -> &[LoopDisk] {
        &self.disks
    }

    pub fn log(&self) -> PathBuf {
        self.path("driver.log")
    }

    /// The end of the driver's log.
    pub fn log_tail(&self, count: usize) -> String {
        let Ok(text) = fs::read_to_string(self.log()) else { return "the driver has written no log".to_owned() };
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(count)..].join("\n  ");
        format!("the driver's last lines:\n  {tail}")
    }

    /// What is mounted below the directory, in the order in which it was mounted.
    pub fn mounts(&self) -> Result<Vec<Mount>, DemoError> {
        let table = RealMounts.table().map_err(DemoError::host("read the mount table"))?;
        Ok(table.into_iter().filter(|mount| mount.target.starts_with(&self.dir)).collect())
    }

    /// Takes everything down; the driver is gone already. Returns what there was to take down, or what remains.
    pub fn sweep(&mut self) -> Result<String, DemoError> {
        if self.tidy == Tidy::Done {
            return Ok("it was tidied up before".to_owned());
        }
        let mut remains = Vec::new();
        let mounts = self.unmount(&mut remains);
        let disks = self.disks.len();
        self.disks.retain(|disk| match disk.detach() {
            Ok(()) => false,
            Err(error) => {
                remains.push(format!("{}: {}", disk.path().display(), chain(&error)));
                true
            }
        });
        match remains.is_empty() {
            true => {
                if let Err(error) = fs::remove_dir_all(&self.dir) {
                    remains.push(format!("{}: {error}", self.dir.display()));
                }
            }
            // With something mounted in it or bound to it, it must remain.
            false => remains.push(self.dir.display().to_string()),
        }
        if !remains.is_empty() {
            return Err(DemoError::LeftBehind(remains));
        }
        self.tidy = Tidy::Done;
        Ok(format!("{mounts} mounts, {disks} loop devices and {} taken down", self.dir.display()))
    }

    fn unmount(&self, remains: &mut Vec<String>) -> usize {
        let mounts = match self.mounts() {
            Ok(mounts) => mounts,
            Err(error) => {
                remains.push(chain(&error));
                return 0;
            }
        };
        for mount in mounts.iter().rev() {
            // Somebody may be looking around in it: then it goes away when they leave.
            let taken = umount2(&mount.target, MntFlags::UMOUNT_NOFOLLOW)
                .or_else(|_| umount2(&mount.target, MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH));
            if let Err(errno) = taken {
                remains.push(format!("the mount at {}: {errno}", mount.target.display()));
            }
        }
        mounts.len()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.tidy == Tidy::NotYet
            && let Err(error) = self.sweep()
        {
            super::report::say(&error.to_string());
        }
    }
}

/// A new directory for root only. Short, as a socket's path in it has at most 107 bytes.
fn make_dir(base: &Path) -> io::Result<PathBuf> {
    let mut attempt = 0;
    loop {
        let dir = base.join(format!("localpool-demo-{}-{attempt}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 100 => attempt += 1,
            made => return made.map(|()| dir),
        }
    }
}
