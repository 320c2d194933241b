//! Waiting for descriptors, no longer than a given time.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Returns when one can be read, when the time is over, or at a signal.
pub(super) fn readable(descriptors: &[BorrowedFd<'_>], remaining: Duration) -> Result<(), Errno> {
    let mut all: Vec<_> = descriptors.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    wait(&mut all, remaining)
}

/// Whether the kernel announces that a file of proc or sysfs has changed. Returns at once if it has, else when it does,
/// when the time is over, or at a signal.
pub(super) fn announced(file: BorrowedFd<'_>, remaining: Duration) -> Result<bool, Errno> {
    let mut one = [PollFd::new(file, PollFlags::POLLPRI)];
    wait(&mut one, remaining)?;
    Ok(one[0].revents().is_some_and(|events| events.contains(PollFlags::POLLPRI)))
}

fn wait(all: &mut [PollFd<'_>], remaining: Duration) -> Result<(), Errno> {
    // poll counts in milliseconds: round up, or the last one becomes a busy loop.
    let millis = remaining.saturating_add(Duration::from_micros(999)).as_millis();
    let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
    match poll(all, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(why) => Err(why),
    }
}
