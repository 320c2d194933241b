//! Reports when a file appears in a folder, by inotify: an agent that starts renames its socket into its place.
//!
//! Takes in a folder and a name, gives out whether the file came. A file that was there before is not reported: look
//! after subscribing.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::error::HostError;
use super::wait::readable;

/// A subscription, active as soon as it is made.
#[derive(Debug)]
pub struct FileWatch {
    inotify: Inotify,
    folder: String,
    name: OsString,
}

impl FileWatch {
    pub fn watch(folder: &Path, name: &str) -> Result<Self, HostError> {
        let object = || folder.display().to_string();
        let failed = |why: Errno| HostError::Io { what: "cannot watch", object: object(), source: why.into() };
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(failed)?;
        let events = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ONLYDIR;
        inotify.add_watch(folder, events).map_err(failed)?;
        Ok(Self { inotify, folder: object(), name: name.into() })
    }

    /// Whether the file came within the time. Lost events count as one: look.
    pub fn within(&self, time: Duration) -> Result<bool, HostError> {
        let failed =
            |why: Errno| HostError::Io { what: "cannot watch", object: self.folder.clone(), source: why.into() };
        let end = Instant::now() + time;
        loop {
            match self.inotify.read_events() {
                Ok(events) => {
                    let lost = |flags: AddWatchFlags| flags.contains(AddWatchFlags::IN_Q_OVERFLOW);
                    if events.iter().any(|event| event.name.as_ref() == Some(&self.name) || lost(event.mask)) {
                        return Ok(true);
                    }
                }
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(why) => return Err(failed(why)),
            }
            let remaining = end.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(false);
            }
            readable(&[self.inotify.as_fd()], remaining).map_err(failed)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_renamed_into_its_place_is_told_and_another_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file_watch = FileWatch::watch(folder.path(), "agent.sock").unwrap();
        std::fs::write(folder.path().join(".agent.sock"), "").unwrap();
        std::fs::write(folder.path().join("journal"), "").unwrap();
        assert!(!file_watch.within(Duration::from_millis(20)).unwrap());
        std::fs::rename(folder.path().join(".agent.sock"), folder.path().join("agent.sock")).unwrap();
        assert!(file_watch.within(Duration::from_secs(10)).unwrap());
        assert!(!file_watch.within(Duration::ZERO).unwrap(), "it is reported once");
        assert!(FileWatch::watch(&folder.path().join("absent"), "x").is_err());
    }
}
