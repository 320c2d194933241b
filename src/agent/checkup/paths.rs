//! The paths of local PersistentVolumes of other provisioners: a path on a server or a disk that hangs leaves the
//! others their answer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::asking::{Answered, Asking};
use crate::health::{Board, Finding, HealthReason, PathClaimUid, PathIdentity, PathResult, PvUid, WatchedPath};
use crate::host::{Host, HostError, Mounted, PathState, chain, timeout};

/// Asks what each watched path is.
#[derive(Debug)]
pub struct PathCheckup {
    asking: Asking<PathBuf, Result<SeenPath, HostError>>,
    /// What was seen last; it counts until there is another answer.
    last: BTreeMap<PathBuf, Result<SeenPath, HostError>>,
}

#[derive(Debug)]
struct SeenPath {
    state: PathState,
    /// Which filesystem or device it is. Nobody asks while no claim has a volume there.
    identity: Option<String>,
    /// The claims that had a volume there before the checkup began.
    claims: BTreeSet<PathClaimUid>,
}

impl SeenPath {
    /// What it says for the claim that has this volume now. For a later claim it says nothing: before the binding
    /// another disk may have been there.
    fn identity_of(&self, watched: &WatchedPath) -> Option<PathIdentity> {
        let claim = &watched.claim.as_ref().filter(|claim| self.claims.contains(&claim.uid))?.uid;
        self.identity.clone().map(|name| PathIdentity { claim: claim.clone(), name })
    }
}

impl PathCheckup {
    pub fn new() -> Self {
        Self { asking: Asking::new(), last: BTreeMap::new() }
    }

    /// What is wrong with each path, by UID of its PersistentVolume.
    pub fn check(&mut self, host: &Arc<dyn Host>, board: &Board, answered: &Answered) -> BTreeMap<PvUid, PathResult> {
        let watched = board.watched();
        let mut paths: BTreeMap<&PathBuf, BTreeSet<PathClaimUid>> = BTreeMap::new();
        for watched in &watched {
            paths.entry(&watched.path).or_default().extend(watched.claim.as_ref().map(|claim| claim.uid.clone()));
        }
        self.asking.forget(|path| paths.contains_key(path));
        self.last.retain(|path, _| paths.contains_key(path));
        for (path, claims) in paths {
            let (host_of_question, asked, answered) = (Arc::clone(host), path.clone(), Arc::clone(answered));
            let question = move || seen(host_of_question.as_ref(), &asked, claims);
            if let Some(answer) = self.asking.ask(path, host.monotonic(), question, move || answered()) {
                let known = self.last.remove(path);
                self.last.insert(path.clone(), answer.what.map(|seen| with_known(seen, known)));
            }
        }
        let now = host.monotonic();
        watched.iter().filter_map(|watched| Some((watched.uid.clone(), self.of_path(watched, now)?))).collect()
    }

    fn of_path(&self, watched: &WatchedPath, now: Duration) -> Option<PathResult> {
        let last = self.last.get(&watched.path);
        let is_mounted = |mounted| mounted != Mounted::Nothing;
        let is_mount_point = matches!(
            last,
            Some(Ok(SeenPath { state: PathState::Directory { mounted, .. }, .. })) if is_mounted(*mounted)
        );
        let identity = last.and_then(|last| last.as_ref().ok()?.identity_of(watched));
        let path = watched.path.display().to_string();
        let findings = if self.asking.is_overdue(&watched.path, now) {
            let (path, seconds) = (path.escape_debug(), timeout::DEVICE_TIMEOUT.as_secs());
            let message = format!("{path} was looked at, and there was no answer for more than {seconds} s");
            vec![Finding::new(HealthReason::DiskNotAnswering, message)]
        } else {
            match last? {
                Ok(seen) => match watched.wrong_device(identity.as_ref().map(|identity| identity.name.as_str())) {
                    Some(wrong) => vec![wrong],
                    None => watched.findings(&seen.state),
                },
                Err(why) if is_of_device(why) => vec![Finding::new(HealthReason::FilesystemShutDown, chain(why))],
                // This process cannot look there, or not now: nothing is known.
                Err(_) => return None,
            }
        };
        Some(PathResult { findings, is_mount_point, identity })
    }
}

fn seen(host: &dyn Host, path: &Path, claims: BTreeSet<PathClaimUid>) -> Result<SeenPath, HostError> {
    let state = host.mounts().path_state(path)?;
    let is_there = match state {
        PathState::Directory { mounted, .. } => mounted != Mounted::Nothing,
        PathState::Device { size } => size.is_some(),
        PathState::Absent | PathState::Other => false,
    };
    let is_asked = is_there && !claims.is_empty();
    Ok(SeenPath { identity: is_asked.then(|| host.mounts().path_identity(path)).flatten(), state, claims })
}

/// What was known of the filesystem stays while nobody knows it, as long as one is mounted there.
fn with_known(mut seen: SeenPath, known: Option<Result<SeenPath, HostError>>) -> SeenPath {
    if let PathState::Directory { mounted: Mounted::Whole | Mounted::Part, filesystem: now @ None, .. } =
        &mut seen.state
        && let Some(Ok(SeenPath { state: PathState::Directory { filesystem, .. }, .. })) = known
    {
        *now = filesystem;
    }
    seen
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
