//! The lock that makes a process the agent of this machine: an flock on `agent.lock` in the state directory.
//!
//! Takes in the directory; gives out the lock, and the process that it was taken from if that was killed and cannot end
//! because a disk hangs under it. Such a process keeps its locks until the disk answers; nobody waits for that.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::dying::Dying;
use super::error::HostError;
use super::flock;
use super::links::names_in;
use super::state::{StateDir, failed};

const LOCK: &str = "agent.lock";
/// Followed by a process id: the lock of a process that was killed and had not ended when its place was taken.
const ASIDE: &str = "agent.lock.";
/// How often a waiting process looks again: only a look shows that the holder was killed.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Held for life by the process that is the agent.
pub struct AgentLock {
    #[allow(dead_code, reason = "it is held, not used")]
    lock: Flock<File>,
    /// Earlier holders that were killed and have not ended.
    pub after: Vec<Dying>,
}

impl StateDir {
    /// The agent's lock; `None` if another process is the agent. One that was killed and cannot end does not count.
    pub fn try_lock(&self) -> Result<Option<AgentLock>, HostError> {
        loop {
            let file = self.open_lock()?;
            match flocked(file)? {
                // Meanwhile another process may have followed the holder.
                Ok(lock) if self.is_current(&lock) => return Ok(Some(AgentLock { lock, after: self.dying()? })),
                Ok(_) => {}
                Err(file) => return self.succeed(&file),
            }
        }
    }

    /// Waits until this process is the agent. Blocks.
    pub fn lock(&self) -> Result<AgentLock, HostError> {
        loop {
            if let Some(lock) = self.try_lock()? {
                return Ok(lock);
            }
            sleep(LOOK_INTERVAL);
        }
    }

    /// Whether some process is the agent now. Creates neither directory nor file.
    pub fn is_locked(&self) -> Result<bool, HostError> {
        let path = self.path().join(LOCK);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(failed("open the agent's lock", &path, source)),
        };
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(_free) => Ok(false),
            Err((_, Errno::EWOULDBLOCK)) => Ok(true),
            Err((_, errno)) => Err(failed("look at the agent's lock", &path, errno.into())),
        }
    }

    /// Takes the place of a holder that was killed and cannot end: moves its lock aside. Does so under the lock of the
    /// directory, as several processes may try.
    fn succeed(&self, held: &File) -> Result<Option<AgentLock>, HostError> {
        let Some(after) = dying_holder(held) else { return Ok(None) };
        let folder = File::open(self.path()).map_err(|source| failed("open", self.path(), source))?;
        let Ok(_turn) = flocked(folder)? else { return Ok(None) };
        if !self.is_current(held) {
            return Ok(None);
        }
        let (path, aside) = (self.path().join(LOCK), self.path().join(format!("{ASIDE}{}", after.pid)));
        fs::rename(&path, aside).map_err(|source| failed("move aside", &path, source))?;
        tracing::warn!(
            pid = after.pid,
            "the previous agent was killed, but cannot end until a disk answers; continuing"
        );
        let Ok(lock) = flocked(self.open_lock()?)? else { return Ok(None) };
        Ok(Some(AgentLock { lock, after: self.dying()? }))
    }

    /// The processes whose place was taken and that have not ended yet. The files of the others are removed.
    fn dying(&self) -> Result<Vec<Dying>, HostError> {
        let mut dying = Vec::new();
        for name in names_in(self.path())?.iter().filter_map(|name| name.to_str()) {
            if !name.starts_with(ASIDE) {
                continue;
            }
            let path = self.path().join(name);
            let file = File::open(&path).map_err(|source| failed("open", &path, source))?;
            let holders = flock::holders(&file);
            if holders.is_empty() {
                fs::remove_file(&path).map_err(|source| failed("remove", &path, source))?;
            }
            dying.extend(holders.into_iter().map(Dying::who_has));
        }
        Ok(dying)
    }

    fn open_lock(&self) -> Result<File, HostError> {
        let path = self.path().join(LOCK);
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path);
        file.map_err(|source| failed("open the agent's lock", &path, source))
    }

    /// Whether the file is the one that others find by its name.
    fn is_current(&self, file: &File) -> bool {
        let [ours, named] = [file.metadata(), fs::metadata(self.path().join(LOCK))];
        ours.is_ok_and(|ours| named.is_ok_and(|named| (ours.dev(), ours.ino()) == (named.dev(), named.ino())))
    }
}

fn dying_holder(lock: &File) -> Option<Dying> {
    match flock::holders(lock)[..] {
        [pid] => Dying::of(pid),
        _ => None,
    }
}

/// The lock; or the file, if somebody else has the lock.
fn flocked(file: File) -> Result<Result<Flock<File>, File>, HostError> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Ok(lock)),
        Err((file, Errno::EWOULDBLOCK)) => Ok(Err(file)),
        Err((_, errno)) => {
            Err(HostError::Io { what: "take", object: format!("the agent's lock ({LOCK})"), source: errno.into() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_is_the_agent_and_another_is_told_so() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = StateDir::open(dir.path()).expect("made");
        let held = state.try_lock().expect("no error").expect("free");
        assert!(state.try_lock().expect("no error").is_none());
        assert!(state.is_locked().expect("no error"));
        drop(held);
        assert!(!state.is_locked().expect("no error"));
        assert!(state.try_lock().expect("no error").is_some());
    }

    #[test]
    fn a_lock_whose_file_was_replaced_meanwhile_is_nobodys() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = StateDir::open(dir.path()).expect("made");
        let first = state.try_lock().expect("no error").expect("free");
        let aside = dir.path().join(format!("{ASIDE}7"));
        fs::rename(dir.path().join(LOCK), &aside).expect("moved");
        let second = state.try_lock().expect("no error").expect("free under its name");
        let pid = i32::try_from(std::process::id()).expect("a pid");
        assert_eq!(second.after, [Dying::who_has(pid)], "the first one still has its own");
        assert!(state.try_lock().expect("no error").is_none());
        drop((first, second));
        assert!(state.try_lock().expect("no error").expect("free").after.is_empty());
        assert!(!aside.try_exists().expect("a pass"), "nobody has it any more");
    }
}
