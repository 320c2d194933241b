//! One started program: drains its pipes, and ends it.
//!
//! Takes in what to run; gives out its exit status and the tails of its outputs, or that the time is over.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::host::backoff::Backoff;

/// How much of each output stream is kept: the end, where the reason is.
pub(super) const TAIL: usize = 64 << 10;
/// How long a killed program may take to end. One that waits for a dead disk may never end; it is not waited for.
const KILL_GRACE: Duration = Duration::from_secs(2);
/// How often to look at a program that has just written something, and at a silent one.
const PAUSE: Backoff = Backoff::new(Duration::from_micros(100), Duration::from_millis(20));
/// Held from the fork to the exec of every program. In between, the child has a copy of each of our descriptors,
/// close-on-exec or not.
static STARTING: Mutex<()> = Mutex::new(());

/// Waits until no program is between its fork and its exec, and keeps others from starting.
pub(super) fn starting() -> MutexGuard<'static, ()> {
    STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A started program with our ends of its pipes.
pub(super) struct Running {
    child: Child,
    pub(super) stdout: Stream,
    pub(super) stderr: Stream,
}

impl Running {
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = {
            let _copies = starting();
            command.spawn()?
        };
        let stdout = Stream::new(child.stdout.take());
        let stderr = Stream::new(child.stderr.take());
        let running = Self { child, stdout, stderr };
        match running.make_nonblocking() {
            Ok(()) => Ok(running),
            Err(error) => {
                running.kill();
                Err(error)
            }
        }
    }

    fn make_nonblocking(&self) -> io::Result<()> {
        let pipes = [&self.stdout, &self.stderr].map(|stream| stream.pipe.as_ref().map(|pipe| pipe.as_fd()));
        for pipe in pipes.into_iter().flatten() {
            // A new pipe has no other flags.
            fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(())
    }

    /// Drains the pipes until the program itself has ended, or the time is over (`None`). Does not wait for pipes that
    /// a grandchild keeps open.
    pub(super) fn attend(&mut self, until: Instant) -> io::Result<Option<ExitStatus>> {
        let mut pause = PAUSE;
        loop {
            // Asked before the last drain: all that the program wrote is in the pipes by then.
            let ended = self.child.try_wait()?;
            let moved = self.move_data()?;
            if ended.is_some() {
                return Ok(ended);
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            if moved {
                pause.reset();
            }
            self.wait_for_data(pause.wait())?;
        }
    }

    fn move_data(&mut self) -> io::Result<bool> {
        let out = self.stdout.drain()?;
        let err = self.stderr.drain()?;
        Ok(out || err)
    }

    /// Sleeps until a pipe is ready, at most `pause`.
    fn wait_for_data(&self, pause: Duration) -> io::Result<()> {
        let mut ready: Vec<PollFd<'_>> = [&self.stdout, &self.stderr]
            .into_iter()
            .filter_map(|stream| stream.pipe.as_ref())
            .map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN))
            .collect();
        let millis = u16::try_from(pause.as_millis()).unwrap_or(u16::MAX).max(1);
        if ready.is_empty() {
            // Both outputs are closed: the program is about to end, or has sent itself to the background.
            thread::sleep(pause);
            return Ok(());
        }
        match poll(&mut ready, PollTimeout::from(millis)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Kills the whole group. A program that cannot be killed (it waits for a dead disk) is handed to a thread that
    /// waits.
    pub(super) fn kill(mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // The child is not reaped yet, so its number cannot be another group's. ESRCH: it has just gone.
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let until = Instant::now() + KILL_GRACE;
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(2)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        tracing::warn!(pid = self.child.id(), "a killed command does not end; its disk may be dead");
        thread::spawn(move || self.child.wait());
    }
}

/// One output pipe and the tail of what came out of it.
pub(super) struct Stream {
    pipe: Option<Box<dyn Pipe>>,
    tail: Vec<u8>,
}

trait Pipe: Read + AsFd {}
impl<P: Read + AsFd> Pipe for P {}

impl Stream {
    fn new(pipe: Option<impl Read + AsFd + 'static>) -> Self {
        Self { pipe: pipe.map(|pipe| Box::new(pipe) as Box<dyn Pipe>), tail: Vec::new() }
    }

    /// Takes what is there now, but at most one tail's worth: a flood must not keep us from the clock.
    fn drain(&mut self) -> io::Result<bool> {
        let mut piece = [0; 8 << 10];
        let mut taken = 0;
        let mut closed = false;
        while let Some(pipe) = &mut self.pipe
            && taken < TAIL
        {
            match pipe.read(&mut piece) {
                Ok(0) => {
                    // The program is about to end: worth a look at once.
                    self.pipe = None;
                    closed = true;
                }
                Ok(count) => {
                    self.tail.extend_from_slice(&piece[..count]);
                    taken += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.tail.len() > 2 * TAIL {
                self.tail.drain(..self.tail.len() - TAIL);
            }
        }
        Ok(taken > 0 || closed)
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.tail[self.tail.len().saturating_sub(TAIL)..]).into_owned()
    }
}
