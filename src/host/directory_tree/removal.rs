//! What is in a folder is removed bit by bit, whatever a tenant has put there: no link is followed, no mount is entered,
//! and what cannot be removed keeps nothing else.
//!
//! All goes by descriptors and single names, as a path may be longer than the kernel takes, and may lead elsewhere by
//! the time it is used.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, RenameFlags, openat2, renameat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::lookup::how;
use crate::host::error::HostError;
use crate::host::filesystem_root::Emptying;
use crate::host::ioctl;

/// How deep one call goes down: a tenant may nest folders until no stack or table of descriptors holds them.
const DEEPEST: usize = 64;
/// In characters: what is said of a path that is longer is its beginning and its end.
const LONGEST_SAID: usize = 160;

/// A removal that ends after a number of entries.
pub(super) struct Removal<'t> {
    /// The folder that is emptied. What is too deep for one call goes to its top, so that it is not empty before that
    /// is gone, too.
    top: &'t OwnedFd,
    /// How many entries may still be tried.
    left: usize,
    removed: usize,
    /// Where it is, below the top.
    at: PathBuf,
    /// What was not removed first, and why; and how many more.
    kept: Option<(PathBuf, Errno)>,
    others: usize,
}

impl<'t> Removal<'t> {
    pub fn new(top: &'t OwnedFd, most: usize) -> Self {
        Self { top, left: most, removed: 0, at: PathBuf::new(), kept: None, others: 0 }
    }

    /// `path`: that of the top, for people.
    pub fn run(mut self, path: &Path) -> Result<Emptying, HostError> {
        let emptied = self.empty(self.top, 0);
        // What was lifted up is there now.
        let is_empty = emptied.and_then(|is_empty| Ok(is_empty && is_empty_now(self.top)?));
        let is_over = self.left == 0;
        match (is_empty, self.kept) {
            (Ok(true), _) => Ok(Emptying::Empty),
            (Err(errno), _) => Err(kept(path, errno, 0)),
            (Ok(false), Some((at, errno))) if !is_over || self.removed == 0 => {
                Err(kept(&path.join(at), errno, self.others))
            }
            (Ok(false), None) if self.removed == 0 => Err(kept(path, Errno::ENOTEMPTY, 0)),
            (Ok(false), _) => Ok(Emptying::Begun),
        }
    }

    /// Whether a folder is empty.
    fn empty(&mut self, folder: &OwnedFd, depth: usize) -> Result<bool, Errno> {
        // Read as it goes: of a folder with millions of entries no more is listed than this call removes.
        let mut listing = Dir::from_fd(openat2(folder, ".", how(OFlag::O_DIRECTORY))?)?;
        let mut is_empty = true;
        for entry in listing.iter() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if self.left == 0 {
                return Ok(false);
            }
            is_empty &= self.is_removed(folder, name, depth);
        }
        Ok(is_empty)
    }

    fn is_removed(&mut self, folder: &OwnedFd, name: &OsStr, depth: usize) -> bool {
        self.at.push(name);
        let is_gone = match self.remove(folder, name, depth) {
            Ok(is_gone) => is_gone,
            // Somebody else was faster.
            Err(Errno::ENOENT) => true,
            // Somebody has just put something there.
            Err(Errno::ENOTEMPTY) => false,
            Err(errno) => {
                self.left = self.left.saturating_sub(1);
                self.others += usize::from(self.kept.is_some());
                self.kept.get_or_insert_with(|| (self.at.clone(), errno));
                false
            }
        };
        self.at.pop();
        is_gone
    }

    /// False: something is left of it.
    fn remove(&mut self, folder: &OwnedFd, name: &OsStr, depth: usize) -> Result<bool, Errno> {
        match open(folder, name)? {
            Some(_) if depth == DEEPEST => self.lift(folder, name)?,
            Some(inner) => {
                prove_inside(folder, &inner)?;
                if !self.empty(&inner, depth + 1)? || self.left == 0 {
                    return Ok(false);
                }
                insist_inside(folder, name, || unlinkat(folder, name, UnlinkatFlags::RemoveDir))?;
            }
            None => insist_inside(folder, name, || unlinkat(folder, name, UnlinkatFlags::NoRemoveDir))?,
        }
        (self.left, self.removed) = (self.left - 1, self.removed + 1);
        Ok(true)
    }

    fn lift(&self, folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        let aside = uuid::Uuid::new_v4().simple().to_string();
        let lift = || renameat2(folder, name, self.top, &*aside, RenameFlags::RENAME_NOREPLACE);
        match insist_inside(folder, name, lift) {
            Err(Errno::EPERM) => {
                let _ = ioctl::allow_removal(self.top);
                lift()
            }
            // A tenant has given it to another project, and the top takes in nothing but its own.
            Err(Errno::EXDEV) => {
                let inner = openat2(folder, name, how(OFlag::O_DIRECTORY))?;
                let (project, _) = ioctl::project(self.top).map_err(errno_of)?;
                ioctl::set_project(&inner, project).map_err(errno_of)?;
                lift()
            }
            done => done,
        }
    }
}

