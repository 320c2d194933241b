//! A filesystem's root of this machine: every path is looked up from its descriptor, by openat2.
//!
//! Takes in the mount point and the node of the device that must be mounted there; gives out a [`FilesystemRoot`].

mod lookup;
mod quota;
mod removal;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, open, openat, openat2, renameat, renameat2};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat, fstatat, mkdirat, stat};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{UnlinkatFlags, fsync, unlinkat};

use self::lookup::how;
use self::removal::Removal;
use super::error::HostError;
use super::filesystem_root::{Emptying, FilesystemRoot};
use super::fs_usage::FsUsage;

/// More than any of our files has.
const LONGEST: u64 = 1 << 20;
pub struct DirectoryTree {
    root: OwnedFd,
    at: PathBuf,
}

impl DirectoryTree {
    /// A root that was opened, and proven, at a path.
    pub fn of(root: OwnedFd, at: &Path) -> Self {
        Self { root, at: at.to_owned() }
    }

    /// The root of what is mounted at `target`, which must be the device at `node`.
    pub fn open(target: &Path, node: &Path) -> Result<Self, HostError> {
        let fail = |what, path: &Path, errno: Errno| failed(what, &path.display().to_string(), errno);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let root = open(target, flags, Mode::empty()).map_err(|errno| fail("open", target, errno))?;
        let found = fstat(&root).map_err(|errno| fail("look at", target, errno))?;
        let device = stat(node).map_err(|errno| fail("look at", node, errno))?;
        if found.st_dev != device.st_rdev {
            let why = format!("the filesystem of {} is not mounted there", node.display());
            return Err(HostError::Changed { path: target.to_owned(), why });
        }
        Ok(Self { root, at: target.to_owned() })
    }

    fn object(&self, path: &Path) -> String {
        self.at.join(path).display().to_string()
    }

    fn fail(&self, what: &'static str, path: &Path) -> impl Fn(Errno) -> HostError + use<> {
        let object = self.object(path);
        move |errno| failed(what, &object, errno)
    }

    /// A folder below the root; the root itself by an empty path.
    fn folder(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        openat2(&self.root, path, how(OFlag::O_DIRECTORY))
    }

    /// The folder that a path ends in, and its last name.
    fn parent<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p OsStr), Errno> {
        let name = path.file_name().ok_or(Errno::EINVAL)?;
        Ok((self.folder(path.parent().unwrap_or(Path::new("")))?, name))
    }

    fn replace(&self, file: &Path, text: &str) -> io::Result<()> {
        let (folder, name) = self.parent(file)?;
        let aside = format!(".{}.new", name.to_string_lossy());
        let mut new = match new_file(&folder, &aside) {
            Err(Errno::EEXIST) => {
                remove_leftover(&folder, &aside)?;
                new_file(&folder, &aside)?
            }
            opened => opened?,
        };
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        renameat(&folder, &*aside, &folder, name)?;
        Ok(fsync(&folder)?)
    }

    fn text(&self, file: &Path) -> io::Result<Option<String>> {
        let opened = openat2(&self.root, file, how(OFlag::O_NONBLOCK));
        let file = match opened {
            Ok(file) => File::from(file),
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let found = file.metadata()?;
        if !found.is_file() || found.len() > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no file, or a long one"));
        }
        let mut text = String::new();
        file.take(LONGEST).read_to_string(&mut text)?;
        Ok(Some(text))
    }
}

impl FilesystemRoot for DirectoryTree {
    fn names(&self, folder: &Path) -> Result<Vec<String>, HostError> {
        let opened = match self.folder(folder) {
            Err(Errno::ENOENT) => return Ok(Vec::new()),
            opened => opened.map_err(self.fail("open", folder))?,
        };
        let listed = listing(opened).map_err(self.fail("list", folder))?;
        Ok(listed.iter().map(|name| name.to_string_lossy().into_owned()).collect())
    }

