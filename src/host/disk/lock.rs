//! flock on a disk's node: how udev and the partitioning tools agree on who may look.
//!
//! Takes in an open node and a limit in time; gives out a guard, or who holds the lock. flock belongs to
//! the inode of the node, so it reaches only those who use the same /dev (the host's, in a pod too).

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::host::backoff::Backoff;
use crate::host::dying::Dying;
use crate::host::error::HostError;
use crate::host::flock;

/// How long a guard tries to get its shared lock back; only a tool that locks for itself can be in the way.
const DOWNGRADE_WAIT: Duration = Duration::from_secs(5);

/// Whose turn it is among our own threads: they share one descriptor, and flock does not tell them apart.
#[derive(Debug, Default)]
pub(super) struct NodeLock {
    taken: Mutex<bool>,
    freed: Condvar,
}

/// LOCK_EX for as long as it lives, then LOCK_SH again.
pub(super) struct Exclusive<'a> {
    file: &'a File,
    path: &'a Path,
    _turn: NodeTurn<'a>,
}

struct NodeTurn<'a>(&'a NodeLock);

/// Takes LOCK_SH within `wait`.
pub(super) fn shared(file: &File, path: &Path, wait: Duration) -> Result<(), HostError> {
    poll(file, path, Instant::now() + wait, File::try_lock_shared)
}

/// Takes LOCK_SH if nobody else has any lock, which LOCK_EX proves.
pub(super) fn first(file: &File, path: &Path, wait: Duration) -> Result<(), HostError> {
    poll(file, path, Instant::now() + wait, File::try_lock)?;
    shared(file, path, Duration::ZERO)
}

impl NodeLock {
    /// Takes LOCK_EX within `wait`, first against our own threads, then against other processes.
    pub(super) fn exclusive<'a>(
        &'a self,
        file: &'a File,
        path: &'a Path,
        wait: Duration,
    ) -> Result<Exclusive<'a>, HostError> {
        let until = Instant::now() + wait;
        let turn = self.turn(path, wait)?;
        // Two processes that both hold LOCK_SH while they wait here keep each other out for all of `wait`.
        if let Err(error) = poll(file, path, until, raise_among_the_living) {
            relock_shared(file, path);
            return Err(error);
        }
        Ok(Exclusive { file, path, _turn: turn })
    }

    fn turn(&self, path: &Path, wait: Duration) -> Result<NodeTurn<'_>, HostError> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut taken, _) =
            self.freed.wait_timeout_while(taken, wait, |taken| *taken).unwrap_or_else(PoisonError::into_inner);
        if *taken {
            return Err(HostError::Busy { object: format!("the lock of {} by a write of our own", path.display()) });
        }
        *taken = true;
        Ok(NodeTurn(self))
    }
}

impl Drop for NodeTurn<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.freed.notify_one();
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        relock_shared(self.file, self.path);
    }
}

/// One attempt at LOCK_EX in place of LOCK_SH. flock converts in two steps, so an attempt that fails has lost the
/// shared lock. It is taken back before any wait: if udev finds a disk that nobody locks, it has the kernel read the
/// table again and drop the partitions that nobody has open.
fn raise(file: &File) -> Result<(), TryLockError> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {}
        done => return done,
    }
    match file.try_lock_shared() {
        // Another process has LOCK_EX, and looks after the disk meanwhile.
        Ok(()) | Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        failed => failed,
    }
}

/// The same, if a process that was killed and cannot end keeps its shared lock: it does nothing with it any more, and
/// our own shared lock keeps out everybody else.
fn raise_among_the_living(file: &File) -> Result<(), TryLockError> {
    match raise(file) {
        Err(TryLockError::WouldBlock) if is_only_among_the_dying(file) => file.try_lock_shared(),
        done => done,
    }
}

/// Whether all other holders of a lock on the disk were killed and cannot end.
pub(super) fn is_only_among_the_dying(file: &File) -> bool {
    let mut others = flock::holders(file);
    others.retain(|pid| u32::try_from(*pid) != Ok(std::process::id()));
    !others.is_empty() && others.into_iter().all(|pid| Dying::of(pid).is_some())
}

fn relock_shared(file: &File, path: &Path) {
    if let Err(error) = shared(file, path, DOWNGRADE_WAIT) {
        // The next table write takes LOCK_EX anyway; until then udev may look while a tool of the admin works.
        tracing::warn!(disk = %path.display(), %error, "the shared lock is lost");
    }
}

