//! The paths of local PersistentVolumes of other provisioners: a path on a server or a disk that hangs leaves the others
//! their answer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::asking::{Answered, Asking};
use crate::health::{Board, Finding, HealthReason, PathLook, WatchedPath};
use crate::host::{Host, HostError, Mounted, PathState, chain, timeout};

/// Asks what each watched path is.
#[derive(Debug)]
pub struct PathCheckup {
    asking: Asking<PathBuf, Result<PathState, HostError>>,
    /// What was seen last; it counts until there is another answer.
    last: BTreeMap<PathBuf, Result<PathState, HostError>>,
}

impl PathCheckup {
    pub fn new() -> Self {
        Self { asking: Asking::new(), last: BTreeMap::new() }
    }

    /// What is wrong with each path, by UID of its PersistentVolume.
    pub fn look(&mut self, host: &Arc<dyn Host>, board: &Board, answered: &Answered) -> BTreeMap<String, PathLook> {
        let watched = board.watched();
        let paths: BTreeSet<&PathBuf> = watched.iter().map(|watched| &watched.path).collect();
        self.asking.forget(|path| paths.contains(path));
        self.last.retain(|path, _| paths.contains(path));
        for path in paths {
            let (host_of_question, asked, answered) = (Arc::clone(host), path.clone(), Arc::clone(answered));
            let question = move || host_of_question.mounts().path_state(&asked);
            if let Some(answer) = self.asking.ask(path, host.monotonic(), question, move || answered()) {
                let known = self.last.remove(path);
                self.last.insert(path.clone(), answer.what.map(|state| with_known(state, known)));
            }
        }
        let now = host.monotonic();
        watched.iter().filter_map(|watched| Some((watched.uid.clone(), self.of_path(watched, now)?))).collect()
    }

    fn of_path(&self, watched: &WatchedPath, now: Duration) -> Option<PathLook> {
        let last = self.last.get(&watched.path);
        let is_mounted = |mounted| mounted != Mounted::Nothing;
        let is_mount_point = matches!(last, Some(Ok(PathState::Directory { mounted, .. })) if is_mounted(*mounted));
        let path = watched.path.display().to_string();
        let findings = if self.asking.is_overdue(&watched.path, now) {
            let (path, seconds) = (path.escape_debug(), timeout::DEVICE_TIMEOUT.as_secs());
            let words = format!("{path} was looked at, and there was no answer for more than {seconds} s");
            vec![Finding::new(HealthReason::DiskNotAnswering, words)]
        } else {
            match last? {
                Ok(state) => watched.findings(state),
                Err(why) if is_of_device(why) => vec![Finding::new(HealthReason::FilesystemShutDown, chain(why))],
                // This process cannot look there, or not now: nothing is known.
                Err(_) => return None,
            }
        };
        Some(PathLook { findings, is_mount_point })
    }
}

/// What was known of the filesystem stays while nobody knows it, as long as one is mounted there.
fn with_known(mut state: PathState, known: Option<Result<PathState, HostError>>) -> PathState {
    if let PathState::Directory { mounted: Mounted::Whole | Mounted::Part, filesystem: now @ None, .. } = &mut state
        && let Some(Ok(PathState::Directory { filesystem, .. })) = known
    {
        *now = filesystem;
    }
    state
}

/// Whether a filesystem or its device answers with an error, and not this process or its rights.
fn is_of_device(why: &HostError) -> bool {
    use nix::libc::{EIO, ENODEV, ENXIO, ESHUTDOWN, ESTALE};
    let HostError::Io { source, .. } = why else { return false };
    source.raw_os_error().is_some_and(|errno| [EIO, ENODEV, ENXIO, ESHUTDOWN, ESTALE].contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_of_the_device_is_one_of_the_volume() {
        let why = |errno| HostError::Io {
            what: "look at",
            object: "/x".to_owned(),
            source: std::io::Error::from_raw_os_error(errno),
        };
        assert!(is_of_device(&why(nix::libc::EIO)) && is_of_device(&why(nix::libc::ESTALE)));
        assert!(!is_of_device(&why(nix::libc::EMFILE)) && !is_of_device(&why(nix::libc::EACCES)));
        assert!(!is_of_device(&HostError::Unsupported { what: "x".to_owned() }));
    }
}
