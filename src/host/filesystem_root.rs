//! The root of a mounted filesystem, as the pool works in it: names below it, no links, no other mounts.

use std::path::Path;

use super::error::HostError;
use super::fs_usage::FsUsage;

/// An open root. It stays the root of the filesystem that was proven when it was opened, whatever is mounted at its path
/// since. Paths are relative; a link on the way is an error, and so is another mount. What changes is durable when the
/// call returns.
pub trait FilesystemRoot: Send + Sync {
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

    /// Moves a file or folder to a name that nothing has.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), HostError>;

    /// Removes a tree bit by bit: about `most` entries, then it returns. Whether it is gone. What is too deep for one call
    /// is moved to `aside`, a folder, under a name of its own.
    fn remove_some(&self, tree: &Path, aside: &Path, most: usize) -> Result<bool, HostError>;

    /// Bytes and inodes of the whole filesystem.
    fn usage(&self) -> Result<FsUsage, HostError>;
}
