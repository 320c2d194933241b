//! How a name below a root is looked up: no link on the way, and nothing outside of the filesystem.

use nix::fcntl::{OFlag, OpenHow, ResolveFlag};

const BELOW: ResolveFlag =
    ResolveFlag::RESOLVE_BENEATH.union(ResolveFlag::RESOLVE_NO_SYMLINKS).union(ResolveFlag::RESOLVE_NO_XDEV);

/// To read, and with these flags.
pub(super) fn how(flags: OFlag) -> OpenHow {
    OpenHow::new().flags(OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | flags).resolve(BELOW)
}