fn poll(
    file: &File,
    path: &Path,
    until: Instant,
    attempt: impl Fn(&File) -> Result<(), TryLockError>,
) -> Result<(), HostError> {
    let mut pause = Backoff::new(Duration::from_millis(1), Duration::from_millis(50));
    loop {
        match attempt(file) {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => {
                return Err(HostError::Busy { object: held(file, path) });
            }
            Err(TryLockError::WouldBlock) => sleep(pause.wait()),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(source)) => {
                return Err(HostError::Io { what: "lock", object: path.display().to_string(), source });
            }
        }
    }
}

/// Names the node and, if /proc shows them, the processes that hold its lock.
fn held(file: &File, path: &Path) -> String {
    let path = path.display();
    let mut pids = flock::holders(file);
    // Our own lock is not the obstacle if another process has one.
    let is_other = |pid: &i32| u32::try_from(*pid) != Ok(std::process::id());
    if pids.iter().any(is_other) {
        pids.retain(is_other);
    }
    let holders: Vec<String> = pids
        .into_iter()
        .map(|pid| match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(name) => format!("{} (pid {pid})", name.trim_end()),
            Err(_) => format!("pid {pid}"),
        })
        .collect();
    if holders.is_empty() { path.to_string() } else { format!("{path}, locked by {},", holders.join(", ")) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_lock_that_another_descriptor_holds_is_waited_for_only_so_long_and_its_holder_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node");
        let theirs = File::create(&path).unwrap();
        let ours = File::open(&path).unwrap();
        shared(&ours, &path, Duration::ZERO).unwrap();
        theirs.lock_shared().unwrap();

        let lock = NodeLock::default();
        let began = Instant::now();
        let Err(HostError::Busy { object }) = lock.exclusive(&ours, &path, Duration::from_millis(80)) else {
            panic!("the lock was given twice");
        };
        assert!(began.elapsed() >= Duration::from_millis(80));
        assert!(object.contains(&format!("pid {}", std::process::id())), "{object}");

        theirs.unlock().unwrap();
        drop(lock.exclusive(&ours, &path, Duration::from_millis(80)).unwrap());
        // After the guard the lock is shared: another process may share it, but not take it exclusively.
        assert!(theirs.try_lock_shared().is_ok());
        assert!(matches!(theirs.try_lock(), Err(TryLockError::WouldBlock)));
    }

    #[test]
    fn who_waits_for_the_lock_keeps_a_shared_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node");
        let reader = File::create(&path).unwrap();
        let ours = File::open(&path).unwrap();
        shared(&ours, &path, Duration::ZERO).unwrap();
        reader.lock_shared().unwrap();
        let lock = NodeLock::default();
        let node = ours.metadata().unwrap();
        let object = format!(":{}", node.ino());
        let locks = || {
            let all = std::fs::read_to_string("/proc/locks").unwrap();
            all.lines().filter(|line| line.split_whitespace().any(|word| word.ends_with(&object))).count()
        };
        assert_eq!(locks(), 2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lock.exclusive(&ours, &path, Duration::from_secs(600)).map(drop));
            // Between the two steps of an attempt it has no lock; now and then a look falls into that moment, and on a
            // busy machine several.
            let is_held = |_| {
                sleep(Duration::from_millis(1));
                locks() == 2
            };
            let held = (0..20).any(|_| (0..200).filter(|look: &u32| is_held(*look)).count() > 150);
            assert!(held, "the shared lock was given up for the wait");
            assert!(!waiting.is_finished());
            reader.unlock().unwrap();
            waiting.join().unwrap().unwrap();
        });
    }

    #[test]
    fn two_threads_on_one_descriptor_take_turns() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node");
        let file = File::create(&path).unwrap();
        let lock = NodeLock::default();
        let first = lock.exclusive(&file, &path, Duration::ZERO).unwrap();
        assert!(matches!(lock.exclusive(&file, &path, Duration::from_millis(20)), Err(HostError::Busy { .. })));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| lock.exclusive(&file, &path, Duration::from_secs(10)).map(drop));
            sleep(Duration::from_millis(20));
            drop(first);
            second.join().unwrap().unwrap();
        });
    }
}
