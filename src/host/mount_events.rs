//! Changes of the mount table: hints that a mount came, went or changed.
//!
//! Takes in the kernel's announcements on mountinfo, gives out that there was one; whoever hears of it reads the table.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::error::HostError;
use super::roots::Roots;
use super::wait::announced;

/// A subscription to changes of the mount table: poll(POLLPRI) on mountinfo of the namespace that volumes are published
/// in. Active as soon as it is made.
///
/// A mount, an unmount, a move and a remount are changes. A filesystem that turns read-only or shuts down by itself is
/// none: only a look at it tells.
#[derive(Debug)]
pub struct MountEvents {
    table: File,
    path: PathBuf,
}

impl MountEvents {
    pub fn subscribe(roots: &Roots) -> Result<Self, HostError> {
        let path = roots.proc.join("self/mountinfo");
        match File::open(&path) {
            Ok(table) => Ok(Self { table, path }),
            Err(source) => Err(HostError::Io { what: "cannot watch", object: path.display().to_string(), source }),
        }
    }

    /// Whether the table has changed since the subscription or the last `true`. Waits for a change at most this long.
    pub fn next(&self, wait: Duration) -> Result<bool, HostError> {
        let deadline = Instant::now() + wait;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let changed = announced(self.table.as_fd(), remaining).map_err(|why| HostError::Io {
                what: "cannot wait for a change of",
                object: self.path.display().to_string(),
                source: why.into(),
            })?;
            if changed || remaining.is_zero() {
                return Ok(changed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_does_not_come_is_waited_for_only_so_long() {
        let machine = tempfile::tempdir().expect("a folder");
        let roots = Roots::under(machine.path());
        let refused = MountEvents::subscribe(&roots).expect_err("no such file").to_string();
        assert!(refused.starts_with("cannot watch ") && refused.ends_with("proc/self/mountinfo"), "{refused}");
        std::fs::create_dir_all(roots.proc.join("self")).expect("a folder");
        std::fs::write(roots.proc.join("self/mountinfo"), "").expect("a file");
        let events = MountEvents::subscribe(&roots).expect("subscribed");
        let began = Instant::now();
        assert!(!events.next(Duration::from_millis(30)).expect("waited"));
        assert!(began.elapsed() >= Duration::from_millis(30));
        assert!(!events.next(Duration::ZERO).expect("looked"));
    }
}
