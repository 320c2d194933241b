//! Changes that the kernel announces on a file of proc: of the mount table, or of md arrays.
//!
//! Takes in the announcements, gives out that there was one; whoever hears of it looks at the mounts or the arrays.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::error::HostError;
use super::roots::Roots;
use super::wait::announced;

/// A subscription, active as soon as it is made: poll(POLLPRI) on a file of proc.
#[derive(Debug)]
pub struct Announcements {
    file: File,
    path: PathBuf,
    heard: Heard,
}

/// What the kernel does when it has announced a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// It waits for the next one.
    Once,
    /// It announces this one until the file is opened again.
    UntilOpened,
}

impl Announcements {
    /// Changes of the mount table of the namespace that volumes are published in: a mount, an unmount, a move, a
    /// remount. A filesystem that turns read-only or shuts down by itself is none: only a look at it tells.
    pub fn of_mounts(roots: &Roots) -> Result<Self, HostError> {
        let path = roots.proc.join("self/mountinfo");
        match File::open(&path) {
            Ok(file) => Ok(Self { file, path, heard: Heard::Once }),
            Err(source) => Err(HostError::Io { what: "cannot watch", object: path.display().to_string(), source }),
        }
    }

    /// Changes of md arrays: one starts, stops, loses or rebuilds a member. `None`: the kernel has no md now.
    pub fn of_arrays(roots: &Roots) -> Result<Option<Self>, HostError> {
        let path = roots.proc.join("mdstat");
        match File::open(&path) {
            Ok(file) => Ok(Some(Self { file, path, heard: Heard::UntilOpened })),
            Err(absent) if absent.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(HostError::Io { what: "cannot watch", object: path.display().to_string(), source }),
        }
    }

    /// Whether there was a change since the subscription or the last `true`. Waits for one at most this long.
    pub fn next(&mut self, wait: Duration) -> Result<bool, HostError> {
        let deadline = Instant::now() + wait;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let changed = announced(self.file.as_fd(), remaining)
                .map_err(|why| self.failed("cannot wait for a change of", why))?;
            if changed && self.heard == Heard::UntilOpened {
                self.file = File::open(&self.path).map_err(|why| self.failed("cannot watch", why))?;
            }
            if changed || remaining.is_zero() {
                return Ok(changed);
            }
        }
    }

    fn failed(&self, what: &'static str, why: impl Into<std::io::Error>) -> HostError {
        HostError::Io { what, object: self.path.display().to_string(), source: why.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_does_not_come_is_waited_for_only_so_long() {
        let machine = tempfile::tempdir().expect("a folder");
        let roots = Roots::under(machine.path());
        let refused = Announcements::of_mounts(&roots).expect_err("no such file").to_string();
        assert!(refused.starts_with("cannot watch ") && refused.ends_with("proc/self/mountinfo"), "{refused}");
        assert!(Announcements::of_arrays(&roots).expect("looked").is_none(), "a kernel without md");
        std::fs::create_dir_all(roots.proc.join("self")).expect("a folder");
        for file in ["self/mountinfo", "mdstat"] {
            std::fs::write(roots.proc.join(file), "").expect("a file");
        }
        let arrays = Announcements::of_arrays(&roots).expect("subscribed").expect("it has md");
        for mut events in [Announcements::of_mounts(&roots).expect("subscribed"), arrays] {
            let began = Instant::now();
            assert!(!events.next(Duration::from_millis(30)).expect("waited"));
            assert!(began.elapsed() >= Duration::from_millis(30));
            assert!(!events.next(Duration::ZERO).expect("looked"));
        }
    }
}
