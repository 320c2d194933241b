//! The end of a mount: not there is success, and no link is followed.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use crate::host::error::HostError;

/// How often and how long to wait for somebody who uses a filesystem only for a moment.
const MOMENTS: u32 = 25;
const MOMENT: Duration = Duration::from_millis(20);

/// In use is an error.
pub fn unmount(target: &Path) -> Result<(), HostError> {
    let mut pauses = MOMENTS;
    let unmounted = loop {
        match umount2(target, MntFlags::UMOUNT_NOFOLLOW) {
            // A measurement of its filesystem, which kubelet asks for each minute, keeps it busy as a user does.
            Err(Errno::EBUSY) if pauses > 0 => {
                pauses -= 1;
                sleep(MOMENT);
            }
            unmounted => break unmounted,
        }
    };
    match unmounted {
        // EINVAL: no mount point, which a symlink never is.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT | Errno::ENOTDIR) => Ok(()),
        Err(Errno::EBUSY) => Err(HostError::Busy { object: format!("the mount at {}", target.display()) }),
        Err(errno) => Err(failed("unmount", target, errno)),
    }
}

/// In use, it ends with its last user.
pub fn detach(target: &Path) -> Result<(), HostError> {
    match umount2(target, MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT | Errno::ENOTDIR) => Ok(()),
        Err(errno) => Err(failed("detach the mount at", target, errno)),
    }
}

fn failed(what: &'static str, path: &Path, errno: Errno) -> HostError {
    HostError::Io { what, object: path.display().to_string(), source: errno.into() }
}