    fn read(&self, file: &Path) -> Result<Option<String>, HostError> {
        self.text(file).map_err(|source| HostError::Io { what: "read", object: self.object(file), source })
    }

    fn write(&self, file: &Path, text: &str) -> Result<(), HostError> {
        let failed = |source| HostError::Io { what: "write", object: self.object(file), source };
        self.replace(file, text).map_err(failed)
    }

    fn remove_file(&self, file: &Path) -> Result<(), HostError> {
        let removed = self.parent(file).and_then(|(folder, name)| {
            unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir)?;
            fsync(&folder)
        });
        match removed {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(self.fail("remove", file)(errno)),
        }
    }

    fn make_folder(&self, folder: &Path, mode: u32) -> Result<(), HostError> {
        let made = self.parent(folder).and_then(|(parent, name)| {
            mkdirat(&parent, name, Mode::S_IRWXU)?;
            // Whatever this process's umask says.
            let made = openat(&parent, name, OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
            fchmod(&made, Mode::from_bits_truncate(mode))?;
            fsync(&made)?;
            fsync(&parent)
        });
        match made {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(self.fail("make", folder)(errno)),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), HostError> {
        let renamed = self.parent(from).and_then(|(from, old)| {
            let (to, new) = self.parent(to)?;
            let rename = || renameat2(&from, old, &to, new, RenameFlags::RENAME_NOREPLACE);
            removal::insist(&from, old, rename)?;
            // The new name first: stopped in between, both are there, or the new one is.
            fsync(&to)?;
            fsync(&from)
        });
        renamed.map_err(self.fail("move", from))
    }

    fn empty_some(&self, folder: &Path, most: usize) -> Result<Emptying, HostError> {
        let opened = self.parent(folder).and_then(|(parent, name)| removal::open(&parent, name));
        match opened {
            Ok(Some(opened)) => Removal::new(&opened, most).run(&self.at.join(folder)),
            Ok(None) | Err(Errno::ENOENT) => Ok(Emptying::Empty),
            Err(errno) => Err(removal::kept(&self.at.join(folder), errno, 0)),
        }
    }

    fn remove_empty(&self, folder: &Path) -> Result<(), HostError> {
        let removed = self.parent(folder).and_then(|(parent, name)| {
            removal::remove(&parent, name)?;
            fsync(&parent)
        });
        match removed {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(removal::kept(&self.at.join(folder), errno, 0)),
        }
    }

    fn usage(&self) -> Result<FsUsage, HostError> {
        let found = fstatvfs(&self.root).map_err(self.fail("measure", Path::new("")))?;
        Ok(FsUsage::of(&found))
    }
}

/// A file that was not there: nothing that others have under that name is opened.
fn new_file(folder: &OwnedFd, name: &str) -> Result<File, Errno> {
    let is_new = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let opened = openat(folder, name, OFlag::O_WRONLY | OFlag::O_CLOEXEC | is_new, Mode::S_IRUSR | Mode::S_IWUSR);
    opened.map(File::from)
}

/// Removes what a write left that was stopped, and nothing else.
fn remove_leftover(folder: &OwnedFd, name: &str) -> io::Result<()> {
    let found = match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => return Ok(()),
        found => found?,
    };
    let is_file = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    if !is_file || found.st_nlink != 1 {
        let why =
            format!("beside it is {name}, which no write of localpool left: find out whose it is, and move it away");
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    Ok(unlinkat(folder, name, UnlinkatFlags::NoRemoveDir)?)
}

/// Names in a folder, but for its own and its parent's.
fn listing(folder: OwnedFd) -> Result<Vec<OsString>, Errno> {
    let mut folder = Dir::from_fd(folder)?;
    let mut names = Vec::new();
    for entry in folder.iter() {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn failed(what: &'static str, object: &str, errno: Errno) -> HostError {
    match errno {
        Errno::EBUSY => HostError::Busy { object: object.to_owned() },
        _ => HostError::Io { what, object: object.to_owned(), source: errno.into() },
    }
}
