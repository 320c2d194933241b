//! Waiting for descriptors, no longer than a given time.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Returns when one can be read, when the time is over, or at a signal.
pub(super) fn readable(descriptors: &[BorrowedFd<'_>], left: Duration) -> Result<(), Errno> {
    let mut all: Vec<_> = descriptors.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    // poll counts in milliseconds: round up, or the last one becomes a busy loop.
    let millis = left.saturating_add(Duration::from_micros(999)).as_millis();
    let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
    match poll(&mut all, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(why) => Err(why),
    }
}
