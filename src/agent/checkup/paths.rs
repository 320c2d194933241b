//! The paths of local PersistentVolumes of other provisioners: a path on a server or a disk that hangs leaves the others
//! their answer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Answered;
use super::asking::Asking;
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
                self.last.insert(path.clone(), answer.what);
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
                // This process cannot look there: nothing is known.
                Err(HostError::Unsupported { .. }) => return None,
                Err(why) => vec![Finding::new(HealthReason::FilesystemShutDown, chain(why))],
            }
        };
        Some(PathLook { findings, is_mount_point })
    }
}