/// An entry that is a folder, opened; `None`: it is something else. EXDEV: something is mounted there.
pub(super) fn open(folder: &OwnedFd, name: &OsStr) -> Result<Option<OwnedFd>, Errno> {
    let (entry, sort) = entry(folder, name)?;
    match sort == SFlag::S_IFDIR {
        true => openat2(&entry, ".", how(OFlag::O_DIRECTORY)).map(Some),
        false => Ok(None),
    }
}

/// An entry as it is in the folder, and what it is. Whoever is mounted there is not asked: he may never answer.
fn entry(folder: &OwnedFd, name: &OsStr) -> Result<(OwnedFd, SFlag), Errno> {
    let entry = openat2(folder, name, how(OFlag::O_PATH))?;
    let mode = fstat(&entry)?.st_mode;
    Ok((entry, SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits())))
}

/// Removes an entry that is an empty folder, or none.
pub(super) fn remove(folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let flag = open(folder, name)?.map_or(UnlinkatFlags::NoRemoveDir, |_| UnlinkatFlags::RemoveDir);
    insist(folder, name, || unlinkat(folder, name, flag))
}

/// Does it, if need be without the attributes of an entry that forbid that it is moved or removed. Those of the folder
/// that it is in stay: it may be one of the pool's, which a person protects.
pub(super) fn insist(folder: &OwnedFd, name: &OsStr, does: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    match does() {
        Err(Errno::EPERM) => {
            let (entry, sort) = entry(folder, name)?;
            // Nothing else has them; and to open a device may do something to it. So it is opened by what was looked
            // at: a tenant may have put something else there since.
            if sort == SFlag::S_IFREG || sort == SFlag::S_IFDIR {
                let itself = format!("/proc/self/fd/{}", entry.as_raw_fd());
                let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
                let _ = nix::fcntl::open(&*itself, flags, Mode::empty()).map(ioctl::allow_removal);
            }
            does()
        }
        done => done,
    }
}

/// The same in a folder that is to be removed, too.
fn insist_inside(folder: &OwnedFd, name: &OsStr, does: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    match does() {
        Err(Errno::EPERM) => {
            let _ = ioctl::allow_removal(folder);
            insist(folder, name, does)
        }
        done => done,
    }
}

/// What stays, and why, for people.
pub(super) fn kept(path: &Path, errno: Errno, others: usize) -> HostError {
    let why = match errno {
        Errno::EXDEV | Errno::EBUSY => "something is mounted there: unmount it".to_owned(),
        errno => std::io::Error::from(errno).to_string(),
    };
    HostError::Kept { path: said(path), why, others }
}

/// Without what would break a line, and not endless.
fn said(path: &Path) -> String {
    let path: Vec<char> = path.to_string_lossy().escape_debug().collect();
    match path.len() <= LONGEST_SAID {
        true => path.into_iter().collect(),
        false => {
            let (begin, end) = (path.iter().take(LONGEST_SAID / 2), path.iter().skip(path.len() - LONGEST_SAID / 2));
            begin.chain(&['…']).chain(end).collect()
        }
    }
}

fn is_empty_now(folder: &OwnedFd) -> Result<bool, Errno> {
    let mut listing = Dir::from_fd(openat2(folder, ".", how(OFlag::O_DIRECTORY))?)?;
    for entry in listing.iter() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// openat2 says so, too; a mistake here would remove somebody else's files.
fn prove_inside(folder: &OwnedFd, inner: &OwnedFd) -> Result<(), Errno> {
    let device = |of: &OwnedFd| fstat(of).map(|found: FileStat| found.st_dev);
    if device(folder)? == device(inner)? { Ok(()) } else { Err(Errno::EXDEV) }
}

fn errno_of(error: std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_path_is_one_line_of_a_bounded_length() {
        assert_eq!(said(Path::new("/a/b\nc")), "/a/b\\nc");
        let long = said(&Path::new("/trash").join("x".repeat(4000)).join("end"));
        assert_eq!(long.chars().count(), LONGEST_SAID + 1);
        assert!(long.starts_with("/trash/xxx") && long.ends_with("xx/end"), "{long}");
    }

    #[test]
    fn a_mount_in_the_way_is_named_with_what_to_do_and_others_are_counted() {
        let one = kept(Path::new("/t/a"), Errno::EXDEV, 0).to_string();
        assert_eq!(one, "/t/a cannot be removed: something is mounted there: unmount it");
        let several = kept(Path::new("/t/a"), Errno::EPERM, 2).to_string();
        assert_eq!(several, "/t/a cannot be removed: Operation not permitted (os error 1); and so 2 more");
    }
}
