//! The root of a mounted filesystem, as the pool works in it: names below it, no links, no other mounts.

use std::path::Path;

use super::error::HostError;
use super::fs_usage::FsUsage;
use super::project_quota::ProjectQuota;

/// How far a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emptying {
    /// There is more in it.
    Begun,
    Empty,
}

/// An open root. It stays the root of the filesystem that was proven when it was opened, whatever is mounted at its path
/// since. Paths are relative; a link on the way is an error, and so is another mount. What changes is durable when the
/// call returns, but for limits, and where it says otherwise.
pub trait FilesystemRoot: ProjectQuota + Send + Sync {
    /// What is in a folder, in no order. A folder that is not there has nothing in it.
    fn names(&self, folder: &Path) -> Result<Vec<String>, HostError>;

    /// A file's text; `None`: there is no such file.
    fn read(&self, file: &Path) -> Result<Option<String>, HostError>;

    /// The file has this text, or still the one before.
    fn write(&self, file: &Path, text: &str) -> Result<(), HostError>;

    /// Not there is success.
    fn remove_file(&self, file: &Path) -> Result<(), HostError>;

    /// Makes an empty folder. There already: success, and it is as it was.
    fn make_folder(&self, folder: &Path, mode: u32) -> Result<(), HostError>;

    /// Moves a file or folder to a name that nothing has. Attributes that forbid it (`chattr +i`) go first.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), HostError>;

    /// Removes what is in a folder bit by bit: about `most` entries are tried, then it returns. What cannot be removed
    /// keeps nothing else: it is an error when all else is gone, or nothing was removed. Not durable when it returns, and
    /// may be repeated. Not there, and no folder: it is empty.
    fn empty_some(&self, folder: &Path, most: usize) -> Result<Emptying, HostError>;

    /// Removes a folder that is empty, or a file. Not there is success.
    fn remove_empty(&self, folder: &Path) -> Result<(), HostError>;

    /// Bytes and inodes of the whole filesystem.
    fn usage(&self) -> Result<FsUsage, HostError>;
}
