//! How full a filesystem is, in bytes and inodes.

use nix::sys::statvfs::Statvfs;

use crate::host::port::FsUsage;

pub fn usage_of(stats: &Statvfs) -> FsUsage {
    let bytes = |blocks: u64| blocks.saturating_mul(stats.fragment_size());
    FsUsage {
        total: bytes(stats.blocks()),
        available: bytes(stats.blocks_available()),
        used: bytes(stats.blocks().saturating_sub(stats.blocks_free())),
        inodes: stats.files(),
        inodes_free: stats.files_free(),
        inodes_used: stats.files().saturating_sub(stats.files_free()),
    }
}
