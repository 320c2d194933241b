//! How full a filesystem is, in bytes and inodes.

use nix::sys::statvfs::Statvfs;

/// statvfs, in bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsUsage {
    pub total: u64,
    pub available: u64,
    pub used: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub inodes_used: u64,
}

impl FsUsage {
    pub(super) fn of(stats: &Statvfs) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(stats.fragment_size());
        Self {
            total: bytes(stats.blocks()),
            available: bytes(stats.blocks_available()),
            used: bytes(stats.blocks().saturating_sub(stats.blocks_free())),
            inodes: stats.files(),
            inodes_free: stats.files_free(),
            inodes_used: stats.files().saturating_sub(stats.files_free()),
        }
    }
}
