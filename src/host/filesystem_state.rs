//! How a mounted filesystem is: a value for those who judge it. `mount/state` reads it.

/// How a mounted filesystem is, as the kernel says it. No device is opened, nothing is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilesystemState {
    /// Of the superblock, not of a bind mount: the filesystem refuses writes, whoever asks. One that was mounted
    /// read-only is as it should be.
    pub is_read_only: bool,
    /// That the filesystem has counted. `None`: it does not count.
    pub errors: Option<u64>,
    /// The kernel has stopped it, and answers EIO until it is unmounted and mounted again.
    pub is_shut_down: bool,
}
